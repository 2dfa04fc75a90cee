// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <map>
#include <vector>

#include "kernels/program/algorithms.hpp"
#include "tools/cli/measure.hpp"
#include "tools/cli/perf/statistics.hpp"
#include "tools/cli/tune/fit.hpp"
#include "tools/cli/tune/messages.hpp"

namespace plexus::tune {
namespace {

constexpr size_t kMessageBytesFirst = 16;
constexpr size_t kMessageBytesLast = size_t{64} << 20;
constexpr int kMessageBudgetMs = 10;

/// By bytes of a message, the times of the passes.
using PassTimes = std::map<size_t, std::vector<double>>;

/// `messages`: into how many a call divides its bytes.
void add(const std::vector<MeasuredTime>& measured,
         bool in_place,
         size_t messages,
         PassTimes& times) {
  for (const MeasuredTime& time : measured) {
    if (time.in_place == in_place && time.size_bytes > 0) {
      times[time.size_bytes / messages].push_back(time.median_us);
    }
  }
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::map<size_t, double> medians(const PassTimes& times) {
  std::map<size_t, double> medians;
  for (const auto& [bytes, passes] : times) {
    medians[bytes] = median(passes);
  }
  return medians;
}

/// Twice as many as the first, so that turns are seen to go around.
std::vector<int> shared_counts(int cores) {
  const int few = choose_shared_ranks(cores);
  return few == 0 ? std::vector<int>{} : std::vector<int>{few, 2 * few};
}

/// All-to-alls, by size, of as many ranks as are measured at most.
Result<std::vector<SharedCall>> measure_crowd(int cores, int passes) {
  constexpr size_t kBytesFirst = size_t{64} << 10;
  constexpr size_t kBytesLast = size_t{8} << 20;
  constexpr int kBudgetMs = 20;
  std::vector<SharedCall> calls;
  const std::vector<int> counts = shared_counts(cores);
  if (counts.empty()) {
    return calls;
  }
  PassTimes times;
  for (int pass = 0; pass < passes; ++pass) {
    PLEXUS_TRY(measured, measure_times({.collective = Collective::kAllToAll,
                                        .algorithm = "pairwise",
                                        .nranks = counts.back(),
                                        .size_bytes = kBytesFirst,
                                        .size_bytes_last = kBytesLast,
                                        .factor = 2,
                                        .budget_ms = kBudgetMs}));
    add(measured, false, 1, times);
  }
  for (const auto& [bytes, us] : medians(times)) {
    calls.push_back({.algorithm = "pairwise_all_to_all",
                     .nranks = counts.back(),
                     .size_bytes = bytes,
                     .calls = perf::compute_batch(us),
                     .us = us});
  }
  return calls;
}

}  // namespace

Result<MessageTimes> measure_messages(bool over_sockets, int passes) {
  PassTimes broadcast;
  PassTimes reduce[2];  // [in place]
  PassTimes exchange[2];
  PassTimes sum[2];
  PassTimes ring;
  PassTimes halving;
  const auto measure = [&](Collective collective, const char* algorithm, size_t first,
                           size_t last) {
    return measure_times({.collective = collective,
                          .algorithm = algorithm,
                          .nranks = 2,
                          .size_bytes = first,
                          .size_bytes_last = last,
                          .factor = 2,
                          .over_sockets = over_sockets,
                          .budget_ms = kMessageBudgetMs});
  };
  const struct {
    Collective collective;
    const char* algorithm;
    size_t messages;
    PassTimes* times;
  } rows[] = {{Collective::kReduce, "ring", 1, reduce},
              {Collective::kAllGather, "ring", 2, exchange},
              {Collective::kAllReduce, "doubling", 1, sum}};
  for (int pass = 0; pass < passes; ++pass) {
    PLEXUS_TRY(one_way,
               measure(Collective::kBroadcast, "ring", kMessageBytesFirst, kMessageBytesLast));
    add(one_way, true, 1, broadcast);
    for (const auto& row : rows) {
      PLEXUS_TRY(measured, measure(row.collective, row.algorithm, row.messages * kMessageBytesFirst,
                                   row.messages * kMessageBytesLast));
      add(measured, false, row.messages, row.times[0]);
      add(measured, true, row.messages, row.times[1]);
    }
    PLEXUS_TRY(answer, measure(Collective::kAllReduce, "ring", kChunkBytes, kChunkBytes));
    add(answer, true, 1, ring);
    PLEXUS_TRY(halves,
               measure(Collective::kAllReduce, "halving", 2 * kChunkBytes, 2 * kChunkBytes));
    add(halves, true, 1, halving);
  }
  MessageTimes times{.broadcast = medians(broadcast),
                     .reduce = medians(reduce[1]),
                     .reduce_out = medians(reduce[0]),
                     .exchange = medians(exchange[1]),
                     .exchange_out = medians(exchange[0]),
                     .sum = medians(sum[1]),
                     .sum_out = medians(sum[0]),
                     .ring_one_chunk = medians(ring).at(kChunkBytes),
                     .halving_two_chunks = medians(halving).at(2 * kChunkBytes)};
  const auto sizes = times.exchange.size();
  if (times.broadcast.size() != sizes || times.reduce.size() != sizes ||
      times.reduce_out.size() != sizes || times.exchange_out.size() != sizes ||
      times.sum.size() != sizes || times.sum_out.size() != sizes) {
    return fail(Code::kInternalError, "plexus perf rounds the sizes of calls differently");
  }
  return times;
}

Result<MessageHost> measure_host(int cores, int passes) {
  constexpr int kSharedBudgetMs = 60;  // for the scheduler to separate ranks that share a core
  MessageHost host{.cores = cores, .shared = {}, .crowd = {}};
  for (const int nranks : shared_counts(cores)) {
    for (const char* const name :
         {"recursive_doubling_all_reduce", "ring_all_reduce", "all_pairs_all_reduce"}) {
      std::vector<double> times;
      for (int pass = 0; pass < passes; ++pass) {
        PLEXUS_TRY(time, measure_time({.collective = Collective::kAllReduce,
                                       .algorithm = find_algorithm(name)->family,
                                       .nranks = nranks,
                                       .size_bytes = kSmallBytes,
                                       .budget_ms = kSharedBudgetMs}));
        times.push_back(time.median_us);
      }
      const double us = median(times);
      host.shared.push_back({.algorithm = name,
                             .nranks = nranks,
                             .size_bytes = kSmallBytes,
                             .calls = perf::compute_batch(us),
                             .us = us});
    }
  }
  PLEXUS_TRY(crowd, measure_crowd(cores, passes));
  host.crowd = std::move(crowd);
  return host;
}

}  // namespace plexus::tune
