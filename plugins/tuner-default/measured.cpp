// SPDX-License-Identifier: Apache-2.0
#include "plugins/tuner-default/measured.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string_view>

namespace plexus::tuner_default {
namespace {

bool is_of(const MeasuredCall& measured,
           const plexus_tuner_comm_t& comm,
           const plexus_tuner_call_t& call) {
  // `plexus tune` measures with plain memory.
  return call.registered == 0 && measured.link == slowest_class(comm) &&
         measured.nranks == comm.nranks && comm.ranks_per_node_max == comm.nranks &&
         call.collective == measured.collective;
}

}  // namespace

double interpolate(const std::vector<double>& x, const std::vector<double>& y, double at) {
  const auto next =
      static_cast<size_t>(std::distance(x.begin(), std::lower_bound(x.begin(), x.end(), at)));
  if (next == 0 || x[next] == at) {
    return y[next];
  }
  const double share = std::log(at / x[next - 1]) / std::log(x[next] / x[next - 1]);
  return y[next - 1] * std::pow(y[next] / y[next - 1], share);
}

double predict_us(const Calibration& calibration,
                  const std::vector<MeasuredCall>& measured,
                  const plexus_tuner_comm_t& comm,
                  const plexus_tuner_call_t& call,
                  const plexus_tuner_candidate_t& candidate) {
  const double model_us = predict_us(calibration, comm, call, candidate);
  const auto row = std::find_if(measured.begin(), measured.end(),
                                [&](const MeasuredCall& one) { return is_of(one, comm, call); });
  if (row == measured.end() || model_us <= 0) {
    return model_us;
  }
  const auto times = row->time_us.find(std::string_view(candidate.algorithm));
  if (times == row->time_us.end()) {
    return model_us;
  }
  // The model's prediction for the measured size that is next to this one.
  plexus_tuner_call_t near_call = call;
  near_call.size_bytes = std::clamp(call.size_bytes, static_cast<uint64_t>(row->bytes.front()),
                                    static_cast<uint64_t>(row->bytes.back()));
  plexus_tuner_candidate_t near_candidate = candidate;
  near_candidate.protocol = "Simple";
  const double near_us = predict_us(calibration, comm, near_call, near_candidate);
  if (near_us <= 0) {
    return model_us;
  }
  const double measured_us =
      interpolate(row->bytes, times->second, static_cast<double>(near_call.size_bytes));
  return model_us * std::pow(measured_us / near_us, kTrust);
}

}  // namespace plexus::tuner_default
