// SPDX-License-Identifier: Apache-2.0
// What peers may map, where the user frees memory that is still registered, or has it in pieces.
// Ranks that really map are in tests/device.
#include "core/transport/memory/peer_mapped_memory.hpp"

#include <array>
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/control/control_tag.hpp"
#include "tests/unit/core/device/fake_runtime.hpp"

namespace plexus {
namespace {

using testing::ElementsAre;
using Kind = MappingMessage::Kind;

class PeerMappedMemoryTest : public testing::Test {
 protected:
  void allocate(size_t first, size_t size_bytes, uint64_t id) {
    runtime_.allocation = Allocation{.base = &memory_[first], .size_bytes = size_bytes, .id = id};
    runtime_.exports = true;
  }
  /// Pieces of 8 bytes with these handles.
  void map_pieces(size_t first, const std::vector<uint64_t>& handles) {
    runtime_.allocation =
        Allocation{.base = &memory_[first], .size_bytes = 8 * handles.size(), .id = 0};
    for (const uint64_t handle : handles) {
      runtime_.allocation->pieces.push_back({.size_bytes = 8, .id = handle});
    }
    runtime_.exports = true;
  }
  /// What rank 1 has been sent since the last call.
  std::vector<MappingMessage> sent() {
    std::vector<MappingMessage> all;
    while (const auto bytes = exchanges_[1]->try_take(0, tag_of(ControlTag::kMapping, 0))) {
      all.push_back(mapping_message_of(*bytes).value());
    }
    return all;
  }
  std::vector<Kind> kinds_sent() {
    std::vector<Kind> kinds;
    for (const MappingMessage& message : sent()) {
      kinds.push_back(message.kind);
    }
    return kinds;
  }
  uint64_t map_for_peer(size_t first, size_t size_bytes) {
    return mapped_.map_for_peer(1, &memory_[first], size_bytes, false).value();
  }
  void answer(const MappingMessage& offer, uint64_t address) {
    const MappingMessage message{.kind = Kind::kAnswer, .number = offer.number, .address = address};
    ASSERT_TRUE(
        exchanges_[1]->post(0, tag_of(ControlTag::kMapping, 0), to_bytes(message)).has_value());
    ASSERT_TRUE(mapped_.serve().has_value());
  }
  [[nodiscard]] uint64_t address_of(size_t first) const {
    return reinterpret_cast<uintptr_t>(&memory_[first]);
  }

  std::array<std::byte, 64> memory_{};
  FakeRuntime runtime_;
  DeviceWatch watch_;
  std::vector<std::unique_ptr<Exchange>> exchanges_ = make_local_exchanges(2);
  PeerMappedMemory mapped_{{.rank = 0,
                            .exchange = exchanges_[0].get(),
                            .runtime = &runtime_,
                            .device = 0,
                            .watch = &watch_,
                            .peers = {1}}};
};

TEST_F(PeerMappedMemoryTest, ForgetsMemoryThatWasFreedAndCannotBeMappedAnyMore) {
  allocate(16, 16, 1);
  mapped_.add(&memory_[16], 16);
  allocate(16, 16, 2);  // freed and allocated again
  runtime_.exports = false;
  mapped_.add(&memory_[16], 16);
  mapped_.remove(&memory_[16]);
  EXPECT_EQ(map_for_peer(16, 16), kNotMapped);
  EXPECT_THAT(sent(), testing::IsEmpty());
}

TEST_F(PeerMappedMemoryTest, OffersPiecesBySizeAndAddsWhatTheReaderAnswers) {
  map_pieces(16, {1, 2, 3});
  mapped_.add(&memory_[20], 16);
  EXPECT_EQ(map_for_peer(20, 16), kNotMapped) << "nobody has answered";
  const std::vector<MappingMessage> offers = sent();
  ASSERT_EQ(offers.size(), 1U);
  EXPECT_THAT(offers[0].piece_bytes, ElementsAre(8, 8, 8));
  answer(offers[0], address_of(16) + 4096);
  EXPECT_EQ(map_for_peer(20, 16), 4096U);
  EXPECT_EQ(map_for_peer(24, 8), 4096U);
  EXPECT_EQ(map_for_peer(16, 16), kNotMapped) << "it is not registered";
}

/// A buffer may begin in the pieces of another one and end after them.
TEST_F(PeerMappedMemoryTest, KeepsBuffersThatHavePiecesInCommonApart) {
  map_pieces(16, {1, 2});
  mapped_.add(&memory_[16], 16);
  map_pieces(16, {1, 2, 3, 4});
  mapped_.add(&memory_[20], 28);
  EXPECT_EQ(map_for_peer(16, 4), kNotMapped);
  EXPECT_EQ(map_for_peer(20, 28), kNotMapped);
  const std::vector<MappingMessage> offers = sent();
  ASSERT_EQ(offers.size(), 1U) << "the larger one has both";
  EXPECT_EQ(offers[0].piece_bytes.size(), 4U);
  mapped_.remove(&memory_[20]);
  EXPECT_THAT(sent(), testing::IsEmpty()) << "the other buffer is in those pieces, too";
  mapped_.remove(&memory_[16]);
  EXPECT_THAT(kinds_sent(), ElementsAre(Kind::kWithdraw));
}

/// As PyTorch does with its expandable segments.
TEST_F(PeerMappedMemoryTest, WithdrawsPiecesOfWhichOneIsAnotherNow) {
  map_pieces(16, {1, 2});
  mapped_.add(&memory_[16], 16);
  EXPECT_EQ(map_for_peer(16, 16), kNotMapped);
  EXPECT_THAT(kinds_sent(), ElementsAre(Kind::kOffer));
  map_pieces(16, {1, 7});
  mapped_.add(&memory_[16], 16);
  EXPECT_THAT(kinds_sent(), ElementsAre(Kind::kWithdraw));
  EXPECT_EQ(map_for_peer(16, 16), kNotMapped);
  EXPECT_THAT(kinds_sent(), ElementsAre(Kind::kOffer));
}

}  // namespace
}  // namespace plexus
