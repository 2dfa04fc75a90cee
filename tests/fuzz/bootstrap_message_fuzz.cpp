// SPDX-License-Identifier: Apache-2.0
// What a hostile or broken peer may send on the control plane: bytes in arbitrary pieces through
// the reader, the messages into a hub with three correct members and into every decoder. No input
// may crash, leak, use unbounded memory, or make the hub send invalid messages. At every message
// the hub's state is restored into another hub, which must be equal; the input is also used as such
// a state.
//
// Input: the first byte determines how the stream is divided; then, per piece, the bytes of the
// stream.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "core/bootstrap/hub.hpp"
#include "core/bootstrap/message.hpp"
#include "core/bootstrap/unique_id.hpp"

namespace plexus {
namespace {

constexpr uint32_t kMembers = 4;
constexpr uint64_t kWorld = 1;

void require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

void decode_all(const std::string& payload) {
  if (auto ranks = decode_ranks(payload); ranks.has_value()) {
    require(encode(ranks.value()) == payload);
  }
  if (auto blobs = decode_blobs(payload); blobs.has_value()) {
    require(encode(blobs.value()) == payload);
  }
  if (auto address = decode_hub_address(payload); address.has_value()) {
    require(encode(address.value()) == payload);
  }
  (void)decode_join(payload);
  require(decode_error(payload).code() != Code::kSuccess);
}

/// Checks that the restored hub equals this one.
void move(const Hub& hub) {
  const std::string state = hub.to_bytes();
  Hub heir(kWorld, 2, [](uint32_t, const Message&) { require(false); });
  require(heir.restore(state).has_value());
  require(heir.to_bytes() == state);
}

/// A state from an untrusted source: refused, or restored to a working hub.
void restore(std::string_view bytes) {
  Hub hub(kWorld, 1, [](uint32_t, const Message& message) {
    require(message.payload.size() <= kPayloadBytesMax);
  });
  if (hub.restore(bytes).has_error()) {
    return;
  }
  move(hub);
  for (const uint32_t member : hub.present()) {
    (void)hub.take(member, {.type = MessageType::kGather, .group = kWorld, .payload = "x"});
    hub.lose(member);
  }
}

void fuzz(std::string_view bytes) {
  restore(bytes);
  if (bytes.size() >= UniqueId::kBytes) {
    (void)UniqueId::from_bytes(std::span<const std::byte, UniqueId::kBytes>(
        reinterpret_cast<const std::byte*>(bytes.data()), UniqueId::kBytes));
  }
  size_t sent = 0;
  Hub hub(kWorld, 1, [&](uint32_t member, const Message& message) {
    require(member < kMembers);
    require(message.payload.size() <= kPayloadBytesMax);
    ++sent;
  });
  for (uint32_t rank = 0; rank < kMembers; ++rank) {
    require(
        hub.join({.rank = rank, .nranks = kMembers, .version = 1, .process = rank}).has_value());
  }
  const size_t piece = bytes.empty() ? 1 : static_cast<size_t>(bytes.front()) % 37 + 1;
  MessageReader reader;
  uint32_t member = 0;
  for (size_t at = 1; at < bytes.size(); at += piece) {
    const std::string_view part = bytes.substr(at, piece);
    reader.append(part.data(), part.size());
    for (;;) {
      auto message = reader.next();
      if (message.has_error()) {
        hub.lose(member);
        return;
      }
      if (!message.value().has_value()) {
        break;
      }
      require(encode(*message.value()).size() == kHeaderBytes + message.value()->payload.size());
      decode_all(message.value()->payload);
      // The other messages are equally arbitrary.
      if (hub.take(member, std::move(*message.value())).has_error()) {
        hub.lose(member);
      }
      move(hub);
      member = (member + 1) % kMembers;
    }
  }
}

}  // namespace
}  // namespace plexus

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  plexus::fuzz({reinterpret_cast<const char*>(data), size});
  return 0;
}
