// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <set>
#include <string>

#include "core/base/log.hpp"

namespace plexus {

/// The lines of PLEXUS_CHECK=1. A loop that is wrong says so once. Threads: any.
class CheckReport {
 public:
  /// `key` tells verdicts apart: the same calls at the same places are one.
  void say(const std::string& key, const std::string& text) {
    constexpr size_t kLinesMax = 100;
    const std::lock_guard lock(mutex_);
    if (printed_.size() < kLinesMax && printed_.insert(key).second) {
      PLEXUS_NOTIFY("check: {}", text);
    }
  }
  void say(const std::string& text) { say(text, text); }

 private:
  std::mutex mutex_;
  std::set<std::string> printed_;  // guarded by mutex_
};

}  // namespace plexus
