#include "ranklink/work.hpp"

#include <algorithm>
#include <chrono>

#include "c_api/guard.h"
#include "c_api/handles.h"

using namespace ranklink::c_api;

namespace {

const ranklink::Work& started(const ranklink_work* work) { return *need(work, "work").work; }

// Longer than any deadline, and short enough that no clock overflows.
constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24 * 365 * 10);

}  // namespace

int ranklink_work_done(const ranklink_work* work, int* done, ranklink_error** error) {
  return guarded(__func__, error, [&] { need(done, "done") = started(work).done() ? 1 : 0; });
}

int ranklink_work_wait(const ranklink_work* work, ranklink_error** error) {
  return guarded(__func__, error, [&] { started(work).wait(); });
}

int ranklink_work_wait_for(const ranklink_work* work, int64_t timeout_ms, int* done,
                           ranklink_error** error) {
  return guarded(__func__, error, [&] {
    need(done, "done");
    if (timeout_ms < 0) throw bad_argument("timeout_ms is negative", "give 0 or more");
    const std::chrono::milliseconds timeout(timeout_ms);
    *done = started(work).wait_for(std::min(timeout, kLongest)) ? 1 : 0;
  });
}

int ranklink_work_error(const ranklink_work* work, ranklink_error** failure,
                        ranklink_error** error) {
  return guarded(__func__, error, [&] {
    need(failure, "failure") = nullptr;
    const auto found = started(work).error();
    if (found) *failure = new ranklink_error{*found};
  });
}

void ranklink_work_free(ranklink_work* work) { delete work; }
