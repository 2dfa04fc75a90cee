// SPDX-License-Identifier: Apache-2.0
#include "security/signature.hpp"

#include <string>

#include <gtest/gtest.h>

namespace plexus::security {
namespace {

TEST(Signature, IsOfOneKeyForOnePurposeAndOneText) {
  const SigningKey key{{1}};
  const PublicKey open = public_key_of(key);
  const Signature signature = sign(key, "a", "text");
  EXPECT_TRUE(is_signed(open, "a", "text", signature));
  EXPECT_FALSE(is_signed(public_key_of({{2}}), "a", "text", signature));
  EXPECT_FALSE(is_signed(open, "b", "text", signature));
  EXPECT_FALSE(is_signed(open, "a", "texts", signature));
  EXPECT_FALSE(is_signed(open, "at", "ext", signature));
}

TEST(Signature, NoticesEveryChange) {
  const SigningKey key{{3}};
  const Signature signature = sign(key, "a", "text");
  for (size_t i = 0; i < signature.size(); ++i) {
    Signature changed = signature;
    changed[i] ^= 1;
    EXPECT_FALSE(is_signed(public_key_of(key), "a", "text", changed)) << "byte " << i;
  }
}

/// RFC 8032, section 7.1, test 1: the public key of a seed.
TEST(Signature, HasThePublicKeysOfTheStandard) {
  SigningKey key{};
  ASSERT_TRUE(
      parse_hex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60", key.seed));
  EXPECT_EQ(format_hex(public_key_of(key)),
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
}

/// Of "abc", as `printf abc | b2sum -l 256` prints it.
TEST(Signature, DigestsAreThoseOfB2sum) {
  EXPECT_EQ(format_hex(compute_digest("abc")),
            "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
}

TEST(Signature, AKeyIsReadAsItWasWrittenAndNothingElseIs) {
  const auto key = make_signing_key();
  ASSERT_TRUE(key.has_value());
  EXPECT_NE(key->seed, make_signing_key()->seed);
  const std::string text = format_signing_key(*key);
  ASSERT_TRUE(parse_signing_key(text).has_value());
  EXPECT_EQ(parse_signing_key(text)->seed, key->seed);
  EXPECT_FALSE(parse_signing_key(text + "\n").has_value());
  EXPECT_FALSE(parse_signing_key(text.substr(1)).has_value());
  EXPECT_FALSE(parse_signing_key("").has_value());
  std::string other = text;
  other[other.size() - 2] = 'g';
  EXPECT_FALSE(parse_signing_key(other).has_value());
}

TEST(Signature, HexHasExactlyItsDigits) {
  std::array<uint8_t, 2> bytes{};
  EXPECT_TRUE(parse_hex("0aff", bytes));
  EXPECT_EQ(format_hex(bytes), "0aff");
  for (const char* wrong : {"", "0af", "0aff0", "0AFF", "0a f", "0a:f"}) {
    EXPECT_FALSE(parse_hex(wrong, bytes)) << wrong;
  }
}

}  // namespace
}  // namespace plexus::security
