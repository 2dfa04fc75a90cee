// SPDX-License-Identifier: Apache-2.0
// Reports calls into plugins that take long, so that a job that hangs in a library names the call,
// the library and the peer. Control calls (init, listen, connect, accept, registration, closing)
// are watched by a thread; calls of the data path only leave a mark, which is looked at when
// somebody asks what a rank does, and are told when they block again and again.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <pthread.h>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/base/clock.hpp"
#include "core/base/stdio_held.hpp"

namespace plexus {

/// A call in progress. The strings must live until the call has returned.
struct PluginCall {
  std::string_view plugin;
  const char* entry;      // name of the entry in plexus_net.h
  std::string_view peer;  // empty: the call concerns no peer
};

class CallWatcher;

/// A counter of the processor that is cheap to read. Its rate is constant, and known of some
/// processors only.
inline uint64_t read_ticks() noexcept {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#else
  return static_cast<uint64_t>(Clock::now().time_since_epoch().count());
#endif
}

/// The data path of one context of a plugin: the function in which its calls are. Threads: calls by
/// one at a time, but for ends of registrations, which may hide the mark of another call; the rest
/// by any.
///
/// isend, irecv and test must return at once: meanwhile the rank's other connections wait. A call
/// that took a millisecond is no proof that they do not, as the thread may have had no core. After
/// one the next calls are measured exactly, which is slow and therefore done a few times only, and
/// the third that blocks is told, once.
class DataPath {
 public:
  /// `plugin` must outlive it.
  explicit DataPath(std::string_view plugin);
  DataPath(std::string_view plugin, CallWatcher& watcher);
  ~DataPath();
  DataPath(const DataPath&) = delete;
  DataPath& operator=(const DataPath&) = delete;

  /// A call, for the lifetime of this object.
  class Call {
   public:
    Call(DataPath& path, const char* entry) noexcept : path_(path) {
      path_.calls_.store(path_.calls_.load(std::memory_order_relaxed) + 1,
                         std::memory_order_relaxed);
      path_.entry_.store(entry, std::memory_order_relaxed);
    }
    ~Call() { path_.entry_.store(nullptr, std::memory_order_relaxed); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    DataPath& path_;
  };
  /// A call that must return at once. `peer` must live as long.
  class QuickCall {
   public:
    QuickCall(DataPath& path, const char* entry, std::string_view peer) noexcept
        : call_(path, entry), path_(path), entry_(entry), peer_(peer) {
      if (path_.suspect_calls_ > 0) [[unlikely]] {
        path_.begin_exactly();
      }
      began_ = read_ticks();
    }
    ~QuickCall() {
      constexpr uint64_t kTicksOfQuick = 1'000'000;  // 1 ms or less
      const uint64_t ticks = read_ticks() - began_;
      if (path_.suspect_calls_ > 0) [[unlikely]] {
        path_.judge(entry_, peer_);
      } else if (ticks > kTicksOfQuick) [[unlikely]] {
        path_.suspect(ticks);
      }
    }
    QuickCall(const QuickCall&) = delete;
    QuickCall& operator=(const QuickCall&) = delete;

   private:
    const Call call_;
    DataPath& path_;
    const char* const entry_;
    const std::string_view peer_;
    uint64_t began_;
  };

 private:
  friend class CallWatcher;
  /// Times of a thread. Not `known` where the system does not tell them.
  struct ThreadTimes {
    bool known = false;
    Clock::time_point at;
    std::chrono::nanoseconds on_core{0};
    std::chrono::nanoseconds without_core{0};  // ready to run
  };
  static ThreadTimes read_thread_times() noexcept;
  void begin_exactly() noexcept;
  void suspect(uint64_t ticks) noexcept;
  void judge(const char* entry, std::string_view peer) noexcept;
  void tell(const char* entry, std::string_view peer, Clock::duration time) noexcept;

  CallWatcher& watcher_;
  const std::string_view plugin_;
  const Clock::time_point made_ = Clock::now();
  const uint64_t made_ticks_ = read_ticks();
  // Used by the calls alone:
  uint32_t suspicions_ = 0;
  uint32_t suspect_calls_ = 0;  // calls that are still to be measured exactly
  uint32_t blocked_calls_ = 0;  // that were seen to block
  ThreadTimes began_;           // of a call that is measured exactly
  std::atomic<const char*> entry_{nullptr};
  std::atomic<uint64_t> calls_{0};
  // guarded by CallWatcher::mutex_:
  uint64_t seen_calls_ = 0;         // when it was last looked at
  Clock::time_point seen_since_{};  // that call was first seen
};

/// One thread, started by the first call, that checks at intervals while there are calls.
/// Threads: any.
class CallWatcher {
 public:
  using Report = std::function<void(const std::string& text)>;
  /// `report` is called once for each call that has lasted for `limit`, by the watcher's thread;
  /// the call cannot return meanwhile.
  CallWatcher(std::chrono::milliseconds limit, Report report);
  ~CallWatcher();
  CallWatcher(const CallWatcher&) = delete;
  CallWatcher& operator=(const CallWatcher&) = delete;

  /// A call in progress, copied.
  struct OngoingCall {
    std::string plugin;
    std::string entry;
    std::chrono::milliseconds time;
  };
  /// The longest call in progress: of `thread` if it makes one, else of any thread. A call of the
  /// data path is found when it was in progress at an earlier look_at_data_paths() too.
  [[nodiscard]] std::optional<OngoingCall> find_longest(std::optional<pthread_t> thread);
  void look_at_data_paths() noexcept;

  /// The process's watcher: limit 10 s, reports as WARN.
  static CallWatcher& of_process();

 private:
  friend class WatchedCall;
  friend class DataPath;
  struct Entry {
    PluginCall call;
    Clock::time_point began;
    pthread_t thread;
    bool is_reported = false;
    Entry* next = nullptr;
    Entry* previous = nullptr;
  };
  void begin(Entry& entry) noexcept;
  void end(Entry& entry) noexcept;
  void serve();
  void tell_of_long_calls();
  [[nodiscard]] std::optional<OngoingCall> find_in_data_paths() const;
  void stop();

  const std::chrono::milliseconds limit_;
  const Report report_;
  const int pid_;  // the process that made it; a forked child has no watcher thread
  std::mutex mutex_;
  // guarded by mutex_:
  std::condition_variable changed_;
  std::thread thread_;
  Entry* first_ = nullptr;
  std::vector<DataPath*> paths_;
  bool is_asleep_ = false;  // until the next call
  bool was_busy_ = false;   // there were calls since the last check
  bool stops_ = false;
};

/// Registers a call for the lifetime of this object, which lives on the caller's stack. What the
/// plugin opens then has none of the numbers 0 to 2.
class WatchedCall {
 public:
  explicit WatchedCall(const PluginCall& call,
                       CallWatcher& watcher = CallWatcher::of_process()) noexcept
      : watcher_(watcher), entry_{call, Clock::now(), pthread_self()} {
    watcher_.begin(entry_);
  }
  ~WatchedCall() { watcher_.end(entry_); }
  WatchedCall(const WatchedCall&) = delete;
  WatchedCall& operator=(const WatchedCall&) = delete;

 private:
  const StdioHeld stdio_;
  CallWatcher& watcher_;
  CallWatcher::Entry entry_;
};

}  // namespace plexus
