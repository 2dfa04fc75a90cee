// SPDX-License-Identifier: Apache-2.0
// Reports calls into plugins that take long, so that a job that hangs in a library names the call,
// the library and the peer. Control calls (init, listen, connect, accept, registration, closing)
// are watched by a thread; calls of the data path only leave a mark, which is looked at when
// somebody asks what a rank does.
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

/// The data path of one context of a plugin: the function in which its calls are. Threads: calls by
/// one at a time, but for ends of registrations, which may hide the mark of another call; the rest
/// by any.
class DataPath {
 public:
  /// `plugin` must outlive it.
  explicit DataPath(std::string_view plugin);
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

 private:
  friend class CallWatcher;
  const std::string_view plugin_;
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
  struct Stay {
    std::string plugin;
    std::string entry;
    std::chrono::milliseconds time;
  };
  /// The longest call in progress: of `thread` if it makes one, else of any thread. A call of the
  /// data path is found when it was in progress at an earlier look_at_data_paths() too.
  [[nodiscard]] std::optional<Stay> find_longest(std::optional<pthread_t> thread);
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
    bool is_told = false;
    Entry* next = nullptr;
    Entry* previous = nullptr;
  };
  void begin(Entry& entry) noexcept;
  void end(Entry& entry) noexcept;
  void serve();
  void tell_of_long_calls();
  [[nodiscard]] std::optional<Stay> find_in_data_paths() const;
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
