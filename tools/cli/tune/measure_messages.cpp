// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <span>
#include <vector>

#include "core/base/median.hpp"
#include "kernels/program/algorithms.hpp"
#include "tools/cli/measure.hpp"
#include "tools/cli/perf/statistics.hpp"
#include "tools/cli/tune/fit.hpp"
#include "tools/cli/tune/messages.hpp"
#include "tools/cli/tune/steady.hpp"

namespace plexus::tune {
namespace {

constexpr size_t kMessageBytesFirst = 16;
constexpr size_t kMessageBytesLast = size_t{64} << 20;
constexpr size_t kOneCoreBytesLast = size_t{128} << 10;  // no larger than a slot

/// Medians over the repetitions, [bytes of a message]. `messages`: into how many a call divides its
/// bytes.
std::map<size_t, double> medians(const SteadyRun& run, bool in_place, size_t messages = 1) {
  std::map<size_t, std::vector<double>> times;
  for (const auto& repetition : run.times) {
    for (const MeasuredTime& time : repetition) {
      if (time.in_place == in_place && time.size_bytes > 0) {
        times[time.size_bytes / messages].push_back(time.median_us);
      }
    }
  }
  std::map<size_t, double> medians;
  for (const auto& [bytes, values] : times) {
    medians[bytes] = median(values);
  }
  return medians;
}

/// The runs of a link, in this order.
enum LinkRun : size_t {
  kBroadcast,
  kReduce,
  kExchange,
  kSum,
  kRing,
  kHalving,
  kOneCore,
  kLinkRuns
};

std::vector<SteadyRun> link_runs(bool over_sockets) {
  const auto run = [&](Collective collective, const char* algorithm, size_t first, size_t last) {
    constexpr int kBudgetMs = 10;
    return SteadyRun{.input = {.collective = collective,
                               .algorithm = algorithm,
                               .nranks = 2,
                               .size_bytes = first,
                               .size_bytes_last = last,
                               .factor = 2,
                               .over_sockets = over_sockets,
                               .budget_ms = kBudgetMs}};
  };
  SteadyRun one_core = run(Collective::kBroadcast, "ring", kMessageBytesFirst, kOneCoreBytesLast);
  one_core.input.bind = "one";
  return {run(Collective::kBroadcast, "ring", kMessageBytesFirst, kMessageBytesLast),
          run(Collective::kReduce, "ring", kMessageBytesFirst, kMessageBytesLast),
          run(Collective::kAllGather, "ring", 2 * kMessageBytesFirst, 2 * kMessageBytesLast),
          run(Collective::kAllReduce, "doubling", kMessageBytesFirst, kMessageBytesLast),
          run(Collective::kAllReduce, "ring", kChunkBytes, kChunkBytes),
          run(Collective::kAllReduce, "halving", 2 * kChunkBytes, 2 * kChunkBytes),
          one_core};
}

Result<MessageTimes> times_of(std::span<const SteadyRun> runs) {
  MessageTimes times{.broadcast = medians(runs[kBroadcast], true),
                     .reduce = medians(runs[kReduce], true),
                     .reduce_out = medians(runs[kReduce], false),
                     .one_core = medians(runs[kOneCore], true),
                     .exchange = medians(runs[kExchange], true, 2),
                     .exchange_out = medians(runs[kExchange], false, 2),
                     .sum = medians(runs[kSum], true),
                     .sum_out = medians(runs[kSum], false),
                     .ring_one_chunk = medians(runs[kRing], true).at(kChunkBytes),
                     .halving_two_chunks = medians(runs[kHalving], true).at(2 * kChunkBytes)};
  const auto sizes = times.exchange.size();
  if (times.broadcast.size() != sizes || times.reduce.size() != sizes ||
      times.reduce_out.size() != sizes || times.exchange_out.size() != sizes ||
      times.sum.size() != sizes || times.sum_out.size() != sizes) {
    return fail(Code::kInternalError, "plexus perf rounds the sizes of calls differently");
  }
  return times;
}

/// Twice as many as the first, so that turns are seen to go around.
std::vector<int> shared_counts(int cores) {
  const int few = choose_shared_ranks(cores);
  return few == 0 ? std::vector<int>{} : std::vector<int>{few, 2 * few};
}

// The last one is rooted.
constexpr const char* kSharedAlgorithms[] = {"recursive_doubling_all_reduce", "ring_all_reduce",
                                             "all_pairs_all_reduce", "direct_broadcast"};

bool is_rooted(const SharedCall& call) {
  return plexus::is_rooted(find_algorithm(call.algorithm)->collective);
}

/// Lists the kSharedAlgorithms for each number of ranks, and over sockets those that are not
/// rooted. Without times.
std::vector<SharedCall> shared_calls(int cores, bool with_net) {
  std::vector<SharedCall> calls;
  for (const int nranks : shared_counts(cores)) {
    for (const char* const name : kSharedAlgorithms) {
      SharedCall call{.algorithm = name, .nranks = nranks, .size_bytes = kSmallBytes};
      calls.push_back(call);
      call.over_sockets = true;
      if (with_net && !is_rooted(call)) {
        calls.push_back(call);
      }
    }
  }
  return calls;
}

SteadyRun run_of(const SharedCall& call) {
  constexpr int kSharedBudgetMs = 60;  // for the scheduler to separate ranks that share a core
  const Algorithm& algorithm = *find_algorithm(call.algorithm);
  return {.input = {.collective = algorithm.collective,
                    .algorithm = algorithm.family,
                    .nranks = call.nranks,
                    .bind = "share",
                    .size_bytes = call.size_bytes,
                    .over_sockets = call.over_sockets,
                    .budget_ms = kSharedBudgetMs}};
}

/// All-to-alls by size.
SteadyRun crowd_run(int nranks) {
  constexpr size_t kCrowdBytesFirst = size_t{64} << 10;
  constexpr size_t kCrowdBytesLast = size_t{8} << 20;
  constexpr int kCrowdBudgetMs = 20;
  return {.input = {.collective = Collective::kAllToAll,
                    .algorithm = "pairwise",
                    .nranks = nranks,
                    .bind = "share",
                    .size_bytes = kCrowdBytesFirst,
                    .size_bytes_last = kCrowdBytesLast,
                    .factor = 2,
                    .budget_ms = kCrowdBudgetMs}};
}

bool is_measured(const SteadyRun& run) { return !run.times.empty(); }

/// `runs`: of the calls, in their order, and then of a crowd if there are any.
MessageHost host_of(int cores, std::vector<SharedCall> calls, std::span<const SteadyRun> runs) {
  MessageHost host{.cores = cores};
  for (size_t i = 0; i < calls.size(); ++i) {
    if (!is_measured(runs[i])) {
      continue;
    }
    SharedCall& call = calls[i];
    call.us = medians(runs[i], false).begin()->second;
    call.calls = perf::compute_batch(call.us);
    auto& list = is_rooted(call) ? host.rooted : call.over_sockets ? host.shared_net : host.shared;
    list.push_back(std::move(call));
  }
  if (!calls.empty() && is_measured(runs.back())) {
    for (const auto& [bytes, us] : medians(runs.back(), false)) {
      host.crowd.push_back({.algorithm = "pairwise_all_to_all",
                            .nranks = runs.back().input.nranks,
                            .size_bytes = bytes,
                            .calls = perf::compute_batch(us),
                            .us = us});
    }
  }
  return host;
}

}  // namespace

Result<MeasuredMessages> measure_messages(bool with_net, int cores, int passes, Stage& stage) {
  std::vector<SteadyRun> runs = link_runs(false);
  if (with_net) {
    const std::vector<SteadyRun> net = link_runs(true);
    runs.insert(runs.end(), net.begin(), net.end());
  }
  const size_t links = runs.size();
  const std::vector<SharedCall> calls = shared_calls(cores, with_net);
  for (const SharedCall& call : calls) {
    runs.push_back(run_of(call));
  }
  if (!calls.empty()) {
    runs.push_back(crowd_run(calls.back().nranks));
  }
  PLEXUS_TRY(report, measure_steadily(runs, passes, stage));
  MeasuredMessages measured{.moved = report.moved, .passes = report.turns};
  for (size_t first = 0; first < links; first += kLinkRuns) {
    const auto of_link = std::span(runs).subspan(first, kLinkRuns);
    if (!std::all_of(of_link.begin(), of_link.end(), is_measured)) {
      break;
    }
    PLEXUS_TRY(times, times_of(of_link));
    measured.links.push_back(std::move(times));
  }
  if (measured.links.empty()) {
    const auto done = std::count_if(runs.begin(), runs.end(), is_measured);
    return fail(Code::kTimeout,
                "{} when {} of {} kinds of messages had been measured, too few to "
                "predict anything: measure while the machine has less to do, or give it more time "
                "(--seconds)",
                Stage::why_over(), done, runs.size());
  }
  measured.host = host_of(cores, calls, std::span(runs).subspan(links));
  return measured;
}

}  // namespace plexus::tune
