// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/tune/choices.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <numeric>

#include "core/base/median.hpp"
#include "core/tuning/choose_algorithm.hpp"
#include "tools/cli/measure.hpp"
#include "tools/cli/tune/fit.hpp"

namespace plexus::tune {
namespace {

constexpr size_t kBytesFirst = 64;
constexpr size_t kBytesLast = size_t{4} << 20;
constexpr double kLeastUs = 1e-3;  // smaller times are noise
constexpr int kBudgetMs = 6;       // per size: hundreds of small calls, several of the largest

/// The algorithms that can run on one host.
std::vector<std::string> list_algorithms(Collective collective, int nranks) {
  ChannelOrder order;
  order.ring.resize(static_cast<size_t>(nranks));
  std::iota(order.ring.begin(), order.ring.end(), 0);
  order.nodes = {0};
  const LoopCosts costs(order, true);
  const ChoiceInput input{.collective = collective,
                          .size_bytes = kBytesFirst,
                          .nranks = nranks,
                          .slot_bytes = kBytesLast,
                          .ranks_per_node_max = nranks,
                          .costs = &costs};
  std::vector<std::string> algorithms;
  for (const Candidate& candidate : list_candidates(input, AlgorithmFilter())) {
    if (candidate.possible && candidate.choice.protocol == Protocol::kSimple) {
      algorithms.emplace_back(candidate.choice.algorithm->family);
    }
  }
  return algorithms;
}

/// For each size, the geometric mean of out of place and in place; for each of these, the median of
/// the passes, because with more ranks than cores a pass may be unusually fast.
class PassTimes {
 public:
  void add(const MeasuredTime& time) {
    us_[time.size_bytes][time.in_place].push_back(time.median_us);
  }
  [[nodiscard]] std::vector<size_t> sizes() const {
    std::vector<size_t> sizes;
    for (const auto& [size, places] : us_) {
      sizes.push_back(size);
    }
    return sizes;
  }
  [[nodiscard]] std::vector<double> means() const {
    std::vector<double> means;
    for (const auto& [size, places] : us_) {
      double log_sum = 0;
      for (const auto& [in_place, passes] : places) {
        log_sum += std::log(std::max(median(passes), kLeastUs));
      }
      means.push_back(std::exp(log_sum / static_cast<double>(places.size())));
    }
    return means;
  }

 private:
  std::map<size_t, std::map<bool, std::vector<double>>> us_;
};

struct Row {
  LinkClass link;
  int nranks;
  Collective collective;
  std::map<std::string, PassTimes> times;  // by algorithm
  bool is_whole;                           // has times of all algorithms
};

Result<void> measure_row(Row& row, const Deadline& deadline) {
  for (const std::string& algorithm : list_algorithms(row.collective, row.nranks)) {
    PLEXUS_TRY(measured, measure_times({.collective = row.collective,
                                        .algorithm = algorithm,
                                        .nranks = row.nranks,
                                        .mode = row.link.mode,
                                        .size_bytes = kBytesFirst,
                                        .size_bytes_last = kBytesLast,
                                        .over_sockets = row.link.over_sockets,
                                        .budget_ms = kBudgetMs,
                                        .deadline = deadline}));
    for (const MeasuredTime& time : measured) {
      if (time.size_bytes > 0) {  // zero if smaller than one element per rank
        row.times[algorithm].add(time);
      }
    }
  }
  return ok();
}

MeasuredCall summarize(const Row& row) {
  MeasuredCall call = {.link = row.link.name,
                       .nranks = row.nranks,
                       .collective = name(row.collective),
                       .bytes = {},
                       .time_us = {}};
  for (const auto& [algorithm, times] : row.times) {
    call.bytes = times.sizes();
    call.time_us[algorithm] = times.means();
  }
  return call;
}

}  // namespace

Result<MeasuredChoices> measure_choices(const ChoicesInput& input, Stage& stage) {
  std::vector<Row> rows;
  for (const LinkClass& link : input.classes) {
    for (const int nranks : input.nranks) {
      for (const Collective collective : input.collectives) {
        rows.push_back({.link = link,
                        .nranks = nranks,
                        .collective = collective,
                        .times = {},
                        .is_whole = false});
      }
    }
  }
  const size_t all = rows.size() * static_cast<size_t>(input.passes);
  size_t done = 0;
  for (; done < all && !stage.is_over(); ++done) {
    stage.report(done, all);
    Row& row = rows[done % rows.size()];
    auto measured = measure_row(row, stage.deadline());
    if (measured.has_error() && measured.error().code() == Code::kTimeout) {
      break;
    }
    PLEXUS_TRY(std::move(measured));
    row.is_whole = true;
  }
  MeasuredChoices measured{.passes = static_cast<int>(done / rows.size())};
  for (const Row& row : rows) {
    if (row.is_whole) {
      measured.calls.push_back(summarize(row));
    }
  }
  return measured;
}

}  // namespace plexus::tune
