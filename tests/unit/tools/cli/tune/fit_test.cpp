// SPDX-License-Identifier: Apache-2.0
// Times computed by the model from known parameters lead back to those parameters.
#include "tools/cli/tune/fit.hpp"

#include <cmath>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace plexus::tune {
namespace {

constexpr LinkNumbers kLink = {.latency_us = 0.05, .message_us = 0.12, .us_per_byte = 4e-5};
constexpr double kReduce = 1e-5;
constexpr double kSlotBytes = 128 * 1024;
constexpr double kLarge = kLargeBytes;

/// The times of 2 ranks by the formula in docs/tuning.md.
LinkTimes times_of(const LinkNumbers& link, double reduce) {
  const double messages_us = kLarge / kSlotBytes * link.message_us;
  return {
      .broadcast_small = link.message_us,
      .all_reduce_small = link.latency_us + link.message_us,
      .ring_large = 2 * link.latency_us + messages_us + kLarge * (link.us_per_byte + reduce / 2),
      .doubling_large = link.latency_us + messages_us + kLarge * (link.us_per_byte + reduce)};
}

HostTimes host_times(double turn_us, double spread) {
  const double bytes = 2.0 * kCrowdBytes * (kCrowdRanks - 1) / kCrowdRanks;
  const double factor = 1 + spread * (1 - 1.0 / (kCrowdRanks - 1));
  return {.cores = 2,
          .shared_ranks = 4,
          .shared_doubling = 2 * (kLink.latency_us + 2 * turn_us) + 4 * kLink.message_us,
          .crowd_ring_large = bytes * (kLink.us_per_byte + kReduce / 2),
          .crowd_twoshot_large = bytes * (kLink.us_per_byte * factor + kReduce / 2)};
}

TEST(TuneFit, FindsTheNumbersOfALink) {
  const LinkNumbers link = fit_link(times_of(kLink, kReduce));
  EXPECT_NEAR(link.latency_us, kLink.latency_us, 1e-9);
  EXPECT_NEAR(link.message_us, kLink.message_us, 1e-9);
  EXPECT_NEAR(link.us_per_byte, kLink.us_per_byte, 1e-12);
}

TEST(TuneFit, FindsTheNumbersOfAHost) {
  const HostNumbers host = fit_host(host_times(0.5, 0.4), times_of(kLink, kReduce), kLink);
  EXPECT_NEAR(host.reduce_us_per_byte, kReduce, 1e-12);
  EXPECT_NEAR(host.turn_us, 0.5, 1e-9);
  EXPECT_NEAR(host.spread, 0.4, 1e-9);
}

TEST(TuneFit, GivesNoNumberThatIsNone) {
  // Noise: the small all-reduce faster than a message, doubling faster than the ring.
  const LinkTimes noisy = {
      .broadcast_small = 2, .all_reduce_small = 1, .ring_large = 10, .doubling_large = 1};
  const LinkNumbers link = fit_link(noisy);
  for (const double number : {link.latency_us, link.message_us, link.us_per_byte}) {
    EXPECT_TRUE(std::isfinite(number));
    EXPECT_GT(number, 0);
  }
  const HostNumbers host = fit_host({.cores = 2,
                                     .shared_ranks = 4,
                                     .shared_doubling = 0,
                                     .crowd_ring_large = 0,
                                     .crowd_twoshot_large = 0},
                                    noisy, link);
  EXPECT_EQ(host.reduce_us_per_byte, 0);
  EXPECT_EQ(host.turn_us, 0);
  EXPECT_EQ(host.spread, 0);
}

TEST(TuneFit, StartsMoreRanksThanCoresOnlyWhereTheyAreFew) {
  EXPECT_EQ(choose_shared_ranks(1), 2);
  EXPECT_EQ(choose_shared_ranks(2), 4);
  EXPECT_EQ(choose_shared_ranks(3), 4);
  EXPECT_EQ(choose_shared_ranks(63), 64);
  EXPECT_EQ(choose_shared_ranks(64), 0);
}

TEST(TuneFit, WritesWhatWasMeasuredAndNothingElse) {
  HostTimes times = host_times(0.5, 0.4);
  const LinkTimes near = times_of(kLink, kReduce);
  const auto text = [&] {
    return nlohmann::json::parse(format_calibration(
        {{"host", kLink}}, fit_host(times, near, kLink),
        {{"host", 4, "reduce", {64, 256}, {{"ring", {0.5, 1}}}}}, {{"cores", 2}}, "here"));
  };
  EXPECT_EQ(text()["about"], "here");
  EXPECT_EQ(text()["messages"]["cores"], 2);
  EXPECT_EQ(text()["links"].size(), 1U);
  EXPECT_DOUBLE_EQ(text()["links"]["host"]["us_per_byte"].get<double>(), kLink.us_per_byte);
  EXPECT_TRUE(text()["host"].contains("turn_us"));
  EXPECT_EQ(text()["measured"], nlohmann::json::parse(R"([{"link": "host", "ranks": 4,
      "collective": "reduce", "bytes": [64, 256], "time_us": {"ring": [0.5, 1]}}])"));
  times.shared_ranks = 0;
  EXPECT_FALSE(text()["host"].contains("turn_us"));
}

}  // namespace
}  // namespace plexus::tune
