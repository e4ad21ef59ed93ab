#include <cstring>

#include "route/route.h"

namespace ranklink {
namespace {

class MappedRoute : public Route {
 public:
  explicit MappedRoute(std::byte* segment) : segment_(segment) {}

  bool put(std::size_t offset, ByteView bytes, std::size_t& done) override {
    std::memcpy(segment_ + offset + done, bytes.data() + done, bytes.size() - done);
    done = bytes.size();
    return true;
  }

  bool signal(std::size_t offset, std::uint32_t value) override {
    signal_word(segment_, offset).store(value, std::memory_order_release);
    return true;
  }

 private:
  std::byte* segment_;
};

}  // namespace

std::unique_ptr<Route> make_mapped_route(std::byte* peer_segment) {
  return std::make_unique<MappedRoute>(peer_segment);
}

}  // namespace ranklink
