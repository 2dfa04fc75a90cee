// SPDX-License-Identifier: Apache-2.0
// One rank's end of the control plane for one group of ranks (a communicator): gathers, control
// messages and failure notices. The interface is the same over TCP (ranks of several processes) and
// inside one process.
//
// Threads: any. Blocking calls return an Error at a deadline, on stop(), or when the group fails.
//
//   PLEXUS_TRY(all, exchange.all_gather("about this rank"));  // all[rank] is what that rank gave
//   PLEXUS_TRY(exchange.post(1, tag, "to rank 1"));
//   if (const auto answer = exchange.try_take(1, tag); answer.has_value()) {
//     // rank 1 has posted with that tag, too
//   }
//   return ok();
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "core/control/agent_hooks.hpp"
#include "core/control/failure_cause.hpp"
#include "core/control/gathered.hpp"

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
  /// Name of the host of a rank, for messages. Valid after the first gather.
  [[nodiscard]] std::string host_of(int rank) const;
  /// "host:pid" of a rank, for messages; "": there is no other process. Valid after the first
  /// gather.
  [[nodiscard]] std::string process_of(int rank) const;
  /// Valid after the first gather.
  [[nodiscard]] ProcessPlace place_of(int rank) const;

  /// Collective: every rank's blob (at most 1 MiB each), by rank. Returns an Error early when
  /// `*give_up` becomes true.
  Result<Gathered> all_gather(std::string blob, const std::atomic<bool>* give_up = nullptr);
  /// Its first half, which waits for nobody: this rank's part, and the number of the gather. One of
  /// the others follows, in any thread.
  Result<uint64_t> begin_gather(std::string blob);
  Result<Gathered> end_gather(uint64_t number, const std::atomic<bool>* give_up);
  /// This rank does not want the result.
  void drop_gather(uint64_t number);
  /// To be called before this rank leaves: what it gave to gathers whose results it does not want
  /// is with the others only when these are over. Returns early when `*give_up` becomes true.
  void wait_dropped(const std::atomic<bool>* give_up);
  /// Sends a control message to a peer; does not wait until the peer takes it.
  Result<void> post(int peer, uint64_t tag, std::string blob);
  /// The oldest control message of `peer` with `tag`, if any. Never blocks.
  std::optional<std::string> try_take(int peer, uint64_t tag);

  /// A control message to `peer`, or from it.
  struct Posted {
    int peer;
    std::string blob;
  };
  /// Control messages with `tag` go to `handler`, also those that came before, and are not there to
  /// be taken. What it returns is posted with the same tag. Like a ProbeHandler it runs in a thread
  /// of the control plane: it must be short and must not call this class.
  using PostHandler = std::function<std::vector<Posted>(Posted message)>;
  void on_post(uint64_t tag, PostHandler handler);

  /// Number of gathers and control messages of this group that this rank sent and received so far.
  struct Traffic {
    uint64_t messages;
    uint64_t bytes;
  };
  [[nodiscard]] Traffic traffic() const noexcept {
    return {messages_.load(std::memory_order_relaxed), bytes_.load(std::memory_order_relaxed)};
  }

  /// Sends `payload` to the handler that `peer` passed to on_probe(); it is dropped when there is
  /// none. If `peer` has left the group, this rank's own handler receives its leave record instead.
  void probe(int peer, std::string payload);
  /// `left`: `payload` is what `peer` passed to leave(); otherwise what it passed to probe(). Runs
  /// in a thread of the control plane: it must be short and must not call this class.
  using ProbeHandler = std::function<void(int peer, bool left, std::string payload)>;
  void on_probe(ProbeHandler handler);
  /// Tells the other ranks of the group that this rank failed.
  void announce_failure(const Error& error);
  /// `handler` is called when a process with ranks of the group dies, at most once, and when
  /// another rank fails, at most once and then for the last time; immediately if that has already
  /// happened. It runs in a thread of the control plane: it must be short and must not call this
  /// class.
  void on_failure(std::function<void(const Error&, FailureCause)> handler);
  /// Ranks of the group whose processes are known to have died or left, ascending.
  [[nodiscard]] std::vector<int> gone_ranks() const;
  /// Leaves the group in order: this rank receives nothing more of it, and its departure is no
  /// failure. Peers that still probe this rank receive `record`.
  void leave(std::string record = {});
  /// Blocked calls return an Error at once, and so do all later calls.
  void stop();

  /// Makes a group of some of this group's ranks. `members`: their ranks in this group, in the
  /// order of their new ranks. Each of them must call it.
  Result<std::unique_ptr<Exchange>> subgroup(const std::vector<int>& members, uint64_t group);
  /// Instead of subgroup(), by a rank that need not know the members: it failed, so the group fails
  /// on all of them.
  void fail_subgroup(uint64_t group, const Error& error);

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

/// Exchanges for `nranks` ranks of this process, without sockets or threads.
std::vector<std::unique_ptr<Exchange>> make_local_exchanges(int nranks, AgentHooks hooks = {});

}  // namespace plexus
