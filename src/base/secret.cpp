#include "base/secret.h"

#include <sodium.h>

#include <algorithm>
#include <stdexcept>

namespace ranklink {
namespace {

void need_sodium() {
  static const bool ready = sodium_init() >= 0;
  if (!ready) throw std::runtime_error("libsodium can't be initialised");
}

const unsigned char* raw(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}
unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }

Digest hash(ByteView bytes, ByteView key) {
  need_sodium();
  Digest digest;
  crypto_generichash(raw(digest.data()), digest.size(), raw(bytes.data()), bytes.size(),
                     raw(key.data()), key.size());
  return digest;
}

}  // namespace

void fill_random(std::span<std::byte> bytes) {
  need_sodium();
  randombytes_buf(bytes.data(), bytes.size());
}

std::string to_hex(ByteView bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const std::byte b : bytes) {
    text += "0123456789abcdef"[std::to_integer<int>(b) >> 4];
    text += "0123456789abcdef"[std::to_integer<int>(b) & 15];
  }
  return text;
}

Digest digest_of(ByteView bytes) { return hash(bytes, {}); }

bool equal(const Digest& a, const Digest& b) {
  return sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

Secret Secret::random() {
  Secret secret;
  fill_random(secret.key_);
  secret.known_ = true;
  return secret;
}

Secret Secret::from_text(std::string_view text) {
  Secret secret;
  secret.key_ = digest_of(view_of(text));
  secret.known_ = true;
  return secret;
}

Secret Secret::from_bytes(ByteView bytes) {
  Secret secret;
  if (bytes.size() != secret.key_.size()) Reader::fail("a secret of a wrong size");
  std::copy(bytes.begin(), bytes.end(), secret.key_.begin());
  secret.known_ = true;
  return secret;
}

Digest Secret::sign(std::string_view purpose, std::initializer_list<ByteView> parts) const {
  Writer message;
  message.text(purpose);
  for (const ByteView part : parts) message.blob(part);
  return hash(message.bytes(), key_);
}

}  // namespace ranklink
