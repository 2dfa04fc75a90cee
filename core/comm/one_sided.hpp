// SPDX-License-Identifier: Apache-2.0
// One-sided operations of one rank: ncclPutSignal, ncclSignal, ncclWaitSignal on windows.
//
// Each rank has a counter for every (source, context, signal), which only grows. A put writes to
// the target's window and then raises a counter there; a wait ends when its counters have grown by
// what it waits for since the waits before it. Where the rank can map the target's memory (its own
// process, or its host by shared memory), it stores data and counter itself. To other ranks it
// sends messages, which a thread of the target's control plane carries out: the target need not
// call anything. Not more than kInFlightBytesMax are under way to a rank.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <vector>

#include "core/base/result.hpp"
#include "core/comm/one_sided_message.hpp"
#include "core/control/exchange.hpp"
#include "core/engine/execution.hpp"
#include "core/os/shared_memory.hpp"
#include "core/transport/memory/user_memory.hpp"

namespace plexus {

/// One call, checked.
struct OneSidedCall {
  enum class Kind : uint8_t { kPut, kWait };  // ncclSignal is a put without data
  struct Wait {
    uint64_t count;
    int peer;
    uint32_t context;
    uint32_t signal;
  };
  Kind kind = Kind::kPut;
  int peer = 0;
  const std::byte* data = nullptr;
  uint64_t size_bytes = 0;
  one_sided::WindowNumber window = one_sided::kNoWindow;
  uint64_t offset = 0;  // in the peer's window
  uint32_t context = 0;
  uint32_t signal = 0;
  std::vector<Wait> waits;
};

/// Threads: progress() one at a time; windows as the communicator's calls; answer() from any.
class OneSided {
 public:
  struct Options {
    RankState* state;
    int rank = 0;
    int nranks = 1;
    uint32_t contexts = 1;
    uint32_t signals = 1;  // of each context
    bool is_eager = false;
    Exchange* exchange = nullptr;
    const UserMemory* memory = nullptr;
    /// [nranks]: process_id() of ranks whose memory this one maps, its own included; 0: of others.
    std::vector<uint64_t> processes;
    uint64_t own_process = 0;
  };
  explicit OneSided(Options options);
  OneSided(const OneSided&) = delete;
  OneSided& operator=(const OneSided&) = delete;

  /// From here on messages of other ranks are answered.
  static Result<std::shared_ptr<OneSided>> open(Options options);

  [[nodiscard]] uint32_t contexts() const noexcept { return options_.contexts; }
  [[nodiscard]] uint32_t signals() const noexcept { return options_.signals; }
  /// Memory of the signal counters.
  [[nodiscard]] size_t held_bytes() const noexcept {
    return has_signals() ? signals_.mapped_bytes() : 0;
  }
  /// Signals can be used: eagerly, or there was a window.
  [[nodiscard]] bool has_signals() const noexcept {
    return has_signals_.load(std::memory_order_acquire);
  }
  /// The number of the window that this rank registers now.
  Result<one_sided::WindowNumber> add_window(void* buffer, size_t size_bytes);
  void remove_window(one_sided::WindowNumber number);

  /// Goes on with `call`. True: it is done; an Error: it was wrong, and nothing of it is done.
  /// Blocks never. `begun`: how much of it is.
  struct Progress {
    bool has_begun = false;
    uint64_t sent_bytes = 0;
    std::vector<uint64_t> targets;  // of a wait
  };
  Result<bool> progress(const OneSidedCall& call, Progress& begun);

 private:
  struct Window {
    std::byte* buffer;
    size_t size_bytes;
  };
  /// What is known of another rank (or of this one).
  struct Peer {
    explicit Peer(uint64_t process) : segments(process) {}
    PeerSegments segments;
    std::map<one_sided::WindowNumber, one_sided::WindowInfo> info;  // guarded by info_mutex_
    std::map<one_sided::WindowNumber, bool> asked;
    std::atomic<uint64_t> in_flight_bytes{0};
  };
  using Posted = Exchange::Posted;
  std::vector<Posted> answer(Posted message);
  Result<void> make_signals();
  [[nodiscard]] one_sided::WindowInfo describe(one_sided::WindowNumber number) const;
  void take_write(const one_sided::Write& write, int from);
  void raise(uint32_t context, uint32_t signal, int source);
  [[nodiscard]] size_t counter_index(int source, uint32_t context, uint32_t signal) const;
  /// nullptr: the peer has not answered yet; asks it.
  Result<const one_sided::WindowInfo*> find_info(int peer, one_sided::WindowNumber window);
  /// Where the peer's memory is mapped here; nullptr: it is not.
  std::byte* map_window(int peer, const one_sided::WindowInfo& info);
  std::atomic<uint64_t>* map_counter(int peer, const one_sided::WindowInfo& info, size_t index);
  Result<bool> put(const OneSidedCall& call, Progress& begun);
  Result<bool> send(const OneSidedCall& call, Progress& begun);
  Result<bool> wait(const OneSidedCall& call, Progress& begun);
  /// In some rounds of waiting: the rank will not do anything any more.
  [[nodiscard]] bool is_gone(int peer);
  [[nodiscard]] Error describe_gone(int peer) const;

  Options options_;
  std::vector<std::unique_ptr<Peer>> peers_;
  // Held by who uses or changes what it guards; shared while data is written to a window.
  mutable std::shared_mutex windows_mutex_;
  std::map<one_sided::WindowNumber, Window> windows_;                // guarded by windows_mutex_
  std::vector<std::pair<int, one_sided::WindowNumber>> unanswered_;  // likewise: who asked for what
  one_sided::WindowNumber last_window_ = 0;
  SharedMemory signals_;  // counters; made before has_signals_ is true
  std::atomic<bool> has_signals_{false};
  std::mutex info_mutex_;
  std::vector<uint64_t> awaited_;  // by counter_index(): what all waits so far wait for
  uint32_t looks_ = 0;
};

}  // namespace plexus
