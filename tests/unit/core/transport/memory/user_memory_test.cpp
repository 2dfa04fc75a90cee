// SPDX-License-Identifier: Apache-2.0
// Segments of a peer: here this process's own, which it maps a second time.
#include "core/transport/memory/user_memory.hpp"

#include <gtest/gtest.h>

#include "core/os/host.hpp"

namespace plexus {
namespace {

constexpr size_t kPages = size_t{2} * 4096;

TEST(PeerSegments, FindTheBytesOfAPlaceAndNoneBehindTheSegment) {
  UserMemory memory;
  auto made = memory.allocate(kPages);
  ASSERT_FALSE(made.has_error());
  auto* const bytes = static_cast<std::byte*>(made.value());
  MappedPlace place = memory.find_place(bytes + 100, 8);
  ASSERT_NE(place.segment, 0U);

  PeerSegments segments(process_id());
  std::byte* const mapped = segments.find(place, kPages - 100);
  ASSERT_NE(mapped, nullptr);
  bytes[100] = std::byte{42};
  EXPECT_EQ(*mapped, std::byte{42});
  EXPECT_EQ(segments.find(place, kPages - 99), nullptr);
  place.offset = kPages + 1;
  EXPECT_EQ(segments.find(place, 0), nullptr);
  place.offset = UINT64_MAX;
  EXPECT_EQ(segments.find(place, 8), nullptr);
  EXPECT_FALSE(memory.release(bytes).has_error());
}

TEST(KnownPlaces, AreThoseOfTheMemoryAsItIsNow) {
  UserMemory memory;
  KnownPlaces places(&memory);
  std::byte plain{};
  EXPECT_EQ(places.find(&plain, 1).segment, 0U);

  auto made = memory.allocate(kPages);
  ASSERT_FALSE(made.has_error());
  auto* const bytes = static_cast<std::byte*>(made.value());
  for (size_t i = 0; i < 32; ++i) {  // more than are remembered, and some of them twice
    const MappedPlace place = places.find(bytes + i % 20, 8);
    EXPECT_EQ(place, memory.find_place(bytes + i % 20, 8));
    EXPECT_EQ(place.offset, i % 20);
  }
  EXPECT_NE(places.find(bytes, kPages).segment, 0U);
  EXPECT_EQ(places.find(bytes, kPages + 1).segment, 0U);

  EXPECT_FALSE(memory.release(bytes).has_error());
  EXPECT_EQ(places.find(bytes, kPages).segment, 0U);
}

}  // namespace
}  // namespace plexus
