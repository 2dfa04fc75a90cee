// SPDX-License-Identifier: Apache-2.0
#include "kernels/program/in_place.hpp"

#include <algorithm>
#include <utility>

namespace plexus {

Program stage_input(Program program) {
  const int first = program.scratch_chunks;  // of the copy
  std::vector<Step> copies;
  copies.reserve(static_cast<size_t>(program.chunks));
  for (int chunk = 0; chunk < program.chunks; ++chunk) {
    copies.push_back({.source = Buffer::kInput,
                      .target = Buffer::kScratch,
                      .source_chunk = chunk,
                      .target_chunk = first + chunk});
  }
  const Step wait = {.after = {.lane = 0, .step = program.chunks - 1}};
  const auto steps_before = [&](int lane) { return lane == 0 ? program.chunks : 1; };
  for (size_t lane = 0; lane < program.lanes.size(); ++lane) {
    std::vector<Step>& steps = program.lanes[lane].steps;
    for (Step& step : steps) {
      if (step.source == Buffer::kInput) {
        step.source = Buffer::kScratch;
        step.source_chunk += first;
        step.by_address = false;  // never of scratch
      }
      if (step.after.lane >= 0) {
        step.after.step += steps_before(step.after.lane);
      }
    }
    if (lane == 0) {
      steps.insert(steps.begin(), copies.begin(), copies.end());
    } else {
      steps.insert(steps.begin(), wait);
    }
  }
  program.scratch_chunks += program.chunks;
  program.shares_scratch = program.lanes.size() > 1;
  return program;
}

}  // namespace plexus
