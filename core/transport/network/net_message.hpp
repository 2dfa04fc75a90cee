// SPDX-License-Identifier: Apache-2.0
// What the net and xdc transports put before the payload of a slot, and what both check before they
// believe a peer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "core/base/hash.hpp"
#include "core/base/result.hpp"
#include "kernels/layout/fifo.hpp"

namespace plexus {

/// The slot's header.
struct NetHeader {
  CallRecord call;
  uint32_t size_bytes;
  uint32_t call_hash;
  uint64_t connection;   // net: which connection the message belongs to
  uint64_t step;         // net: its number in that connection
  uint32_t header_sum;   // PLEXUS_NET_CHECKSUM: of the rest of the header
  uint32_t payload_sum;  // 0: there is none
};
static_assert(sizeof(NetHeader) == kCacheLine);

/// The same number at both ends of a connection, and another at those of any other.
inline uint64_t identify_connection(uint64_t group, int source, int target, int index) {
  Fnv1a hash;
  for (const uint64_t part : {group, static_cast<uint64_t>(source), static_cast<uint64_t>(target),
                              static_cast<uint64_t>(index)}) {
    hash.mix(part);
  }
  return hash.value();
}

/// A network must not give one connection's message to another, nor lose one, nor change their
/// order; where it does, sums would be wrong and nobody would know.
inline Result<void> check_identity(const NetHeader& message_header,
                                   uint64_t connection,
                                   uint64_t step,
                                   std::string_view peer_name) {
  if (message_header.connection != connection) {
    return fail(Code::kInternalError,
                "the network delivered a message of another connection as message {} of {}: its "
                "plugin mixes up connections; use another network (NCCL_NET_PLUGIN) or another "
                "version of the plugin, and see `plexus plugin check LIB --only mesh`",
                step, peer_name);
  }
  if (message_header.step != step) {
    return fail(Code::kInternalError,
                "the network delivered message {} of {} where message {} was expected: its plugin "
                "loses or reorders messages; use another network (NCCL_NET_PLUGIN) or another "
                "version of the plugin, and see `plexus plugin check LIB --only order`",
                message_header.step, peer_name, step);
  }
  return ok();
}

/// A connection's route as its two ends see it.
struct SeenRoutes {
  std::string_view mine;
  std::string_view peers;
  int rank;
  std::string_view peer_name;
};

/// A handle is for the plugin that made it: another one would read nonsense, and wait for ever.
inline Result<void> check_route(const SeenRoutes& seen) {
  constexpr size_t kRouteTextMax = 512;  // of the peer's, in the message
  if (seen.mine == seen.peers) {
    return ok();
  }
  return fail(Code::kInvalidUsage,
              "rank {} and {} chose different paths for one connection: the first {}, the second "
              "{}; use the same version of Plexus on all ranks",
              seen.rank, seen.peer_name, seen.mine, seen.peers.substr(0, kRouteTextMax));
}

/// The header of the message that carries the slot that was filled at `step`.
inline NetHeader header_of(const Fifo& fifo, uint64_t step) noexcept {
  const SlotHeader& header = fifo.headers[step % kHeaders];
  NetHeader message_header{};
  if (const CallRecord call = fifo.calls[header.call % kHeaders].load();
      call.hash == header.call_hash) {
    message_header.call = call;
  }
  message_header.size_bytes = header.size_bytes;
  message_header.call_hash = header.call_hash;
  return message_header;
}

/// Where a message comes from.
struct MessageSource {
  std::string_view peer_name;
  uint64_t step = 0;  // its number in its connection
  /// Libraries of NCCL's ABI need not say how many bytes came, and some always say 0.
  bool may_lack_sizes = false;
};

/// Marks a buffer that a message is to come into: no header that arrives is like this one, so that
/// the last message is never read again.
inline void forget_header(std::byte* message) noexcept {
  NetHeader none{};
  none.size_bytes = UINT32_MAX;
  std::memcpy(message, &none, sizeof(none));
}

/// The size of a message whose header and payload travelled apart. 0: the plugin told no size. 1,
/// which fits no header: the header had a wrong size.
inline uint64_t join_sizes(uint64_t header_bytes,
                           uint64_t payload_bytes,
                           const MessageSource& source) {
  if (header_bytes != sizeof(NetHeader) && !(source.may_lack_sizes && header_bytes == 0)) {
    return 1;
  }
  const bool is_known = payload_bytes != 0 || !source.may_lack_sizes;
  return is_known ? sizeof(NetHeader) + payload_bytes : 0;
}

/// The header of a message of `size_bytes` in a buffer of `capacity_bytes`, checked. 0: the plugin
/// did not say, if it may be one that does not, and the header's word counts.
inline Result<NetHeader> read_header(const std::byte* message,
                                     uint64_t size_bytes,
                                     uint64_t capacity_bytes,
                                     const MessageSource& source) {
  NetHeader message_header{};
  const bool is_untold = size_bytes == 0 && source.may_lack_sizes;
  if (is_untold || size_bytes >= sizeof(message_header)) {
    std::memcpy(&message_header, message, sizeof(message_header));
  }
  const uint64_t found_bytes =
      is_untold ? sizeof(message_header) + message_header.size_bytes : size_bytes;
  if (found_bytes < sizeof(message_header) || found_bytes > capacity_bytes ||
      message_header.size_bytes != found_bytes - sizeof(message_header)) {
    return fail(
        Code::kRemoteError,
        "message {} of {} has {} bytes as the plugin says, {} of payload as its header says, "
        "and at most {} by the size of its buffer: the plugin gives wrong sizes or changes "
        "data; use another network (NCCL_NET_PLUGIN) or another version of the plugin, and "
        "see `plexus plugin check LIB --only message`",
        source.step, source.peer_name, size_bytes, message_header.size_bytes, capacity_bytes);
  }
  return message_header;
}

/// Tells who reads the Fifo that the slot of `step` is filled: its payload is in the data area, or
/// at `place`.
inline void announce(Fifo& fifo,
                     uint64_t step,
                     const NetHeader& message_header,
                     const std::byte* place = nullptr) noexcept {
  SlotHeader& header = fifo.headers[step % kHeaders];
  header.call = record_of_call(message_header.call.sequence);
  fifo.calls[header.call].store(message_header.call);
  header.kind = place == nullptr ? SlotKind::kData : SlotKind::kPointer;
  header.payload.pointer = place;
  header.size_bytes = message_header.size_bytes;
  header.call_hash = message_header.call_hash;
  header.ready.store(step + 1, std::memory_order_release);  // pairs with try_peek()
}

}  // namespace plexus
