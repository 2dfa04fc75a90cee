// SPDX-License-Identifier: Apache-2.0
// One rank's end of the control plane, for one group of ranks (a communicator): gathers, control
// messages, and notices of failure. The same over TCP (ranks of several processes) and inside one
// process.
//
// Threads: any. Blocking calls end with an Error on a deadline, on stop(), or when the group
// failed.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.hpp"

namespace plexus {

class Family;

class Exchange {
 public:
  /// `members`: ranks of the family, in the order of this group's ranks.
  Exchange(std::shared_ptr<Family> family, uint64_t group, std::vector<uint32_t> members, int rank);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int nranks() const { return static_cast<int>(members_.size()); }
  [[nodiscard]] uint64_t group() const { return group_; }

  /// Collective: everybody's blob (at most 1 MiB), by rank. Ends early when `*give_up` turns true.
  Result<std::vector<std::string>> all_gather(std::string blob,
                                              const std::atomic<bool>* give_up = nullptr);
  /// A control message to a peer; does not wait for it to be taken.
  Result<void> post(int peer, uint64_t tag, std::string blob);
  /// The oldest control message of `peer` with `tag`, if any. Never blocks.
  std::optional<std::string> try_take(int peer, uint64_t tag);

  /// Gathers and control messages of this group that this rank sent and got so far.
  struct Traffic {
    uint64_t messages;
    uint64_t bytes;
  };
  [[nodiscard]] Traffic traffic() const noexcept {
    return {messages_.load(std::memory_order_relaxed), bytes_.load(std::memory_order_relaxed)};
  }

  /// A message for the handler that `peer` gave to on_probe(); lost when it has none. A peer that
  /// has left the group is answered for: the own handler gets its leave record.
  void probe(int peer, std::string payload);
  /// `left`: `payload` is what `peer` passed to leave(); else what it passed to probe(). Runs in a
  /// thread of the control plane: it must be short and must not call this class.
  using ProbeHandler = std::function<void(int peer, bool left, std::string payload)>;
  void on_probe(ProbeHandler handler);
  /// My rank failed: the others learn of it.
  void announce_failure(const Error& error);
  /// Called at most once, when another rank failed or vanished; at once if that is already so. Runs
  /// in a thread of the control plane: it must be short and must not call this class.
  void on_failure(std::function<void(const Error&)> handler);
  /// Goodbye: from here on nothing of this group reaches this rank, and its going is no failure.
  /// `record` is what peers that still probe this rank get to know of it.
  void leave(std::string record = {});
  /// Every blocked call returns an Error at once, and so do later ones.
  void stop();

  /// A group of some of this group's ranks (`members`: ranks here, in the order of the new ranks).
  /// To be made by each of them.
  Result<std::unique_ptr<Exchange>> subgroup(const std::vector<int>& members, uint64_t group);

 private:
  std::shared_ptr<Family> family_;  // shared by the exchanges of one rank
  uint64_t group_;
  std::vector<uint32_t> members_;
  int rank_;
  void count(uint64_t size_bytes) noexcept;

  uint64_t gathers_ = 0;
  std::atomic<uint64_t> messages_{0};
  std::atomic<uint64_t> bytes_{0};
  bool left_ = false;
};

/// The ends of `nranks` ranks of this process: no sockets, no threads.
std::vector<std::unique_ptr<Exchange>> make_local_exchanges(int nranks);

}  // namespace plexus
