// SPDX-License-Identifier: Apache-2.0
// The messages of the control plane; README.md of this folder has their header. Everything decoded
// here comes from a socket: bounds are checked and nothing is trusted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "core/base/result.hpp"
#include "core/control/failure_cause.hpp"
#include "core/control/process_table.hpp"

namespace plexus {

enum class MessageType : uint16_t {
  // a process and the introducer
  kJoin = 1,    // to the introducer: JoinInfo of one rank
  kTable = 2,   // the ProcessTable; also from agent to agent, down the control tree. From the
                // introducer: for process `tag`. To it, without payload: process `tag` has waited
                // long for it
  kJoined = 3,  // from the introducer: all ranks have joined; its loss is no failure from now on.
                // The table goes to process `tag` first
  // agent to agent
  // First message of a connection: `tag` is the process_id() of who connects. So is its answer.
  kLink = 4,
  kAttach = 5,         // you are my parent now; payload: all failure notices that I know
  kFailureNotice = 6,  // deaths and failures
  kOver = 7,           // all members have left `group`
  kOverdue = 8,  // a rank waits for gather `tag` of `group`; payload: its Error (Gathers::inquire)
  kMissingQuery = 9,  // who below you has not contributed to gather `tag` of `group`?
  kMissing = 10,      // these: MissingRanks
  // a rank and the agent of its process; most of them also from agent to agent
  kGroup = 11,     // from a rank: `group` consists of these ranks
  kGather = 12,    // my contribution to gather `tag` of `group`; between agents: Contributions, and
                   // `to` is GroupLayout::fingerprint
  kGathered = 13,  // all contributions
  kPost = 14,      // a control message
  kProbe = 15,     // payload for the receiver's `on_probe` handler
  kLeft = 16,      // the answer to a probe: `from` has left `group`, with its leave record
  kFail = 17,      // from a rank: it failed; to a rank: the group failed
  kLeaveGroup = 18,  // from a rank: it leaves `group`, with its leave record; to it: the last
                     // message of `group`; between agents: LeaveNotes, tag 1: their records need
                     // no more comparison
  kLeave = 19,       // from a rank: it leaves the family; between agents: my process does
  kLate = 20,        // a gather of `group` takes long; payload: a sentence that says for whom;
                     // from: the rank that says it for the job, kNobody: one has said it before
  // Several unique ids. From an agent to the introducer of a further one, before kJoin: the first
  // id, sealed by the further one's secret.
  kFirstId = 21,
  // from the introducer of a further unique id to that of the first
  kRelayed = 22,  // a client's kJoin
  kLost = 23,     // the connection of process `tag`, a client, is lost
  kRest = 24,     // from agent to agent: see PeerLinks
};

inline constexpr MessageType kLastMessageType = MessageType::kRest;
inline constexpr uint32_t kPayloadBytesMax = 64U << 20;
inline constexpr uint32_t kBlobBytesMax = 1U << 20;
inline constexpr size_t kHeaderBytes = 40;
inline constexpr size_t kNamesMax = 16;  // ranks that one sentence names

inline constexpr uint32_t kNobody = ~0U;  // in place of a rank or a process

struct Message {
  MessageType type = MessageType::kLeave;
  uint32_t from = 0;  // ranks of the family
  uint32_t to = 0;
  uint64_t group = 0;
  uint64_t tag = 0;
  std::string payload = {};
};

std::string encode(const Message& message);

/// Cuts messages out of a byte stream.
class MessageReader {
 public:
  void append(const char* bytes, size_t size_bytes);
  /// The next whole message; nullopt: not complete yet. An Error: the bytes are no messages of the
  /// control plane.
  Result<std::optional<Message>> next();

 private:
  std::string buffer_;
  size_t taken_ = 0;  // bytes at its front that next() has returned
};

// -- payloads --

struct JoinInfo {
  uint32_t rank = 0;
  uint32_t nranks = 0;
  uint32_t version = 0;
  ProcessEntry process = {};  // without ranks
};
std::string encode(const JoinInfo& info);
Result<JoinInfo> decode_join(std::string_view payload);

/// A rank that has left a group.
struct LeaveNote {
  static constexpr uint64_t kAfterFailure = ~uint64_t{0};
  uint32_t rank = 0;
  // that it took part in; kAfterFailure: the group has failed, which all are told
  uint64_t gathers = 0;
  std::string record = {};
};
std::string encode(const std::vector<LeaveNote>& notes);
Result<std::vector<LeaveNote>> decode_leave_notes(std::string_view payload);

/// What every process of a family learns.
struct FailureNotice {
  enum class Kind : uint8_t {
    kDeath = 1,    // of a process; its groups fail
    kFailure = 2,  // of a group
    kGone = 3,     // a process is not there any more: it left or died. No group fails by that
  };
  Kind kind = Kind::kDeath;
  uint32_t subject = 0;  // the process, or the rank that failed
  uint64_t group = 0;    // that failed
  Code code = Code::kRemoteError;
  std::string text = {};

  [[nodiscard]] auto key() const {
    return std::tuple(kind, kind == Kind::kFailure ? 0 : subject, group);
  }
};
std::string encode(const std::vector<FailureNotice>& notices);
Result<std::vector<FailureNotice>> decode_failure_notices(std::string_view payload);

/// A rank that others wait for.
struct MissingRank {
  uint32_t rank = 0;
  std::string why = {};  // what its process is busy with; "": unknown
};
std::string encode(const std::vector<MissingRank>& missing);
Result<std::vector<MissingRank>> decode_missing(std::string_view payload);

std::string encode(const std::vector<uint32_t>& ranks);
Result<std::vector<uint32_t>> decode_ranks(std::string_view payload);

/// `what` is why the sender is no correct process of this job.
Error break_of_protocol(std::string_view what);

std::string encode(const Error& error);
/// The Error in a kFail message; an unknown code becomes kRemoteError.
Error decode_error(std::string_view payload);

}  // namespace plexus
