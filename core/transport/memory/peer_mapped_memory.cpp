// SPDX-License-Identifier: Apache-2.0
#include "core/transport/memory/peer_mapped_memory.hpp"

#include <algorithm>

#include "core/base/log.hpp"
#include "core/control/control_tag.hpp"
#include "core/os/host.hpp"

namespace plexus {
namespace {

constexpr uint64_t kMappingTag = tag_of(ControlTag::kMapping, 0);

Result<void> post(Exchange& exchange, int peer, const MappingMessage& message) {
  return exchange.post(peer, kMappingTag, to_bytes(message));
}

uint64_t number_of(const void* address) { return reinterpret_cast<uintptr_t>(address); }

/// What a peer offered, mapped.
Result<DeviceMemory> open_offered(DeviceRuntime& runtime, int device, const MappingMessage& offer) {
  if (offer.piece_bytes.empty()) {
    return import_memory(runtime, device, offer.handle);
  }
  PLEXUS_TRY(theirs, take_pieces(offer));
  return import_pieces(runtime, device, *theirs);
}

}  // namespace

PeerMappedMemory::PeerMappedMemory(Options options) : options_(std::move(options)) {
  options_.watch->add(*this);
}

PeerMappedMemory::~PeerMappedMemory() { options_.watch->remove(*this); }

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
  for (auto next = peer_mapped_.begin(); next != peer_mapped_.end();) {
    const auto at = next++;
    const auto* const end = at->first + at->second.memory.size_bytes;
    const bool is_used =
        std::any_of(registered_.lower_bound(at->first), registered_.lower_bound(end),
                    [end](const auto& other) { return other.first + other.second <= end; });
    if (at->first <= first && first < end && !is_used && !at->second.in_graph) {
      withdraw(at);
    }
  }
}

/// nullptr: it is not mapped.
PeerMappedMemory::Mapped* PeerMappedMemory::find_mapped(const void* address, size_t size_bytes) {
  const auto* const first = static_cast<const std::byte*>(address);
  for (auto at = peer_mapped_.upper_bound(first); at != peer_mapped_.begin();) {
    --at;
    if (static_cast<size_t>(first - at->first) + size_bytes <= at->second.memory.size_bytes) {
      return &at->second;
    }
  }
  return nullptr;
}

/// nullptr: it cannot be mapped.
PeerMappedMemory::Mapped* PeerMappedMemory::find_or_map(const void* address, size_t size_bytes) {
  auto found = options_.runtime->find_allocation(options_.device, address, size_bytes);
  const bool is_inside =
      found.has_value() &&
      number_of(address) - number_of(found.value().base) + size_bytes <= found.value().size_bytes;
  if (is_inside) {
    withdraw_others(found.value());
    if (Mapped* const known = find_mapped(address, size_bytes); known != nullptr) {
      return known;
    }
    const auto* const base = found.value().base;
    auto made = export_memory(std::move(found).value());
    if (made.has_value()) {
      return &peer_mapped_.emplace(base, std::move(made).value())->second;
    }
    found = std::move(made).error();
  }
  if (!std::exchange(explained_, true)) {
    PLEXUS_INFO(kP2p, "rank {}: user memory is not read in place by other processes: {}",
                options_.rank,
                found.has_error() ? found.error().message() : "it spans several allocations");
  }
  return nullptr;
}

Result<PeerMappedMemory::Mapped> PeerMappedMemory::export_memory(Allocation memory) {
  Mapped made{.memory = std::move(memory), .offer = {.number = ++last_number_}, .pieces = nullptr};
  if (made.memory.pieces.empty()) {
    PLEXUS_TRY(handle, options_.runtime->export_memory(options_.device, made.memory.base));
    made.offer.handle = handle;
    return made;
  }
  PLEXUS_TRY(exported, options_.runtime->export_pieces(options_.device, made.memory));
  PLEXUS_TRY(pieces, OfferedPieces::offer(std::move(exported)));
  made.offer.process = process_id();
  made.offer.first_id = pieces->first_id();
  for (const Allocation::Piece& piece : made.memory.pieces) {
    made.offer.piece_bytes.push_back(piece.size_bytes);
  }
  made.pieces = std::move(pieces);
  return made;
}

