// SPDX-License-Identifier: Apache-2.0
// Runs what public_accuracy is made of on a few rows of the public data (public_sample).
#include <algorithm>
#include <cmath>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/bench/public_fit.hpp"

namespace plexus {
namespace {

using testing::HasSubstr;

Machines machines() { return Machines::load(PLEXUS_PUBLIC_MACHINES).value(); }

TEST(PublicAccuracy, ReadsTablesWithTheirMachinesAndSetups) {
  Machines known = machines();
  std::map<std::string, int> left_out;
  const auto samples = read_samples(PLEXUS_PUBLIC_SAMPLE, known, &left_out).value();
  EXPECT_EQ(left_out.size(), 1U);
  EXPECT_EQ(left_out.begin()->first, "8x MI300X");
  std::map<std::string, Sample> first;
  for (const Sample& sample : samples) {
    first.emplace(sample.table, sample);
  }
  ASSERT_EQ(first.size(), 5U);
  EXPECT_EQ(first.at("nebius-h100-2n-ar").machine->cluster.nodes, 2);
  EXPECT_EQ(first.at("nebius-h100-2n-ar").time_us, 29.78) << "8 bytes: in place";
  EXPECT_EQ(first.at("sb-a100-8-alltoall").setup, Setup::kOneProcess);
  EXPECT_TRUE(first.at("sb-a100-8-alltoall").way.direct);
  EXPECT_TRUE(first.at("h100-2n-ar-i290-ring").is_fault);
  EXPECT_EQ(first.at("h100-2n-ar-i290-ring").way.algorithm, NcclAlgorithm::kRing);
  EXPECT_EQ(first.at("aic-h100_sxm-8-all_gather").machine->cluster.ranks, 8);
}

TEST(PublicAccuracy, FittedCostsAreNearSoundRowsAndFarFromFaults) {
  Machines known = machines();
  std::map<std::string, int> left_out;
  const auto samples = read_samples(PLEXUS_PUBLIC_SAMPLE, known, &left_out).value();
  for (const Sample& sample : samples) {
    const double slower = sample.time_us / predict(fitted_costs(), sample);
    if (sample.is_fault) {
      EXPECT_GT(slower, 1.5) << sample.table << " " << sample.bytes;
    } else {
      EXPECT_LT(std::abs(std::log(slower)), sample.is_fitted ? 0.5 : 0.7)
          << sample.table << " " << sample.bytes;
    }
  }
}

TEST(PublicAccuracy, FitFindsTheCostsThatRowsWereMadeWith) {
  Machines known = machines();
  FittedCosts truth = fitted_costs();
  truth.gpus[static_cast<size_t>(GpuFamily::kHopper)].start_us *= 1.5;
  truth.networks[static_cast<size_t>(Network::kInfiniBand)].hop_us *= 2;
  std::vector<Sample> samples;
  for (const int nodes : {1, 2}) {
    const FittedMachine* const machine = known.find("8x H100", 8 * nodes, nodes);
    for (size_t bytes = 8; bytes <= size_t{1} << 30; bytes *= 4) {
      Sample sample{.table = "made", .label = "made", .bytes = bytes, .machine = machine};
      sample.way = machine->choose(sample.call, bytes);
      sample.time_us = predict(truth, sample);
      samples.push_back(sample);
    }
  }
  weigh(samples);
  const FittedCosts found = fit(samples);
  std::vector<double> errors;
  for (const Sample& sample : samples) {
    errors.push_back(std::abs(predict(found, sample) / sample.time_us - 1));
  }
  std::sort(errors.begin(), errors.end());
  EXPECT_LT(errors[errors.size() / 2], 0.05);
  EXPECT_LT(errors.back(), 0.3);
  EXPECT_THAT(format_costs(found), HasSubstr("// Hopper"));
}

TEST(PublicAccuracy, ReadsGroupsAndLoggedChoices) {
  Machines known = machines();
  const auto groups = read_groups(PLEXUS_PUBLIC_SAMPLE, known).value();
  ASSERT_EQ(groups.size(), 6U);
  EXPECT_EQ(groups[0].label, "1 x 8 GPUs");
  const auto choices = read_choices(PLEXUS_PUBLIC_SAMPLE, known).value();
  ASSERT_FALSE(choices.empty());
  for (const LoggedChoice& choice : choices) {
    EXPECT_EQ(choice.logged, choice.predicted) << choice.bytes;
  }
}

TEST(PublicAccuracy, RefusesLinesOfAnotherLength) {
  EXPECT_THAT(read_tsv("/nonexistent").error().message(), HasSubstr("/nonexistent"));
  EXPECT_THAT(Machines::load(PLEXUS_PUBLIC_SAMPLE "/tables/bad.tsv").error().message(),
              HasSubstr("bad.tsv"));
}

}  // namespace
}  // namespace plexus
