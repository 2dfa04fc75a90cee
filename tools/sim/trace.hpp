// SPDX-License-Identifier: Apache-2.0
// A simulation in Chrome's trace format (chrome://tracing, ui.perfetto.dev): ranks as processes,
// lanes as threads, steps as slices, links of the fabric as counters.
#pragma once

#include <string>

#include "tools/fabric/fabric.hpp"
#include "tools/sim/simulate.hpp"

namespace plexus {

class SimTrace {
 public:
  /// Both are borrowed.
  SimTrace(const SimNetwork& network, const Fabric* fabric);
  /// For simulate(); refers to this object.
  [[nodiscard]] SimWatch watch();
  [[nodiscard]] std::string format() const;

 private:
  void add(const std::string& event);

  const SimNetwork& network_;
  const Fabric* fabric_;
  std::string events_;
};

}  // namespace plexus
