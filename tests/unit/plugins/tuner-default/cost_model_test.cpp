// SPDX-License-Identifier: Apache-2.0
// The model's predictions where the answer is known: latency decides for small messages, bytes for
// large ones.
#include "plugins/tuner-default/cost_model.hpp"

#include <gtest/gtest.h>

#include "tests/unit/plugins/tuner-default/inputs.hpp"

namespace plexus::tuner_default {
namespace {

plexus_tuner_candidate_t doubling(uint32_t steps) { return candidate_of(steps, 1, steps); }

double predict(uint64_t size_bytes, const plexus_tuner_candidate_t& candidate) {
  return predict_us(kDefaultCalibration, comm_of(16, 16, PLEXUS_LINK_HOST), call_of(size_bytes),
                    candidate);
}

TEST(CostModel, PrefersFewRoundsForSmallMessages) {
  EXPECT_LT(predict(8, doubling(4)), predict(8, ring(16)));
}

TEST(CostModel, PrefersFewBytesForLargeMessages) {
  EXPECT_GT(predict(64 << 20, doubling(4)), predict(64 << 20, ring(16)));
}

TEST(CostModel, OfOneSmallMessageIsTheLatencyAndTheMessage) {
  const LinkCost& cost = kDefaultCalibration.links[PLEXUS_LINK_HOST];
  EXPECT_NEAR(predict(1, candidate_of(1, 1, 1)), cost.latency_us + cost.message_us, 0.01);
}

TEST(CostModel, OfManyBytesIsTheBandwidth) {
  const double us = predict(uint64_t{1} << 30, candidate_of(1, 1, 1));
  const double bytes_us = (1 << 30) * kDefaultCalibration.links[PLEXUS_LINK_HOST].us_per_byte;
  EXPECT_GT(us, bytes_us);
  EXPECT_LT(us, 1.1 * bytes_us);
}

/// A chain of 8 messages: the last loop ends so many chunks after the first one has reached the
/// end.
TEST(CostModel, OfManyLoopsIsTheChainAndThenALoopAfterTheOther) {
  const auto chain = candidate_of(8, 1, 1);
  const double one_us = predict(kSlot, chain);
  const double chunk_us = predict(2 * kSlot, chain) - one_us;
  EXPECT_GT(one_us, 8 * 0.9 * chunk_us);
  EXPECT_NEAR(predict(16 * kSlot, chain), one_us + 15 * chunk_us, chunk_us);
}

TEST(CostModel, GrowsWithTheMessage) {
  double last = 0;
  for (uint64_t size_bytes = 1; size_bytes < uint64_t{1} << 34; size_bytes *= 4) {
    const double us = predict(size_bytes, ring(16));
    EXPECT_GE(us, last) << size_bytes;
    last = us;
  }
}

TEST(CostModel, CountsTheSlowestLinkAndWhatTheHostKnowsOfIt) {
  auto comm = comm_of(4, 4, PLEXUS_LINK_HOST);
  const double near = predict_us(kDefaultCalibration, comm, call_of(8), ring(4));
  comm.links[PLEXUS_LINK_NET].count = 1;
  const double xdc = predict_us(kDefaultCalibration, comm, call_of(8), ring(4));
  EXPECT_GT(xdc, near);
  comm.links[PLEXUS_LINK_NET].latency_ns = 1'000'000;
  EXPECT_GT(predict_us(kDefaultCalibration, comm, call_of(8), ring(4)), 1000.0);
}

TEST(CostModel, CountsTheSlowestLinkOnlyForWhatGoesOverItIfTheHostSaysSo) {
  auto comm = comm_of(16, 16, PLEXUS_LINK_HOST);
  const auto local = with_totals(ring(16), 16 * 30, 15);
  const auto times = [&](uint64_t size_bytes) {
    comm.links[PLEXUS_LINK_NET].count = 0;
    const double near = predict_us(kDefaultCalibration, comm, call_of(size_bytes), local);
    comm.links[PLEXUS_LINK_NET].count = 1;
    const double net = predict_us(kDefaultCalibration, comm, call_of(size_bytes), local);
    const auto half = half_over_net(local);
    const double mixed = predict_us(kDefaultCalibration, comm, call_of(size_bytes), half);
    EXPECT_NEAR(mixed, (near + net) / 2, 1e-6 * net) << size_bytes;
    return net / near;
  };
  EXPECT_GT(times(8), 2);
  EXPECT_GT(times(64 << 20), 2);
}

TEST(CostModel, FollowsTheExchangeOfACacheLineThatTheHostMeasured) {
  auto comm = comm_of(2, 2, PLEXUS_LINK_HOST);
  const double built_in = predict_us(kDefaultCalibration, comm, call_of(8), ring(2));
  comm.links[PLEXUS_LINK_HOST].latency_ns = 160;  // as built in
  EXPECT_NEAR(predict_us(kDefaultCalibration, comm, call_of(8), ring(2)), built_in, 1e-6);
  comm.links[PLEXUS_LINK_HOST].latency_ns = 320;
  EXPECT_NEAR(predict_us(kDefaultCalibration, comm, call_of(8), ring(2)), 2 * built_in,
              0.01 * built_in);
}

TEST(CostModel, PrefersCombiningLessWhereOperandsAreReadFromPeers) {
  const auto whole = with_totals(doubling(1), 2, 1);
  const auto halves = with_totals(ring(2), 4, 1);
  for (const uint64_t latency_ns : {60, 250}) {  // near cores, and far ones
    auto comm = comm_of(2, 2, PLEXUS_LINK_HOST);
    comm.links[PLEXUS_LINK_HOST].latency_ns = latency_ns;
    const auto gains_by_halves = [&](uint64_t size_bytes, bool registered) {
      plexus_tuner_call_t call = call_of(size_bytes);
      call.registered = registered ? 1 : 0;
      return predict_us(kDefaultCalibration, comm, call, halves) <
             predict_us(kDefaultCalibration, comm, call, whole);
    };
    EXPECT_FALSE(gains_by_halves(4096, true)) << latency_ns;  // the halves are copied
    EXPECT_TRUE(gains_by_halves(16384, true)) << latency_ns;
    EXPECT_FALSE(gains_by_halves(8192, false)) << latency_ns;
  }
}

TEST(CostModel, OfRegisteredMemoryCountsWhereOtherProcessesReadItInPlace) {
  const auto gains = [](const plexus_tuner_comm_t& comm) {
    plexus_tuner_call_t call = call_of(1 << 20);
    const double plain = predict_us(kDefaultCalibration, comm, call, ring(4));
    call.registered = 1;
    return predict_us(kDefaultCalibration, comm, call, ring(4)) < plain;
  };
  EXPECT_TRUE(gains(comm_of(4, 4, PLEXUS_LINK_HOST)));
  EXPECT_FALSE(gains(comm_of(4, 2, PLEXUS_LINK_HOST)));  // calls may be copied there
  EXPECT_FALSE(gains(comm_of(4, 4, PLEXUS_LINK_NET)));
  EXPECT_FALSE(gains(comm_of(4, 4, PLEXUS_LINK_PROCESS)));  // all memory is
}

TEST(CostModel, CountsRanksThatShareACore) {
  const double alone =
      predict_us(kDefaultCalibration, comm_of(16, 16, 1), call_of(1 << 20), ring(16));
  const double shared =
      predict_us(kDefaultCalibration, comm_of(16, 2, 1), call_of(1 << 20), ring(16));
  EXPECT_GT(shared, 4 * alone);
}

TEST(CostModel, OfTwoRanksAndManyBytesCountsWhatIsCombined) {
  // The same bytes are moved; the ring combines half as many.
  const auto comm = comm_of(2, 2, PLEXUS_LINK_HOST);
  const auto of_ring = with_totals(ring(2), 4, 1);
  const auto of_doubling = with_totals(doubling(1), 2, 1);
  EXPECT_LT(predict_us(kDefaultCalibration, comm, call_of(64 << 20), of_ring),
            predict_us(kDefaultCalibration, comm, call_of(64 << 20), of_doubling));
  EXPECT_GT(predict_us(kDefaultCalibration, comm, call_of(8), of_ring),
            predict_us(kDefaultCalibration, comm, call_of(8), of_doubling));
}

TEST(CostModel, OfRanksThatShareCoresCountsTheWorkOfAll) {
  // A binomial broadcast on 8 ranks: the root sends 3 chunks, all ranks together 7; with 2 cores
  // the latter number decides.
  const auto binomial = candidate_of(3, 1, 3);
  const auto few = with_totals(binomial, 7, 0);
  const auto many = with_totals(binomial, 14, 0);
  const auto comm = comm_of(8, 2, PLEXUS_LINK_HOST);
  EXPECT_LT(predict_us(kDefaultCalibration, comm, call_of(1 << 20), few),
            0.7 * predict_us(kDefaultCalibration, comm, call_of(1 << 20), many));
  const auto roomy = comm_of(8, 8, PLEXUS_LINK_HOST);
  EXPECT_GT(predict_us(kDefaultCalibration, roomy, call_of(1 << 20), few),
            0.7 * predict_us(kDefaultCalibration, roomy, call_of(1 << 20), many));
}

TEST(CostModel, OfLargeMessagesPrefersFewPeersAtOnce) {
  const auto comm = comm_of(8, 2, PLEXUS_LINK_HOST);
  const auto of_ring = with_totals(ring(8), 112, 7);
  const auto of_two_shot = with_totals(candidate_of(2, 8, 14), 112, 7);
  EXPECT_LT(predict_us(kDefaultCalibration, comm, call_of(8 << 20), of_ring),
            predict_us(kDefaultCalibration, comm, call_of(8 << 20), of_two_shot));
  EXPECT_GT(predict_us(kDefaultCalibration, comm, call_of(64 << 10), of_ring),
            predict_us(kDefaultCalibration, comm, call_of(64 << 10), of_two_shot));
}

/// For 8 ranks in two datacenters, 100 Mbit/s and 10 ms between them.
double predict_xdc(plexus_tuner_candidate_t candidate,
                   uint64_t size_bytes,
                   uint32_t xdc_rounds,
                   uint64_t xdc_chunks) {
  auto comm = comm_of(8, 2, PLEXUS_LINK_NET);
  comm.ndatacenters = 2;
  comm.links[PLEXUS_LINK_XDC] = {
      .count = 16, .reserved = 0, .latency_ns = 10'000'000, .bandwidth_mbit_per_s = 100};
  candidate = with_totals(candidate, 8 * candidate.chunks_moved, 0);
  candidate.xdc_rounds = xdc_rounds;
  candidate.xdc_chunks = xdc_chunks;
  return predict_us(kDefaultCalibration, comm, call_of(size_bytes), candidate);
}

TEST(CostModel, BytesBetweenDatacentersDecideLargeMessages) {
  constexpr uint64_t kSize = 64 << 20;
  const double of_ring = predict_xdc(ring(8), kSize, 4, 14);
  const double of_hierarchical = predict_xdc(candidate_of(7, 4, 7), kSize, 1, 4);
  EXPECT_NEAR(of_ring, 9.5e6, 0.3e6);  // 14 chunks of 8 cross at 12.5 MB/s
  EXPECT_NEAR(of_hierarchical, 5.4e6, 0.3e6);
}

TEST(CostModel, MessagesBetweenDatacentersDecideSmallOnes) {
  EXPECT_GT(predict_xdc(ring(8), 1024, 4, 14), 40'000);
  EXPECT_LT(predict_xdc(candidate_of(7, 4, 7), 1024, 1, 4), 13'000);
}

TEST(CostModel, WhereTheLinkDecidesFewerMessagesAreBetter) {
  plexus_tuner_candidate_t small = candidate_of(7, 4, 7);
  small.chunk_bytes = 4096;
  EXPECT_LT(predict_xdc(candidate_of(7, 4, 7), 1 << 20, 1, 4), predict_xdc(small, 1 << 20, 1, 4));
}

TEST(CostModel, SaysNothingOfWhatIsNoCandidate) {
  EXPECT_LT(predict(8, candidate_of(1, 0, 1)), 0);
  auto comm = comm_of(2, 1, 1);
  comm.cores_per_node_min = 0;
  EXPECT_LT(predict_us(kDefaultCalibration, comm, call_of(8), ring(2)), 0);
}

}  // namespace
}  // namespace plexus::tuner_default
