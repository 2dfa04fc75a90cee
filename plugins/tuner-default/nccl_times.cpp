// SPDX-License-Identifier: Apache-2.0
#include "plugins/tuner-default/nccl_times.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <string_view>

#include "plugins/tuner-default/calibration.hpp"

namespace plexus::tuner_default {
namespace {

// Indexed by NCCL's numbers.
constexpr std::array<std::string_view, NCCL_TUNER_ALGORITHMS> kAlgorithms = {
    "tree", "ring", "collnetdirect", "collnetchain", "nvls", "nvlstree", "pat"};
constexpr std::array<std::string_view, NCCL_TUNER_PROTOCOLS> kProtocols = {"LL", "LL128", "Simple"};
constexpr std::array<std::string_view, 5> kCollectives = {"broadcast", "reduce", "all_gather",
                                                          "reduce_scatter", "all_reduce"};

double time_at(const NcclTimes& times,
               const std::vector<double>& time_us,
               const plugin::NcclCall& call) {
  return interpolate(times.bytes, time_us, static_cast<double>(call.size_bytes));
}

}  // namespace

std::string name_of_pair(size_t algorithm, size_t protocol) {
  if (algorithm >= kAlgorithms.size() || protocol >= kProtocols.size()) {
    return "";  // of a later version
  }
  return std::string(kAlgorithms[algorithm]).append("/").append(kProtocols[protocol]);
}

bool is_pair(std::string_view name) {
  for (size_t algorithm = 0; algorithm < kAlgorithms.size(); ++algorithm) {
    for (size_t protocol = 0; protocol < kProtocols.size(); ++protocol) {
      if (name == name_of_pair(algorithm, protocol)) {
        return true;
      }
    }
  }
  return false;
}

plugin::Result<NcclTuner> NcclTuner::open(size_t nranks, size_t nnodes, const plugin::Log& log) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): settings are read at init only
  const char* const file = std::getenv("PLEXUS_TUNE_FILE");
  if (file == nullptr || *file == '\0') {
    log.info("PLEXUS_TUNE_FILE names no measured times: NCCL's predictions decide");
    return NcclTuner(nranks, nnodes, {});
  }
  auto read = read_calibration(file);
  if (read.has_error()) {
    return plugin::fail(PLEXUS_INVALID_USAGE, "PLEXUS_TUNE_FILE={}: {}", file, read.error().text);
  }
  NcclTuner tuner(nranks, nnodes, read.value().nccl);
  std::string collectives;
  for (const NcclTimes& times : tuner.times_) {
    collectives.append(collectives.empty() ? "" : ", ").append(times.collective);
  }
  if (collectives.empty()) {
    log.warn(
        "PLEXUS_TUNE_FILE={} has no times of {} ranks on {} nodes in NCCL (`plexus tune "
        "--nccl-tests`): NCCL's predictions decide",
        file, nranks, nnodes);
  } else {
    log.info("PLEXUS_TUNE_FILE={}: measured times of {} ranks on {} nodes decide: {}", file, nranks,
             nnodes, collectives);
  }
  return tuner;
}

NcclTuner::NcclTuner(size_t nranks, size_t nnodes, const std::vector<NcclTimes>& times) {
  std::copy_if(times.begin(), times.end(), std::back_inserter(times_),
               [&](const NcclTimes& one) { return one.nranks == nranks && one.nnodes == nnodes; });
}

const NcclTimes* NcclTuner::find(const plugin::NcclCall& call) const {
  const auto at = std::find_if(times_.begin(), times_.end(), [&](const NcclTimes& one) {
    return call.collective >= 0 && static_cast<size_t>(call.collective) < kCollectives.size() &&
           one.collective == kCollectives[static_cast<size_t>(call.collective)];
  });
  const auto bytes = static_cast<double>(call.size_bytes);
  const bool covers = at != times_.end() && bytes >= at->bytes.front() && bytes <= at->bytes.back();
  return covers ? &*at : nullptr;
}

void NcclTuner::adjust(const plugin::NcclCall& call, const plugin::NcclCosts& costs) const {
  const NcclTimes* const times = find(call);
  if (times == nullptr) {
    return;
  }
  double ratios = 0;  // sum of logarithms
  int count = 0;
  costs.for_each([&](size_t algorithm, size_t protocol, const float& cost) {
    const auto at = times->time_us.find(name_of_pair(algorithm, protocol));
    if (at != times->time_us.end() && cost > 0) {
      ratios += std::log(time_at(*times, at->second, call) / cost);
      ++count;
    }
  });
  const double scale = count == 0 ? 1 : std::exp(ratios / count);
  costs.for_each([&](size_t algorithm, size_t protocol, float& cost) {
    const auto at = times->time_us.find(name_of_pair(algorithm, protocol));
    cost = static_cast<float>(at == times->time_us.end() ? cost * scale
                                                         : time_at(*times, at->second, call));
  });
}

std::optional<plugin::NcclChoice> NcclTuner::choose(const plugin::NcclCall& call) const {
  const NcclTimes* const times = find(call);
  std::optional<plugin::NcclChoice> best;
  double least_us = 0;
  for (size_t algorithm = 0; times != nullptr && algorithm < kAlgorithms.size(); ++algorithm) {
    for (size_t protocol = 0; protocol < kProtocols.size(); ++protocol) {
      const auto at = times->time_us.find(name_of_pair(algorithm, protocol));
      if (at == times->time_us.end()) {
        continue;
      }
      const double time_us = time_at(*times, at->second, call);
      if (!best.has_value() || time_us < least_us) {
        best = plugin::NcclChoice{static_cast<int>(algorithm), static_cast<int>(protocol)};
        least_us = time_us;
      }
    }
  }
  return best;
}

}  // namespace plexus::tuner_default
