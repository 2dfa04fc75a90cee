// SPDX-License-Identifier: Apache-2.0
// The object behind ncclComm_t: owns the control plane, the connections, the plans and the engine
// of one rank, and its state. Life: constructed in state kInProgress, `start` with what core/setup
// found out makes it ready; `fail` and abort end all waiting; destroy frees it.
//
// Threads: one thread at a time makes calls; fail(), stop_with(), stop_reason(), state(), and
// revoke() of core/comm/lifecycle, from any.
//
//   const std::unique_ptr<Communicator> comm = Communicator::make(process, CommConfig{});
//   PLEXUS_TRY(comm->start(std::move(setup)));  // what set_up() found out
//   return comm->runner().run_inline({});       // calls
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "core/comm/link_facts.hpp"
#include "core/comm/registrations.hpp"
#include "core/comm/user_reductions.hpp"
#include "core/control/unique_id.hpp"
#include "core/device/host_pointers.hpp"
#include "core/launch/call_runner.hpp"
#include "core/setup/comm_setup.hpp"
#include "core/stall/stall_watch.hpp"

namespace plexus {

class ConnectionSet;
class OneSided;
class Process;

class Communicator final : public RankState, private DeviceWatch::Subject {
 public:
  /// In state kInProgress, not yet in the table of live ones. `process` outlives it.
  static std::unique_ptr<Communicator> make(Process& process, CommConfig config);
  ~Communicator() override;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// Makes it ready. Called once.
  Result<void> start(CommSetup setup);

  // -- facts, valid once started --
  [[nodiscard]] int rank() const noexcept { return setup_.rank; }
  [[nodiscard]] int nranks() const noexcept { return setup_.nranks; }
  [[nodiscard]] int device() const noexcept { return comm_config_.device; }  // -1: on the host
  /// As ncclCommCuDevice tells it.
  [[nodiscard]] int shown_device() const noexcept {
    return comm_config_.virtual_device >= 0 ? comm_config_.virtual_device : comm_config_.device;
  }
  [[nodiscard]] Process& process() const noexcept { return process_; }
  [[nodiscard]] const CommConfig& comm_config() const noexcept { return comm_config_; }
  [[nodiscard]] const CommSetup& setup() const noexcept { return setup_; }
  [[nodiscard]] LastChoice last_choice() const noexcept {
    return runner_.has_value() ? runner_->last_choice() : LastChoice{"", "", 0};
  }
  // Numbers of the next split, and of the next shrink to `members`. All who take part in one count
  // alike, whatever shrinks there were without them.
  uint64_t next_split() noexcept { return splits_.fetch_add(1, std::memory_order_relaxed) + 1; }
  uint64_t next_shrink(const std::vector<int>& members);

  // -- state --
  [[nodiscard]] Code state() const noexcept { return state_.load(std::memory_order_acquire); }
  /// Sets the state unless it is another than `expected`.
  void try_change_state(Code expected, Code state) noexcept {
    state_.compare_exchange_strong(expected, state, std::memory_order_acq_rel);
  }
  void set_state(Code state) noexcept { state_.store(state, std::memory_order_release); }
  [[nodiscard]] Error stop_reason() const override;
  void fail(const Error& error) override;
  void fail_for_memory() noexcept override;
  void on_stalled(Standstill standstill) override;
  void on_moved() override;
  [[nodiscard]] std::vector<int> list_gone() const override;
  /// Ends all waiting of this rank with `reason`; tells no other rank.
  void stop_with(const Error& reason);
  /// A process with ranks of it died. Calls go on until they miss a message.
  void note_death(const Error& death);
  /// That is so, and none has missed one yet.
  [[nodiscard]] bool has_survived() const noexcept {
    return has_lost_peers.load(std::memory_order_acquire) && !stop.load(std::memory_order_acquire);
  }
  /// This rank makes no further calls, so that others must not wait for it if it has_survived().
  void give_up_survival();

  // -- work --
  /// How its calls run. Once started.
  [[nodiscard]] CallRunner& runner() noexcept { return *runner_; }
  /// Its calls may be those that repeat_call() makes: a host rank's without a virtual device whose
  /// uses are not checked.
  [[nodiscard]] bool may_skip_checks() const noexcept { return skips_checks_; }
  /// May a call with the shape of an earlier one be made without checks? See repeat_call().
  [[nodiscard]] bool can_repeat() const noexcept {
    return state() == Code::kSuccess && !revoked.load(std::memory_order_relaxed) &&
           !finalized.load(std::memory_order_relaxed);
  }
  /// Distinct in the process, rising.
  [[nodiscard]] uint64_t number() const noexcept { return number_; }
  /// The same in all that share resources (splitShare, shrinkShare), as far as splits go.
  [[nodiscard]] uint64_t share_group() const noexcept {
    return comm_config_.share_group != 0 ? comm_config_.share_group : number_;
  }
  /// Blocks until nothing of this communicator is on a host stream, or under way on a device.
  void wait_submitted();
  /// nullptr: the rank computes on the host.
  [[nodiscard]] DeviceRank* device_rank() const noexcept { return device_rank_.get(); }
  /// Fails the communicator if a kernel of a graph that no thread watches has failed.
  void check_device();
  /// The device's thread does not look any more.
  void leave_device() noexcept;
  /// A thread is inside a call, or a call is on a stream.
  [[nodiscard]] bool is_busy() const noexcept {
    return calls_.load(std::memory_order_relaxed) != 0 || !runner_->is_idle();
  }
  /// Blocks until no thread is inside a call on this communicator (they see `stop`), nor is the
  /// async engine's in one of its submissions.
  void wait_left();
  /// Nothing to wait for in wait_left().
  [[nodiscard]] bool is_left() const noexcept;
  /// Blocks until nobody visits it (see Visit), which nobody begins to once it is not in the table.
  void wait_unvisited();
  [[nodiscard]] bool is_visited() const noexcept {
    return visits.load(std::memory_order_acquire) != 0;
  }
  /// Waits, within limits, until what was sent to other datacenters has arrived: until then it may
  /// have to be sent again.
  void settle();
  /// Tells the other ranks that this one makes no further calls. Comes last before its end.
  void announce_departure(Departure how);

