// SPDX-License-Identifier: Apache-2.0
// Which work the program has put before which: the order of streams, their waits for events, and
// what the host has waited for, as vector clocks. What merely happened to end earlier is not
// before.
#pragma once

#include <cstdint>
#include <map>
#include <span>

namespace plexus {

/// Threads: one at a time.
class StreamOrder {
 public:
  using Name = const void*;  // of a stream, an event, or a communicator
  /// How much of each stream's work comes before something.
  using Clock = std::map<Name, uint64_t>;
  struct Work {
    Name stream = nullptr;
    uint64_t number = 0;
  };

  /// One piece of work on all of `streams`, behind the last one of `chain` (nullptr: of none).
  Work add(std::span<const Name> streams, Name chain);
  /// What is put on `stream` from now on begins after `work` has ended.
  [[nodiscard]] bool comes_before(const Work& work, Name stream) const;
  /// The host has waited for it.
  [[nodiscard]] bool is_over(const Work& work) const;

  void record(Name event, Name stream) { clocks_[event] = clock_of(stream); }
  void wait(Name stream, Name event) { merge(clocks_[stream], clock_of(event)); }
  /// Drops the clock of an event or a chain; a stream's is kept, since its address may come again.
  void forget(Name name) { clocks_.erase(name); }
  /// What comes before the next work on a stream, or was recorded; without what is over.
  [[nodiscard]] Clock clock_of(Name name) const;
  /// The host has waited for all of `clock`.
  void end(const Clock& clock) { merge(host_, clock); }

 private:
  static void merge(Clock& into, const Clock& from);

  std::map<Name, Clock> clocks_;
  Clock numbers_;  // of the last work on each stream
  Clock host_;
};

}  // namespace plexus
