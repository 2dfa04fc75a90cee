// SPDX-License-Identifier: Apache-2.0
// Times measured by `plexus tune`, and how they correct the model: no formula covers the overlap of
// consecutive calls, or which copies stay in a cache. Where a collective was measured on as many
// ranks of one host over the same class of link, an algorithm's predicted time moves most of the
// way (kTrust, on a logarithmic scale) to the measured one, so that the model still decides between
// algorithms whose times differ by less than noise. Between sizes it is interpolated on logarithmic
// scales; beyond them, and for the additional cost of LL and LL128, the model is used, because only
// Simple is measured. Pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "plugin-api/plexus_tuner.h"

#include "plugins/tuner-default/cost_model.hpp"

namespace plexus::tuner_default {

/// 1: the measured time; 0: the model's. Among 0.5, 0.75 and 1 this gave the best choices on 2
/// cores (docs/performance.md).
inline constexpr double kTrust = 0.75;

/// Measurements of one collective on `nranks` ranks of one host.
struct MeasuredCall {
  uint32_t link = 0;  // PLEXUS_LINK_*: the slowest between two of the ranks
  uint32_t nranks = 0;
  std::string collective;     // spelled as in plexus_tuner_call_t
  std::vector<double> bytes;  // size of a rank's larger buffer, ascending
  /// For each algorithm, one time per entry of `bytes`.
  std::map<std::string, std::vector<double>, std::less<>> time_us;
};

/// Between the points (x, y), x ascending, on logarithmic scales; `at` is within them.
double interpolate(const std::vector<double>& x, const std::vector<double>& y, double at);

/// Like the model's predict_us(), which is used for what was not measured.
double predict_us(const Calibration& calibration,
                  const std::vector<MeasuredCall>& measured,
                  const plexus_tuner_comm_t& comm,
                  const plexus_tuner_call_t& call,
                  const plexus_tuner_candidate_t& candidate);

}  // namespace plexus::tuner_default
