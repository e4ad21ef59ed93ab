#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"

namespace ranklink {

using Bytes = std::vector<std::byte>;
using ByteView = std::span<const std::byte>;

inline ByteView view_of(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

/// Appends values in little-endian order; text and blobs behind a 32-bit length.
class Writer {
 public:
  template <typename T>
  requires std::is_integral_v<T> || std::is_enum_v<T>
  void put(T value) {
    auto bits = static_cast<std::uint64_t>(value);
    for (std::size_t i = 0; i < sizeof(T); ++i, bits >>= 8) {
      bytes_.push_back(static_cast<std::byte>(bits & 0xff));
    }
  }
  void put(double value) {
    std::uint64_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    put(bits);
  }
  void raw(ByteView bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  void blob(ByteView bytes) {
    put(static_cast<std::uint32_t>(bytes.size()));
    raw(bytes);
  }
  void text(std::string_view text) { blob(view_of(text)); }

  const Bytes& bytes() const { return bytes_; }
  Bytes take() { return std::move(bytes_); }

 private:
  Bytes bytes_;
};

/// Reads what Writer wrote, from bytes that nobody has vouched for: every read is bounded, and what
/// doesn't fit throws Error(protocol_violation).
class Reader {
 public:
  explicit Reader(ByteView bytes) : rest_(bytes) {}

  template <typename T>
  requires std::is_integral_v<T> || std::is_enum_v<T> T get() {
    std::uint64_t bits = 0;
    const ByteView from = raw(sizeof(T));
    for (std::size_t i = sizeof(T); i-- > 0;)
      bits = bits << 8 | std::to_integer<std::uint64_t>(from[i]);
    return static_cast<T>(bits);
  }
  double get_double() {
    const auto bits = get<std::uint64_t>();
    double value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
  ByteView raw(std::size_t size) {
    if (size > rest_.size()) fail("message ends early");
    const ByteView head = rest_.first(size);
    rest_ = rest_.subspan(size);
    return head;
  }
  ByteView blob(std::size_t limit) {
    const auto size = get<std::uint32_t>();
    if (size > limit) fail("a field is longer than its limit");
    return raw(size);
  }
  std::string text(std::size_t limit = 4096) {
    const ByteView bytes = blob(limit);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  /// A count of things that take at least `least` bytes each, so that it can't ask for absurd
  /// memory.
  std::size_t count(std::size_t least = 1) {
    const auto n = get<std::uint32_t>();
    if (n > rest_.size() / least) fail("a count is larger than the message");
    return n;
  }
  bool empty() const { return rest_.empty(); }
  void end() const {
    if (!rest_.empty()) fail("bytes behind the end of the message");
  }
  [[noreturn]] static void fail(const char* why) {
    throw Error({.code = ErrorCode::protocol_violation,
                 .cause = why,
                 .remedy = "run the same version of ranklink on all ranks"});
  }

 private:
  ByteView rest_;
};

}  // namespace ranklink
