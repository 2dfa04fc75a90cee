// SPDX-License-Identifier: Apache-2.0
// The verifier with a network that reduces: each host's heads send their sum and receive the
// result.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/program/verify.hpp"
#include "tests/unit/kernels/program/programs.hpp"

namespace plexus {
namespace {

using testing::HasSubstr;

/// Two hosts of `count` ranks with `heads` heads each.
Programs record_on_two_hosts(const char* algorithm, int count, int heads) {
  const std::vector<int> ring = in_order(2 * count);
  const std::vector<int> nodes = {0, count};
  Programs programs;
  for (const int rank : ring) {
    programs.push_back(find_algorithm(algorithm)->record(
        {.rank = rank, .ring = ring, .nodes = nodes, .heads = heads}));
  }
  return programs;
}

std::string reason_with_networks(const Programs& programs, int networks) {
  return verify_programs(programs, Collective::kAllReduce, 0, true, kSlots, networks).reason;
}

TEST(VerifyNetwork, ProvesCollnetForHostsAndHeadsOfAllSizes) {
  for (const char* name : {"collnet_direct_all_reduce", "collnet_chain_all_reduce"}) {
    for (int nranks = 2; nranks <= 24; ++nranks) {
      for (int per_node = 1; per_node <= std::min(nranks, 9); ++per_node) {
        for (int heads = 1; heads <= (nranks - 1) % per_node + 1; ++heads) {
          for (const bool in_place : {false, true}) {
            const VerifyResult result = verify({.algorithm = find_algorithm(name),
                                                .nranks = nranks,
                                                .in_place = in_place,
                                                .ranks_per_node = per_node,
                                                .heads = heads});
            ASSERT_EQ(result.reason, "") << name << ", " << nranks << " ranks, " << per_node
                                         << " per host, " << heads << " heads";
            ASSERT_LE(result.slots_needed, kSlots / 2);
          }
        }
      }
    }
  }
}

TEST(VerifyNetwork, RefusesMoreHeadsThanTheLastHostHasRanks) {
  EXPECT_THAT(verify({.algorithm = find_algorithm("collnet_direct_all_reduce"),
                      .nranks = 5,
                      .ranks_per_node = 4,
                      .heads = 2})
                  .reason,
              HasSubstr("2 heads on a host of 1 rank"));
}

TEST(VerifyNetwork, RefusesNetworksThatTheCommunicatorDoesNotHave) {
  EXPECT_THAT(reason_with_networks(record_on_two_hosts("collnet_direct_all_reduce", 2, 2), 1),
              HasSubstr("rank 5, which is not a peer"));
}

TEST(VerifyNetwork, RefusesAHostThatDoesNotContribute) {
  // Rank 1 sends nothing to the network and receives rank 0's result from it.
  Programs programs =
      make_programs(1, {[](auto& prims) {
                          prims.send(Buffer::kInput, 0, 2);
                          prims.recv(2, Buffer::kOutput, 0, Complete::kYes);
                        },
                        [](auto& prims) { prims.recv(2, Buffer::kOutput, 0, Complete::kYes); }});
  EXPECT_THAT(reason_with_networks(programs, 1), HasSubstr("completes a value"));
}

TEST(VerifyNetwork, RefusesAHostThatContributesTwice) {
  // Both ranks of host 0 send the host's sum.
  const auto body = [](int other) {
    return [other](RecordingPrims& prims) {
      prims.send(Buffer::kInput, 0, other);
      prims.recv_reduce_send(other, Buffer::kInput, 0, 2);
      prims.recv(2, Buffer::kOutput, 0, Complete::kYes);
    };
  };
  EXPECT_THAT(reason_with_networks(make_programs(1, {body(1), body(0)}), 1),
              HasSubstr("4 contributions of 2 ranks"));
}

TEST(VerifyNetwork, RefusesAResultThatNobodyTakes) {
  Programs programs = record_on_two_hosts("collnet_chain_all_reduce", 1, 1);
  programs[1].lanes[1].steps.clear();
  EXPECT_THAT(reason_with_networks(programs, 1), HasSubstr("to rank 1, which receives 0"));
}

TEST(VerifyNetwork, RefusesMembersWhoseChunksDiffer) {
  Programs programs = record_on_two_hosts("collnet_direct_all_reduce", 1, 1);
  std::swap(programs[1].lanes[0].steps[0], programs[1].lanes[0].steps[1]);
  EXPECT_THAT(reason_with_networks(programs, 1), HasSubstr("which may have another length"));
}

}  // namespace
}  // namespace plexus
