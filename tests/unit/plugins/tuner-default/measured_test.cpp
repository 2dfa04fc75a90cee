// SPDX-License-Identifier: Apache-2.0
#include "plugins/tuner-default/measured.hpp"

#include <cmath>

#include <gtest/gtest.h>

#include "tests/unit/plugins/tuner-default/inputs.hpp"

namespace plexus::tuner_default {
namespace {

constexpr double kNear = 1e-9;  // relative to the value

/// All-reduce of 2 ranks in two rounds.
plexus_tuner_candidate_t exchange_of(const char* algorithm, const char* protocol) {
  plexus_tuner_candidate_t candidate = with_totals(ring(2), 4, 1);
  candidate.algorithm = algorithm;
  candidate.protocol = protocol;
  return candidate;
}

class MeasuredTest : public ::testing::Test {
 protected:
  [[nodiscard]] double model(uint64_t size_bytes, const char* protocol = "Simple") const {
    return predict_us(kDefaultCalibration, comm_, call_of(size_bytes),
                      exchange_of("ring", protocol));
  }
  [[nodiscard]] double corrected(const plexus_tuner_comm_t& comm,
                                 uint64_t size_bytes,
                                 const char* algorithm = "ring",
                                 const char* protocol = "Simple") const {
    return predict_us(kDefaultCalibration, measured_, comm, call_of(size_bytes),
                      exchange_of(algorithm, protocol));
  }
  /// The model's time for `at_bytes`, corrected like a measured size.
  [[nodiscard]] double moved(uint64_t size_bytes, double measured_us, uint64_t at_bytes) const {
    return model(size_bytes) * std::pow(measured_us / model(at_bytes), kTrust);
  }
  plexus_tuner_comm_t comm_ = comm_of(2, 2, PLEXUS_LINK_HOST);
  std::vector<MeasuredCall> measured_ = {{.link = PLEXUS_LINK_HOST,
                                          .nranks = 2,
                                          .collective = "all_reduce",
                                          .bytes = {64, 1024, 65536},
                                          .time_us = {{"ring", {1, 4, 100}}}}};
};

TEST_F(MeasuredTest, AMeasuredSizeMovesMostOfTheWayToItsTime) {
  const double time_us = corrected(comm_, 1024);
  EXPECT_NEAR(time_us, moved(1024, 4, 1024), kNear);
  EXPECT_GT(time_us, model(1024));
  EXPECT_LT(time_us, 4);
}

TEST_F(MeasuredTest, BetweenSizesTheTimeIsInterpolatedOnLogarithmicScales) {
  EXPECT_NEAR(corrected(comm_, 256), moved(256, 2, 256), kNear);  // half way from 64 to 1024
}

TEST_F(MeasuredTest, BeyondTheSizesTheModelIsCorrectedAsAtTheLast) {
  EXPECT_NEAR(corrected(comm_, 8), moved(8, 1, 64), kNear);
  EXPECT_NEAR(corrected(comm_, 1 << 24), moved(1 << 24, 100, 65536), kNear * 1e4);
}

TEST_F(MeasuredTest, LinesCostWhatTheModelSaysMoreThanSimple) {
  EXPECT_NEAR(corrected(comm_, 1024, "ring", "LL") / corrected(comm_, 1024),
              model(1024, "LL") / model(1024), kNear);
}

TEST_F(MeasuredTest, WhatWasNotMeasuredIsTheModelAlone) {
  EXPECT_EQ(corrected(comm_, 1024, "tree"), model(1024));
  for (const plexus_tuner_comm_t& other :
       {comm_of(3, 3, PLEXUS_LINK_HOST), comm_of(2, 2, PLEXUS_LINK_PROCESS),
        comm_of(2, 2, PLEXUS_LINK_NET)}) {
    EXPECT_EQ(corrected(other, 1024),
              predict_us(kDefaultCalibration, other, call_of(1024), exchange_of("ring", "Simple")));
  }
  plexus_tuner_comm_t two_hosts = comm_;
  two_hosts.nnodes = 2;
  two_hosts.ranks_per_node_max = 1;
  EXPECT_EQ(corrected(two_hosts, 1024), predict_us(kDefaultCalibration, two_hosts, call_of(1024),
                                                   exchange_of("ring", "Simple")));
}

}  // namespace
}  // namespace plexus::tuner_default
