// SPDX-License-Identifier: Apache-2.0
#include "core/programs/export.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace plexus {

namespace {

Result<void> check(const Algorithm& algorithm, const ExportInput& input) {
  if (algorithm.network_cost != nullptr || is_point_to_point(algorithm.collective)) {
    return fail(Code::kInvalidArgument,
                "{} has no programs of its own to export: choose another algorithm",
                algorithm.name);
  }
  const int nranks_max = std::min(algorithm.nranks_max, kFileRanksMax);
  if (input.nranks < 2 || input.nranks > nranks_max || input.root < 0 ||
      input.root >= input.nranks) {
    return fail(Code::kInvalidArgument, "{} is exported for 2 to {} ranks, with a root among them",
                algorithm.name, nranks_max);
  }
  if (input.joins && algorithm.joined.rounds == nullptr) {
    return fail(Code::kInvalidArgument,
                "{} has no form with messages of several chunks: export it without --joined",
                algorithm.name);
  }
  return ok();
}

}  // namespace

Result<ProgramFile> export_program(const Algorithm& algorithm, const ExportInput& input) {
  PLEXUS_TRY(check(algorithm, input));
  ProgramFile file;
  file.name = algorithm.name;
  file.collective = algorithm.collective;
  file.root = input.root;
  std::vector<int> ring(static_cast<size_t>(input.nranks));
  std::iota(ring.begin(), ring.end(), 0);
  // A buffer of one block has one chunk in a file, whatever index the table's algorithm gives it.
  const bool one_input =
      algorithm.collective == Collective::kAllGather || algorithm.collective == Collective::kGather;
  const bool one_output = algorithm.collective == Collective::kReduceScatter ||
                          algorithm.collective == Collective::kScatter;
  for (const int rank : ring) {
    Program& program = file.programs.emplace_back(
        algorithm.record({.rank = rank, .ring = ring, .root = input.root, .joins = input.joins}));
    program.divides_buffer = true;
    for (Lane& lane : program.lanes) {
      for (Step& step : lane.steps) {
        for (const auto& [buffer, chunk] : {std::pair(step.source, &step.source_chunk),
                                            std::pair(step.target, &step.target_chunk)}) {
          if (buffer == (one_input ? Buffer::kInput : Buffer::kOutput) &&
              (one_input || one_output)) {
            *chunk = 0;
          }
        }
      }
    }
  }
  PLEXUS_TRY(check_proof_size(file));
  return file;
}

}  // namespace plexus
