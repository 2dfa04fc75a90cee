// SPDX-License-Identifier: Apache-2.0
// A network of hosts for a job whose network breaks: a network namespace for each process, cabled
// to a bridge in one more. Made and removed by the launcher; needs root, ip and nft.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/soak/fault.hpp"

namespace plexus::soak {

class Network {
 public:
  /// nullptr: it cannot be made.
  static std::unique_ptr<Network> make(uint64_t seed, int nhosts);
  /// Why networks cannot be made here; "": they can.
  static std::string why_not();
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  /// The calling process moves to the host.
  void enter(int host) const;
  // False: it cannot be done.
  /// From now on `percent` of the host's packets are lost.
  [[nodiscard]] bool lose(int host, int percent, Direction direction) const;
  [[nodiscard]] bool heal(int host) const;
  /// Resets the connections that the host has now.
  [[nodiscard]] bool reset(int host) const;

 private:
  Network(uint64_t seed, int nhosts);
  [[nodiscard]] bool build() const;
  [[nodiscard]] std::string name_of(int host) const;
  [[nodiscard]] std::string bridge() const;
  [[nodiscard]] bool nft(int host, const std::string& rules) const;

  std::string prefix_;
  int nhosts_;
};

}  // namespace plexus::soak
