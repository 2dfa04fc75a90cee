// SPDX-License-Identifier: Apache-2.0
// Messages between members and the hub, as README.md of this folder specifies them. Everything
// decoded here comes from a socket: bounds are checked and nothing is trusted.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"

namespace plexus {

enum class MessageType : uint16_t {
  kJoin = 1,        // member -> hub, first message: JoinInfo; hub -> member: all ranks have joined,
                    // `peer` lives in the hub's process
  kGroup = 2,       // member -> hub: `group` consists of these ranks
  kGather = 3,      // member -> hub: my contribution to gather number `tag` of `group`
  kGathered = 4,    // hub -> member: all contributions
  kPost = 5,        // member -> hub -> member `peer`: a control message
  kProbe = 6,       // member -> hub -> member `peer`: payload for its `on_probe` handler
  kFail = 7,        // member -> hub: my rank failed; hub -> member: the group failed
  kLeave = 8,       // member -> hub: I leave; hub -> member: the hub ends, its loss is no failure
  kLeaveGroup = 9,  // member -> hub: I leave `group`, with my leave record; hub -> member: the last
                    // message of `group`
  kLeft = 10,  // hub -> member: the answer to a probe: `peer` has left `group`, with its record
  // The hub moves to another process (handover.hpp):
  kPause = 11,  // hub -> member: send nothing more; member -> hub: this is my last message to you
  kHost = 12,  // hub -> member: take my state, `tag` pieces follow; member -> hub: where I serve it
  kMove = 13,  // hub -> member: `peer` serves you from now on; without payload: this hub goes on
};

inline constexpr uint32_t kPayloadBytesMax = 64U << 20;
inline constexpr uint32_t kBlobBytesMax = 1U << 20;
inline constexpr size_t kStateBytesMax = 256UL
                                         << 20;  // state of a hub, sent in pieces of at most a blob
inline constexpr size_t kHeaderBytes = 32;

struct Message {
  MessageType type = MessageType::kLeave;
  uint32_t peer = 0;  // to the hub: the receiver; from the hub: the sender (a rank of the family)
  uint64_t group = 0;
  uint64_t tag = 0;
  std::string payload = {};
};

std::string encode(const Message& message);

/// Cuts messages out of a byte stream.
class MessageReader {
 public:
  void append(const char* bytes, size_t size_bytes) { buffer_.append(bytes, size_bytes); }
  /// The next whole message; nullopt: not complete yet. An Error: the bytes are no messages of the
  /// control plane.
  Result<std::optional<Message>> next();

 private:
  std::string buffer_;
};

// -- payloads --

struct JoinInfo {
  uint32_t rank = 0;
  uint32_t nranks = 0;
  uint32_t version = 0;
  int32_t pid = 0;
  uint64_t process = 0;
  std::string host = {};
};
std::string encode(const JoinInfo& info);
Result<JoinInfo> decode_join(std::string_view payload);

std::string encode(const std::vector<uint32_t>& ranks);
Result<std::vector<uint32_t>> decode_ranks(std::string_view payload);

std::string encode(const std::vector<std::string>& blobs);
Result<std::vector<std::string>> decode_blobs(std::string_view payload);

/// Payload of kHost (to the hub) and kMove: the address of the new hub and the name of its rank.
struct HubAddress {
  static constexpr size_t kPackedBytes = 28;
  std::array<uint8_t, kPackedBytes> address{};  // SocketAddress::pack
  std::string name = {};                        // at most 128 bytes
};
std::string encode(const HubAddress& address);
Result<HubAddress> decode_hub_address(std::string_view payload);

std::string encode(const Error& error);
/// The Error in a kFail message; an unknown code becomes kRemoteError.
Error decode_error(std::string_view payload);

}  // namespace plexus
