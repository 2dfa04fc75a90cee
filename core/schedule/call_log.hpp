// SPDX-License-Identifier: Apache-2.0
// Which calls a rank has made in a communicator: what ranks that wait for each other compare
// (core/stall/stall_watch.hpp). Collectives are numbered among collectives, sends and receives per
// peer and direction, since only those must come in the same order on two ranks.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "kernels/layout/collective.hpp"
#include "kernels/layout/fifo.hpp"

namespace plexus {

/// What messages are numbered by.
struct MessageKey {
  int peer = 0;
  bool sends = false;      // to `peer`; else from it
  bool of_vector = false;  // see Task
};

/// Threads: note_*() one at a time, as the communicator's calls; the rest any.
class CallLog {
 public:
  explicit CallLog(int nranks)
      : nranks_(nranks), records_(std::make_unique<SharedCall[]>(kRecords)) {}

  /// How many collectives, and how many messages of a kind, have been called.
  [[nodiscard]] uint64_t collectives() const noexcept {
    return collectives_.load(std::memory_order_acquire);
  }
  [[nodiscard]] uint64_t messages(const MessageKey& key) const noexcept {
    const auto* const counters = counters_.load(std::memory_order_acquire);
    return counters == nullptr ? 0 : counters[index(key)].load(std::memory_order_relaxed);
  }

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
  /// The next message; returns its number. Allocates at the first.
  uint64_t note_message(const MessageKey& key) {
    if (owner_ == nullptr) {
      owner_ = std::make_unique<std::atomic<uint64_t>[]>(kKinds * static_cast<size_t>(nranks_));
      counters_.store(owner_.get(), std::memory_order_release);  // pairs with messages()
    }
    std::atomic<uint64_t>& counter = owner_[index(key)];
    const uint64_t number = counter.load(std::memory_order_relaxed);
    counter.store(number + 1, std::memory_order_relaxed);
    return number;
  }

 private:
  static constexpr size_t kRecords = 32;
  static constexpr size_t kKinds = 4;  // of messages, per peer
  static size_t index(const MessageKey& key) noexcept {
    return kKinds * static_cast<size_t>(key.peer) + (key.sends ? 1U : 0U) +
           (key.of_vector ? 2U : 0U);
  }

  int nranks_;
  std::atomic<uint64_t> collectives_{0};
  std::unique_ptr<SharedCall[]> records_;
  std::unique_ptr<std::atomic<uint64_t>[]> owner_;         // [nranks][kKinds]
  std::atomic<std::atomic<uint64_t>*> counters_{nullptr};  // owner_, for other threads
};

}  // namespace plexus