/// Of what was mapped where `memory` is, what was freed since.
void PeerMappedMemory::withdraw_others(const Allocation& memory) {
  for (auto next = peer_mapped_.begin(); next != peer_mapped_.end();) {
    const auto at = next++;
    const Allocation& known = at->second.memory;
    if (known.base >= memory.base + memory.size_bytes ||
        memory.base >= known.base + known.size_bytes || known == memory) {
      continue;
    }
    const auto now =
        options_.runtime->find_allocation(options_.device, known.base, known.size_bytes);
    if (now.has_error() || now.value() != known) {
      withdraw(at);
    }
  }
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
  if (!mapped.readers.try_emplace(peer).second) {
    return ok();
  }
  return post(*options_.exchange, peer, mapped.offer);
}

void PeerMappedMemory::withdraw(Allocations::iterator at) {
  Mapped& mapped = at->second;
  for (const auto& [peer, reader] : mapped.readers) {
    // Who cannot be told has left, and its mappings with it.
    (void)post(*options_.exchange, peer,
               {.kind = MappingMessage::Kind::kWithdraw, .number = mapped.offer.number});
  }
  if (mapped.pieces != nullptr) {
    options_.watch->retire(std::move(mapped.pieces));
  }
  peer_mapped_.erase(at);
}

Result<uint64_t> PeerMappedMemory::map_for_peer(int peer,
                                                const void* address,
                                                size_t size_bytes,
                                                bool in_graph) {
  const std::lock_guard lock(mutex_);
  const bool may_be = is_registered(static_cast<const std::byte*>(address), size_bytes);
  if ((!may_be && !in_graph) ||
      std::find(options_.peers.begin(), options_.peers.end(), peer) == options_.peers.end()) {
    return kNotMapped;
  }
  Mapped* const mapped = find_mapped(address, size_bytes);
  if (mapped == nullptr || (!may_be && !mapped->in_graph)) {
    return kNotMapped;
  }
  PLEXUS_TRY(offer(peer, *mapped));
  return mapped->readers.at(peer).shift;
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
  auto message = mapping_message_of(bytes);
  if (!message.has_value()) {
    return fail(Code::kInternalError,
                "rank {} sent a description of its memory of {} bytes that is none: use the same "
                "version of Plexus on all ranks",
                peer, bytes.size());
  }
  const std::pair key(peer, message->number);
  switch (message->kind) {
    case MappingMessage::Kind::kOffer:
      if (seen_.try_emplace(key).second) {
        offers_.emplace_back(peer, std::move(*message));
        options_.watch->wake();
      }
      return ok();
    case MappingMessage::Kind::kAnswer: {
      const auto at = std::find_if(
          peer_mapped_.begin(), peer_mapped_.end(),
          [&](const auto& entry) { return entry.second.offer.number == message->number; });
      if (at != peer_mapped_.end()) {  // else withdrawn since
        at->second.readers[peer] = {
            .shift = message->address == 0 ? kNotMapped : message->address - number_of(at->first),
            .answered = true};
      }
      return ok();
    }
    case MappingMessage::Kind::kWithdraw:
      if (const auto at = seen_.find(key); at != seen_.end()) {
        if (at->second != nullptr) {
          options_.watch->retire(std::move(at->second));
        }
        seen_.erase(at);
      }
      return ok();
    case MappingMessage::Kind::kGraphOffered:
      break;
  }
  ++graphs_of_peers_[peer];
  return ok();
}

/// Maps what was offered.
void PeerMappedMemory::look() {
  std::vector<std::pair<int, MappingMessage>> offers;
  {
    const std::lock_guard lock(mutex_);
    offers = std::exchange(offers_, {});
  }
  for (const auto& [peer, offer] : offers) {
    answer(peer, offer.number, open_offered(*options_.runtime, options_.device, offer));
  }
}

void PeerMappedMemory::answer(int peer, uint64_t number, Result<DeviceMemory> memory) {
  const std::lock_guard lock(mutex_);
  const auto at = seen_.find({peer, number});
  if (at == seen_.end()) {
    return;  // withdrawn since
  }
  uint64_t address = 0;
  if (memory.has_value()) {
    address = number_of(memory.value().get());
    PLEXUS_INFO(kP2p, "rank {} reads memory number {} of rank {} in place", options_.rank, number,
                peer);
    at->second = std::move(memory).value();
  } else {
    if (!std::exchange(explained_, true)) {
      PLEXUS_INFO(kP2p, "rank {} does not read memory of rank {} in place: {}", options_.rank, peer,
                  memory.error().message());
    }
    seen_.erase(at);
  }
  // Who cannot be told has left.
  (void)post(*options_.exchange, peer,
             {.kind = MappingMessage::Kind::kAnswer, .number = number, .address = address});
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
    PLEXUS_TRY(post(*options_.exchange, peer, {.kind = MappingMessage::Kind::kGraphOffered}));
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
