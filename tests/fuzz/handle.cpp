// Handles of memory, and what a device says to one that a peer made up.

#include "device/device.h"
#include "driver/driver.h"

namespace ranklink {

void fuzz(ByteView input) {
  static const auto device = open_device("host", "boot");
  static const auto memory = device->allocate("fuzz", 8192);
  Reader reader(input);
  const Handle handle = Handle::decode(reader);
  Writer w;
  handle.encode(w);
  Reader again(w.bytes());
  require(Handle::decode(again).device == handle.device);
  const auto imported = device->import_fd(handle, Fd(::dup(device->export_fd(*memory))));
  require(imported->size() == handle.size && handle.size <= 8192);
  imported->data()[imported->size() - 1] = std::byte{1};
}

std::vector<Bytes> seeds() {
  Writer good;
  Handle{Handle::Type::fd, {"host", "boot", "", ""}, 0, 4096}.encode(good);
  Writer other;
  Handle{Handle::Type::fd, {"gpu", "GPU-1", "0000:3b:00.0", "1g"}, 4096, 1 << 20}.encode(other);
  return {good.bytes(), other.bytes()};
}

}  // namespace ranklink
