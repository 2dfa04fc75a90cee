// SPDX-License-Identifier: Apache-2.0
// Execution plans of MSCCL++ (JSON of its DSL): thread blocks that put into and read from each
// other's memory, and say by signals, packets, semaphores and barriers when. Here a put becomes a
// message that a lane of its target receives, a read one that a lane of its source sends; what the
// plan has ordered becomes what these lanes wait for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/programs/program_file.hpp"

namespace plexus {

/// Chunks in memory of a rank.
struct PlanPlace {
  int rank = -1;  // whose; -1: the own
  Buffer buffer = Buffer::kNone;
  int first = 0;
  int count = 0;
  // A block that shares an operation has its part of each chunk: so many side by side, and the next
  // so far from there. 0: all are side by side.
  int run = 0;
  int jump = 0;

  [[nodiscard]] int at(int i) const {
    return run == 0 ? first + i : first + i / run * jump + i % run;
  }
};

/// One end of a pair of channels: the `number`-th of its type between two ranks.
struct PlanChannel {
  int peer = 0;
  std::string type;
  int number = 0;
};

enum class PlanKind : uint8_t { kData, kSignal, kWait, kAcquire, kRelease, kBarrier };

struct PlanOperation {
  PlanKind kind = PlanKind::kData;
  bool reduces = false;  // all sources into one value; else each source to the target beside it
  bool packets = false;  // reads of scratch wait for what is written there
  bool signals = false;  // and then signals on `channels`
  std::vector<PlanPlace> sources = {};
  std::vector<PlanPlace> targets = {};
  std::vector<PlanChannel> channels = {};
  std::vector<int> semaphores = {};  // or the barrier
  int blocks = 0;                    // that a barrier waits for
  std::string where = {};            // for messages
};

struct PlanFile {
  ProgramFile use;  // all but its programs
  int chunks = 0;   // of the larger buffer
  int scratch_chunks = 0;
  std::vector<std::vector<std::vector<PlanOperation>>> ranks;  // [rank][thread block]
  std::vector<std::vector<int>> semaphores;                    // [rank] values at the start
};

/// An Error names gpu, thread block and operation, and for one that cannot be expressed says so.
Result<PlanFile> parse_plan(std::string_view text);
/// Its programs, by an execution of the plan. An Error: blocks wait for each other.
Result<ProgramFile> programs_of(const PlanFile& plan);

}  // namespace plexus
