#include "device/host/host_device.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/mapping.h"
#include "inspect/facts.h"

namespace ranklink {
namespace {

class HostMemory : public Memory {
 public:
  HostMemory(Fd fd, std::size_t size) : fd_(std::move(fd)), mapping_(fd_.get(), size) {}

  std::size_t size() const override { return mapping_.size(); }
  std::byte* data() const override { return mapping_.data(); }
  int fd() const { return fd_.get(); }
  /// A mapping lives on without its descriptor.
  void drop_fd() { fd_.reset(); }

 private:
  Fd fd_;
  Mapping mapping_;
};

}  // namespace

namespace {

// To reserve more than its cgroup allows gets a process killed, not told, so it is looked up first.
void need_memory(std::size_t size) {
  constexpr std::size_t kSmall = 4 << 20;
  if (size <= kSmall) return;
  const Facts facts = inspect_process();
  const auto refuse = [&](std::uint64_t most, const char* what, std::string remedy) {
    if (most == 0 || size <= most) return;
    throw Error({.code = ErrorCode::memory_short,
                 .cause = fmt::format("{} bytes of shared memory are asked for, and {} is {} bytes",
                                      size, what, most),
                 .remedy = std::move(remedy)});
  };
  refuse(facts.memory_limit, "the memory limit of this process's cgroup",
         "ask for less, or raise the limit (--memory, resources.limits.memory)");
  refuse(facts.memory_available, "what this machine has available", "ask for less, or free memory");
}

}  // namespace

HostDevice::HostDevice(const std::string& boot_id) : identity_{"host", boot_id, "", ""} {}

std::unique_ptr<Memory> HostDevice::allocate(const std::string& name, std::size_t size) {
  need_memory(size);
  return std::make_unique<HostMemory>(make_shared_memory(name, size), size);
}

int HostDevice::export_fd(const Memory& memory) {
  return static_cast<const HostMemory&>(memory).fd();
}

Handle HostDevice::handle(const Memory& memory) {
  return {.type = Handle::Type::fd, .device = identity_, .offset = 0, .size = memory.size()};
}

std::unique_ptr<Memory> HostDevice::import_fd(const Handle& handle, Fd fd) {
  if (handle.device.kind != identity_.kind || handle.offset != 0) {
    Reader::fail("a handle of another kind of device");
  }
  check_shared_memory(fd.get(), handle.size);
  auto memory = std::make_unique<HostMemory>(std::move(fd), handle.size);
  memory->drop_fd();
  return memory;
}

}  // namespace ranklink
