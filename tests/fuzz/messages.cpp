// The messages between ranks and the rendezvous, and the first one between two ranks.

#include "rendezvous/messages.h"

#include "driver/driver.h"
#include "exchange/meeting.h"

namespace ranklink {

void fuzz(ByteView input) {
  if (input.empty()) return;
  const ByteView rest = input.subspan(1);
  switch (std::to_integer<int>(input[0]) % 6) {
    case 0:
      take_message<Claim>(rest);
      break;
    case 1:
      take_message<Seating>(rest);
      break;
    case 2:
      take_message<Submission>(rest);
      break;
    case 3:
      take_message<Posting>(rest);
      break;
    case 4:
      take_message<Passed>(rest);
      break;
    case 5:
      take_message<MeetFrame>(rest);
      break;
  }
}

std::vector<Bytes> seeds() {
  const Claim claim{.version = "1.2.3",
                    .rank = 3,
                    .size = 8,
                    .host = "node-7",
                    .pid = 1234,
                    .start_time = 99,
                    .process = {},
                    .timeout_ms = 1000,
                    .successor = {"unix:///dev/shm/x", "tcp://[fd00::3]:29400"}};
  const Seating seating{.job = {},
                        .holder = 0,
                        .successor = 1,
                        .successor_endpoints = {"unix:///dev/shm/x"},
                        .members = {{true, ""}, {false, "10.0.0.2"}},
                        .has_page = true};
  return {chosen(0, claim.encode()),
          chosen(1, seating.encode()),
          chosen(2, Submission{7, "try/verdicts", 1000, Bytes(9)}.encode()),
          chosen(3, Posting{42, {0, 5, 7}}.encode()),
          chosen(4, Passed{{{1, 10, false}, {2, 20, true}}}.encode()),
          chosen(5, MeetFrame{3, 1, 2, {}}.encode())};
}

}  // namespace ranklink
