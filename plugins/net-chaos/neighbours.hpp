// SPDX-License-Identifier: Apache-2.0
// The connections of one communicator, for effects that depend on the others: a plugin may share
// one completion queue among all its connections. With such effects a test of one connection
// advances others, so all calls of a communicator take turns.
//
// Threads: any that holds `turn()`.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

namespace plexus::net_chaos {

class Connection;

class Neighbours {
 public:
  [[nodiscard]] std::unique_lock<std::mutex> turn() { return std::unique_lock(mutex_); }
  void add(Connection& connection) { connections_.push_back(&connection); }
  void remove(Connection& connection) { std::erase(connections_, &connection); }
  /// Advances those that advance only in tests of others; `tested` is tested now.
  void advance_others(const Connection& tested) const;
  /// Numbers completions in the order in which they happen.
  [[nodiscard]] uint64_t next_completion() noexcept { return ++completions_; }
  /// Whether a completion of another connection that happened later was reported.
  [[nodiscard]] bool have_overtaken(const Connection& connection, uint64_t completion) const;

 private:
  std::mutex mutex_;
  std::vector<Connection*> connections_;
  uint64_t completions_ = 0;
};

}  // namespace plexus::net_chaos
