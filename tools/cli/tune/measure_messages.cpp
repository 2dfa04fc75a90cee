// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/program/algorithms.hpp"
#include "tools/cli/measure.hpp"
#include "tools/cli/perf/statistics.hpp"
#include "tools/cli/tune/fit.hpp"
#include "tools/cli/tune/messages.hpp"

namespace plexus::tune {
namespace {

constexpr size_t kMessageBytesFirst = 16;
constexpr size_t kMessageBytesLast = size_t{64} << 20;
constexpr int kMessageBudgetMs = 20;

/// Keeps the lesser time of each size. `messages`: into how many a call divides its bytes.
void keep_least(const std::vector<MeasuredTime>& measured,
                bool in_place,
                size_t messages,
                std::map<size_t, double>& times) {
  for (const MeasuredTime& time : measured) {
    if (time.in_place == in_place && time.size_bytes > 0) {
      const auto [at, is_new] = times.try_emplace(time.size_bytes / messages, time.least_us);
      at->second = std::min(at->second, time.least_us);
    }
  }
}

}  // namespace

Result<MessageTimes> measure_messages(bool over_sockets, int passes) {
  MessageTimes times;
  std::map<size_t, double> ring;
  const auto measure = [&](Collective collective, const char* algorithm, size_t first,
                           size_t last) {
    return measure_times({.collective = collective,
                          .algorithm = algorithm,
                          .nranks = 2,
                          .size_bytes = first,
                          .size_bytes_last = last,
                          .over_sockets = over_sockets,
                          .budget_ms = kMessageBudgetMs});
  };
  for (int pass = 0; pass < passes; ++pass) {
    PLEXUS_TRY(broadcast,
               measure(Collective::kBroadcast, "ring", kMessageBytesFirst, kMessageBytesLast));
    keep_least(broadcast, true, 1, times.broadcast);
    keep_least(broadcast, false, 1, times.broadcast_out);
    PLEXUS_TRY(gather, measure(Collective::kAllGather, "ring", 2 * kMessageBytesFirst,
                               2 * kMessageBytesLast));
    keep_least(gather, true, 2, times.exchange);
    PLEXUS_TRY(sum,
               measure(Collective::kAllReduce, "doubling", kMessageBytesFirst, kMessageBytesLast));
    keep_least(sum, true, 1, times.sum);
    keep_least(sum, false, 1, times.sum_out);
    for (const size_t bytes : {kChunkBytes, 2 * kChunkBytes}) {
      PLEXUS_TRY(chunks, measure(Collective::kAllReduce, "ring", bytes, bytes));
      keep_least(chunks, true, 1, ring);
    }
  }
  times.ring_one_chunk = ring.at(kChunkBytes);
  times.ring_two_chunks = ring.at(2 * kChunkBytes);
  const auto sizes = times.exchange.size();
  if (times.broadcast.size() != sizes || times.broadcast_out.size() != sizes ||
      times.sum.size() != sizes || times.sum_out.size() != sizes) {
    return fail(Code::kInternalError, "plexus perf rounds the sizes of calls differently");
  }
  return times;
}

Result<MessageHost> measure_host(int cores, int passes) {
  constexpr int kSharedBudgetMs = 150;  // for the scheduler to separate ranks that share a core
  MessageHost host{.cores = cores, .shared_ranks = choose_shared_ranks(cores), .shared = {}};
  if (host.shared_ranks == 0) {
    return host;
  }
  for (const char* const name :
       {"recursive_doubling_all_reduce", "ring_all_reduce", "all_pairs_all_reduce"}) {
    SharedCall& call = host.shared.emplace_back(SharedCall{.algorithm = name});
    for (int pass = 0; pass < passes; ++pass) {
      PLEXUS_TRY(time, measure_time({.collective = Collective::kAllReduce,
                                     .algorithm = find_algorithm(name)->family,
                                     .nranks = host.shared_ranks,
                                     .size_bytes = kSmallBytes,
                                     .budget_ms = kSharedBudgetMs}));
      call.us = pass == 0 ? time.median_us : std::min(call.us, time.median_us);
    }
    call.calls = perf::compute_batch(call.us);
  }
  return host;
}

}  // namespace plexus::tune
