// SPDX-License-Identifier: Apache-2.0
#include "plugins/tuner-default/model.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "plugins/tuner-default/cuda_model.hpp"

namespace plexus::tuner_default {

plugin::Result<Model> Model::open(const plexus_tuner_comm_t& comm, const plugin::Log& log) {
  CalibrationFile calibration = {.model = kDefaultCalibration, .measured = {}, .nccl = {}};
  // NOLINTNEXTLINE(concurrency-mt-unsafe): settings are read at init only
  const char* const file = std::getenv("PLEXUS_TUNE_FILE");
  const bool is_named = file != nullptr && *file != '\0';
  if (is_named) {
    auto read = read_calibration(file);
    if (read.has_error()) {
      return plugin::fail(PLEXUS_INVALID_USAGE, "PLEXUS_TUNE_FILE={}: {}", file, read.error().text);
    }
    calibration = std::move(read).value();
    log.info("calibration {}", file);
  }
  Model model(std::move(calibration), is_named);
  model.follow(comm);
  return model;
}

void Model::follow(const plexus_tuner_comm_t& comm) {
  comm_ = {};  // an older host provides fewer fields
  std::memcpy(&comm_, &comm, std::min<size_t>(comm.struct_size, sizeof(comm_)));
  if (is_measured_ && !is_cuda(comm_)) {  // by the user, with collectives, which is more exact
    comm_.links[PLEXUS_LINK_HOST].latency_ns = 0;
    comm_.links[PLEXUS_LINK_HOST].bandwidth_mbit_per_s = 0;
  }
}

void Model::predict(const plexus_tuner_call_t& call, plexus_tuner_candidate_t& candidate) const {
  constexpr double kTimeUsMost = 365.0 * 24 * 3600 * 1e6;  // longer ones are no predictions
  double time_us = 0;
  if (is_cuda(comm_)) {
    const CudaAnswer answer = predict_cuda(calibration_.model, comm_, call, candidate);
    time_us = answer.time_us;
    candidate.channels = answer.channels;
  } else {
    time_us = predict_us(calibration_.model, calibration_.measured, comm_, call, candidate);
  }
  // An impossible communicator or size gives no time; also rejects NaN.
  const bool is_time = time_us >= 0 && time_us < kTimeUsMost;
  candidate.time_ns = is_time ? std::llround(time_us * 1e3) : -1;
}

}  // namespace plexus::tuner_default
