// SPDX-License-Identifier: Apache-2.0
// The probe of core/stall/stall_watch.hpp as a value and as bytes, and conclusions from two ranks'
// calls. The bytes come from other processes and are not trusted. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "core/engine/execution.hpp"
#include "kernels/layout/fifo.hpp"

namespace plexus {

/// A wait of a rank for `peer`.
struct StallEdge {
  CallRecord call{};  // the waiting rank's call; unused in a split
  int32_t peer = 0;
  bool is_split = false;
  bool is_certain = true;  // see Wait::certain
  std::optional<Wait::Arrival> arrival;
};

/// One rank that a probe has passed.
struct StallHop {
  uint64_t group = 0;
  uint64_t epoch = 0;        // id of the rank's stall; 0: its thread waits in another communicator
  uint64_t collectives = 0;  // number of collectives called
  uint64_t splits = 0;
  CallRecord call{};
  int32_t rank = 0;
  int32_t peer = 0;  // the peer that it waits for; unused when epoch is 0
  uint8_t is_split = 0;
  uint8_t is_certain = 0;
  // when waiting for a message: 1 + ConnectionKey::index, and the number of messages that came
  // before
  uint16_t connection = 0;
  uint32_t received = 0;
};

struct StallProbe {
  bool proves = false;  // second round along the circle `hops`
  uint32_t index = 0;   // hop that sent it, when it proves
  std::vector<StallHop> hops;
};

inline constexpr size_t kStallHopsMax = 32;

std::string encode(const StallProbe& probe);
/// nullopt: the bytes are no probe.
std::optional<StallProbe> decode_stall_probe(std::string_view bytes);

/// How a rank left a communicator in order.
enum class Departure : uint64_t {
  kDestroyed,     // by ncclCommDestroy
  kProcessEnded,  // its process ended without
  kStopped,       // by ncclCommDestroy or ncclCommAbort, after it had failed or been stopped
};

/// The calls that a rank had made in a communicator when it left.
struct LeaveRecord {
  Departure how = Departure::kDestroyed;
  uint64_t collectives = 0;
  uint64_t splits = 0;
  /// Messages with one peer, separately for `of_vector`.
  struct Messages {
    uint64_t peer = 0;
    uint64_t sends = 0;
    uint64_t recvs = 0;
    uint64_t of_vector = 0;
  };
  /// The last collectives, at most kLastMax, by which others see that it has made another call.
  std::vector<CallRecord> last;
  std::vector<Messages> messages;  // only peers with messages

  static constexpr size_t kLastMax = 4;
};
std::string encode(const LeaveRecord& record);
std::optional<LeaveRecord> decode_leave_record(std::string_view bytes);

/// Number of calls in the record that could match `call` of `rank`.
uint64_t count_answers(const LeaveRecord& record, const CallRecord& call, int rank);

/// Whether `rank` cannot finish the collective `call` before `other` has begun it, for any
/// algorithm.
bool depends_on(const CallRecord& call, int rank, int other);

/// Compares some ranks or all; returns a sentence about a call that one of them has made and
/// another one has not. "": there is none.
std::string compare_calls(const std::map<int, LeaveRecord>& records);

/// Error messages for users.
Error describe_different(int rank, const CallRecord& call, int other, const CallRecord& others);
Error describe_left(int rank, const CallRecord& call, int left, Departure how);
/// For a circle in which each hop waits for the next, and the last for the first.
Error describe_circle(const std::vector<StallHop>& hops);

}  // namespace plexus
