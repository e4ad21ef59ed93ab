#include "base/secret.h"

#include <gtest/gtest.h>

#include "expect_error.h"

namespace ranklink {
namespace {

TEST(ToHex, WritesTwoDigitsAByte) {
  const Bytes bytes{std::byte{0x00}, std::byte{0x0f}, std::byte{0xa5}};
  EXPECT_EQ(to_hex(bytes), "000fa5");
  EXPECT_EQ(to_hex({}), "");
}

// The value of b2sum -l 256 on "abc": ranks of another build must compute the same.
TEST(DigestOf, IsBlake2b) {
  EXPECT_EQ(to_hex(digest_of(view_of("abc"))),
            "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
}

TEST(Equal, LooksAtEveryByte) {
  const Digest a = digest_of(view_of("abc"));
  EXPECT_TRUE(equal(a, digest_of(view_of("abc"))));
  for (std::size_t i = 0; i < a.size(); ++i) {
    Digest b = a;
    b[i] ^= std::byte{1};
    EXPECT_FALSE(equal(a, b)) << i;
  }
}

TEST(RandomBytes, Differ) {
  EXPECT_NE(random_bytes<Nonce>(), random_bytes<Nonce>());
  EXPECT_NE(random_bytes<JobId>(), JobId{});
}

TEST(Secret, IsEmptyUntilItIsKnown) {
  EXPECT_TRUE(Secret().empty());
  EXPECT_FALSE(Secret::random().empty());
  EXPECT_FALSE(Secret::from_text("").empty());
}

TEST(Secret, ComesBackFromItsBytes) {
  const Secret secret = Secret::random();
  const Secret copy = Secret::from_bytes(secret.reveal_bytes());
  EXPECT_EQ(copy.reveal_hex(), secret.reveal_hex());
  EXPECT_NE(secret.reveal_hex(), Secret::random().reveal_hex());
  EXPECT_EQ(Secret::from_text("correct horse").reveal_hex(),
            Secret::from_text("correct horse").reveal_hex());
}

TEST(Secret, RefusesBytesOfAWrongSize) {
  const Bytes short_key(31);
  const Bytes long_key(33);
  expect_error(ErrorCode::protocol_violation, [&] { Secret::from_bytes(short_key); });
  expect_error(ErrorCode::protocol_violation, [&] { Secret::from_bytes(long_key); });
}

TEST(SecretSign, DependsOnSecretPurposeAndParts) {
  const Secret secret = Secret::from_text("one");
  const Digest digest = secret.sign("hello", {view_of("ab"), view_of("c")});
  EXPECT_EQ(secret.sign("hello", {view_of("ab"), view_of("c")}), digest);
  EXPECT_NE(Secret::from_text("two").sign("hello", {view_of("ab"), view_of("c")}), digest);
  EXPECT_NE(secret.sign("other", {view_of("ab"), view_of("c")}), digest);
  EXPECT_NE(secret.sign("hello", {view_of("ab"), view_of("d")}), digest);
}

// Bytes must not be able to move from one part, or from the purpose, into the next.
TEST(SecretSign, KeepsPartsApart) {
  const Secret secret = Secret::from_text("one");
  const Digest digest = secret.sign("hello", {view_of("ab"), view_of("c")});
  EXPECT_NE(secret.sign("hello", {view_of("a"), view_of("bc")}), digest);
  EXPECT_NE(secret.sign("hello", {view_of("abc")}), digest);
  const std::string_view forged("hello\2\0\0\0ab", 11);
  EXPECT_NE(secret.sign(forged, {view_of("c")}), digest);
}

}  // namespace
}  // namespace ranklink
