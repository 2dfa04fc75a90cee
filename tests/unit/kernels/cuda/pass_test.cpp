// SPDX-License-Identifier: Apache-2.0
// Passes over a slice, by blocks of host threads.
#include "kernels/cuda/pass.hpp"

#include <algorithm>
#include <atomic>
#include <memory>
#include <sys/mman.h>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/host_block.hpp"

namespace plexus {
namespace {

constexpr uint32_t kSizeBytes = 1 << 20;

/// A pass with one operand and one target, which no peer's carrier needs.
Pass make_copy(const std::byte* from, std::byte* to, uint32_t size_bytes) {
  static DeviceControl control{};
  Pass pass{};
  pass.control = &control;
  pass.operands[0] = {from, Carrier::kMemory, 0};
  pass.operand_count = 1;
  pass.targets[0] = {to, Carrier::kMemory, 0};
  pass.target_count = 1;
  pass.scaled = Pass::kUnscaled;
  pass.size_bytes = size_bytes;
  return pass;
}

/// Runs the pass by `count` threads of a block.
bool run(const Pass& pass, uint32_t count, DataType type) {
  test::Rendezvous barrier(count);
  std::vector<std::thread> threads;
  std::atomic<uint32_t> good{0};
  for (uint32_t i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      const test::HostBlock block(i, count, barrier);
      good += run_pass(block, pass, type, ReduceKind::kSum) ? 1U : 0U;
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return good == count;
}

TEST(DevicePass, ReadsNothingWhereNothingIsStored) {
  struct Unmap {
    void operator()(std::byte* memory) const { munmap(memory, kSizeBytes); }
  };
  const std::unique_ptr<std::byte, Unmap> unreadable(static_cast<std::byte*>(
      mmap(nullptr, kSizeBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)));
  ASSERT_NE(static_cast<void*>(unreadable.get()), MAP_FAILED);
  Pass pass = make_copy(unreadable.get(), nullptr, kSizeBytes);
  pass.target_count = 3;  // peers that get the address
  EXPECT_TRUE(run(pass, 2, DataType::kFloat32));
}

TEST(DevicePass, WarpsShareALongSliceWithoutGapOrOverlap) {
  constexpr uint32_t kOffset = 5;  // from a vector's boundary
  for (const uint32_t size_bytes : {kSizeBytes, kSizeBytes - 3, 4099U, 100U}) {
    std::vector<std::byte> from(size_bytes + 2 * kOffset);
    for (size_t i = 0; i < from.size(); ++i) {
      from[i] = static_cast<std::byte>(i * 7 + i / 251);
    }
    std::vector<std::byte> to(from.size());
    for (const uint32_t threads : {1U, 3U}) {
      std::fill(to.begin(), to.end(), std::byte{0xaa});
      EXPECT_TRUE(run(make_copy(from.data() + kOffset, to.data() + kOffset, size_bytes), threads,
                      DataType::kFloat32));
      EXPECT_TRUE(std::equal(to.begin() + kOffset, to.begin() + kOffset + size_bytes,
                             from.begin() + kOffset))
          << size_bytes << " bytes, " << threads << " threads";
      EXPECT_EQ(to[kOffset - 1], std::byte{0xaa});
      EXPECT_EQ(to[kOffset + size_bytes], std::byte{0xaa});
    }
  }
}

/// Each element is added once, whoever takes it.
TEST(DevicePass, SumsALongSliceOnce) {
  std::vector<float> own(kSizeBytes / sizeof(float), 1.0F);
  std::vector<float> theirs(own.size(), 2.0F);
  Pass pass = make_copy(reinterpret_cast<const std::byte*>(theirs.data()),
                        reinterpret_cast<std::byte*>(own.data()), kSizeBytes);
  pass.operands[1] = {reinterpret_cast<const std::byte*>(own.data()), Carrier::kMemory, 0};
  pass.operand_count = 2;
  EXPECT_TRUE(run(pass, 3, DataType::kFloat32));
  EXPECT_EQ(std::count(own.begin(), own.end(), 3.0F), static_cast<std::ptrdiff_t>(own.size()));
}

}  // namespace
}  // namespace plexus
