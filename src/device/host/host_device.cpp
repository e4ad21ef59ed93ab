#include "device/host/host_device.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "base/error.h"
#include "base/log.h"
#include "base/mapping.h"
#include "inspect/facts.h"

namespace ranklink {
namespace {

class HostMemory : public Memory {
 public:
  explicit HostMemory(Fd fd) : fd_(std::move(fd)) {}

  int fd() const { return fd_.get(); }
  /// A mapping lives on without its descriptor.
  void drop_fd() { fd_.reset(); }

 private:
  Fd fd_;
};

class MappedMemory : public HostMemory {
 public:
  MappedMemory(Fd fd, std::size_t size)
      : HostMemory(std::move(fd)), mapping_(HostMemory::fd(), size) {}

  std::size_t size() const override { return mapping_.size(); }
  std::byte* data() const override { return mapping_.data(); }

 private:
  Mapping mapping_;
};

// Pages of the program's own, replaced in place by shared ones, and back.
class AdoptedMemory : public HostMemory {
 public:
  AdoptedMemory(Fd file, std::span<std::byte> memory)
      : HostMemory(std::move(file)), memory_(memory) {
    const Mapping shared(fd(), memory.size());
    std::memcpy(shared.data(), memory.data(), memory.size());
    if (::mmap(memory.data(), memory.size(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd(),
               0) == MAP_FAILED) {
      throw system_error("mmap of shared memory over private memory", errno);
    }
  }
  AdoptedMemory(const AdoptedMemory&) = delete;
  AdoptedMemory& operator=(const AdoptedMemory&) = delete;
  ~AdoptedMemory() override {
    // The private copy is made elsewhere and moved over in one step, so that no reader sees less.
    void* copy =
        ::mmap(nullptr, memory_.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy != MAP_FAILED) {
      std::memcpy(copy, memory_.data(), memory_.size());
      if (::mremap(copy, memory_.size(), memory_.size(), MREMAP_MAYMOVE | MREMAP_FIXED,
                   memory_.data()) != MAP_FAILED) {
        return;
      }
      ::munmap(copy, memory_.size());
    }
    log(LogLevel::warn, "{} bytes of registered memory stay shared: {}", memory_.size(),
        errno_text(errno));
  }

  std::size_t size() const override { return memory_.size(); }
  std::byte* data() const override { return memory_.data(); }

 private:
  std::span<std::byte> memory_;
};

[[noreturn]] void refuse_to_adopt(std::string cause) {
  throw Error({.code = ErrorCode::bad_argument,
               .cause = std::move(cause),
               .remedy = "register whole pages of private memory, as mmap or aligned_alloc of the "
                         "page's size give them, or use make_shared_buffer"});
}

// Shared memory has its pages from elsewhere: it can't be replaced without taking it from others.
void need_private(std::span<std::byte> memory) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  const std::uintptr_t end = begin + memory.size();
  if (begin == 0 || begin % page != 0 || memory.size() % page != 0) {
    refuse_to_adopt(fmt::format("{} bytes at {} are not whole pages of {} bytes", memory.size(),
                                static_cast<const void*>(memory.data()), page));
  }
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (begin < end && std::getline(maps, line)) {
    unsigned long long low = 0;
    unsigned long long high = 0;
    char access[5] = {};
    if (std::sscanf(line.c_str(), "%llx-%llx %4s", &low, &high, access) != 3) continue;
    if (high <= begin || low > begin) continue;
    if (std::string_view(access).substr(0, 2) != "rw" || access[3] != 'p') {
      refuse_to_adopt(fmt::format("the memory at {:#x} is mapped as {}", begin, access));
    }
    begin = high;
  }
  if (begin < end) refuse_to_adopt(fmt::format("no memory is mapped at {:#x}", begin));
}

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
  return std::make_unique<MappedMemory>(make_shared_memory(name, size), size);
}

std::unique_ptr<Memory> HostDevice::adopt(const std::string& name, std::span<std::byte> memory) {
  need_private(memory);
  need_memory(memory.size());
  return std::make_unique<AdoptedMemory>(make_shared_memory(name, memory.size()), memory);
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
  auto memory = std::make_unique<MappedMemory>(std::move(fd), handle.size);
  memory->drop_fd();
  return memory;
}

}  // namespace ranklink
