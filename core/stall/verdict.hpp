// SPDX-License-Identifier: Apache-2.0
// What a summary of all ranks says about a call that does not end: who keeps it from ending, as one
// sentence and as JSON. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/engine/execution.hpp"
#include "core/stall/rank_status.hpp"

namespace plexus {

enum class StallCause : uint8_t {
  kStopped,    // a process does not answer
  kInPlugin,   // a plugin's function does not return
  kElsewhere,  // a rank waits in another communicator
  kNotCalled,  // a rank has not made the call
  kLink,       // all have made the call; a message does not arrive, or all wait for messages
  kSlow,       // a rank is still at work
};
const char* name(StallCause cause);  // "stopped", "in_plugin", ...

struct StallVerdict {
  StallCause cause = StallCause::kLink;
  std::vector<int> ranks;  // that keep the others waiting, the lowest 8; of a link the sender
  /// Nothing says it of the rank itself: what is left when no better cause is known.
  bool is_guess = false;
  uint64_t count = 0;  // of such ranks in all
  std::string sentence;
  std::string json;     // one line
  std::string culprit;  // "rank 2 (host:5), which has not made that call: ..."; "": none is proved
};

/// Who asked.
struct StallAsker {
  uint64_t group = 0;
  int nranks = 0;
  RankStatus status = {};  // kWaiting or kSplitting
  /// "host:pid" of a rank.
  std::function<std::string(int rank)> process_of;
};

StallVerdict judge(const StallAsker& asker, const StatusSummary& summary);

const char* name(RankActivity activity);  // "silent", "in_plugin", ...

/// What a summary says, as JSON: with the verdict, if a rank waits.
std::string describe(const StallAsker& asker, const StatusSummary& summary);

/// One rank of this process.
struct StallReport {
  uint64_t group = 0;
  int nranks = 0;
  RankStatus status = {};
  uint64_t calls = 0;                   // that it has made
  std::vector<CallRecord> recent = {};  // of these, the last ones
  std::vector<Wait> waits = {};
  std::string verdict = {};               // the last one; "": none
  std::vector<std::string> members = {};  // "host:pid" by rank
};
std::string describe(const StallReport& report);  // as JSON

}  // namespace plexus
