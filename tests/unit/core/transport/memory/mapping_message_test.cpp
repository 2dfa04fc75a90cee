// SPDX-License-Identifier: Apache-2.0
#include "core/transport/memory/mapping_message.hpp"

#include <gtest/gtest.h>

namespace plexus {
namespace {

MappingMessage offer_of(std::vector<uint64_t> piece_bytes) {
  return {.kind = MappingMessage::Kind::kOffer,
          .number = 3,
          .process = 5,
          .first_id = 7,
          .piece_bytes = std::move(piece_bytes)};
}

TEST(MappingMessage, IsReadAsItWasWritten) {
  const std::string bytes = to_bytes(offer_of({1, 2, 4096}));
  const auto read = mapping_message_of(bytes);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->first_id, 7U);
  EXPECT_EQ(read->piece_bytes, (std::vector<uint64_t>{1, 2, 4096}));
  EXPECT_EQ(to_bytes(*read), bytes);
}

TEST(MappingMessage, OfAnotherLengthOrKindIsNone) {
  std::string bytes = to_bytes(offer_of({8}));
  EXPECT_FALSE(mapping_message_of(bytes + "x").has_value());
  EXPECT_FALSE(mapping_message_of(bytes.substr(1)).has_value());
  EXPECT_FALSE(mapping_message_of("").has_value());
  bytes[0] = 4;
  EXPECT_FALSE(mapping_message_of(bytes).has_value());
}

TEST(MappingMessage, NamesAsManyPiecesAndBytesAsThereCanBe) {
  EXPECT_TRUE(mapping_message_of(to_bytes(offer_of(std::vector<uint64_t>(kPiecesMax, 1)))));
  EXPECT_FALSE(mapping_message_of(to_bytes(offer_of(std::vector<uint64_t>(kPiecesMax + 1, 1)))));
  EXPECT_FALSE(mapping_message_of(to_bytes(offer_of({0}))));
  EXPECT_FALSE(mapping_message_of(to_bytes(offer_of({UINT64_MAX, 2}))));
}

}  // namespace
}  // namespace plexus
