// SPDX-License-Identifier: Apache-2.0
// The model as tuners use it: made for a communicator, with the calibration that PLEXUS_TUNE_FILE
// names, it fills in the times of candidates. tuner-online starts from it, too.
#pragma once

#include <cstdint>

#include "plugins/support/log.hpp"
#include "plugins/tuner-default/calibration.hpp"

namespace plexus::tuner_default {

/// Threads: one at a time.
class Model {
 public:
  static plugin::Result<Model> open(const plexus_tuner_comm_t& comm, const plugin::Log& log);
  /// What open() was told has changed.
  void follow(const plexus_tuner_comm_t& comm);

  /// Fills in `time_ns`, -1 where it is unknown, and for CUDA ranks `channels`.
  void predict(const plexus_tuner_call_t& call, plexus_tuner_candidate_t& candidate) const;

 private:
  Model(CalibrationFile calibration, bool is_measured)
      : calibration_(std::move(calibration)), is_measured_(is_measured) {}
  CalibrationFile calibration_;
  bool is_measured_;  // `calibration_` is the user's
  plexus_tuner_comm_t comm_{};
};

}  // namespace plexus::tuner_default
