// SPDX-License-Identifier: Apache-2.0
#include "security/seal.hpp"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

namespace plexus::security {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

TEST(Seal, OpensWithItsKeyForItsPurposeAlone) {
  const Key key{1};
  const std::string sealed = seal(key, "a", bytes_of("secret"));
  const auto opened = unseal(key, "a", sealed);
  ASSERT_TRUE(opened.has_value());
  EXPECT_TRUE(std::equal(opened->begin(), opened->end(), bytes_of("secret").begin()));
  EXPECT_EQ(opened->size(), 6U);
  EXPECT_FALSE(unseal(Key{2}, "a", sealed).has_value());
  EXPECT_FALSE(unseal(key, "b", sealed).has_value());
  EXPECT_EQ(sealed.find("secret"), std::string::npos);
}

TEST(Seal, IsNeverTheSameTwice) {
  const Key key{1};
  EXPECT_NE(seal(key, "a", bytes_of("secret")), seal(key, "a", bytes_of("secret")));
}

TEST(Seal, NoticesEveryChange) {
  const Key key{1};
  const std::string sealed = seal(key, "a", bytes_of("secret"));
  for (size_t i = 0; i < sealed.size(); ++i) {
    std::string changed = sealed;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_FALSE(unseal(key, "a", changed).has_value()) << "byte " << i;
    EXPECT_FALSE(unseal(key, "a", sealed.substr(0, i)).has_value()) << i << " bytes";
  }
}

}  // namespace
}  // namespace plexus::security
