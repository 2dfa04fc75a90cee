// SPDX-License-Identifier: Apache-2.0
// What core/device does for memory of cuMemCreate, call by call, on a driver that keeps account.
#include "core/device/cuda_pieces.hpp"

#include <array>
#include <cstring>
#include <fcntl.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/core/device/fake_driver.hpp"

namespace plexus {
namespace {

using testing::HasSubstr;

constexpr size_t kGranule = FakeDriver::kGranule;

constexpr auto kForOthers = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

class CudaPiecesTest : public testing::Test {
 protected:
  ~CudaPiecesTest() override {
    EXPECT_TRUE(driver_.is_empty());
    EXPECT_FALSE(driver_.was_misused);
    driver_ = {};
  }
  Result<void*> allocate(size_t size_bytes) {
    return pieces_.allocate(0, std::array{0, 1}, size_bytes);
  }
  static std::byte* bytes(void* memory) { return static_cast<std::byte*>(memory); }

  FakeDriver& driver_ = FakeDriver::instance();
  CudaPieces pieces_;
};

TEST_F(CudaPiecesTest, OfTheLibraryAreWholeGranulesThatItsReadersReach) {
  void* const memory = allocate(kGranule + 1).value();
  std::memset(memory, 7, 2 * kGranule);
  EXPECT_TRUE(pieces_.contains(bytes(memory) + 2 * kGranule - 1));
  EXPECT_FALSE(pieces_.contains(bytes(memory) + 2 * kGranule));
  ASSERT_EQ(driver_.mappings.size(), 1U);
  EXPECT_EQ(driver_.mappings.begin()->second.readers.size(), 2U);
  const CUmemAllocationProp& facts = driver_.memories.begin()->second.facts;
  EXPECT_EQ(facts.requestedHandleTypes, kForOthers);
  EXPECT_EQ(facts.allocFlags.gpuDirectRDMACapable, 1);
  EXPECT_TRUE(pieces_.unmap(memory));
  EXPECT_FALSE(pieces_.contains(memory));
  EXPECT_FALSE(pieces_.unmap(memory));
}

TEST_F(CudaPiecesTest, OfABufferAreThoseThatItBeginsAndEndsIn) {
  void* const base = FakeDriver::map_pieces(4, kForOthers);
  const auto found = CudaPieces::find(0, bytes(base) + 2 * kGranule - 8, kGranule + 16).value();
  EXPECT_EQ(found.base, bytes(base) + kGranule);
  EXPECT_EQ(found.size_bytes, 3 * kGranule);
  EXPECT_EQ(found.pieces.size(), 3U);
  EXPECT_EQ(CudaPieces::find(0, base, kGranule).value().pieces.size(), 1U);
  EXPECT_TRUE(CudaPieces::find(0, base, 4 * kGranule + 1).has_error());
  FakeDriver::unmap_pieces(base, 4);
  FakeDriver::free_range(base, 4);
}

TEST_F(CudaPiecesTest, OfAnotherProcessLieSideBySideAndAreTheSameMemory) {
  void* const base = FakeDriver::map_pieces(3, kForOthers);
  const auto found = CudaPieces::find(0, bytes(base) + kGranule, 2 * kGranule).value();
  {
    const auto exported = CudaPieces::export_all(0, found).value();
    ASSERT_EQ(exported->pieces.size(), 2U);
    EXPECT_NE(fcntl(exported->pieces[0].fd, F_GETFD) & FD_CLOEXEC, 0);
    void* const theirs = pieces_.import(1, *exported).value();
    bytes(base)[2 * kGranule] = std::byte{5};
    EXPECT_EQ(bytes(theirs)[kGranule], std::byte{5});
    bytes(theirs)[3] = std::byte{6};
    EXPECT_EQ(bytes(base)[kGranule + 3], std::byte{6});
    EXPECT_TRUE(pieces_.unmap(theirs));
  }
  FakeDriver::unmap_pieces(base, 3);
  FakeDriver::free_range(base, 3);
}

/// So that a peer that has one mapped is not taken for one that has the other.
TEST_F(CudaPiecesTest, ThatAreExportedKeepTheirNumbers) {
  void* const base = FakeDriver::map_pieces(2, kForOthers);
  const auto before = CudaPieces::find(0, base, 2 * kGranule).value();
  auto exported = CudaPieces::export_all(0, before).value();
  FakeDriver::unmap_pieces(base, 2);
  EXPECT_EQ(driver_.memories.size(), 2U) << "the export has them";
  FakeDriver::map_pieces(2, kForOthers, base);
  const auto after = CudaPieces::find(0, base, 2 * kGranule).value();
  EXPECT_NE(after, before);
  EXPECT_TRUE(CudaPieces::export_all(0, before).has_error()) << "it is not there any more";
  exported.reset();
  EXPECT_EQ(driver_.memories.size(), 2U);
  FakeDriver::unmap_pieces(base, 2);
  FakeDriver::free_range(base, 2);
}

TEST_F(CudaPiecesTest, ThatAProgramMadeForItselfAreNotExported) {
  void* const base = FakeDriver::map_pieces(1, CU_MEM_HANDLE_TYPE_NONE);
  const auto found = CudaPieces::find(0, base, 8).value();
  const auto refused = CudaPieces::export_all(0, found);
  ASSERT_TRUE(refused.has_error());
  EXPECT_THAT(refused.error().message(), HasSubstr("without a handle type of file descriptors"));
  FakeDriver::unmap_pieces(base, 1);
  EXPECT_THAT(CudaPieces::find(0, base, 8).error().message(), HasSubstr("of a pool"));
  FakeDriver::free_range(base, 1);
}

/// Makes, exports, imports and gives back; what fails leaves nothing.
TEST_F(CudaPiecesTest, LeaveNothingBehindWhicheverCallFails) {
  const auto use = [&]() -> Result<void> {
    PLEXUS_TRY(mine, allocate(kGranule));
    const auto share = [&]() -> Result<void> {
      PLEXUS_TRY(found, CudaPieces::find(0, mine, kGranule));
      PLEXUS_TRY(exported, CudaPieces::export_all(0, found));
      PLEXUS_TRY(theirs, pieces_.import(0, *exported));
      pieces_.unmap(theirs);
      return ok();
    };
    auto shared = share();
    pieces_.unmap(mine);
    return shared;
  };
  constexpr int kCallsMax = 100;
  int failing = 0;
  for (driver_.calls_until_failure = 0; use().has_error() && failing < kCallsMax;
       driver_.calls_until_failure = ++failing) {
    EXPECT_TRUE(driver_.is_empty()) << "after call " << failing;
  }
  EXPECT_GT(failing, 10);
  EXPECT_LT(failing, kCallsMax);
}

}  // namespace
}  // namespace plexus
