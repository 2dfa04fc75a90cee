// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/values.hpp"

#include <cstring>

#include <gtest/gtest.h>

namespace plexus::soak {
namespace {

uint32_t bits(ncclDataType_t type, double value) {
  uint32_t result = 0;
  std::array<std::byte, sizeof(double)> bytes{};
  encode(type, value, bytes.data());
  std::memcpy(&result, bytes.data(), size_of(type));
  return result;
}

TEST(SoakValues, EncodesSmallFloatsAsTheirFormatsSay) {
  EXPECT_EQ(bits(ncclFloat16, 1), 0x3c00U);
  EXPECT_EQ(bits(ncclFloat16, -3.5), 0xc300U);
  EXPECT_EQ(bits(ncclBfloat16, 1), 0x3f80U);
  EXPECT_EQ(bits(ncclBfloat16, 240), 0x4370U);
  EXPECT_EQ(bits(ncclFloat8e4m3, 1), 0x38U);
  EXPECT_EQ(bits(ncclFloat8e4m3, 0.0625), 0x18U);
  EXPECT_EQ(bits(ncclFloat8e5m2, 6), 0x46U);
  EXPECT_EQ(bits(ncclFloat8e5m2, 0), 0U);
}

TEST(SoakValues, WhatOneRankSendsTheOtherExpects) {
  const Operation operation{.op = Op::kAllToAllV, .count = 100};
  constexpr int kNranks = 5;
  for (int source = 0; source < kNranks; ++source) {
    for (int target = 0; target < kNranks; ++target) {
      EXPECT_EQ(send_counts(operation, source, kNranks).counts[static_cast<size_t>(target)],
                recv_counts(operation, target, kNranks).counts[static_cast<size_t>(source)]);
    }
  }
}

TEST(SoakValues, ReduceScatterExpectsTheBlockOfTheRankInTheReducedWhole) {
  constexpr int kNranks = 3;
  constexpr size_t kCount = 50;
  Operation operation{.op = Op::kReduceScatter, .count = kCount, .type = ncclInt32};
  const Buffers buffers = buffers_of(operation, {.rank = 2}, kNranks);
  std::vector<int32_t> block(kCount);
  write(operation, buffers.recv, 7, kNranks, reinterpret_cast<std::byte*>(block.data()));
  std::vector<int32_t> sum(kCount);
  for (int rank = 0; rank < kNranks; ++rank) {
    const Buffers of_rank = buffers_of(operation, {.rank = rank}, kNranks);
    std::vector<int32_t> input(of_rank.send_count);
    write(operation, of_rank.send, 7, kNranks, reinterpret_cast<std::byte*>(input.data()));
    for (size_t i = 0; i < kCount; ++i) {
      sum[i] += input[2 * kCount + i];
    }
  }
  EXPECT_EQ(block, sum);
}

}  // namespace
}  // namespace plexus::soak
