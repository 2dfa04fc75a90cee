// SPDX-License-Identifier: Apache-2.0
// Measures every algorithm of a collective: the part of a calibration that the model cannot predict
// (plugins/tuner-default/measured.hpp). Used only by `plexus tune`.
#pragma once

#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "kernels/layout/collective.hpp"
#include "tools/cli/tune/fit.hpp"
#include "tools/cli/tune/stage.hpp"

namespace plexus::tune {

/// A class of links, and how ranks of this machine use it.
struct LinkClass {
  const char* name;
  const char* mode;
  bool over_sockets;
};

struct ChoicesInput {
  std::vector<LinkClass> classes;
  std::vector<int> nranks;
  std::vector<Collective> collectives;
  int passes;  // in turns; the median is used
};

struct MeasuredChoices {
  std::vector<MeasuredCall> calls = {};
  int passes = 0;  // in which everything was measured
};

/// When the stage is over: what was measured at least once with all algorithms.
Result<MeasuredChoices> measure_choices(const ChoicesInput& input, Stage& stage);

}  // namespace plexus::tune
