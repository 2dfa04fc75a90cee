// SPDX-License-Identifier: Apache-2.0
// Every algorithm of a collective, measured by force: the part of a calibration that says what the
// model cannot know (plugins/tuner-default/measured.hpp). `plexus tune` only.
#pragma once

#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "kernels/layout/collective.hpp"
#include "tools/cli/tune/fit.hpp"

namespace plexus::tune {

/// A class of links, and how ranks of this machine are joined by one.
struct LinkClass {
  const char* name;
  const char* mode;
  bool over_sockets;
};

struct ChoicesInput {
  std::vector<LinkClass> classes;
  std::vector<int> nranks;
  std::vector<Collective> collectives;
  int passes;  // in turns; the median counts
};

Result<std::vector<MeasuredCall>> measure_choices(const ChoicesInput& input);

}  // namespace plexus::tune
