// SPDX-License-Identifier: Apache-2.0
#include "core/tuning/rates.hpp"

#include <gtest/gtest.h>

namespace plexus {
namespace {

constexpr const char* kHost = "node1, some CPU, 2 cores";

HostRates with_far() {
  HostRates rates = built_in_rates();
  rates.far = rates.near;
  rates.far.line_ns = 252;
  return rates;
}

HostRates without_attach() {
  HostRates rates = built_in_rates();
  rates.near.exchange_ns[static_cast<size_t>(CopyMethod::kAttach)].fill(0);
  return rates;
}

TEST(Rates, SurviveTheirText) {
  for (const HostRates& rates : {built_in_rates(), with_far(), without_attach()}) {
    const auto back = parse_rates(format_rates(rates, kHost), kHost);
    ASSERT_TRUE(back.has_value());
    EXPECT_EQ(back.value(), rates);
  }
}

TEST(Rates, OfAnotherHostOrFormatAreRefused) {
  const std::string text = format_rates(built_in_rates(), kHost);
  EXPECT_TRUE(parse_rates(text, "node2, some CPU, 2 cores").has_error());
  EXPECT_TRUE(parse_rates(text, "node1, some CPU, 2 cores\nnear").has_error());
  std::string other_format = text;
  other_format.replace(text.find('1'), 1, "2");
  EXPECT_TRUE(parse_rates(other_format, kHost).has_error());
}

TEST(Rates, ThatAreIncompleteOrTooMuchAreRefused) {
  const std::string text = format_rates(with_far(), kHost);
  ASSERT_TRUE(parse_rates(text, kHost).has_value());
  for (size_t size = 0; size < text.size(); ++size) {
    const auto cut = parse_rates(text.substr(0, size), kHost);
    // Without the second distance it is whole again.
    EXPECT_EQ(cut.has_value(), size == text.find("far line")) << size;
  }
  EXPECT_TRUE(parse_rates(text + "x", kHost).has_error());
  EXPECT_TRUE(parse_rates(text + text, kHost).has_error());
}

TEST(Rates, ThatNobodyMeasuredAreRefused) {
  const auto refused = [](auto change) {
    HostRates rates = with_far();
    change(rates);
    return !is_plausible(rates) && parse_rates(format_rates(rates, kHost), kHost).has_error();
  };
  EXPECT_TRUE(refused([](HostRates& rates) { rates.near.line_ns = 0; }));
  EXPECT_TRUE(refused([](HostRates& rates) { rates.near.line_ns = ~uint64_t{0}; }));
  EXPECT_TRUE(refused([](HostRates& rates) { rates.far.exchange_ns[0][3] = 0; }));
  EXPECT_TRUE(refused([](HostRates& rates) { rates.near.exchange_ns[1][3] = 0; }));
  EXPECT_TRUE(refused([](HostRates& rates) { rates.near.exchange_ns[2][5] = 1'000'000'000'000; }));
  EXPECT_TRUE(is_plausible(without_attach()));
}

TEST(Rates, BetweenAndBeyondTheMeasuredSizesFollowFromTheNext) {
  PairRates pair;
  pair.line_ns = 1;
  pair.exchange_ns[0] = {100, 200, 400, 800, 1600, 3200};
  EXPECT_EQ(pair.time_ns(CopyMethod::kThroughSlots, 1), 100);
  EXPECT_EQ(pair.time_ns(CopyMethod::kThroughSlots, kRatesBytes[0]), 100);
  EXPECT_EQ(pair.time_ns(CopyMethod::kThroughSlots, (kRatesBytes[1] + kRatesBytes[2]) / 2), 300);
  EXPECT_EQ(pair.time_ns(CopyMethod::kThroughSlots, kRatesBytes[5] * 8), 3200 * 8);
  EXPECT_EQ(pair.time_ns(CopyMethod::kAttach, kRatesBytes[3]), 0);
}

TEST(Rates, OfSeveralHostsAreTheWorst) {
  HostRates slow = with_far();
  slow.near.line_ns = 252;
  slow.near.exchange_ns[0][2] = 1;
  const HostRates worst = worst_of(slow, without_attach());
  EXPECT_EQ(worst, worst_of(without_attach(), slow));
  EXPECT_EQ(worst.near.line_ns, 252U);
  EXPECT_EQ(worst.near.exchange_ns[0][2], built_in_rates().near.exchange_ns[0][2]);
  EXPECT_EQ(worst.near.time_ns(CopyMethod::kAttach, 4096), 0);
  EXPECT_EQ(worst.far, slow.far);
  EXPECT_TRUE(is_plausible(worst));
  EXPECT_EQ(&slow.slowest(), &slow.far);
}

}  // namespace
}  // namespace plexus
