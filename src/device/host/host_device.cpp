#include "device/host/host_device.h"

#include <fmt/format.h>

#include "base/mapping.h"

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

HostDevice::HostDevice(const std::string& boot_id) : identity_{"host", boot_id, "", ""} {}

std::unique_ptr<Memory> HostDevice::allocate(const std::string& name, std::size_t size) {
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
