// SPDX-License-Identifier: Apache-2.0
// What the ranks of a communicator do, as they say when one of them waits for too long: the status
// of a rank, and the summary of many. Summaries are merged on the way to who asked, and stay small
// however many ranks there are. Their bytes come from other processes and are not trusted. Pure.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/layout/fifo.hpp"

namespace plexus {

/// What a rank does in a communicator, the most suspicious first.
enum class RankActivity : uint8_t {
  kSilent,     // its process does not answer
  kInPlugin,   // a thread of its process has been inside a plugin's function: `where`
  kElsewhere,  // outside; its thread waits in another communicator: `where`
  kOutside,    // in no call of the communicator
  kRunning,    // in `call`, which moves
  kSplitting,  // waits in ncclCommSplit
  kWaiting,    // in `call`, which does not move, for `peer`
};
inline constexpr uint8_t kRankActivities = 7;

struct RankStatus {
  RankActivity activity = RankActivity::kOutside;
  int32_t rank = 0;
  int32_t peer = -1;         // that it waits for; -1: none
  int32_t lost_to = -1;      // a rank that a message of this one has not reached; -1: none
  uint32_t seconds = 0;      // how long it has been so; 0: unknown
  uint64_t collectives = 0;  // number of collectives that it has called
  bool has_call = false;     // `call` is one that it made; outside, its last one
  bool is_awaited = false;   // a rank waits for a call that this one has not made
  CallRecord call{};
  // the plugin and its function; the other communicator and call; how the connection is made to
  // `peer` and where the call has come to
  std::string where = {};
  std::string held_up = {};  // as Standstill::held_up
};

/// Ranks that do the same.
struct StatusClass {
  uint64_t count = 0;
  std::vector<RankStatus> examples;  // kExamplesMax of them at most, the lowest ranks
};

inline constexpr size_t kExamplesMax = 8;
inline constexpr size_t kClassesMax = 12;
inline constexpr size_t kWhereBytesMax = 250;

/// The statuses of many ranks.
struct StatusSummary {
  std::vector<StatusClass> classes;  // the most suspicious first
  uint64_t others = 0;               // ranks that are in no class, for lack of room

  void add(RankStatus status);
  void merge(const StatusSummary& other);
  /// The class with the rank's status, if it is one of the examples.
  [[nodiscard]] const RankStatus* find(int rank) const;

 private:
  void merge(const StatusClass& other);
};

std::string encode(const StatusSummary& summary);
/// nullopt: the bytes are no summary of a communicator of `nranks` ranks.
std::optional<StatusSummary> decode_summary(std::string_view bytes, int nranks);

}  // namespace plexus
