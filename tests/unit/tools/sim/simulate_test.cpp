// SPDX-License-Identifier: Apache-2.0
// The simulator against the closed formulas of the literature: where no link is shared, a message
// of b bytes costs alpha + b beta, and a pair of operands gamma per byte (Thakur et al., 2005;
// Sanders et al., 2009).
#include "tools/sim/simulate.hpp"

#include <cmath>
#include <cstdlib>
#include <string>

#include "tests/unit/tools/sim/jobs.hpp"

namespace plexus {
namespace {

constexpr double kAlpha = 5;
constexpr double kBeta = 1.0 / 1024;
constexpr double kGamma = 1.0 / 4096;

SimJob with_gamma(SimJob job) {
  job.costs.reduce_us_per_byte = kGamma;
  return job;
}

TEST(Simulate, TakesTheRoundsOfTheTableWhenBytesCostNothing) {
  for (const Algorithm* const algorithm : simulated_algorithms()) {
    if (algorithm->for_datacenters) {
      continue;  // its rounds are not in the table
    }
    // with more ranks some send more messages at once than there are slots
    for (const int nranks : {2, 3, 4, 7, 8, 16}) {
      SimJob job = make_job(algorithm->name, nranks, uint64_t{64} * 1024);
      job.costs.near.us_per_byte = job.costs.far.us_per_byte = 0;
      job.slot_bytes = 1 << 20;
      EXPECT_NEAR(time_of(job) / kAlpha,
                  cost_of(*algorithm, {.nranks = nranks}, message_form_of(job).joins).rounds, 1e-9)
          << algorithm->name << " of " << nranks;
    }
  }
}

/// Short messages of logarithmic algorithms on many ranks: log2 n of them one after the other,
/// twice for halving and doubling, and the bytes. The formulas are those of Chan et al.,
/// "Collective communication", 2007, and Bruck et al., 1997.
TEST(Simulate, LogarithmicAlgorithmsAreSoWithManyRanks) {
  const struct {
    const char* algorithm;
    double passes;
    double blocks;  // that a rank sends, for n ranks: `blocks` (n-1), or `blocks` n/2 log2 n
    bool by_log;
  } rows[] = {{"halving_doubling_all_reduce", 2, 2, false},
              {"bruck_all_gather", 1, 1, false},
              {"pat_all_gather", 1, 1, false},
              {"pat_reduce_scatter", 1, 1, false},
              {"binomial_gather", 1, 1, false},
              {"binomial_scatter", 1, 1, false},
              {"bruck_all_to_all", 1, 1, true}};
  std::vector<int> ranks = {64, 1024};
  if (const char* const more = std::getenv("PLEXUS_SIMULATED_RANKS")) {  // `./dev nightly`
    ranks.push_back(std::stoi(more));
  }
  for (const auto& row : rows) {
    for (const int n : ranks) {
      const SimJob job = make_job(row.algorithm, n, uint64_t{8} * static_cast<uint64_t>(n));
      const double rounds = std::log2(n);
      const double blocks = row.by_log ? n / 2.0 * rounds : n - 1.0;
      const double formula = row.passes * rounds * kAlpha + row.blocks * blocks * 8 * kBeta;
      const double us = run(make_symmetric_network(job)).time_us;
      EXPECT_GE(us, formula * 0.999) << row.algorithm << " of " << n;
      EXPECT_LE(us, formula * 1.1) << row.algorithm << " of " << n;
    }
  }
}

TEST(Simulate, IsTheFormulaOfTheRing) {
  for (const int n : {2, 5, 16, 64}) {
    const double bytes = 4096.0 * n;
    const SimJob job = with_gamma(make_job("ring_all_reduce", n, static_cast<uint64_t>(bytes)));
    const double chunk = bytes / n;
    EXPECT_NEAR(time_of(job), 2 * (n - 1) * (kAlpha + chunk * kBeta) + (n - 1) * chunk * kGamma,
                1e-6);
  }
}

TEST(Simulate, IsTheFormulaOfRecursiveDoubling) {
  for (const int n : {2, 4, 32}) {
    const double bytes = 8192;
    const SimJob job = with_gamma(make_job("recursive_doubling_all_reduce", n, 8192));
    EXPECT_NEAR(time_of(job), std::log2(n) * (kAlpha + bytes * kBeta + bytes * kGamma), 1e-6);
  }
}

TEST(Simulate, IsTheFormulaOfHalvingAndDoubling) {
  for (const int n : {2, 4, 8}) {
    const double bytes = 8192.0 * n;
    const SimJob job = make_job("halving_doubling_all_reduce", n, static_cast<uint64_t>(bytes));
    EXPECT_NEAR(time_of(job), 2 * std::log2(n) * kAlpha + 2 * bytes * (n - 1) / n * kBeta, 1e-6);
  }
}

TEST(Simulate, IsTheFormulaOfTheBinomialTree) {
  // The literature's log2(n) (alpha + m beta + m gamma) combines what comes first. A verb of ours
  // combines when all have come: sums 1 + 2 + ... + log2(n) in place of log2(n).
  for (const int n : {2, 8, 64}) {
    const double bytes = 8192;
    const double rounds = std::log2(n);
    const double sum = rounds * (rounds + 1) / 2;
    EXPECT_NEAR(time_of(make_job("binomial_broadcast", n, 8192)), rounds * (kAlpha + bytes * kBeta),
                1e-6);
    EXPECT_NEAR(time_of(with_gamma(make_job("binomial_reduce", n, 8192))),
                rounds * (kAlpha + bytes * kBeta) + sum * bytes * kGamma, 1e-6);
  }
}

TEST(Simulate, LetsTheDoubleTreeReachTheBandwidthOfItsLinks) {
  // Every rank is inside one of the two trees only, so that each sends and receives all bytes about
  // once per direction: 2 beta m, and the way through the tree.
  const double bytes = 64 << 20;
  SimJob job = make_job("tree_all_reduce", 16, static_cast<uint64_t>(bytes));
  job.channels = 2;
  job.slot_bytes = 1 << 16;
  const double both_ways = 2 * bytes * kBeta;
  EXPECT_GT(time_of(job), both_ways * 0.9);
  EXPECT_LT(time_of(job), both_ways * 1.2);
  job.channels = 1;  // one tree: its inner ranks have twice as much to send
  EXPECT_GT(time_of(job), both_ways * 1.3);
}

TEST(Simulate, SlotsLimitWhatIsUnderWay) {
  // A chunk of each loop waits for a slot that comes back after a round trip.
  SimJob job = make_job("chain_broadcast", 2, uint64_t{64} * 1024);
  job.slot_bytes = 1024;  // 64 messages
  job.costs.far.us_per_byte = job.costs.near.us_per_byte = 0;
  EXPECT_NEAR(time_of(job), kAlpha + 7 * 2 * kAlpha, 1e-9);
}

TEST(Simulate, CountsWhatAMessageCostsItsRanks) {
  SimJob job = make_job("ring_all_reduce", 4, 4096);
  const double without = time_of(job);
  job.costs.far.message_us = 1;
  // 6 sends and 6 receives on the chain, of which a rank does two in one step
  EXPECT_NEAR(time_of(job), without + 12, 1e-6);
}

TEST(Simulate, RefusesWhatItCannotDo) {
  SimJob job = make_job("ring_all_reduce", 4, 4096);
  job.costs.far.latency_us = 0;
  EXPECT_TRUE(make_network(job).has_error());
  EXPECT_TRUE(make_network(make_job("all_pairs_all_reduce", 66, 4096)).has_error());
}

TEST(Simulate, OfAnExchangeSharesThePortsOfItsRanks) {
  for (const int n : {4, 9}) {
    SimJob job = make_job("send", n, 0);
    const uint64_t count = 1 << 18;  // 1 MiB
    const double message_us = 4.0 * static_cast<double>(count) * kBeta;
    const uint64_t slots = 16;  // of 64 KiB in a message
    uint64_t messages = 0;
    const auto time_us = [&](std::vector<SimExchange> exchanges) {
      job.exchanges = std::move(exchanges);
      job.channels = static_cast<int>(job.exchanges.size());
      const auto all = make_network(job);
      const auto some = make_symmetric_network(job);
      EXPECT_EQ(run(all).time_us, run(some).time_us);
      messages = run(all).messages;
      return run(all).time_us;
    };
    job.slot_bytes = 1 << 16;
    EXPECT_NEAR(time_us({{.distance = 1, .wraps = false, .count = count}}), kAlpha + message_us,
                1e-3);
    EXPECT_EQ(messages, slots * static_cast<uint64_t>(n - 1));
    EXPECT_NEAR(time_us({{.distance = -1, .wraps = true, .count = count}}), kAlpha + message_us,
                1e-3);
    EXPECT_EQ(messages, slots * static_cast<uint64_t>(n));
    EXPECT_NEAR(time_us({{.distance = 1, .wraps = true, .count = count},
                         {.distance = -1, .wraps = true, .count = count / 4}}),
                kAlpha + 1.25 * message_us, 1e-3);
    EXPECT_EQ(time_us({{.distance = n, .wraps = false, .count = count}}), 0) << "there is no peer";
  }
}

}  // namespace
}  // namespace plexus
