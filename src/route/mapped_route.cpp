#include <cstring>

#include "route/route.h"

namespace ranklink {
namespace {

class MappedRoute : public Route {
 public:
  MappedRoute(std::byte* segment, std::unique_ptr<Route> incoming)
      : segment_(segment), incoming_(std::move(incoming)) {}

  bool put(std::size_t offset, ByteView bytes, std::size_t& done) override {
    if (done < bytes.size()) {  // an empty part may have no address, which memcpy must not get
      std::memcpy(segment_ + offset + done, bytes.data() + done, bytes.size() - done);
    }
    done = bytes.size();
    return true;
  }

  bool signal(std::size_t offset, std::uint32_t value) override {
    signal_word(segment_, offset).store(value, std::memory_order_release);
    return true;
  }

  void receive() override {
    if (incoming_) incoming_->receive();
  }
  int fd() const override { return incoming_ ? incoming_->fd() : -1; }
  bool closed() const override { return incoming_ && incoming_->closed(); }

 private:
  std::byte* segment_;
  std::unique_ptr<Route> incoming_;
};

}  // namespace

std::unique_ptr<Route> make_mapped_route(std::byte* peer_segment, std::unique_ptr<Route> incoming) {
  return std::make_unique<MappedRoute>(peer_segment, std::move(incoming));
}

}  // namespace ranklink
