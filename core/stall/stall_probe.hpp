// SPDX-License-Identifier: Apache-2.0
// The probe of core/stall/stall_watch.hpp as a value and as bytes, and what follows from two ranks'
// calls. Bytes come from other processes: nothing in them is trusted. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "kernels/layout/fifo.hpp"

namespace plexus {

/// What a rank waits for of `peer`.
struct StallEdge {
  CallRecord call{};  // of the rank that waits; unused in a split
  int32_t peer = 0;
  bool is_split = false;
  bool is_certain = true;  // see Wait
};

/// One rank on the way of a probe.
struct StallHop {
  uint64_t group = 0;
  uint64_t epoch = 0;        // of the rank's stall; 0: the rank waits in another communicator
  uint64_t collectives = 0;  // it has called
  uint64_t splits = 0;
  CallRecord call{};
  int32_t rank = 0;
  int32_t peer = 0;  // whom it waits for; in a hop of epoch 0: none
  uint8_t is_split = 0;
  uint8_t is_certain = 0;
  uint8_t unused[6] = {};
};

struct StallProbe {
  bool proves = false;  // goes round the circle `hops` once more
  uint32_t index = 0;   // of the hop that sent it, when it proves
  std::vector<StallHop> hops;
};

inline constexpr size_t kStallHopsMax = 32;

std::string encode(const StallProbe& probe);
/// nullopt: no probe.
std::optional<StallProbe> decode_stall_probe(std::string_view bytes);

/// What a rank had called in a communicator when it left it.
struct LeaveRecord {
  uint64_t collectives = 0;
  uint64_t splits = 0;
  /// With one peer, of one kind.
  struct Messages {
    uint64_t peer = 0;
    uint64_t sends = 0;
    uint64_t recvs = 0;
    uint64_t of_vector = 0;
  };
  std::vector<Messages> messages;  // only where there are any
};
std::string encode(const LeaveRecord& record);
std::optional<LeaveRecord> decode_leave_record(std::string_view bytes);

/// How many calls that could answer `call` of `rank` the record counts.
uint64_t count_answers(const LeaveRecord& record, const CallRecord& call, int rank);

/// Can `rank` not end `call`, a collective, before `other` has begun it, whatever the algorithm?
bool depends_on(const CallRecord& call, int rank, int other);

/// Sentences for users.
Error describe_different(int rank, const CallRecord& call, int other, const CallRecord& others);
Error describe_left(int rank, const CallRecord& call, int left);
/// A circle: each hop waits for the next, the last for the first.
Error describe_circle(const std::vector<StallHop>& hops);

}  // namespace plexus
