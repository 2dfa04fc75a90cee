// SPDX-License-Identifier: Apache-2.0
#include "plugins/tuner-default/measured.hpp"

#include <cmath>

#include <gtest/gtest.h>

namespace plexus::tuner_default {
namespace {

constexpr double kNear = 1e-9;  // of the value

plexus_tuner_comm_t comm_of(uint32_t nranks, uint32_t link) {
  plexus_tuner_comm_t comm{};
  comm.struct_size = sizeof(comm);
  comm.nranks = nranks;
  comm.nnodes = 1;
  comm.ndatacenters = 1;
  comm.ranks_per_node_max = nranks;
  comm.cores_per_node_min = nranks;
  comm.links[link].count = nranks * (nranks - 1) / 2;
  return comm;
}

plexus_tuner_call_t call_of(uint64_t size_bytes) {
  plexus_tuner_call_t call{};
  call.struct_size = sizeof(call);
  call.collective = "all_reduce";
  call.size_bytes = size_bytes;
  call.element_bytes = 4;
  call.calls_in_group = 1;
  return call;
}

plexus_tuner_candidate_t candidate_of(const char* algorithm, const char* protocol) {
  plexus_tuner_candidate_t candidate{};
  candidate.struct_size = sizeof(candidate);
  candidate.algorithm = algorithm;
  candidate.protocol = protocol;
  candidate.rounds = 2;
  candidate.chunks_per_loop = 2;
  candidate.chunks_moved = 2;
  candidate.chunks_in_all = 4;
  candidate.chunks_reduced = 1;
  candidate.channels = 1;
  candidate.chunk_bytes = 131072;
  return candidate;
}

class MeasuredTest : public ::testing::Test {
 protected:
  [[nodiscard]] double model(uint64_t size_bytes, const char* protocol = "Simple") const {
    return predict_us(kDefaultCalibration, comm_, call_of(size_bytes),
                      candidate_of("ring", protocol));
  }
  [[nodiscard]] double corrected(const plexus_tuner_comm_t& comm,
                                 uint64_t size_bytes,
                                 const char* algorithm = "ring",
                                 const char* protocol = "Simple") const {
    return predict_us(kDefaultCalibration, measured_, comm, call_of(size_bytes),
                      candidate_of(algorithm, protocol));
  }
  /// The model's time of `at_bytes`, moved to a measured one as the model is wrong there.
  [[nodiscard]] double moved(uint64_t size_bytes, double measured_us, uint64_t at_bytes) const {
    return model(size_bytes) * std::pow(measured_us / model(at_bytes), kTrust);
  }
  plexus_tuner_comm_t comm_ = comm_of(2, PLEXUS_LINK_HOST);
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
       {comm_of(3, PLEXUS_LINK_HOST), comm_of(2, PLEXUS_LINK_PROCESS),
        comm_of(2, PLEXUS_LINK_NET)}) {
    EXPECT_EQ(corrected(other, 1024), predict_us(kDefaultCalibration, other, call_of(1024),
                                                 candidate_of("ring", "Simple")));
  }
  plexus_tuner_comm_t two_hosts = comm_;
  two_hosts.nnodes = 2;
  two_hosts.ranks_per_node_max = 1;
  EXPECT_EQ(corrected(two_hosts, 1024), predict_us(kDefaultCalibration, two_hosts, call_of(1024),
                                                   candidate_of("ring", "Simple")));
}

}  // namespace
}  // namespace plexus::tuner_default
