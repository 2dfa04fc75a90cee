// SPDX-License-Identifier: Apache-2.0
// Segments of a peer: here this process's own, which it maps a second time.
#include "core/transport/user_memory.hpp"

#include <gtest/gtest.h>

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

  PeerSegments segments;
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

}  // namespace
}  // namespace plexus