  /// Only for a rank on the host.
  [[nodiscard]] HostPointers& host_pointers() noexcept { return host_pointers_; }
  [[nodiscard]] UserReductions& user_reductions() noexcept { return user_reductions_; }
  [[nodiscard]] Registrations& registrations() noexcept { return registrations_; }
  [[nodiscard]] const Registrations& registrations() const noexcept { return registrations_; }
  /// nullptr: this rank has no one-sided operations.
  [[nodiscard]] const std::shared_ptr<OneSided>& one_sided() const noexcept { return one_sided_; }
  /// Memory from ncclMemAlloc at this address is about to go. Threads: any.
  void forget_memory(const void* address) const { registered_memory_.remove(address); }

  // -- handles: see CommunicatorTable --
  /// Is `comm` one that was made by this process and not ended? One comparison of a magic number.
  static bool is_live(const Communicator* comm) noexcept {
    return comm != nullptr && comm->magic.load(std::memory_order_relaxed) == live_magic();
  }
  static void* operator new(size_t size_bytes, Process& process);
  static void operator delete(void* memory, Process& process) noexcept;
  static void operator delete(Communicator* comm, std::destroying_delete_t tag) noexcept;
  /// The magic of live communicators of this process. A process that it was forked from has a lower
  /// one.
  static uint64_t live_magic() noexcept { return kMagic + Forks::count(); }
  static constexpr uint64_t kMagic = 0x504c58434f4d4d31;  // "PLXCOMM1"
  std::atomic<uint64_t> magic{live_magic()};
  const int32_t maker = getpid();
  // A call that another thread is about to make may miss these; it sees `stop`.
  std::atomic<bool> finalized{false};
  std::atomic<bool> revoked{false};
  CallingThread calling_thread;
  LinkCounts link_counts;
  std::thread initializer;              // of a non-blocking init or split
  std::thread finalizer;                // of a non-blocking finalize
  std::atomic<bool> initialized{true};  // `initializer` is done, or there is none
  std::atomic<bool> give_up{false};     // aborted while initializing
  std::atomic<int> visits{0};
  std::optional<UniqueId> grow_id;  // of ncclCommGetUniqueId, for the next ncclCommGrow

 private:
  Communicator(Process& process, CommConfig config);
  void become_ready();
  Result<void> start_device(int device);
  void look() override;
  void stop_waiting() noexcept;
  void note_error(const Error& error);
  void await_reason();
  void open_connections();
  void open_peer_mapped_memory();
  Result<void> open_profilers();
  Result<void> open_tuner();
  void open_link_facts();
  Result<void> open_one_sided();
  Result<bool> change_links();
  void make_runner();

  Process& process_;
  const uint64_t number_;
  CommConfig comm_config_;
  const bool skips_checks_;
  CommSetup setup_;
  std::unique_ptr<Tuner> tuner_;                   // nullptr: built-in rules
  std::unique_ptr<DeviceRank> device_rank_;        // nullptr: computes on the host
  size_t launch_bytes_ = 0;                        // reserved in Process::launches
  std::unique_ptr<PeerMappedMemory> peer_mapped_;  // nullptr: no rank in another process maps it
  mutable RegisteredMemory registered_memory_;
  std::unique_ptr<ConnectionSet> connections_;
  std::unique_ptr<Profile> profile_;  // nullptr: no profiler is loaded
  std::unique_ptr<CallLog> call_log_;
  std::unique_ptr<LinkFacts> link_facts_;  // nullptr: there is one datacenter
  std::optional<CallRunner> runner_;       // there once started; before all that it borrows
  std::atomic<uint64_t> splits_{0};
  std::mutex shrinks_mutex_;
  std::map<std::vector<int>, uint64_t> shrinks_;  // by members; guarded by shrinks_mutex_
  UserReductions user_reductions_;
  Registrations registrations_;
  HostPointers host_pointers_;
  std::shared_ptr<OneSided> one_sided_;  // shared with the control plane's threads
  friend class InCall;
  std::atomic<int> calls_{0};  // that a thread is inside of
  std::atomic<Code> state_{Code::kInProgress};
  mutable std::mutex error_mutex_;
  std::condition_variable has_error_;
  std::optional<Error> error_;                  // guarded by error_mutex_; the first one stays
  std::atomic<bool> owes_announcement_{false};  // it failed, and the other ranks were not told yet
};

}  // namespace plexus
