// SPDX-License-Identifier: Apache-2.0
// What the ranks of one communicator in a process have in common and make once.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "core/base/result.hpp"

namespace plexus {

/// Threads: any.
template <class Value>
class GroupCache {
 public:
  using Make = std::function<Result<Value>()>;
  /// The value of the communicator `group`, made by the first of its ranks in this process to ask;
  /// it is kept while one of them has it.
  Result<std::shared_ptr<const Value>> find_or_make(uint64_t group, const Make& make) {
    const std::lock_guard lock(mutex_);
    std::erase_if(made_, [](const auto& entry) { return entry.second.expired(); });
    if (auto known = made_[group].lock()) {
      return known;
    }
    PLEXUS_TRY(value, make());
    auto shared = std::make_shared<const Value>(std::move(value));
    made_[group] = shared;
    return shared;
  }

 private:
  std::mutex mutex_;
  std::map<uint64_t, std::weak_ptr<const Value>> made_;  // guarded by mutex_
};

}  // namespace plexus
