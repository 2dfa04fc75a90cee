// SPDX-License-Identifier: Apache-2.0
// The model decides whether a program is legal. It runs the program by NCCL's rules alone: without
// data, time, or buffers between ranks. A program that ends in the model must end in every library
// that follows the rules; one that does not may hang in NCCL, and a hang is then no finding.
//
// The rules, in their strictest reading where several are possible:
// - A thread makes its calls in order. A call without a stream returns when it is complete.
// - A step is a call or a group, and is one operation: it starts when everything before it on each
//   of its streams and communicators is complete, and it ends when all its calls are complete.
// - A collective completes when all ranks of its communicator have started it. Those of one
//   communicator come in the same order on all its ranks, also in a group. A library may execute a
//   group's collectives on a communicator as one, so all ranks must group them in the same way.
// - A send completes when its receive has started: nothing is buffered. The k-th send from one rank
//   to another matches the k-th receive. In a group they start together, after the group's
//   collectives on the same communicator.
// - Making a communicator is collective, blocks, and requires that the parent has no pending work.
// - Destroying is local and requires that the rank's own calls are complete (finalizing waits for
//   them).
// There is no choice anywhere (no wildcards, no stream of two threads), so one run decides for all.
#pragma once

#include <string>
#include <vector>

namespace plexus::soak {

constexpr int kNoStream = -1;

enum class ModelKind { kCollective, kSend, kRecv };

/// A rank's part of an operation. A `place` is a rank of one communicator: places are numbered over
/// all communicators of the program.
struct ModelCall {
  ModelKind kind = ModelKind::kCollective;
  int operation = 0;  // what meets what: the same number at all ranks that take part
  int place = 0;
  int peer = 0;            // kSend, kRecv: the other's place
  int stream = kNoStream;  // numbered over all threads of the program
};

enum class ModelStepKind {
  kCalls,
  kMake,      // `operation` by all its participants; uses `places` (parents), gives `made`
  kSync,      // waits for `streams`
  kDestroy,   // destroys `places`
  kFinalize,  // waits for the work of `places`, then destroys them
  kPause,     // nothing that others could wait for
};

struct ModelStep {
  ModelStepKind kind = ModelStepKind::kPause;
  std::vector<ModelCall> calls{};
  std::vector<int> streams{};
  int operation = 0;
  std::vector<int> places{};
  std::vector<int> made{};
};

struct ModelProgram {
  std::vector<std::vector<ModelStep>> threads{};
  std::vector<int> participants{};  // by operation: how many calls it takes (point-to-point: 2)
  int nplaces = 0;
  int nstreams = 0;
  bool allows_mixed = true;  // groups of collectives and point-to-point calls at one place
};

struct Verdict {
  bool is_legal = false;
  std::string why{};  // why not
};

Verdict judge(const ModelProgram& program);

}  // namespace plexus::soak
