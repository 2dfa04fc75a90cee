// SPDX-License-Identifier: Apache-2.0
// Names calls into plugins that last: a job that hangs in a library must say in which call of which
// library, and for whom. For control calls (init, listen, connect, accept, registration, closing);
// calls of the data path are not watched.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "core/base/clock.hpp"

namespace plexus {

/// A call in progress. What it borrows lives until the call is over.
struct PluginCall {
  std::string_view plugin;
  const char* entry;      // as plexus_net.h has it
  std::string_view peer;  // empty: the call is for none
};

/// One thread, started by the first call, that looks now and then while there are calls.
/// Threads: any.
class CallWatcher {
 public:
  using Report = std::function<void(const std::string& text)>;
  /// `report` is told of each call once, when it has lasted for `limit`; by the watcher's thread,
  /// while the call cannot end.
  CallWatcher(std::chrono::milliseconds limit, Report report);
  ~CallWatcher();
  CallWatcher(const CallWatcher&) = delete;
  CallWatcher& operator=(const CallWatcher&) = delete;

  /// 10 s, and a WARN.
  static CallWatcher& of_process();

 private:
  friend class WatchedCall;
  struct Entry {
    PluginCall call;
    Clock::time_point began;
    bool is_told = false;
    Entry* next = nullptr;
    Entry* previous = nullptr;
  };
  void begin(Entry& entry) noexcept;
  void end(Entry& entry) noexcept;
  void serve();
  void tell_of_long_calls();
  void stop();

  const std::chrono::milliseconds limit_;
  const Report report_;
  const int pid_;  // a forked process has no watcher
  std::mutex mutex_;
  // all guarded by mutex_:
  std::condition_variable changed_;
  std::thread thread_;
  Entry* first_ = nullptr;
  bool is_asleep_ = false;  // until somebody calls
  bool was_busy_ = false;   // there were calls since the watcher looked
  bool stops_ = false;
};

/// On the stack round a call.
class WatchedCall {
 public:
  explicit WatchedCall(const PluginCall& call,
                       CallWatcher& watcher = CallWatcher::of_process()) noexcept
      : watcher_(watcher), entry_{call, Clock::now()} {
    watcher_.begin(entry_);
  }
  ~WatchedCall() { watcher_.end(entry_); }
  WatchedCall(const WatchedCall&) = delete;
  WatchedCall& operator=(const WatchedCall&) = delete;

 private:
  CallWatcher& watcher_;
  CallWatcher::Entry entry_;
};

}  // namespace plexus
