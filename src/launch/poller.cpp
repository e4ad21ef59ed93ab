#include "launch/poller.h"

#include <sys/epoll.h>

#include <array>
#include <cerrno>

#include "base/error.h"

namespace ranklink {

Poller::Poller() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) throw system_error("epoll_create1", errno);
}

bool Poller::add(int fd, std::uint32_t events, Source source, int rank) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = static_cast<std::uint64_t>(source) << 32 | static_cast<std::uint32_t>(rank);
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return true;
  if (errno == EPERM) return false;
  throw system_error("epoll_ctl", errno);
}

void Poller::remove(int fd) { ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

const std::vector<Ready>& Poller::wait(Deadline deadline) {
  std::array<epoll_event, 128> events;
  const int n = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                             deadline.poll_ms());
  if (n < 0 && errno != EINTR) throw system_error("epoll_wait", errno);
  ready_.clear();
  for (int i = 0; i < n; ++i) {
    const std::uint64_t tag = events[static_cast<std::size_t>(i)].data.u64;
    ready_.push_back({static_cast<Source>(tag >> 32), static_cast<int>(tag & 0xffffffff)});
  }
  return ready_;
}

}  // namespace ranklink
