// SPDX-License-Identifier: Apache-2.0
// How long the calls and the computing of a workload take together: each begins when its stream is
// free, what it waits for has ended and its port is free. Collectives take as long as the caller
// says (the simulator's time of them alone); messages go through a rank's ports one after the
// other.
//
//   WorkCosts costs{.call_us = ..., .message_of = ...};
//   PLEXUS_TRY(step, predict(work, costs));
//   // step.time_us, step.exposed_us, step.path[0].name
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/workload/workload.hpp"

namespace plexus {

/// A message of b bytes takes latency_us + b * us_per_byte.
struct WorkLink {
  double latency_us = 0;
  double us_per_byte = 0;
  bool is_near = false;  // in the node, through another port
};

struct WorkCosts {
  int nranks = 2;
  double compute_factor = 1;  // times of computing
  int slow_rank = -1;      // whose computing takes `slow_factor` times as long; -1: of a workload
  double slow_factor = 1;  // that all ranks do alike, the one looked at, for which others wait
  /// All the times of a collective, or of an exchange.
  std::function<Result<double>(const WorkloadCall& call)> call_us;
  /// Whether a group's members are on one node: its calls use the other port.
  std::function<bool(const WorkloadCall& call)> is_near;
  std::function<WorkLink(int source, int target)> link;
};

/// What the critical path is made of, by name.
struct WorkShare {
  std::string name;
  double time_us = 0;
  uint64_t count = 0;
  bool computes = false;
};

struct WorkPrediction {
  double time_us = 0;
  int rank = 0;  // that ends last, of which the next three are; 0 where all do the same
  double compute_us = 0;
  double communication_us = 0;
  double exposed_us = 0;        // communication without computing beside it
  std::vector<WorkShare> path;  // longest first
  size_t unmatched = 0;         // receives whose send is not in the file: as if sent when asked for
};

/// An Error: calls wait for each other, or for a message that nobody sends.
Result<WorkPrediction> predict(const Workload& work, const WorkCosts& costs);

}  // namespace plexus
