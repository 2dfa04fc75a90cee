// SPDX-License-Identifier: Apache-2.0
#include "security/terms.hpp"

#include <gtest/gtest.h>

namespace plexus::security {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST(Terms, ModesHaveNamesAndAuthIsTheDefault) {
  EXPECT_EQ(parse_mode(""), Mode::kAuth);
  for (const Mode mode : {Mode::kOff, Mode::kAuth, Mode::kTls}) {
    EXPECT_EQ(parse_mode(name_of(mode)), mode);
  }
  for (const char* const wrong : {"TLS", "on", "1", "tls ", "authh"}) {
    EXPECT_EQ(parse_mode(wrong), std::nullopt) << wrong;
  }
}

TEST(Terms, ADifferenceNamesBothModesAndTheSetting) {
  EXPECT_EQ(
      describe_difference(Mode::kAuth, Mode::kTls, "rank 3"),
      "PLEXUS_NET_SECURITY is auth here and tls at rank 3: set it to the same value everywhere");
}

/// RFC 4231, test case 1, cannot be used because of the purpose; this value is Python's:
/// hmac.new(bytes([7]) * 32, b"answer\0" + b"abc", "sha256").hexdigest()
TEST(Terms, TheMacIsHmacSha256OfPurposeZeroAndBytes) {
  Key key;
  key.fill(7);
  const Mac mac = authenticate(key, "answer", bytes_of("abc"));
  std::string hex;
  for (const uint8_t byte : mac) {
    constexpr const char* kDigits = "0123456789abcdef";
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  EXPECT_EQ(hex, "cd5fd02aea8c77738bb7a0bc5ee4887a60b8c06d06fbb2acbd49736eec1d5145");
}

TEST(Terms, PurposeAndBytesCannotBeMovedAgainstEachOther) {
  const Key key{};
  EXPECT_FALSE(
      is_equal(authenticate(key, "ab", bytes_of("c")), authenticate(key, "a", bytes_of("bc"))));
  EXPECT_FALSE(is_equal(key_of_text("a", "secret"), key_of_text("b", "secret")));
  EXPECT_FALSE(is_equal(key_of_text("a", "secret"), key_of_text("a", "secret ")));
}

TEST(Terms, EqualityLooksAtEveryByte) {
  Mac a{};
  for (size_t i = 0; i < a.size(); ++i) {
    Mac b = a;
    b[i] ^= 0x80;
    EXPECT_FALSE(is_equal(a, b));
  }
  EXPECT_TRUE(is_equal(a, Mac{}));
  EXPECT_FALSE(is_equal(a, std::span(a).first(31)));
}

}  // namespace
}  // namespace plexus::security
