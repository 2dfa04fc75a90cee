// SPDX-License-Identifier: Apache-2.0
// Times that `plexus tune` measured, and how they correct the model: no formula knows what overlaps
// when calls follow each other, or which copies stay in a cache. Where a collective was measured on
// as many ranks of one host over the same class of link, an algorithm's predicted time moves most
// of the way (kTrust, on a logarithmic scale) to the measured one, so that between algorithms whose
// times differ by less than noise the model still decides. Between sizes it is interpolated, on
// logarithmic scales; the model says how it goes on beyond them, and what LL and LL128 add, as
// Simple is what is measured. Pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "plugin-api/plexus_tuner.h"

#include "plugins/tuner-default/cost_model.hpp"

namespace plexus::tuner_default {

/// 1: as measured; 0: the model alone. Of 0.5, 0.75 and 1 this chose best on 2 cores
/// (docs/performance.md).
inline constexpr double kTrust = 0.75;

/// One collective by `nranks` ranks of one host.
struct MeasuredCall {
  uint32_t link = 0;  // PLEXUS_LINK_*: the slowest between two of the ranks
  uint32_t nranks = 0;
  std::string collective;     // as plexus_tuner_call_t has it
  std::vector<double> bytes;  // of the larger buffer of a rank, ascending
  /// By algorithm, a time for each of `bytes`.
  std::map<std::string, std::vector<double>, std::less<>> time_us;
};

/// As predict_us of the model alone, which answers what was not measured.
double predict_us(const Calibration& calibration,
                  const std::vector<MeasuredCall>& measured,
                  const plexus_tuner_comm_t& comm,
                  const plexus_tuner_call_t& call,
                  const plexus_tuner_candidate_t& candidate);

}  // namespace plexus::tuner_default
