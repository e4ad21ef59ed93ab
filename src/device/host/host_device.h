#pragma once

#include <string>

#include "device/device.h"

namespace ranklink {

/// Plain memory as a device: memfd, mapped by every rank that gets its descriptor.
class HostDevice : public Device {
 public:
  explicit HostDevice(const std::string& boot_id);

  const DeviceIdentity& identity() const override { return identity_; }
  std::unique_ptr<Memory> allocate(const std::string& name, std::size_t size) override;
  std::unique_ptr<Memory> adopt(const std::string& name, std::span<std::byte> memory) override;
  int export_fd(const Memory& memory) override;
  Handle handle(const Memory& memory) override;
  std::unique_ptr<Memory> import_fd(const Handle& handle, Fd fd) override;

 private:
  DeviceIdentity identity_;
};

}  // namespace ranklink
