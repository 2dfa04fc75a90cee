// SPDX-License-Identifier: Apache-2.0
#include "core/transport/lent_memory.hpp"

#include <algorithm>
#include <cstring>

#include "core/base/log.hpp"

namespace plexus {
namespace {

constexpr uint64_t kTag = uint64_t{1} << 61;  // letters of no connection

struct Letter {
  enum class Kind : uint32_t { kOffer, kAnswer, kWithdraw, kGraphOffered };
  Kind kind;
  uint32_t unused;
  uint64_t number;
  uint64_t address;     // of an offer: here; of an answer: there, 0: it cannot be mapped
  MemoryHandle handle;  // of an offer
};

Result<void> post(Exchange& exchange, int peer, const Letter& letter) {
  std::string bytes(sizeof(letter), '\0');
  std::memcpy(bytes.data(), &letter, sizeof(letter));
  return exchange.post(peer, kTag, std::move(bytes));
}

uint64_t number_of(const void* address) { return reinterpret_cast<uintptr_t>(address); }

}  // namespace

// ---- what this rank lends ----

void LentMemory::add(const void* address, size_t size_bytes) {
  const std::lock_guard lock(mutex_);
  if (find_or_lend(address, size_bytes) != nullptr) {
    size_t& known = registered_[static_cast<const std::byte*>(address)];
    known = std::max(known, size_bytes);
  }
}

void LentMemory::remove(const void* address) {
  const std::lock_guard lock(mutex_);
  const auto* const first = static_cast<const std::byte*>(address);
  if (registered_.erase(first) == 0) {
    return;
  }
  const auto at = std::prev(lent_.upper_bound(first));  // add() put it there
  const auto other = registered_.lower_bound(at->first);
  const bool is_used =
      other != registered_.end() && other->first < at->first + at->second.size_bytes;
  if (!is_used && !at->second.in_graph) {
    withdraw(at);
  }
}

/// nullptr: it cannot be lent.
LentMemory::Lent* LentMemory::find_or_lend(const void* address, size_t size_bytes) {
  auto found = options_.runtime->find_allocation(options_.device, address);
  const bool is_inside =
      found.has_value() &&
      number_of(address) - number_of(found.value().base) + size_bytes <= found.value().size_bytes;
  if (is_inside) {
    const auto at = lent_.find(found.value().base);
    if (at != lent_.end() && at->second.buffer_id == found.value().id) {
      return &at->second;
    }
    if (at != lent_.end()) {
      withdraw(at);
    }
    auto handle = options_.runtime->export_memory(options_.device, found.value().base);
    if (handle.has_value()) {
      return &lent_
                  .emplace(found.value().base, Lent{.number = ++last_number_,
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
                found.has_error() ? found.error().message() : "it is of several allocations");
  }
  return nullptr;
}

bool LentMemory::is_registered(const std::byte* address, size_t size_bytes) const {
  const auto after = registered_.upper_bound(address);
  if (after == registered_.begin()) {
    return false;
  }
  const auto& [first, known_bytes] = *std::prev(after);
  return static_cast<size_t>(address - first) + size_bytes <= known_bytes;
}

Result<void> LentMemory::offer(int peer, Lent& lent) {
  if (!lent.readers.emplace(peer, Reader{}).second) {
    return ok();
  }
  return post(*options_.exchange, peer,
              {.kind = Letter::Kind::kOffer,
               .unused = 0,
               .number = lent.number,
               .address = 0,
               .handle = lent.handle});
}

void LentMemory::withdraw(Allocations::iterator at) {
  for (const auto& [peer, reader] : at->second.readers) {
    // Who cannot be told has left, and its mappings with it.
    (void)post(*options_.exchange, peer,
               {.kind = Letter::Kind::kWithdraw,
                .unused = 0,
                .number = at->second.number,
                .address = 0,
                .handle = {}});
  }
  lent_.erase(at);
}

Result<uint64_t> LentMemory::lend(int peer, const void* address, size_t size_bytes, bool in_graph) {
  const std::lock_guard lock(mutex_);
  const auto* const first = static_cast<const std::byte*>(address);
  const auto after = lent_.upper_bound(first);
  if (after == lent_.begin() ||
      std::find(options_.peers.begin(), options_.peers.end(), peer) == options_.peers.end()) {
    return kNotLent;
  }
  auto& [base, lent] = *std::prev(after);
  const bool is_inside = static_cast<size_t>(first - base) + size_bytes <= lent.size_bytes;
  const bool may_be = (in_graph && lent.in_graph) || is_registered(first, size_bytes);
  if (!is_inside || !may_be) {
    return kNotLent;
  }
  PLEXUS_TRY(offer(peer, lent));
  return lent.readers.at(peer).shift;
}

// ---- letters ----

Result<void> LentMemory::serve() {
  const std::lock_guard lock(mutex_);
  for (const int peer : options_.peers) {
    while (const auto bytes = options_.exchange->try_take(peer, kTag)) {
      PLEXUS_TRY(take_letter(peer, *bytes));
    }
  }
  return ok();
}

Result<void> LentMemory::take_letter(int peer, const std::string& bytes) {
  Letter letter{};
  if (bytes.size() != sizeof(letter)) {
    return fail(Code::kInternalError,
                "rank {} wrote of memory that it lends in {} bytes where {} are expected", peer,
                bytes.size(), sizeof(letter));
  }
  std::memcpy(&letter, bytes.data(), sizeof(letter));
  switch (letter.kind) {
    case Letter::Kind::kOffer:
      return take_offer(peer, letter.number, letter.handle);
    case Letter::Kind::kAnswer: {
      const auto at = std::find_if(lent_.begin(), lent_.end(), [&](const auto& entry) {
        return entry.second.number == letter.number;
      });
      if (at != lent_.end()) {  // else withdrawn since
        at->second.readers[peer] = {
            .shift = letter.address == 0 ? kNotLent : letter.address - number_of(at->first),
            .answered = true};
      }
      return ok();
    }
    case Letter::Kind::kWithdraw:
      seen_.erase({peer, letter.number});
      return ok();
    case Letter::Kind::kGraphOffered:
      ++graphs_of_peers_[peer];
      return ok();
  }
  return fail(Code::kInternalError, "rank {} wrote of memory that it lends in an unknown way",
              peer);
}

Result<void> LentMemory::take_offer(int peer, uint64_t number, const MemoryHandle& handle) {
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
              {.kind = Letter::Kind::kAnswer,
               .unused = 0,
               .number = number,
               .address = address,
               .handle = {}});
}

// ---- graphs ----

Result<void> LentMemory::begin_graph(std::span<const GraphBuffer> buffers,
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
    Lent* const lent = find_or_lend(buffer.address, buffer.size_bytes);
    const auto& readers = graph_readers_;
    if (lent != nullptr &&
        std::find(readers.begin(), readers.end(), buffer.peer) != readers.end()) {
      lent->in_graph = true;
      PLEXUS_TRY(offer(buffer.peer, *lent));
    }
  }
  for (const int peer : graph_readers_) {
    PLEXUS_TRY(post(*options_.exchange, peer,
                    {.kind = Letter::Kind::kGraphOffered,
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

Result<bool> LentMemory::graph_agreed() {
  PLEXUS_TRY(serve());
  const std::lock_guard lock(mutex_);
  const auto has_answered = [&](const Lent& lent, int peer) {
    const auto at = lent.readers.find(peer);
    return !lent.in_graph || at == lent.readers.end() || at->second.answered;
  };
  return std::all_of(graph_senders_.begin(), graph_senders_.end(),
                     [&](int peer) { return graphs_of_peers_[peer] > 0; }) &&
         std::all_of(lent_.begin(), lent_.end(), [&](const auto& entry) {
           return std::all_of(graph_readers_.begin(), graph_readers_.end(),
                              [&](int peer) { return has_answered(entry.second, peer); });
         });
}

void LentMemory::end_graph() {
  const std::lock_guard lock(mutex_);
  for (const int peer : graph_senders_) {
    graphs_of_peers_[peer] = std::max(graphs_of_peers_[peer] - 1, 0);
  }
  graph_senders_.clear();
  graph_readers_.clear();
}

}  // namespace plexus
