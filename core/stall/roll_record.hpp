// SPDX-License-Identifier: Apache-2.0
// What a process says of all its ranks when the whole job is asked (roll_call.hpp): for NCCL's RAS
// protocol (core/ras). And the messages that carry it, as values and as bytes. The bytes come from
// other processes and are not trusted. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/engine/input_check.hpp"
#include "core/schedule/call_log.hpp"
#include "core/stall/rank_status.hpp"

namespace plexus {

/// How a communicator stands with one of its ranks.
struct MemberState {
  uint8_t error = 0;  // as ncclCommGetAsyncError tells it
  bool is_finalized = false;
  bool is_aborted = false;
  uint64_t failovers = 0;  // as LinkCounts
  uint64_t resent = 0;
  BadInput bad_input = {};
  std::string why = {};  // of the error; at most kWhyBytesMax, as bad_input.text
};
inline constexpr size_t kWhyBytesMax = 400;

struct RollRank {
  uint64_t group = 0;
  int32_t nranks = 0;
  int32_t device = -1;  // -1: computes on the host
  MemberState state = {};
  std::array<uint64_t, CallLog::kCollectiveKinds> counts{};  // collectives called, by kind
  std::array<uint64_t, kCollectiveCount> bytes{};  // of its parts of these, and of messages
  RankStatus status = {};
  std::vector<ArrivalWindow> arrivals = {};  // at most ArrivalTimes::kWindows
};

struct RollProcess {
  uint64_t id = 0;  // process_id()
  int32_t pid = 0;
  std::string host = {};     // its name
  std::string address = {};  // "": it has no peers
  std::vector<RollRank> ranks = {};
};

/// In pieces, each a process with some of the ranks, of at most kPieceBytesMax bytes.
std::vector<std::string> encode(const RollProcess& process);
/// nullopt: the bytes are no piece.
std::optional<RollProcess> decode_roll_process(std::string_view bytes);
inline constexpr size_t kPieceBytesMax = 128 * 1024;

enum class RollStep : uint8_t {
  kAsk,     // tell me of all processes on your side
  kHeard,   // the question has come
  kSeen,    // it had come before, by another way: no answer follows
  kPart,    // `pieces`, and more follow
  kAnswer,  // `pieces`, the last ones
};
inline constexpr uint8_t kRollSteps = 5;

struct RollMessage {
  RollStep step = RollStep::kAsk;
  uint32_t time_ms = 0;  // kAsk: when the answer has to be there
  uint64_t id = 0;       // random; names the roll call
  std::vector<std::string> pieces = {};
};
std::string encode(const RollMessage& message);
std::optional<RollMessage> decode_roll_message(std::string_view bytes);
inline constexpr size_t kRollMessageBytesMax = 512 * 1024;

}  // namespace plexus
