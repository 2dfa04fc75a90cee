// SPDX-License-Identifier: Apache-2.0
// From a handle to connected queue pairs: `Listener` and `Connector` are state machines over TCP
// that never block; each call advances them. Both sides first prove that they know the handle's
// key; then the caller says what its queue pairs are, the listener makes and connects its own and
// answers, and the caller connects its own and says that it is ready.
//
// What pending peers send to the listening port is limited in number, bytes and time, and refused
// without effect on the connections in progress.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plugins/net-ib/control.hpp"
#include "plugins/net-ib/device.hpp"
#include "plugins/net-ib/rail.hpp"
#include "plugins/net-ib/wire.hpp"
#include "plugins/support/log.hpp"

namespace plexus::net_ib {

/// Where a connection is made. Borrowed from the context, which outlives it.
struct Place {
  const Device* device;
  const Settings* settings;
  plugin::Log log;
};

struct AreaDeleter {
  void operator()(Area* area) const noexcept;
};
/// Zeroed, on pages of its own.
using AreaPtr = std::unique_ptr<Area, AreaDeleter>;

/// One end of a connection that works.
struct Link {
  AreaPtr area;
  std::vector<std::unique_ptr<Rail>> rails;
  ControlSocket control;
  WireHello peer{};
  std::string peer_name;  // host and address
};

class Listener {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Listener>> create(const Place& place,
                                                                plexus_net_handle_t& handle);
  /// kDone: `link` is the next connection.
  [[nodiscard]] Result<Progress> try_accept(Link& link);

 private:
  enum class Step : uint8_t { kProving, kHello, kRails, kReady };
  struct PendingPeer {
    Step step = Step::kProving;
    Clock::time_point deadline;
    std::string address;
    Link link;
  };

  explicit Listener(const Place& place) : place_(place) {}
  [[nodiscard]] Result<void> accept_pending_peers();
  /// kDone: its queue pairs are ready. An Error: why it is refused.
  [[nodiscard]] Result<Progress> hear(PendingPeer& pending) const;
  [[nodiscard]] Result<Progress> take_hello(PendingPeer& pending) const;
  [[nodiscard]] static Result<Progress> answer(Link& link);
  void refuse(const PendingPeer& pending, const std::string& reason);

  Place place_;
  plugin::UniqueFd socket_;
  WireHandle wire_{};
  std::vector<std::unique_ptr<PendingPeer>> pending_peers_;
  uint32_t refusals_ = 0;
};

class Connector {
 public:
  [[nodiscard]] static Result<Connector> create(const Place& place,
                                                const plexus_net_handle_t& handle);
  /// kDone: `link` is connected.
  [[nodiscard]] Result<Progress> try_connect(Link& link);

 private:
  enum class Step : uint8_t { kWaiting, kTcp, kProving, kAnswer, kRails };
  explicit Connector(const Place& place) : place_(place) {}
  [[nodiscard]] Result<void> start_tcp();
  /// An Error ends the attempt; `may_retry_` says whether there is another.
  [[nodiscard]] Result<Progress> advance();
  [[nodiscard]] Result<Progress> finish_tcp();
  [[nodiscard]] Result<Progress> say_hello();
  [[nodiscard]] Result<Progress> take_answer();
  [[nodiscard]] Result<Progress> say_ready();

  Place place_;
  WireHandle wire_{};
  plugin::Address target_;
  Step step_ = Step::kWaiting;
  bool may_retry_ = false;
  Clock::time_point first_time_;
  Clock::time_point retry_time_;
  plugin::UniqueFd connecting_;
  Link link_;
};

}  // namespace plexus::net_ib
