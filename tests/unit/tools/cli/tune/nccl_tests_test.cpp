// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/tune/nccl_tests.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus::tune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kHead = R"(# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 8 maxBytes 64 step: 8(factor) warmup iters: 1 iters: 5 agg iters: 1
#
# Using devices
#  Rank  0 Group  0 Pid   4321 on     node-a device  0 [0000:1b:00] NVIDIA H100
#  Rank  1 Group  0 Pid   4322 on     node-a device  1 [0000:43:00] NVIDIA H100
#  Rank  2 Group  0 Pid   1234 on     node-b device  0 [0000:1b:00] NVIDIA H100
node-a:4321:4321 [0] NCCL INFO Bootstrap: Using eth0
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
)";
constexpr const char* kRows =
    R"(           8             2     float     sum      -1    13.46    0.00    0.00       0    11.59    0.00    0.00       0
          64            16     float     sum      -1    13.12    0.00    0.01       0    13.93    0.00    0.01       0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0.01
)";

std::string refusal_of(const std::string& text) {
  const auto parsed = parse_nccl_tests(text);
  EXPECT_TRUE(parsed.has_error()) << text;
  return parsed.has_error() ? parsed.error().message() : "";
}

TEST(NcclTestsLogs, GiveRanksNodesAndTimesOutOfPlace) {
  const auto parsed = parse_nccl_tests(std::string(kHead) + kRows);
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message();
  const NcclTestsLog& log = parsed.value();
  EXPECT_EQ(log.collective, "all_reduce");
  EXPECT_EQ(log.nranks, 3U);
  EXPECT_EQ(log.nnodes, 2U);
  EXPECT_THAT(log.bytes, ElementsAre(8, 64));
  EXPECT_THAT(log.time_us, ElementsAre(13.46, 13.12));
}

TEST(NcclTestsLogs, ThatAreNoneAreRefusedWithWhatIsMissing) {
  EXPECT_THAT(refusal_of(""), HasSubstr("no line \"# Collective test starting"));
  EXPECT_THAT(refusal_of("# Collective test starting: all_reduce_perf\n"),
              HasSubstr("lists 0 ranks"));
  EXPECT_THAT(refusal_of(kHead), HasSubstr("has no table"));
  EXPECT_THAT(refusal_of(std::string(kHead) + kRows + kRows), HasSubstr("sizes must ascend"));
  EXPECT_THAT(refusal_of(std::string(kHead) + "  8  2 float sum -1 -13 0 0 0\n"),
              HasSubstr("line 13: no size and time"));
  EXPECT_THAT(refusal_of(std::string(kHead) + "  8  2 float\n"), HasSubstr("no size and time"));
  EXPECT_THAT(
      refusal_of(std::string(kHead) + "#  Rank  3 Group  1 Pid 1 on node-b device 1 [0] H100\n"),
      HasSubstr("several communicators"));
  EXPECT_THAT(refusal_of(std::string(kHead) + "# Collective test starting: broadcast_perf\n"),
              HasSubstr("a second test, broadcast"));
  EXPECT_THAT(refusal_of("# Collective test starting: alltoall_perf\n"),
              HasSubstr("line 1: a test of something else than broadcast, reduce"));
}

TEST(NcclTestsLogs, OfOneCallAreMergedByAlgorithmAndProtocol) {
  const auto log = parse_nccl_tests(std::string(kHead) + kRows);
  ASSERT_TRUE(log.has_value());
  std::vector<NcclTestsCall> calls;
  ASSERT_TRUE(merge_log(calls, "ring/LL", log.value()).has_value());
  ASSERT_TRUE(merge_log(calls, "tree/LL", log.value()).has_value());
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(calls.front().time_us.size(), 2U);
  const auto again = merge_log(calls, "ring/LL", log.value());
  ASSERT_TRUE(again.has_error());
  EXPECT_THAT(again.error().message(), HasSubstr("the second log of all_reduce of 3 ranks"));
  NcclTestsLog shorter = log.value();
  shorter.bytes.pop_back();
  shorter.time_us.pop_back();
  const auto other = merge_log(calls, "ring/Simple", shorter);
  ASSERT_TRUE(other.has_error());
  EXPECT_THAT(other.error().message(), HasSubstr("has other sizes"));
}

}  // namespace
}  // namespace plexus::tune
