// SPDX-License-Identifier: Apache-2.0
// The launcher's part of a fault: what is done to the guilty process from outside, and undone.
#pragma once

#include <cstdint>
#include <sys/types.h>
#include <vector>

#include "tests/soak/network.hpp"
#include "tests/soak/program.hpp"
#include "tests/soak/unauthenticated_peers.hpp"

namespace plexus::soak {

class FaultWatch {
 public:
  struct Processes {
    pid_t guilty = 0;              // 0: it has ended
    bool is_at_work = false;       // the guilty one: not all its threads have ended
    std::vector<pid_t> running{};  // all that have not ended
  };

  /// `network`: of the job; nullptr where the fault does not need one.
  FaultWatch(const Fault& fault, uint64_t seed, const Network* network)
      : fault_(fault), network_(network), peers_(seed) {}

  /// To be called often. `struck_us`: when the fault struck in the guilty process, 0: not yet.
  void look(int64_t struck_us, const Processes& processes);
  /// When the fault had its effect, as far as seen; 0: not yet.
  [[nodiscard]] int64_t struck_us() const { return struck_us_; }
  /// The fault could not be made.
  [[nodiscard]] bool has_failed() const { return has_failed_; }

 private:
  /// False: it could not be done.
  bool begin(const std::vector<pid_t>& running);
  bool end(pid_t guilty);
  static void keep_slow(int64_t now, const Processes& processes);

  const Fault& fault_;
  const Network* network_;
  UnauthenticatedPeers peers_;
  int64_t struck_us_ = 0;
  bool is_over_ = false;
  bool has_failed_ = false;
};

/// After this time a frozen process is killed: the others must then end as after any death. A
/// process that lives but does nothing is no error by itself; who waits for it logs that
/// (PLEXUS_STALL_S).
constexpr int kFreezeSeconds = 12;

}  // namespace plexus::soak
