// SPDX-License-Identifier: Apache-2.0
#include "core/transport/memory/peer_mapped_memory.hpp"

#include <algorithm>
#include <cstring>

#include "core/base/log.hpp"
#include "core/control/control_tag.hpp"

namespace plexus {
namespace {

constexpr uint64_t kMappingTag = tag_of(ControlTag::kMapping, 0);

struct ControlMessage {
  enum class Kind : uint32_t { kOffer, kAnswer, kWithdraw, kGraphOffered };
  Kind kind;
  uint32_t unused;
  uint64_t number;
  uint64_t address;     // of an offer: here; of an answer: there, 0: it cannot be mapped
  MemoryHandle handle;  // of an offer
};

Result<void> post(Exchange& exchange, int peer, const ControlMessage& message) {
  std::string bytes(sizeof(message), '\0');
  std::memcpy(bytes.data(), &message, sizeof(message));
  return exchange.post(peer, kMappingTag, std::move(bytes));
}

uint64_t number_of(const void* address) { return reinterpret_cast<uintptr_t>(address); }

}  // namespace

// ---- what peers map of this rank ----

void PeerMappedMemory::add(const void* address, size_t size_bytes) {
  const Allowing all(options_.runtime, DriverCalls::kAll);  // a registration
  const std::lock_guard lock(mutex_);
  if (find_or_map(address, size_bytes) != nullptr) {
    size_t& known = registered_[static_cast<const std::byte*>(address)];
    known = std::max(known, size_bytes);
  }
}

void PeerMappedMemory::remove(const void* address) {
  const std::lock_guard lock(mutex_);
  const auto* const first = static_cast<const std::byte*>(address);
  if (registered_.erase(first) == 0) {
    return;
  }
  const auto after = peer_mapped_.upper_bound(first);
  if (after == peer_mapped_.begin()) {
    return;  // withdrawn since: its memory was freed, and what took its place cannot be mapped
  }
  const auto at = std::prev(after);
  const auto other = registered_.lower_bound(at->first);
  const bool is_used =
      other != registered_.end() && other->first < at->first + at->second.size_bytes;
  if (!is_used && !at->second.in_graph) {
    withdraw(at);
  }
}

/// nullptr: it cannot be mapped.
PeerMappedMemory::Mapped* PeerMappedMemory::find_or_map(const void* address, size_t size_bytes) {
  auto found = options_.runtime->find_allocation(options_.device, address);
  const bool is_inside =
      found.has_value() &&
      number_of(address) - number_of(found.value().base) + size_bytes <= found.value().size_bytes;
  if (is_inside) {
    const auto at = peer_mapped_.find(found.value().base);
    if (at != peer_mapped_.end() && at->second.buffer_id == found.value().id) {
      return &at->second;
    }
    if (at != peer_mapped_.end()) {
      withdraw(at);
    }
    auto handle = options_.runtime->export_memory(options_.device, found.value().base);
    if (handle.has_value()) {
      return &peer_mapped_
                  .emplace(found.value().base, Mapped{.number = ++last_number_,
                                                      .buffer_id = found.value().id,
                                                      .size_bytes = found.value().size_bytes,
                                                      .handle = handle.value(),
                                                      .readers = {}})
                  .first->second;
    }
    found = std::move(handle).error();
  }
  if (!std::exchange(explained_, true)) {
    PLEXUS_INFO(kP2p, "rank {}: user memory is not read in place by other processes: {}",
                options_.rank,
                found.has_error() ? found.error().message() : "it spans several allocations");
  }
  return nullptr;
}

bool PeerMappedMemory::is_registered(const std::byte* address, size_t size_bytes) const {
  const auto after = registered_.upper_bound(address);
  if (after == registered_.begin()) {
    return false;
  }
  const auto& [first, known_bytes] = *std::prev(after);
  return static_cast<size_t>(address - first) + size_bytes <= known_bytes;
}

Result<void> PeerMappedMemory::offer(int peer, Mapped& mapped) {
  if (!mapped.readers.emplace(peer, Reader{}).second) {
    return ok();
  }
  return post(*options_.exchange, peer,
              {.kind = ControlMessage::Kind::kOffer,
               .unused = 0,
               .number = mapped.number,
               .address = 0,
               .handle = mapped.handle});
}

void PeerMappedMemory::withdraw(Allocations::iterator at) {
  for (const auto& [peer, reader] : at->second.readers) {
    // Who cannot be told has left, and its mappings with it.
    (void)post(*options_.exchange, peer,
               {.kind = ControlMessage::Kind::kWithdraw,
                .unused = 0,
                .number = at->second.number,
                .address = 0,
                .handle = {}});
  }
  peer_mapped_.erase(at);
}

Result<uint64_t> PeerMappedMemory::map_for_peer(int peer,
                                                const void* address,
                                                size_t size_bytes,
                                                bool in_graph) {
  const std::lock_guard lock(mutex_);
  const auto* const first = static_cast<const std::byte*>(address);
  const auto after = peer_mapped_.upper_bound(first);
  if (after == peer_mapped_.begin() ||
      std::find(options_.peers.begin(), options_.peers.end(), peer) == options_.peers.end()) {
    return kNotMapped;
  }
  auto& [base, mapped] = *std::prev(after);
  const bool is_inside = static_cast<size_t>(first - base) + size_bytes <= mapped.size_bytes;
  const bool may_be = (in_graph && mapped.in_graph) || is_registered(first, size_bytes);
  if (!is_inside || !may_be) {
    return kNotMapped;
  }
  PLEXUS_TRY(offer(peer, mapped));
  return mapped.readers.at(peer).shift;
}

// ---- control messages ----

Result<void> PeerMappedMemory::serve() {
  const std::lock_guard lock(mutex_);
  for (const int peer : options_.peers) {
    while (const auto bytes = options_.exchange->try_take(peer, kMappingTag)) {
      PLEXUS_TRY(take_control_message(peer, *bytes));
    }
  }
  return ok();
}

Result<void> PeerMappedMemory::take_control_message(int peer, const std::string& bytes) {
  ControlMessage message{};
  if (bytes.size() != sizeof(message)) {
    return fail(Code::kInternalError,
                "rank {} sent a description of its memory of {} bytes, expected {}: use the same "
                "version of Plexus on all ranks",
                peer, bytes.size(), sizeof(message));
  }
  std::memcpy(&message, bytes.data(), sizeof(message));
  switch (message.kind) {
    case ControlMessage::Kind::kOffer:
      return take_offer(peer, message.number, message.handle);
    case ControlMessage::Kind::kAnswer: {
      const auto at =
          std::find_if(peer_mapped_.begin(), peer_mapped_.end(),
                       [&](const auto& entry) { return entry.second.number == message.number; });
      if (at != peer_mapped_.end()) {  // else withdrawn since
        at->second.readers[peer] = {
            .shift = message.address == 0 ? kNotMapped : message.address - number_of(at->first),
            .answered = true};
      }
      return ok();
    }
    case ControlMessage::Kind::kWithdraw:
      if (const auto at = seen_.find({peer, message.number}); at != seen_.end()) {
        options_.watch->retire(std::move(at->second));
        seen_.erase(at);
      }
      return ok();
    case ControlMessage::Kind::kGraphOffered:
      ++graphs_of_peers_[peer];
      return ok();
  }
  return fail(Code::kInternalError,
              "rank {} sent a description of its memory of an unknown kind: use the same version "
              "of Plexus on all ranks",
              peer);
}

Result<void> PeerMappedMemory::take_offer(int peer, uint64_t number, const MemoryHandle& handle) {
  const Allowing growing(options_.runtime, DriverCalls::kGrowing);
  auto memory = import_memory(*options_.runtime, options_.device, handle);
  uint64_t address = 0;
  if (memory.has_value()) {
    address = number_of(memory.value().get());
    PLEXUS_INFO(kP2p, "rank {} reads memory number {} of rank {} in place", options_.rank, number,
                peer);
    seen_[{peer, number}] = std::move(memory).value();
  } else if (!std::exchange(explained_, true)) {
    PLEXUS_INFO(kP2p, "rank {} does not read memory of rank {} in place: {}", options_.rank, peer,
                memory.error().message());
  }
  return post(*options_.exchange, peer,
              {.kind = ControlMessage::Kind::kAnswer,
               .unused = 0,
               .number = number,
               .address = address,
               .handle = {}});
}

// ---- graphs ----

Result<void> PeerMappedMemory::begin_graph(std::span<const GraphBuffer> buffers,
                                           std::span<const int> senders) {
  const std::lock_guard lock(mutex_);
  const auto add_peer = [&](std::vector<int>& to, int peer) {
    const auto& peers = options_.peers;
    if (std::find(peers.begin(), peers.end(), peer) != peers.end() &&
        std::find(to.begin(), to.end(), peer) == to.end()) {
      to.push_back(peer);
    }
  };
  for (const GraphBuffer& buffer : buffers) {
    add_peer(graph_readers_, buffer.peer);
  }
  for (const GraphBuffer& buffer : buffers) {
    Mapped* const mapped = find_or_map(buffer.address, buffer.size_bytes);
    const auto& readers = graph_readers_;
    if (mapped != nullptr &&
        std::find(readers.begin(), readers.end(), buffer.peer) != readers.end()) {
      mapped->in_graph = true;
      PLEXUS_TRY(offer(buffer.peer, *mapped));
    }
  }
  for (const int peer : graph_readers_) {
    PLEXUS_TRY(post(*options_.exchange, peer,
                    {.kind = ControlMessage::Kind::kGraphOffered,
                     .unused = 0,
                     .number = 0,
                     .address = 0,
                     .handle = {}}));
  }
  for (const int peer : senders) {
    add_peer(graph_senders_, peer);
  }
  return ok();
}

Result<bool> PeerMappedMemory::graph_agreed() {
  PLEXUS_TRY(serve());
  const std::lock_guard lock(mutex_);
  const auto has_answered = [&](const Mapped& mapped, int peer) {
    const auto at = mapped.readers.find(peer);
    return !mapped.in_graph || at == mapped.readers.end() || at->second.answered;
  };
  return std::all_of(graph_senders_.begin(), graph_senders_.end(),
                     [&](int peer) { return graphs_of_peers_[peer] > 0; }) &&
         std::all_of(peer_mapped_.begin(), peer_mapped_.end(), [&](const auto& entry) {
           return std::all_of(graph_readers_.begin(), graph_readers_.end(),
                              [&](int peer) { return has_answered(entry.second, peer); });
         });
}

void PeerMappedMemory::end_graph() {
  const std::lock_guard lock(mutex_);
  for (const int peer : graph_senders_) {
    graphs_of_peers_[peer] = std::max(graphs_of_peers_[peer] - 1, 0);
  }
  graph_senders_.clear();
  graph_readers_.clear();
}

}  // namespace plexus
