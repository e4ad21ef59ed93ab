#include <gtest/gtest.h>

#include "../base/expect_error.h"
#include "../rendezvous/refusals.h"
#include "device/device.h"

namespace ranklink {
namespace {

Handle sample_handle() {
  return {.type = Handle::Type::fd,
          .device = {"host", "6ba30842", "0000:3b:00.0", "1g.10gb"},
          .offset = 4096,
          .size = 1 << 20};
}

Bytes encoded(const Handle& handle) {
  Writer w;
  handle.encode(w);
  return w.take();
}

Handle decoded(ByteView bytes) {
  Reader reader(bytes);
  Handle handle = Handle::decode(reader);
  reader.end();
  return handle;
}

TEST(Handle, ComesBackFromItsBytes) {
  const Handle in = sample_handle();
  const Handle out = decoded(encoded(in));
  EXPECT_EQ(out.type, in.type);
  EXPECT_EQ(out.device, in.device);
  EXPECT_EQ(out.offset, in.offset);
  EXPECT_EQ(out.size, in.size);
}

TEST(Handle, IsTakenWholeOrNotAtAll) { expect_whole_only(encoded(sample_handle()), decoded); }

TEST(Handle, IsRefusedIfItIsOfAnotherVersionOrType) {
  for (const std::size_t at : {0u, 1u, 6u}) {  // the version, and the type behind the length
    Bytes bytes = encoded(sample_handle());
    bytes[at] ^= std::byte{2};
    expect_error(ErrorCode::protocol_violation, [&] { decoded(bytes); });
  }
}

TEST(Handle, IsRefusedIfItsSizeIsAbsurd) {
  Handle handle = sample_handle();
  handle.size = 0;
  expect_error(ErrorCode::protocol_violation, [&] { decoded(encoded(handle)); });
  handle.size = ~std::uint64_t{0};
  handle.offset = 1;
  expect_error(ErrorCode::protocol_violation, [&] { decoded(encoded(handle)); });
  handle.offset = 0;
  EXPECT_EQ(decoded(encoded(handle)).size, ~std::uint64_t{0});
}

TEST(Handle, IsRefusedIfItsNamesAreTooLong) {
  Handle handle = sample_handle();
  handle.device.uuid.assign(65, 'u');
  expect_error(ErrorCode::protocol_violation, [&] { decoded(encoded(handle)); });
  handle.device.uuid.assign(5000, 'u');
  expect_error(ErrorCode::protocol_violation, [&] { decoded(encoded(handle)); });
}

TEST(OpenDevice, KnowsHostMemory) {
  EXPECT_EQ(open_device("host", "boot")->identity(), (DeviceIdentity{"host", "boot", "", ""}));
  expect_error(ErrorCode::setting_invalid, [&] { open_device("abacus", "boot"); });
}

TEST(HostDevice, SharesItsMemoryByDescriptor) {
  const auto device = open_device("host", "boot");
  const auto memory = device->allocate("device-test", 10'000);
  ASSERT_EQ(memory->size(), 10'000u);
  for (std::size_t i = 0; i < memory->size(); ++i) ASSERT_EQ(memory->data()[i], std::byte{0});
  const Handle handle = decoded(encoded(device->handle(*memory)));
  const auto theirs = device->import_fd(handle, Fd(::dup(device->export_fd(*memory))));
  ASSERT_EQ(theirs->size(), 10'000u);
  EXPECT_NE(theirs->data(), memory->data());
  memory->data()[9'999] = std::byte{0x5a};
  EXPECT_EQ(theirs->data()[9'999], std::byte{0x5a});
  theirs->data()[0] = std::byte{0xa5};
  EXPECT_EQ(memory->data()[0], std::byte{0xa5});
}

TEST(HostDevice, RefusesWhatItDidNotExport) {
  const auto device = open_device("host", "boot");
  const auto memory = device->allocate("device-test", 8192);
  const auto refused = [&](const Handle& handle, Fd fd) {
    expect_error(ErrorCode::protocol_violation, [&] { device->import_fd(handle, std::move(fd)); });
  };
  const auto copy = [&] { return Fd(::dup(device->export_fd(*memory))); };
  Handle larger = device->handle(*memory);
  larger.size = 8193;
  refused(larger, copy());
  larger.size = ~std::uint64_t{0};
  refused(larger, copy());
  Handle elsewhere = device->handle(*memory);
  elsewhere.offset = 4096;
  refused(elsewhere, copy());
  Handle foreign = device->handle(*memory);
  foreign.device.kind = "abacus";
  refused(foreign, copy());
  refused(device->handle(*memory), Fd(::dup(0)));
}

}  // namespace
}  // namespace ranklink
