// SPDX-License-Identifier: Apache-2.0
// Strangers at the doors of a job: connections to every TCP port that its processes listen at. Some
// send garbage, some the beginning of a handshake, some nothing.
#pragma once

#include <sys/types.h>
#include <vector>

#include "tests/soak/random.hpp"

namespace plexus::soak {

class Strangers {
 public:
  explicit Strangers(uint64_t seed) : random_(seed) {}
  ~Strangers();
  Strangers(const Strangers&) = delete;
  Strangers& operator=(const Strangers&) = delete;

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
