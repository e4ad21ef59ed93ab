// The control page, on which a peer may have written anything.

#include <algorithm>
#include <cstring>
#include <string_view>

#include "driver/driver.h"
#include "rendezvous/control_page.h"

namespace ranklink {

void fuzz(ByteView input) {
  constexpr int kSize = 2;
  const ControlPage page = ControlPage::create(kSize);
  const Mapping raw(page.fd(), 8192);
  constexpr std::size_t kFixed = 12;  // magic and size, which are checked when it is opened
  std::memcpy(raw.data() + kFixed, input.data(), std::min(input.size(), raw.size() - kFixed));
  for (int rank = 0; rank < kSize; ++rank) {
    require(page.step(rank).size() < 128);
    page.died(rank);
    page.state(rank);
    if (const auto crash = page.crash(rank)) require(crash->text().size() < 256);
    const auto operation = page.operation(rank);
    require(!operation || operation->collective <= Collective::make_shared_buffer);
  }
  page.failure();
}

std::vector<Bytes> seeds() {
  ControlPage page = ControlPage::create(2);
  page.set_step(0, "try");
  page.begin_operation(1, {Collective::all_reduce, 2, 3});
  CrashSlot& slot = page.crash_slot(1);
  slot.facts = {.signal = 11, .code = 1};
  const std::string_view frames = "_ZN6vendor4initEPKc+0x1c (libvendor.so), main+0x40 (train)";
  std::copy(frames.begin(), frames.end(), slot.backtrace.begin());
  slot.stage = CrashSlot::complete;
  page.publish_failure(1, Error({.code = ErrorCode::rank_failed,
                                 .rank = 1,
                                 .step = "try",
                                 .cause = "out of luck",
                                 .remedy = "have some"}));
  const Mapping raw(page.fd(), 8192);
  return {Bytes(raw.data() + 12, raw.data() + raw.size())};
}

}  // namespace ranklink
