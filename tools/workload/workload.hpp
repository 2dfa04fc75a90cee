// SPDX-License-Identifier: Apache-2.0
// A job as calls, computing between them and what waits for what: read from a file of any of a
// dozen formats, which is known by its content (docs/formats.md).
//
//   PLEXUS_TRY(work, parse_workload(text));
//   fmt::print("{}\n", describe(work));  // "SimAI workload: 12 calls, 3.1 GB; ..."
//   PLEXUS_TRY(step, predict(work, costs));  // tools/workload/predict.hpp
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "kernels/layout/collective.hpp"

namespace plexus {

// Bounds of what is read.
inline constexpr size_t kWorkloadFileBytesMax = size_t{256} << 20;
inline constexpr size_t kWorkloadCallsMax = 1'000'000;
inline constexpr uint64_t kWorkloadBytesMax = uint64_t{1} << 40;
inline constexpr uint64_t kWorkloadTimesMax = 1'000'000'000;
inline constexpr int kWorkloadRanksMax = 1 << 20;
inline constexpr size_t kWorkloadFilesMax = 4096;
inline constexpr double kWorkloadTimeUsMax = 1e12;

/// Each rank sends so many bytes to the one `distance` further. With `wraps` the last ranks send to
/// the first, else to nobody.
struct WorkloadExchange {
  int distance = 0;  // may be negative, never 0
  bool wraps = false;
  uint64_t bytes = 0;
  friend auto operator<=>(const WorkloadExchange&, const WorkloadExchange&) = default;
};

enum class WorkKind : uint8_t { kCall, kCompute, kSend, kRecv };

/// Of calls that no others of their rank order: they wait for `after` alone.
inline constexpr uint32_t kNoStream = UINT32_MAX;

struct WorkloadCall {
  Collective collective = Collective::kAllReduce;
  std::vector<WorkloadExchange> exchanges = {};  // a group of these, in place of a collective
  uint64_t bytes = 0;                            // of a rank's larger buffer, or of a message
  uint64_t times = 1;
  WorkKind kind = WorkKind::kCall;
  double time_us = 0;  // of computing; of a call whose bytes are unknown (0), as it was recorded
  uint32_t name = 0;   // in Workload::names
  uint32_t group = 0;  // in Workload::groups
  uint32_t communicator = 0;  // in Workload::names: what its file calls the group; 0: nothing
  int rank = -1;              // who does it; -1: all ranks, each for itself
  int peer = 0;               // of a message: a rank; if all ranks do it, so many ranks ahead
  uint64_t tag = 0;     // of a message; of computing without a stream the processor, one for each
  uint32_t stream = 0;  // calls of a stream run one after the other
  std::vector<uint32_t> after = {};  // numbers of calls that must have ended
};

/// Ranks that make calls together; all groups of a kind at once.
struct WorkloadGroup {
  std::string name;
  int nranks = 0;   // 0: all ranks, by `divisor`
  int divisor = 1;  // ranks of the job to those of the group, where that grows with the job
  int stride = 0;   // from one member to the next; 0: as the groups are placed (place_groups)
};

struct Workload {
  std::string format;  // "SimAI workload"
  int nranks = 0;      // 0: the file does not say
  int ranks_per_node = 0;
  uint32_t steps = 1;                 // that the file marks
  double recorded_us = 0;             // what the file says its calls took in all; 0: nothing
  std::vector<WorkloadGroup> groups;  // the first: all ranks
  std::vector<std::string> names;     // of calls and computing; the first is empty
  std::vector<WorkloadCall> calls;
  std::vector<std::string> notes;       // what was left out or taken to be so, a few words each
  std::optional<size_t> taken_for_all;  // the note that one rank's trace stands for all
  int rank = -1;                        // whose trace it is, if the file says so
  int origin = -1;  // the rank that a trace's peers are counted from; -1: its own, whichever it is
};

/// An Error says in one sentence what is wrong, where, and what to do.
Result<Workload> parse_workload(std::string_view text);

/// One workload of traces of ranks 0, 1, ...: collectives of a communicator meet in their order,
/// each rank's first with the others' first. An Error: a file says what other ranks do as well, is
/// another rank's, there are fewer files than ranks, or ranks call different collectives.
Result<Workload> join_ranks(std::vector<Workload> ranks);

/// What was understood, and what was left out: one or two lines.
std::string describe(const Workload& work);

/// As GOAL. An Error: it has collectives, or calls that all ranks do alike.
Result<std::string> format_goal(const Workload& work);
/// One rank's part as Chakra's JSON.
std::string format_chakra(const Workload& work, int rank);
/// The same as messages of protobuf, each behind its length: a `.et` file, which ASTRA-sim reads.
std::string format_chakra_protobuf(const Workload& work, int rank);

/// How many members a group has in a job of so many ranks; at least 1.
int members_of(const WorkloadGroup& group, int nranks);
/// Strides of the groups without one: those named in `order` ("tp,dp,pp") from the inside, then
/// groups of tensors, contexts, experts, data and the pipeline (tp, cp, ep, dp, pp).
std::vector<int> place_groups(const Workload& work, int nranks, std::string_view order);

}  // namespace plexus
