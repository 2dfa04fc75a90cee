// SPDX-License-Identifier: Apache-2.0
// All connections of this process. One that waits has the others served: an end that its host asks
// for nothing, because it has all that it wanted, still answers the peer about a rail that is lost.
// Without that two ranks would wait for each other, each in an end that is not the one asked.
//
// Threads: any.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <vector>

namespace plexus::net_ib {

class Connection;

class Neighbours {
 public:
  /// A child made by fork has one of its own.
  [[nodiscard]] static Neighbours& instance();

  void add(Connection& connection);
  /// Afterwards no thread serves it.
  void remove(Connection& connection);
  /// Serves the others of `self`, unless that was done lately or is being done. Does not block.
  void serve_others(const Connection& self);

 private:
  Neighbours();

  const uint64_t forks_;
  std::mutex mutex_;
  std::vector<Connection*> all_;                // guarded by mutex_
  std::chrono::steady_clock::time_point next_;  // guarded by mutex_
};

}  // namespace plexus::net_ib
