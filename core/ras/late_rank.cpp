// SPDX-License-Identifier: Apache-2.0
#include "core/ras/late_rank.hpp"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace plexus {
namespace {

double share_inside(const ArrivalWindow& window) {
  return window.period_ns == 0
             ? 0
             : static_cast<double>(window.inside_ns) / static_cast<double>(window.period_ns);
}

/// The share of its time that a process spends in other communicators: a rank that waits there is
/// not to blame here. Of a process with several ranks in one communicator nothing is known.
double share_elsewhere(const RollProcess& process, uint64_t group) {
  double share = 0;
  for (const RollRank& rank : process.ranks) {
    const auto last = std::max_element(
        rank.arrivals.begin(), rank.arrivals.end(),
        [](const ArrivalWindow& a, const ArrivalWindow& b) { return a.number < b.number; });
    share += rank.group == group || last == rank.arrivals.end() ? 0 : share_inside(*last);
  }
  const auto here = std::count_if(process.ranks.begin(), process.ranks.end(),
                                  [&](const RollRank& rank) { return rank.group == group; });
  return here > 1 ? 0 : std::min(share, 1.0);
}

std::map<const RollRank*, double> shares_elsewhere(const JobRoll& roll, uint64_t group) {
  std::map<const RollRank*, double> shares;
  for (const RollProcess& process : roll.processes) {
    for (const RollRank& rank : process.ranks) {
      if (rank.group == group) {
        shares[&rank] = share_elsewhere(process, group);
      }
    }
  }
  return shares;
}

struct Timed {
  const RasRank* rank;
  ArrivalWindow window;
};

/// By number of the window: what the ranks say of it, where all of them do.
std::map<uint64_t, std::vector<Timed>> find_common(const RasComm& comm) {
  std::map<uint64_t, std::vector<Timed>> windows;
  for (const RasRank& rank : comm.ranks) {
    for (const ArrivalWindow& window : rank.said->arrivals) {
      windows[window.number].push_back({&rank, window});
    }
  }
  std::erase_if(windows, [&](const auto& each) { return each.second.size() != comm.ranks.size(); });
  return windows;
}

}  // namespace

std::optional<LateRank> find_late_rank(const JobRoll& roll, const RasComm& comm) {
  constexpr double kShareMin = 0.05;
  constexpr double kStandsOut = 0.6;
  constexpr double kLateMinUs = 20;
  constexpr double kNs = 1000;
  if (comm.ranks.size() < 2 || !comm.missing.empty()) {
    return std::nullopt;
  }
  const auto windows = find_common(comm);
  auto elsewhere = shares_elsewhere(roll, comm.group);
  std::optional<int> latest;
  double share = 1;
  double period_ns = 0;
  for (const auto& [number, timed] : windows) {
    std::vector<std::pair<double, int>> outside;  // share of the time, rank
    for (const Timed& each : timed) {
      outside.emplace_back(1 - share_inside(each.window) - elsewhere[each.rank->said],
                           each.rank->rank);
      period_ns += static_cast<double>(each.window.period_ns);
    }
    std::sort(outside.begin(), outside.end());
    if (latest.value_or(outside.back().second) != outside.back().second) {
      return std::nullopt;
    }
    latest = outside.back().second;
    const double last = outside.back().first;
    const double before = outside[outside.size() - 2].first;
    const double median = outside[(outside.size() - 1) / 2].first;
    if (last - before < kStandsOut * (last - median)) {
      return std::nullopt;  // ranks are unequal, and one happens to be the last
    }
    share = std::min(share, last - median);
  }
  const double least = windows.size() == 1 ? 2 * kShareMin : kShareMin;
  const double calls =
      static_cast<double>(windows.size() * comm.ranks.size() * ArrivalTimes::kCalls);
  // On a busy host a process may have had no core for some of a short window.
  constexpr double kAloneNs = 0.5e9;
  if (windows.size() == 1 && period_ns / static_cast<double>(comm.ranks.size()) < kAloneNs) {
    return std::nullopt;
  }
  if (!latest.has_value() || share < least || share * period_ns / kNs < kLateMinUs * calls) {
    return std::nullopt;
  }
  const double period_us = period_ns / kNs / calls;
  return LateRank{.rank = *latest,
                  .late_us = share * period_us,
                  .period_us = period_us,
                  .first = windows.begin()->first * ArrivalTimes::kCalls,
                  .last = (windows.rbegin()->first + 1) * ArrivalTimes::kCalls - 1};
}

}  // namespace plexus
