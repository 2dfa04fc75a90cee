// SPDX-License-Identifier: Apache-2.0
#include "core/transport/memory/offered_pieces.hpp"

#include <sys/mman.h>
#include <sys/stat.h>

#include <gtest/gtest.h>

#include "core/os/host.hpp"

namespace plexus {
namespace {

/// Pieces of 1, 2, ... bytes.
std::unique_ptr<PieceDescriptors> make_pieces(size_t count) {
  auto made = std::make_unique<PieceDescriptors>();
  for (size_t i = 1; i <= count; ++i) {
    const int fd = memfd_create("piece", MFD_CLOEXEC);
    EXPECT_EQ(ftruncate(fd, static_cast<off_t>(i)), 0);
    made->pieces.push_back({.size_bytes = i, .fd = fd});
  }
  return made;
}

MappingMessage offer_of(const OfferedPieces& offered, std::vector<uint64_t> piece_bytes) {
  return {.process = process_id(),
          .first_id = offered.first_id(),
          .piece_bytes = std::move(piece_bytes)};
}

TEST(OfferedPieces, AreGivenInTheirOrderAsLongAsTheyAreOffered) {
  auto offered = OfferedPieces::offer(make_pieces(3)).value();
  const MappingMessage offer = offer_of(*offered, {1, 2, 3});
  const auto taken = take_pieces(offer).value();
  ASSERT_EQ(taken->pieces.size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    struct stat status {};
    ASSERT_EQ(fstat(taken->pieces[i].fd, &status), 0);
    EXPECT_EQ(static_cast<size_t>(status.st_size), i + 1);
    EXPECT_EQ(taken->pieces[i].size_bytes, i + 1);
  }
  EXPECT_TRUE(take_pieces(offer_of(*offered, {1, 2, 3, 4})).has_error()) << "there are three";
  offered.reset();
  EXPECT_TRUE(take_pieces(offer).has_error());
}

}  // namespace
}  // namespace plexus
