// SPDX-License-Identifier: Apache-2.0
// The calls that a rank has made in a communicator: a flight recorder of fixed memory, which ranks
// that wait for each other compare (core/stall/stall_watch.hpp) and `plexus doctor` shows. And how
// long they are inside, by which who is asked names a rank that comes late (arrival_times.hpp).
// Collectives have one number sequence; sends and receives have one per peer and direction, since
// only those must come in the same order on two ranks.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/engine/arrival_times.hpp"
#include "guest/assert.hpp"
#include "kernels/layout/collective.hpp"
#include "kernels/layout/fifo.hpp"
#include "kernels/layout/types.hpp"

namespace plexus {

/// Messages with equal keys share a number sequence.
struct MessageKey {
  int peer = 0;
  bool sends = false;      // true: to `peer`; false: from it
  bool of_vector = false;  // see Task::of_vector
};

/// Threads: one at a time for note_*(), as the communicator's calls; any for the
/// rest.
class CallLog {
 public:
  explicit CallLog(int nranks) : nranks_(nranks) {}

  /// Number of collectives, or of messages with `key`, that were called.
  [[nodiscard]] uint64_t collectives() const noexcept {
    return collectives_.load(std::memory_order_acquire);
  }
  [[nodiscard]] uint64_t messages(const MessageKey& key) const noexcept {
    const auto* const counters = counters_.load(std::memory_order_acquire);
    return counters == nullptr ? 0 : counters[index(key)].load(std::memory_order_relaxed);
  }
  /// Messages sent less messages received: over all ranks 0, unless some are still to be received.
  [[nodiscard]] int64_t unpaired() const noexcept {
    int64_t sum = 0;
    for (int peer = 0; peer < nranks_; ++peer) {
      for (const bool of_vector : {false, true}) {
        sum += static_cast<int64_t>(messages({peer, true, of_vector})) -
               static_cast<int64_t>(messages({peer, false, of_vector}));
      }
    }
    return sum;
  }
  /// Number of collectives of one kind that were called.
  [[nodiscard]] uint64_t collectives(Collective kind) const noexcept {
    return kinds_[static_cast<size_t>(kind)].load(std::memory_order_relaxed);
  }
  /// Bytes of a rank's part of all calls of one kind, kSend and kRecv too: count * size of the
  /// type.
  [[nodiscard]] uint64_t bytes(Collective kind) const noexcept {
    return bytes_[static_cast<size_t>(kind)].load(std::memory_order_relaxed);
  }
  /// Number of calls of either kind.
  [[nodiscard]] uint64_t calls() const noexcept {
    return collectives() + messages_.load(std::memory_order_acquire);
  }

  /// The collective, or the message with `key`, that has this number, if it is among the most
  /// recent calls.
  struct Found {
    CallRecord record;
    uint64_t place;  // among all calls; less than that while calls are noted
  };
  [[nodiscard]] std::optional<Found> find(uint64_t sequence) const;
  [[nodiscard]] std::optional<Found> find(const MessageKey& key, uint64_t sequence) const;
  /// The most recent calls, at most `count` and kRecords, in the order in which they were made.
  [[nodiscard]] std::vector<CallRecord> list_recent(size_t count = kRecords) const;

  /// Notes the next collective. `record.sequence` is collectives().
  void note_collective(const CallRecord& record) noexcept {
    note(record, record.sequence + messages_.load(std::memory_order_relaxed));
    PLEXUS_DCHECK(record.collective < kCollectiveKinds, record.collective);
    std::atomic<uint64_t>& kind = kinds_[record.collective];  // beside collectives_
    kind.store(kind.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    add_bytes(record);
    collectives_.store(record.sequence + 1, std::memory_order_release);  // pairs with collectives()
  }
  /// Numbers the next message and notes it. The first call allocates.
  uint64_t note_message(const MessageKey& key, CallRecord record) {
    if (owner_ == nullptr) {
      owner_ = std::make_unique<std::atomic<uint64_t>[]>(kKinds * static_cast<size_t>(nranks_));
      counters_.store(owner_.get(), std::memory_order_release);  // pairs with messages()
    }
    std::atomic<uint64_t>& counter = owner_[index(key)];
    record.sequence = counter.load(std::memory_order_relaxed);
    const uint64_t messages = messages_.load(std::memory_order_relaxed);
    note(record, collectives_.load(std::memory_order_relaxed) + messages);
    counter.store(record.sequence + 1, std::memory_order_relaxed);
    add_bytes(record);
    messages_.store(messages + 1, std::memory_order_release);  // pairs with calls()
    return record.sequence;
  }

  /// The call was not made, nor were any since that count in the same sequence.
  void take_back(const CallRecord& record) noexcept {
    const auto collective = static_cast<Collective>(record.collective);
    if (!is_point_to_point(collective)) {
      collectives_.store(std::min(record.sequence, collectives()), std::memory_order_release);
      return;
    }
    std::atomic<uint64_t>& counter = owner_[index({.peer = record.root,
                                                   .sends = collective == Collective::kSend,
                                                   .of_vector = record.of_vector != 0})];
    const uint64_t made = counter.load(std::memory_order_relaxed);
    if (record.sequence < made) {
      counter.store(record.sequence, std::memory_order_relaxed);
      messages_.fetch_sub(made - record.sequence, std::memory_order_release);
    }
  }

  /// How long the rank is inside its calls.
  [[nodiscard]] ArrivalTimes& arrivals() noexcept { return arrivals_; }
  [[nodiscard]] const ArrivalTimes& arrivals() const noexcept { return arrivals_; }

  static constexpr size_t kRecords = 256;
  static constexpr size_t kCollectiveKinds = static_cast<size_t>(Collective::kSend);

 private:
  static constexpr size_t kKinds = 4;  // kinds of messages per peer
  static size_t index(const MessageKey& key) noexcept {
    return kKinds * static_cast<size_t>(key.peer) + (key.sends ? 1U : 0U) +
           (key.of_vector ? 2U : 0U);
  }
  template <class Matches>
  [[nodiscard]] std::optional<Found> find_recent(const Matches& matches) const;
  void add_bytes(const CallRecord& record) noexcept {
    std::atomic<uint64_t>& bytes = bytes_[record.collective];
    bytes.store(bytes.load(std::memory_order_relaxed) +
                    record.count * element_size(static_cast<DataType>(record.type)),
                std::memory_order_relaxed);
  }
  void note(const CallRecord& record, uint64_t call) noexcept {
    records_[call % kRecords].store(record);
  }

  int nranks_;
  // Every collective stores to this one, to those of its kind and to its record, and to nothing
  // else.
  mutable std::atomic<uint64_t> collectives_{0};
  std::atomic<uint64_t> kinds_[kCollectiveKinds] = {};
  std::atomic<uint64_t> bytes_[kCollectiveCount] = {};
  mutable std::atomic<uint64_t> messages_{0};
  ArrivalTimes arrivals_;
  SharedCall records_[kRecords] = {};                      // call n is at n mod kRecords
  std::unique_ptr<std::atomic<uint64_t>[]> owner_;         // [nranks][kKinds]
  std::atomic<std::atomic<uint64_t>*> counters_{nullptr};  // owner_.get(), for other threads
};

}  // namespace plexus
