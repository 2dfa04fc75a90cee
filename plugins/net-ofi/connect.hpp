// SPDX-License-Identifier: Apache-2.0
// From a handle to a connection: `Listener` and `Connector` are state machines that never block;
// each call advances them. The connecting side greets the listener with the handle's secret and the
// addresses of its rails; the accepting side opens rails of its own and greets back, directly; a
// kReady over each rail ends it. After that libfabric has a connection on every rail.
//
// What strangers send to the listener is bounded in number and bytes, and refused without harm to
// the connections that are being made.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "plugins/net-ofi/channel.hpp"

namespace plexus::net_ofi {

/// What both sides need.
struct Place {
  const Device* device;
  const Settings* settings;
  plugin::Log log;
};

class Listener {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Listener>> create(const Place& place,
                                                                const std::string& provider,
                                                                plexus_net_handle_t& handle);
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  ~Listener();

  /// kDone: `channel` is the next connection's.
  [[nodiscard]] Result<Progress> try_accept(std::unique_ptr<Channel>& channel);

 private:
  static constexpr uint32_t kGreetings = 16;
  /// A connection that is being made.
  struct Guest {
    std::unique_ptr<Channel> channel;
    WireGreeting answer{};
    Clock::time_point deadline;
  };
  explicit Listener(const Place& place) : place_(place) {}
  [[nodiscard]] Result<void> post(uint32_t index);
  [[nodiscard]] Result<void> hear();
  [[nodiscard]] Result<void> admit(const WireGreeting& greeting);
  void refuse(const std::string& reason);
  /// True: the connection is made.
  [[nodiscard]] Result<Progress> advance(Guest& guest);

  Place place_;
  WireHandle wire_{};
  std::array<WireGreeting, kGreetings> greetings_{};
  std::array<Operation, kGreetings> operations_;
  OwnMemory memory_;
  std::unique_ptr<Endpoint> endpoint_;
  std::vector<Guest> guests_;
  std::vector<uint32_t> seen_;  // nonces: a greeting may come twice
  uint32_t refusals_ = 0;
  bool has_listened_ = false;  // libfabric may have accepted somebody
};

class Connector {
 public:
  [[nodiscard]] static Result<Connector> create(const Place& place,
                                                const std::string& provider,
                                                const plexus_net_handle_t& handle);

  /// kDone: connected. Tries again by itself until PLEXUS_OFI_CONNECT_TIMEOUT_MS.
  [[nodiscard]] Result<Progress> try_connect(std::unique_ptr<Channel>& channel);

 private:
  enum class Step { kHello, kAnswer, kReady };
  explicit Connector(const Place& place) : place_(place) {}
  [[nodiscard]] Result<void> start_attempt();
  [[nodiscard]] Result<Progress> advance();
  [[nodiscard]] Result<void> greet();
  /// Plans another attempt, or gives up.
  [[nodiscard]] Result<void> retry(const std::string& reason);

  Place place_;
  WireHandle wire_{};
  std::unique_ptr<Channel> channel_;  // of the attempt; null: waiting for `retry_time_`
  fi_addr_t listener_ = FI_ADDR_UNSPEC;
  std::string target_;
  WireGreeting hello_{};
  Step step_ = Step::kHello;
  uint32_t rails_told_ = 0;
  uint32_t attempts_ = 0;
  Clock::time_point deadline_;
  Clock::time_point retry_time_;
  Clock::time_point next_hello_;
};

}  // namespace plexus::net_ofi
