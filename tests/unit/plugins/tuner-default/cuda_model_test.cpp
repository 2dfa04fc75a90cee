// SPDX-License-Identifier: Apache-2.0
// Properties of the model for CUDA ranks that do not depend on its numbers.
#include "plugins/tuner-default/cuda_model.hpp"

#include <cstddef>

#include <gtest/gtest.h>

#include "tests/unit/plugins/tuner-default/inputs.hpp"

namespace plexus::tuner_default {
namespace {

constexpr uint64_t kMbitOfGb = 8000;

/// `nranks` ranks of one host with NVLinks, `share` on each device.
plexus_tuner_comm_t gpus_of(uint32_t nranks, uint32_t share = 1) {
  constexpr uint32_t kCores = 8;
  plexus_tuner_comm_t comm = comm_of(nranks, kCores, PLEXUS_LINK_HOST);
  comm.links[PLEXUS_LINK_HOST].bandwidth_mbit_per_s = 400 * kMbitOfGb;
  comm.cuda = {.sm = 90,
               .ranks_per_device = share,
               .blocks = 132 / share,
               .nvlink = 1,
               .memory_mbit_per_s = 4000 * kMbitOfGb};
  return comm;
}

plexus_tuner_candidate_t ring_of(uint32_t nranks, const char* protocol) {
  plexus_tuner_candidate_t candidate =
      with_totals(ring(nranks), uint64_t{nranks} * 2 * (nranks - 1), nranks - 1);
  candidate.protocol = protocol;
  candidate.channels_min = 1;
  candidate.channels_max = 64;
  return candidate;
}

CudaAnswer predict(const plexus_tuner_comm_t& comm,
                   uint64_t size_bytes,
                   const plexus_tuner_candidate_t& candidate) {
  return predict_cuda(kDefaultCalibration, comm, call_of(size_bytes), candidate);
}

constexpr uint64_t kLarge = uint64_t{1} << 30;

TEST(CudaModel, IsForCommunicatorsOfCudaRanksOnly) {
  plexus_tuner_comm_t comm = gpus_of(8);
  EXPECT_TRUE(is_cuda(comm));
  comm.cuda.sm = 0;
  EXPECT_FALSE(is_cuda(comm));
  comm = gpus_of(8);
  comm.struct_size = offsetof(plexus_tuner_comm_t, cuda);  // as from a host before 1.4
  EXPECT_FALSE(is_cuda(comm));
}

TEST(CudaModel, CountsTheNetworkOnlyForWhatGoesOverItIfTheHostSaysSo) {
  auto comm = gpus_of(8);
  const auto local = ring_of(8, "Simple");
  for (const uint64_t size_bytes : {uint64_t{8}, kLarge}) {
    comm.links[PLEXUS_LINK_NET] = {};
    const double near = predict(comm, size_bytes, local).time_us;
    comm.links[PLEXUS_LINK_NET] = {
        .count = 1, .reserved = 0, .latency_ns = 1000, .bandwidth_mbit_per_s = 25 * kMbitOfGb};
    const double net = predict(comm, size_bytes, local).time_us;
    const double mixed = predict(comm, size_bytes, half_over_net(local)).time_us;
    EXPECT_GT(mixed, near) << size_bytes;
    EXPECT_LT(mixed, 0.8 * net) << size_bytes;
  }
}

TEST(CudaModel, TakesLLForSmallMessagesAndSimpleForLargeOnes) {
  const auto comm = gpus_of(8);
  EXPECT_LT(predict(comm, 8, ring_of(8, "LL")).time_us,
            predict(comm, 8, ring_of(8, "LL128")).time_us);
  EXPECT_LT(predict(comm, 8, ring_of(8, "LL")).time_us,
            predict(comm, 8, ring_of(8, "Simple")).time_us);
  EXPECT_LT(predict(comm, kLarge, ring_of(8, "Simple")).time_us,
            predict(comm, kLarge, ring_of(8, "LL128")).time_us);
  EXPECT_LT(predict(comm, kLarge, ring_of(8, "LL128")).time_us,
            predict(comm, kLarge, ring_of(8, "LL")).time_us);
}

TEST(CudaModel, TakesOneChannelForSmallMessagesAndFillsTheLinkForLargeOnes) {
  const auto comm = gpus_of(8);
  EXPECT_EQ(predict(comm, 8, ring_of(8, "Simple")).channels, 1U);
  const uint32_t channels = predict(comm, kLarge, ring_of(8, "Simple")).channels;
  EXPECT_GE(channels * 38.7, 400);
  EXPECT_LT((channels - 1) * 38.7, 400);
  auto bounded = ring_of(8, "Simple");
  bounded.channels_max = 4;
  EXPECT_EQ(predict(comm, kLarge, bounded).channels, 4U);
}

TEST(CudaModel, OfManyBytesIsTheLinksBandwidth) {
  const double least_us = 2.0 * 7 / 8 * static_cast<double>(kLarge) / (400 * 1e3);
  const double us = predict(gpus_of(8), kLarge, ring_of(8, "Simple")).time_us;
  EXPECT_GT(us, least_us);
  EXPECT_LT(us, 1.1 * least_us);
}

TEST(CudaModel, RanksOfOneDeviceShareItsMemory) {
  // Every byte sent is read and written; every combined byte is read once more.
  const double touched = (2 * 2 * 3 + 3) / 4.0 * 4 * static_cast<double>(kLarge);
  const double us = predict(gpus_of(4, 4), kLarge, ring_of(4, "Simple")).time_us;
  EXPECT_GT(us, touched / (4000 * 1e3));
  EXPECT_LT(us, 1.2 * touched / (4000 * 1e3));
}

/// Eight ranks of a process on one card, and three of their algorithms (the numbers of a loop are
/// those that the host says of them).
struct OneCard {
  static plexus_tuner_comm_t comm() {
    plexus_tuner_comm_t made = gpus_of(8, 8);
    made.links[PLEXUS_LINK_PROCESS] = made.links[PLEXUS_LINK_HOST];
    made.links[PLEXUS_LINK_HOST] = {};
    return made;
  }
  static double us(uint64_t size_bytes,
                   const plexus_tuner_candidate_t& of,
                   const char* protocol,
                   uint32_t chunk_bytes) {
    plexus_tuner_candidate_t candidate = of;
    candidate.protocol = protocol;
    candidate.chunk_bytes = chunk_bytes;
    candidate.channels_min = 1;
    candidate.channels_max = 32;
    return predict(comm(), size_bytes, candidate).time_us;
  }
  static double simple_us(uint64_t size_bytes, const plexus_tuner_candidate_t& of) {
    return us(size_bytes, of, "Simple", 512 << 10);
  }
  const plexus_tuner_candidate_t all_pairs = with_totals(candidate_of(1, 1, 7), 56, 7);
  const plexus_tuner_candidate_t doubling = with_totals(candidate_of(3, 1, 3), 24, 3);
  const plexus_tuner_candidate_t two_shot = with_totals(candidate_of(2, 8, 14), 112, 7);
};

// What an H200 said: docs/gpu-results.md.
TEST(CudaModel, RanksOfAProcessOnOneDeviceRankAlgorithmsAsTheCardDid) {
  const OneCard card;
  // 4 KiB: all_pairs 26 us, doubling 41, two_shot, whose messages are short, 86.
  EXPECT_LT(card.simple_us(4096, card.all_pairs), card.simple_us(4096, card.doubling));
  EXPECT_LT(card.simple_us(4096, card.doubling), card.simple_us(4096, card.two_shot));
  // 1 MiB: two_shot 47, doubling 73, all_pairs 73.
  EXPECT_LT(card.simple_us(1 << 20, card.two_shot), card.simple_us(1 << 20, card.doubling));
  EXPECT_LT(card.simple_us(1 << 20, card.two_shot), card.simple_us(1 << 20, card.all_pairs));
  // LL is faster for 8 bytes only: of 64 KiB, all_pairs 46 us with LL, 36 with Simple.
  EXPECT_LT(card.us(8, card.all_pairs, "LL", 4096), card.simple_us(8, card.all_pairs));
  EXPECT_GT(card.us(65536, card.all_pairs, "LL", 4096), card.simple_us(65536, card.all_pairs));
}

TEST(CudaModel, NetworksAndPciCostMorePerHop) {
  auto pci = gpus_of(8);
  pci.cuda.nvlink = 0;
  auto net = gpus_of(8);
  net.links[PLEXUS_LINK_NET].count = 4;
  const double near_us = predict(gpus_of(8), 8, ring_of(8, "LL")).time_us;
  const double pci_us = predict(pci, 8, ring_of(8, "LL")).time_us;
  EXPECT_LT(near_us, pci_us);
  EXPECT_LT(pci_us, predict(net, 8, ring_of(8, "LL")).time_us);
}

TEST(CudaModel, SaysNothingOfCandidatesThatMoveNothing) {
  auto nothing = ring_of(8, "LL");
  nothing.chunks_moved = 0;
  EXPECT_LT(predict(gpus_of(8), 8, nothing).time_us, 0);
}

}  // namespace
}  // namespace plexus::tuner_default
