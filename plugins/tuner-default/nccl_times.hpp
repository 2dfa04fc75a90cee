// SPDX-License-Identifier: Apache-2.0
// What the tuners decide in stock NCCL. They are told NCCL's predictions and nothing that the
// models of cost_model.hpp need, so the times are measured ones: those of PLEXUS_TUNE_FILE, which
// `plexus tune --nccl-tests` makes of logs of nccl-tests. A measured pair of algorithm and protocol
// gets its time in place of NCCL's prediction; the predictions of the others are scaled by the mean
// ratio of the two, because NCCL's are off by up to 3 times as a whole. Where nothing was measured
// (other numbers of ranks or nodes, sizes beyond the measured ones), NCCL's predictions stay.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plugins/support/log.hpp"
#include "plugins/support/nccl_tuner_export.hpp"
#include "plugins/support/result.hpp"

namespace plexus::tuner_default {

/// Measurements of one collective in stock NCCL.
struct NcclTimes {
  uint32_t nranks = 0;
  uint32_t nnodes = 0;
  std::string collective;     // spelled as in plexus_tuner_call_t
  std::vector<double> bytes;  // of the larger buffer of a rank, ascending
  /// [algorithm and protocol, "ring/LL128"]: one time for each entry of `bytes`.
  std::map<std::string, std::vector<double>, std::less<>> time_us;
};

/// "ring/LL128"; empty: NCCL has no such pair.
std::string name_of_pair(size_t algorithm, size_t protocol);
/// Whether NCCL has a pair of that name.
bool is_pair(std::string_view name);

class NcclTuner {
 public:
  /// With the times of PLEXUS_TUNE_FILE. Says in the log what it has.
  static plugin::Result<NcclTuner> open(size_t nranks, size_t nnodes, const plugin::Log& log);
  NcclTuner(size_t nranks, size_t nnodes, const std::vector<NcclTimes>& times);

  void adjust(const plugin::NcclCall& call, const plugin::NcclCosts& costs) const;
  [[nodiscard]] std::optional<plugin::NcclChoice> choose(const plugin::NcclCall& call) const;

 private:
  /// nullptr: nothing was measured that is like it.
  [[nodiscard]] const NcclTimes* find(const plugin::NcclCall& call) const;

  std::vector<NcclTimes> times_;  // of as many ranks and nodes
};

}  // namespace plexus::tuner_default
