#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace ranklink {

using Digest = std::array<std::byte, 32>;
using Nonce = std::array<std::byte, 32>;
using JobId = std::array<std::byte, 16>;

/// Fills from the kernel's generator (libsodium).
void fill_random(std::span<std::byte> bytes);
template <typename Array>
Array random_bytes() {
  Array bytes;
  fill_random(bytes);
  return bytes;
}

std::string to_hex(ByteView bytes);

/// BLAKE2b-256, unkeyed.
Digest digest_of(ByteView bytes);
/// Compares in constant time.
bool equal(const Digest& a, const Digest& b);

/// The job's secret: whoever knows it belongs to the job. Never printed, never logged.
class Secret {
 public:
  Secret() = default;
  static Secret random();
  /// From text of any length, as a user sets it.
  static Secret from_text(std::string_view text);
  static Secret from_bytes(ByteView bytes);

  bool empty() const { return !known_; }
  /// To hand it on by environment or an inherited descriptor, and only so.
  std::string reveal_hex() const { return to_hex(key_); }
  ByteView reveal_bytes() const { return key_; }

  /// BLAKE2b-256 keyed with the secret over `purpose` and the parts, each behind its length.
  Digest sign(std::string_view purpose, std::initializer_list<ByteView> parts) const;

 private:
  std::array<std::byte, 32> key_{};
  bool known_ = false;
};

}  // namespace ranklink
