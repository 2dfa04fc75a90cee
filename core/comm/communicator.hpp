// SPDX-License-Identifier: Apache-2.0
// The object behind ncclComm_t: owns the control plane, the connections, the plans and the engine
// of one rank, and its state. Life: constructed in state kInProgress, `start` with what init found
// out (core/comm/init.cpp) makes it ready; `fail` and abort end all waiting; destroy frees it.
//
// Threads: one thread at a time calls run(); fail(), stop_reason(), state() and abort from any.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "core/base/immortal.hpp"
#include "core/comm/communicator_calls.hpp"
#include "core/launch/call_runner.hpp"
#include "core/setup/comm_setup.hpp"
#include "core/stall/stall_watch.hpp"
#include "core/transport/connections.hpp"

namespace plexus {

class Communicator final : public RankState {
 public:
  explicit Communicator(CommConfig config) : comm_config_(std::move(config)) {
    calling_thread.set_maker(comm_config_.maker);
  }
  ~Communicator() override;

  /// Makes it ready. Called once.
  Result<void> start(CommSetup setup);

  // -- facts, valid once started --
  [[nodiscard]] int rank() const noexcept { return setup_.rank; }
  [[nodiscard]] int nranks() const noexcept { return setup_.nranks; }
  [[nodiscard]] const CommConfig& comm_config() const noexcept { return comm_config_; }
  [[nodiscard]] const CommSetup& setup() const noexcept { return setup_; }
  [[nodiscard]] LastChoice last_choice() const noexcept {
    return runner_.has_value() ? runner_->last_choice() : LastChoice{"", "", 0};
  }
  // The number of the next split, and of the next shrink to `members`: who takes part in one counts
  // like the others, whatever shrinks there were without it.
  uint64_t next_split() noexcept { return splits_.fetch_add(1, std::memory_order_relaxed) + 1; }
  uint64_t next_shrink(const std::vector<int>& members);

  // -- state --
  [[nodiscard]] Code state() const noexcept { return state_.load(std::memory_order_acquire); }
  void set_state(Code state) noexcept { state_.store(state, std::memory_order_release); }
  [[nodiscard]] Error stop_reason() const override;
  void fail(const Error& error) override;
  void on_stalled(std::vector<Wait> waits) override;
  void on_moved() override;
  /// Ends all waiting of this rank with `reason`; tells no other rank.
  void stop_with(const Error& reason);

  // -- work --
  /// How its calls run. Once started.
  [[nodiscard]] CallRunner& runner() noexcept { return *runner_; }
  // May the last call, or the last group, be done again without checks? See repeat_call().
  [[nodiscard]] bool is_last_call(const CallShape& shape) const noexcept {
    return can_repeat() && runner_->is_last_call(shape);
  }
  [[nodiscard]] bool is_last_group(uint64_t number) const noexcept {
    return can_repeat() && runner_->is_last_group(number);
  }
  /// Blocks until nothing of this communicator is on a host stream, or under way on a device.
  void wait_submitted();
  /// nullptr: the rank computes on the host.
  [[nodiscard]] DeviceRank* device_rank() const noexcept { return device_rank_.get(); }
  /// nullptr: no kernel in another process may read this rank's device.
  [[nodiscard]] PeerMappedMemory* peer_mapped() const noexcept { return peer_mapped_.get(); }
  /// Has a kernel failed that nobody watches? Then the communicator has too.
  void check_device();
  void enter() noexcept {
    calls_.fetch_add(1, std::memory_order_relaxed);
    calling_thread.note();
  }
  void leave() noexcept { calls_.fetch_sub(1, std::memory_order_release); }
  /// Blocks until no thread is inside a call on this communicator (they see `stop`).
  void wait_left();
  void settle();
  /// Tells the other ranks that this one makes no more calls: the last thing before its end.
  void say_goodbye();

  // -- user-defined reductions: op value -> what it multiplies by --
  struct UserReduction {
    DataType type;
    ReduceOp op;
    const void* scalar;  // not null: read when the collective runs
  };
  int add_reduction(const UserReduction& reduction);
  bool remove_reduction(int op);
  [[nodiscard]] const UserReduction* find_reduction(int op) const;

  /// A user's stale handle is looked at before anything else (is_live), so the memory of
  /// communicators is kept for later ones and never given back.
  static void* operator new(size_t size_bytes);
  static void operator delete(void* memory) noexcept;
  /// Of live ones of this process; those of the processes that it was forked from have lesser ones.
  static uint64_t live_magic() noexcept { return kMagic + Forks::count(); }
  static constexpr uint64_t kMagic = 0x504c58434f4d4d31;  // "PLXCOMM1"
  std::atomic<uint64_t> magic{live_magic()};
  const int32_t maker = getpid();
  bool finalized = false;
  bool revoked = false;
  CallingThread calling_thread;
  std::thread initializer;           // of a non-blocking init or split
  std::atomic<bool> give_up{false};  // aborted while initializing
  struct Window {
    void* buffer;
    size_t size_bytes;
  };
  std::map<const void*, std::unique_ptr<Window>> windows;
  std::map<const void*, int> registrations;  // ncclCommRegister: address -> times

 private:
  void open_connections();
  void open_peer_mapped_memory();
  Result<void> open_profilers();
  Result<void> open_tuner();
  void make_runner();
  [[nodiscard]] bool can_repeat() const noexcept {
    return state() == Code::kSuccess && !revoked && !finalized;
  }

  CommConfig comm_config_;
  CommSetup setup_;
  std::unique_ptr<Tuner> tuner_;                   // nullptr: built-in rules
  std::unique_ptr<DeviceRank> device_rank_;        // nullptr: computes on the host
  std::unique_ptr<PeerMappedMemory> peer_mapped_;  // likewise
  std::unique_ptr<ConnectionSet> connections_;
  std::unique_ptr<Profile> profile_;  // nullptr: no profiler is loaded
  std::unique_ptr<CallLog> call_log_;
  std::optional<CallRunner> runner_;  // there once started; before all that it borrows
  std::atomic<uint64_t> splits_{0};
  std::mutex shrinks_mutex_;
  std::map<std::vector<int>, uint64_t> shrinks_;  // by members; guarded by shrinks_mutex_
  std::map<int, UserReduction> reductions_;
  int reductions_made_ = 0;
  std::atomic<int> calls_{0};
  std::atomic<Code> state_{Code::kInProgress};
  mutable std::mutex error_mutex_;
  std::optional<Error> error_;  // guarded by error_mutex_; the first one stays
};

/// Every live communicator of this process, so that a dead handle is recognised. Threads: any.
class LiveCommunicators {
 public:
  static LiveCommunicators& instance() { return Immortal<LiveCommunicators>::instance(); }
  void add(const Communicator* comm);
  bool remove(const Communicator* comm);

 private:
  std::mutex mutex_;
  std::map<const Communicator*, bool> live_;
};

}  // namespace plexus
