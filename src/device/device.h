#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/fd.h"

namespace ranklink {

/// What a device is everywhere, in every process: never an ordinal.
struct DeviceIdentity {
  std::string kind;   ///< `host`
  std::string uuid;   ///< for host memory the boot id
  std::string pci;    ///< bus address; empty for host memory
  std::string slice;  ///< a partition of the device; empty for all of it

  bool operator==(const DeviceIdentity&) const = default;
};

/// Memory of a device, this process's own or a peer's.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual std::size_t size() const = 0;
  /// Where it is mapped for the CPU.
  virtual std::byte* data() const = 0;
};

/// How an allocation is offered to peers. It never carries a pid or an ordinal as identity.
struct Handle {
  static constexpr std::uint16_t kVersion = 1;
  enum class Type : std::uint8_t { fd = 1 };

  Type type = Type::fd;
  DeviceIdentity device;
  std::uint64_t offset = 0;  ///< of the memory in the exported allocation, bytes
  std::uint64_t size = 0;    ///< bytes

  void encode(Writer& to) const;
  /// Throws Error(protocol_violation).
  static Handle decode(Reader& from);
};

/// A kind of device whose memory ranks share.
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceIdentity& identity() const = 0;
  /// Zeroed memory that can be exported; `name` helps people to recognise it. Throws Error.
  virtual std::unique_ptr<Memory> allocate(const std::string& name, std::size_t size) = 0;
  /// Makes `memory`, whole pages of this process's private memory, memory that can be exported, in
  /// place and with its contents. It is private again, with its contents, when the result ends.
  /// Throws Error(bad_argument).
  virtual std::unique_ptr<Memory> adopt(const std::string& name, std::span<std::byte> memory) = 0;
  /// The descriptor behind `memory`, which must be of this device and stays its owner.
  virtual int export_fd(const Memory& memory) = 0;
  virtual Handle handle(const Memory& memory) = 0;
  /// A peer's memory, from its handle and a descriptor. Throws Error.
  virtual std::unique_ptr<Memory> import_fd(const Handle& handle, Fd fd) = 0;
};

/// Throws Error(setting_invalid) for a kind that this build doesn't have.
std::unique_ptr<Device> open_device(const std::string& kind, const std::string& boot_id);

}  // namespace ranklink
