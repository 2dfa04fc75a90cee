// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/program/messages.hpp"

#include <algorithm>

namespace plexus {
namespace {

/// Makes the calls of one rank: those of a step follow those of the step before it, all receives
/// first.
class RankMessages {
 public:
  RankMessages(const Program& program, uint64_t chunk_bytes, Workload* work)
      : program_(program), chunk_bytes_(chunk_bytes), work_(*work) {}

  void add() {
    // a step of another lane may come later: its calls are known once all are there
    std::vector<std::vector<std::vector<uint32_t>>> ends(program_.lanes.size());
    std::vector<std::pair<uint32_t, After>> waits;
    for (size_t lane = 0; lane < program_.lanes.size(); ++lane) {
      std::vector<uint32_t> before;
      for (const Step& step : program_.lanes[lane].steps) {
        const std::vector<uint32_t> made = add_step(program_.lanes[lane], step, before);
        for (const uint32_t call : made) {
          if (step.after.lane >= 0) {
            waits.emplace_back(call, step.after);
          }
        }
        before = made;
        ends[lane].push_back(made);
      }
    }
    for (const auto& [call, after] : waits) {
      const auto& awaited = ends[static_cast<size_t>(after.lane)][static_cast<size_t>(after.step)];
      auto& list = work_.calls[call].after;
      list.insert(list.end(), awaited.begin(), awaited.end());
    }
  }

 private:
  /// The calls that end with the step.
  std::vector<uint32_t> add_step(const Lane& lane,
                                 const Step& step,
                                 const std::vector<uint32_t>& before) {
    std::vector<uint32_t> received = before;
    std::vector<uint32_t> made;
    for (int i = 0; i < step.receives + step.sends; ++i) {
      const bool receives = i < step.receives;
      if (i == step.receives && !made.empty()) {
        received = made;
        made.clear();
      }
      made.push_back(add_call({.bytes = chunk_bytes_,
                               .kind = receives ? WorkKind::kRecv : WorkKind::kSend,
                               .peer = program_.peers[static_cast<size_t>(step.peers_first + i)],
                               .tag = static_cast<uint64_t>(lane.connection)},
                              receives ? before : received));
    }
    // a local step takes no time, and later ones wait for it
    return made.empty() ? std::vector<uint32_t>{add_call(
                              {.kind = WorkKind::kCompute, .time_us = kNoTimeUs_}, before)}
                        : made;
  }

  uint32_t add_call(WorkloadCall call, const std::vector<uint32_t>& before) {
    call.rank = program_.rank;
    call.stream = kNoStream;
    call.after = before;
    work_.calls.push_back(std::move(call));
    return static_cast<uint32_t>(work_.calls.size() - 1);
  }

  static constexpr double kNoTimeUs_ = 1e-9;
  const Program& program_;
  uint64_t chunk_bytes_;
  Workload& work_;
};

}  // namespace

Workload messages_of(const ProgramFile& file, uint64_t bytes) {
  Workload work;
  work.format = file.name;
  work.nranks = file.nranks();
  work.groups.push_back({.name = "all"});
  work.names.emplace_back();
  const auto chunks = static_cast<uint64_t>(std::max(1, file.programs.front().chunks));
  for (const Program& program : file.programs) {
    RankMessages(program, (bytes + chunks - 1) / chunks, &work).add();
  }
  return work;
}

}  // namespace plexus
