// SPDX-License-Identifier: Apache-2.0
// Peers without the secret: connections to every TCP port that its processes listen at. Some
// send garbage, some the beginning of a handshake, some nothing.
#pragma once

#include <sys/types.h>
#include <vector>

#include "tests/soak/random.hpp"

namespace plexus::soak {

inline constexpr int kCallsPerPort = 4;  // at most

class UnauthenticatedPeers {
 public:
  explicit UnauthenticatedPeers(uint64_t seed) : random_(seed) {}
  ~UnauthenticatedPeers();
  UnauthenticatedPeers(const UnauthenticatedPeers&) = delete;
  UnauthenticatedPeers& operator=(const UnauthenticatedPeers&) = delete;

  /// Connects to the ports at which the processes listen now, and sends. Never waits.
  void come(const std::vector<pid_t>& processes);
  void go();
  [[nodiscard]] size_t count() const { return count_; }

 private:
  void connect_to(uint32_t address, uint16_t port);

  Random random_;
  std::vector<int> sockets_;
  size_t count_ = 0;
};

}  // namespace plexus::soak
