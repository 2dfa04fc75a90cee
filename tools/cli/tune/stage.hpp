// SPDX-License-Identifier: Apache-2.0
// A part of `plexus tune` that ends in time on any machine: says on stderr how far it is, and when
// its time is over. On a busy machine fewer passes are measured.
#pragma once

#include <cstddef>
#include <string>

#include "core/base/clock.hpp"

namespace plexus::tune {

/// From now on SIGINT and SIGTERM end the measurements, not the program; a second one ends it.
void end_measurements_on_signals();
/// Whether one has come.
[[nodiscard]] bool measurements_ended();

class Stage {
 public:
  /// `name`: of what is measured, for the user. `deadline`: never, or when it has to be over.
  Stage(std::string name, Deadline deadline);

  [[nodiscard]] const Deadline& deadline() const { return deadline_; }
  /// Or a signal has come: measurements_ended().
  [[nodiscard]] bool is_over() const { return deadline_.expired() || measurements_ended(); }
  /// Why, for the user.
  [[nodiscard]] static const char* why_over() {
    return measurements_ended() ? "ended by a signal" : "time was up";
  }
  /// Whether the measurement after `done` of `all` need not hurry: time is left from their share.
  [[nodiscard]] bool is_ahead(size_t done, size_t all) const;
  /// Prints that, every two seconds at most.
  void report(size_t done, size_t all);

 private:
  std::string name_;
  Clock::time_point start_;
  Deadline deadline_;
  Clock::time_point printed_;
};

}  // namespace plexus::tune
