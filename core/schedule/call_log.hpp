// SPDX-License-Identifier: Apache-2.0
// Which calls a rank has made in a communicator: what ranks that wait for each other compare
// (core/comm/stall_watch.hpp). Collectives are numbered among collectives, sends and receives per
// peer and direction, since only those must come in the same order on two ranks.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "kernels/layout/collective.hpp"
#include "kernels/layout/fifo.hpp"

namespace plexus {

/// Threads: note_*() one at a time, as the communicator's calls; the rest any.
class CallLog {
 public:
  explicit CallLog(int nranks)
      : nranks_(nranks), records_(std::make_unique<SharedCall[]>(kRecords)) {}

  /// How many collectives, sends to `peer` and receives from `peer` have been called.
  [[nodiscard]] uint64_t collectives() const noexcept {
    return collectives_.load(std::memory_order_acquire);
  }
  [[nodiscard]] uint64_t sends(int peer) const noexcept { return count(peer, true); }
  [[nodiscard]] uint64_t recvs(int peer) const noexcept { return count(peer, false); }

  /// One of the last collectives.
  [[nodiscard]] std::optional<CallRecord> find(uint64_t sequence) const noexcept {
    const CallRecord record = records_[sequence % kRecords].load();
    const bool is_it = sequence < collectives() && record.sequence == sequence;
    return is_it ? std::optional(record) : std::nullopt;
  }

  /// The next collective. `record.sequence` is its number, as the log has it.
  void note_collective(const CallRecord& record) noexcept {
    records_[record.sequence % kRecords].store(record);
    collectives_.store(record.sequence + 1, std::memory_order_release);  // pairs with collectives()
  }
  /// The next message to or from `peer`; returns its number. Allocates at the first.
  uint64_t note_message(int peer, bool sends) {
    if (messages_.load(std::memory_order_relaxed) == nullptr) {
      owner_ = std::make_unique<std::atomic<uint64_t>[]>(2 * static_cast<size_t>(nranks_));
      messages_.store(owner_.get(), std::memory_order_release);  // pairs with count()
    }
    std::atomic<uint64_t>& counter = owner_[index(peer, sends)];
    const uint64_t number = counter.load(std::memory_order_relaxed);
    counter.store(number + 1, std::memory_order_relaxed);
    return number;
  }

 private:
  static constexpr size_t kRecords = 32;
  static size_t index(int peer, bool sends) noexcept {
    return 2 * static_cast<size_t>(peer) + (sends ? 1 : 0);
  }
  [[nodiscard]] uint64_t count(int peer, bool sends) const noexcept {
    const auto* const messages = messages_.load(std::memory_order_acquire);
    return messages == nullptr ? 0 : messages[index(peer, sends)].load(std::memory_order_relaxed);
  }

  int nranks_;
  std::atomic<uint64_t> collectives_{0};
  std::unique_ptr<SharedCall[]> records_;
  std::unique_ptr<std::atomic<uint64_t>[]> owner_;         // [nranks][recv, send]
  std::atomic<std::atomic<uint64_t>*> messages_{nullptr};  // owner_, for other threads
};

}  // namespace plexus
