// SPDX-License-Identifier: Apache-2.0
// What CUDA ranks in several processes of a host tell each other about memory that they map
// (peer_mapped_memory.hpp), as bytes.
//
//   const std::string bytes =
//       to_bytes({.kind = MappingMessage::Kind::kOffer, .number = 7, .handle = handle});
//   const auto message = mapping_message_of(bytes);  // nullopt: these are no such bytes
//   return message.has_value() && message->number == 7;
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/device/device_runtime.hpp"

namespace plexus {

struct MappingMessage {
  enum class Kind : uint32_t { kOffer, kAnswer, kWithdraw, kGraphOffered };
  Kind kind = Kind::kOffer;
  uint64_t number = 0;    // names the memory between the ranks
  uint64_t address = 0;   // of an answer: where it is there; 0: it cannot be mapped
  MemoryHandle handle{};  // of an offer of memory without pieces
  uint64_t process = 0;   // of one with pieces: process_id() of who is asked for descriptors, and
  uint64_t first_id = 0;  // the first one's id there (memory_server.hpp); those after it follow
  std::vector<uint64_t> piece_bytes = {};  // by piece
};

std::string to_bytes(const MappingMessage& message);
/// nullopt: another version wrote them, or the memory has more bytes than there are addresses.
std::optional<MappingMessage> mapping_message_of(std::string_view bytes);

}  // namespace plexus
