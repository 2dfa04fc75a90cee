// SPDX-License-Identifier: Apache-2.0
// The part of a fault that happens in the guilty process itself; the launcher does the rest
// (fault_watch.hpp) when it sees that the fault has struck.
#pragma once

#include <functional>
#include <plexus.h>
#include <thread>
#include <vector>

#include "tests/soak/program.hpp"
#include "tests/soak/progress.hpp"

namespace plexus::soak {

/// Threads: is_at() and start() from one thread, wait() and pause_if_slow() from any.
class Saboteur {
 public:
  /// Does nothing where the job has no fault, or another process is the guilty one.
  Saboteur(const Job& job, int process, ProcessProgress& page);
  ~Saboteur();
  Saboteur(const Saboteur&) = delete;
  Saboteur& operator=(const Saboteur&) = delete;

  /// Faults that are there from the beginning. Before the first call of the library.
  void strike_at_start();
  [[nodiscard]] bool is_at(int thread, int step) const;
  /// The fault strikes after its delay, in another thread, which then calls `also`.
  void start(std::function<void()> also = [] {});
  /// Until it has struck, where it was started.
  void wait();
  void pause_if_slow() const;
  /// What this process has now and did not have when this object was made, without what the library
  /// may keep. `nids`: unique ids that this process made and nobody used; the library waits for
  /// their ranks.
  void count_leftovers(int nids);

 private:
  void strike() const;

  const Fault* fault_ = nullptr;  // nullptr: nothing to do
  const bool is_of_network_;
  const bool has_unauthenticated_peers_;  // come to every process
  const int nprocesses_;
  ProcessProgress& page_;
  int ndescriptors_ = 0;
  std::thread thread_;
};

/// A receive of each communicator waits on one stream, and all of them are aborted, or revoked and
/// aborted, the last one first. In how many seconds.
double end_queued(const std::vector<ncclComm_t>& comms, bool revokes);

}  // namespace plexus::soak
