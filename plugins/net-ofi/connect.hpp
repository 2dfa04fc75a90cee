// SPDX-License-Identifier: Apache-2.0
// From a handle to a connection: `Listener` and `Connector` are state machines that never block;
// each call advances them. The connecting side greets the listener with the addresses of its
// rails and a challenge. The accepting side opens rails of its own and sends its greeting to them
// directly, with a proof that answers the challenge and a challenge of its own. A kReady over each
// rail proves the connecting side and completes the setup; libfabric then has a connection on every
// rail.
//
// Messages of pending peers to the listener are limited in number and bytes, and refused without
// effect on the connections in progress.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "plugins/net-ofi/flow.hpp"

namespace plexus::net_ofi {

/// What both sides need to connect.
struct Place {
  const Device* device;
  const Settings* settings;
  Links* links;
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

  /// kDone: `flow` is the next connection.
  [[nodiscard]] Result<Progress> try_accept(std::unique_ptr<Flow>& flow);

 private:
  static constexpr uint32_t kGreetings = 16;
  /// A connection in progress.
  struct PendingPeer {
    std::unique_ptr<Flow> flow;
    WireGreeting answer{};
    uint32_t nonce = 0;
    Clock::time_point deadline;  // for the last kReady
  };
  explicit Listener(const Place& place) : place_(place) {}
  [[nodiscard]] Result<void> post(uint32_t index);
  [[nodiscard]] Result<void> hear();
  [[nodiscard]] Result<void> admit(const WireGreeting& greeting);
  [[nodiscard]] Result<WireGreeting> make_answer(Flow& flow, const WireGreeting& greeting);
  void refuse(const std::string& reason);
  std::vector<PendingPeer>::iterator forget(std::vector<PendingPeer>::iterator pending);
  /// Returns whether the connection is complete.
  [[nodiscard]] Result<Progress> advance(PendingPeer& pending);

  Place place_;
  WireHandle wire_{};
  std::array<WireGreeting, kGreetings> greetings_{};
  std::array<Operation, kGreetings> operations_;
  OwnMemory memory_;
  std::shared_ptr<ListenEnd> end_;
  std::vector<PendingPeer> pending_peers_;
  std::vector<uint32_t>
      seen_;  // nonces of pending peers and of connections: a greeting may arrive twice
  uint32_t refusals_ = 0;
  bool has_listened_ = false;  // libfabric may have accepted a peer
};

class Connector {
 public:
  [[nodiscard]] static Result<Connector> create(const Place& place,
                                                const std::string& provider,
                                                const plexus_net_handle_t& handle);

  /// kDone: connected. Retries until PLEXUS_OFI_CONNECT_TIMEOUT_MS.
  [[nodiscard]] Result<Progress> try_connect(std::unique_ptr<Flow>& flow);

 private:
  enum class Step { kHello, kAnswer, kReady };
  explicit Connector(const Place& place) : place_(place) {}
  [[nodiscard]] Result<void> start_attempt();
  [[nodiscard]] Result<fi_addr_t> find_listener(Flow& flow) const;
  [[nodiscard]] Result<Progress> advance();
  [[nodiscard]] Result<void> greet();
  /// Schedules another attempt, or gives up.
  [[nodiscard]] Result<void> retry(const std::string& reason);

  Place place_;
  WireHandle wire_{};
  std::unique_ptr<Flow> flow_;  // the current attempt's; null: waiting for `retry_time_`
  fi_addr_t listener_ = FI_ADDR_UNSPEC;
  std::string target_;
  WireGreeting hello_{};
  Challenges challenges_{};
  Step step_ = Step::kHello;
  uint32_t rails_announced_ = 0;
  uint32_t attempts_ = 0;
  Clock::time_point deadline_;
  Clock::time_point retry_time_;
  Clock::time_point next_hello_;
};

}  // namespace plexus::net_ofi
