#include "device/device.h"

#include <fmt/format.h>

#include "device/host/host_device.h"

namespace ranklink {

void Handle::encode(Writer& to) const {
  Writer body;
  body.put(type);
  body.text(device.kind);
  body.text(device.uuid);
  body.text(device.pci);
  body.text(device.slice);
  body.put(offset);
  body.put(size);
  to.put(kVersion);
  to.blob(body.bytes());
}

Handle Handle::decode(Reader& from) {
  if (from.get<std::uint16_t>() != kVersion) Reader::fail("a handle of another version");
  Reader body(from.blob(4096));
  Handle handle;
  handle.type = body.get<Type>();
  if (handle.type != Type::fd) Reader::fail("a handle of unknown type");
  handle.device.kind = body.text(32);
  handle.device.uuid = body.text(64);
  handle.device.pci = body.text(32);
  handle.device.slice = body.text(64);
  handle.offset = body.get<std::uint64_t>();
  handle.size = body.get<std::uint64_t>();
  body.end();
  if (handle.size == 0 || handle.offset + handle.size < handle.size) {
    Reader::fail("a handle of an absurd size");
  }
  return handle;
}

std::unique_ptr<Device> open_device(const std::string& kind, const std::string& boot_id) {
  if (kind == "host") return std::make_unique<HostDevice>(boot_id);
  throw Error({.code = ErrorCode::setting_invalid,
               .cause = fmt::format("there is no device of kind '{}'", kind),
               .remedy = "set RANKLINK_DEVICE=host"});
}

}  // namespace ranklink
