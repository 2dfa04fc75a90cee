// SPDX-License-Identifier: Apache-2.0
// The calls that a rank has made in a communicator, which ranks that wait for each other compare
// (core/stall/stall_watch.hpp). Collectives have one number sequence; sends and receives have one
// per peer and direction, since only those must come in the same order on two ranks.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "kernels/layout/collective.hpp"
#include "kernels/layout/fifo.hpp"

namespace plexus {

/// Messages with equal keys share a number sequence.
struct MessageKey {
  int peer = 0;
  bool sends = false;      // true: to `peer`; false: from it
  bool of_vector = false;  // see Task::of_vector
};

/// Threads: one at a time for note_*(), as the communicator's calls; any for the rest.
class CallLog {
 public:
  explicit CallLog(int nranks)
      : nranks_(nranks), records_(std::make_unique<SharedCall[]>(kRecords)) {}

  /// Number of collectives, or of messages with `key`, that were called.
  [[nodiscard]] uint64_t collectives() const noexcept {
    return collectives_.load(std::memory_order_acquire);
  }
  [[nodiscard]] uint64_t messages(const MessageKey& key) const noexcept {
    const auto* const counters = counters_.load(std::memory_order_acquire);
    return counters == nullptr ? 0 : counters[index(key)].load(std::memory_order_relaxed);
  }

  /// The collective with this number, if it is among the most recent ones.
  [[nodiscard]] std::optional<CallRecord> find(uint64_t sequence) const noexcept {
    const CallRecord record = records_[sequence % kRecords].load();
    const bool is_it = sequence < collectives() && record.sequence == sequence;
    return is_it ? std::optional(record) : std::nullopt;
  }

  /// Notes the next collective. `record.sequence` is collectives().
  void note_collective(const CallRecord& record) noexcept {
    records_[record.sequence % kRecords].store(record);
    collectives_.store(record.sequence + 1, std::memory_order_release);  // pairs with collectives()
  }
  /// Notes the next message and returns its number. The first call allocates.
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
  static constexpr size_t kKinds = 4;  // kinds of messages per peer
  static size_t index(const MessageKey& key) noexcept {
    return kKinds * static_cast<size_t>(key.peer) + (key.sends ? 1U : 0U) +
           (key.of_vector ? 2U : 0U);
  }

  int nranks_;
  std::atomic<uint64_t> collectives_{0};
  std::unique_ptr<SharedCall[]> records_;
  std::unique_ptr<std::atomic<uint64_t>[]> owner_;         // [nranks][kKinds]
  std::atomic<std::atomic<uint64_t>*> counters_{nullptr};  // owner_.get(), for other threads
};

}  // namespace plexus
