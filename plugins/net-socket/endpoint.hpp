// SPDX-License-Identifier: Apache-2.0
// From a handle to connected, authenticated sockets: `Listener` and `Connector` are state machines
// that never block; each call advances them. A connection has one first socket and, with helper
// threads, some data sockets; on every socket both sides prove that they know the handle's key
// before anything else (security/session.hpp).
//
// What pending peers send to the listening port is limited in number, bytes and time, and refused
// without effect on the connections in progress.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plugins/net-socket/nic.hpp"
#include "plugins/net-socket/settings.hpp"
#include "plugins/net-socket/socket.hpp"
#include "plugins/net-socket/wire.hpp"
#include "plugins/support/errno_text.hpp"
#include "plugins/support/log.hpp"
#include "plugins/support/unique_fd.hpp"

namespace plexus::net_socket {

using plugin::errno_text;
using plugin::UniqueFd;
using Clock = std::chrono::steady_clock;

/// The sockets of one connection, ready for messages.
struct Link {
  std::vector<Socket> sockets;  // [1 + data sockets]
  uint32_t threads = 0;         // number of helper threads for the data sockets
  Address peer;
};

class Listener {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Listener>> create(const Nic& nic,
                                                                const Settings& settings,
                                                                const plugin::Log& log,
                                                                plexus_net_handle_t& handle);

  /// kDone: `link` is the next connection.
  [[nodiscard]] Result<Progress> try_accept(Link& link);

 private:
  /// A socket whose other side has not proved itself, or not said its hello.
  struct PendingPeer {
    Socket socket;
    Address address;
    Clock::time_point deadline;
    bool is_proven = false;
    size_t hello_bytes = 0;
    WireHello hello{};
  };
  /// A connection whose sockets have not all arrived.
  struct Gathering {
    uint64_t connection_id = 0;
    Clock::time_point deadline;
    uint32_t arrived = 0;
    Link link;
  };

  Listener(const Settings& settings, const plugin::Log& log) : settings_(settings), log_(log) {}
  [[nodiscard]] Result<void> accept_pending_peers();
  void hear_pending_peers();
  /// True: it is finished (part of a gathering, or refused).
  [[nodiscard]] bool hear(PendingPeer& pending);
  /// kDone: its hello is complete. An Error: why it is refused.
  [[nodiscard]] Result<Progress> hear_out(PendingPeer& pending);
  void admit(PendingPeer& pending);
  void refuse(const PendingPeer& pending, const std::string& reason);

  Settings settings_;
  plugin::Log log_;
  UniqueFd socket_;
  WireHandle wire_{};
  std::vector<PendingPeer> pending_peers_;
  std::vector<Gathering> gatherings_;
  uint32_t refusals_ = 0;
};

class Connector {
 public:
  /// `nic`: the device's; provides the scope of a link-local address.
  [[nodiscard]] static Result<Connector> create(const Nic& nic,
                                                const Settings& settings,
                                                const plexus_net_handle_t& handle);

  /// kDone: connected, and `link` is ready. Retries as the settings allow.
  [[nodiscard]] Result<Progress> try_connect(Link& link);

 private:
  enum class Step { kConnecting, kProving, kHello, kAnswer, kReady };
  struct Attempt {
    Socket socket;
    Step step = Step::kConnecting;
    size_t bytes = 0;  // sent or received so far of the hello or the answer
    WireHello hello{};
    uint64_t answer = 0;
  };
  /// Why an attempt ended; without a reason it has not.
  struct AttemptError {
    int code = 0;  // errno; 0: the other end left or is no peer
    std::string reason;
    [[nodiscard]] bool has_happened() const noexcept { return !reason.empty(); }
  };

  Connector() = default;
  [[nodiscard]] Result<void> start_attempt();
  [[nodiscard]] AttemptError advance(Attempt& attempt);
  [[nodiscard]] AttemptError finish_tcp(Attempt& attempt);
  [[nodiscard]] AttemptError prove(Attempt& attempt);
  [[nodiscard]] AttemptError say_hello(Attempt& attempt);
  [[nodiscard]] AttemptError read_answer(Attempt& attempt);
  /// Schedules another attempt, or gives up.
  [[nodiscard]] Result<void> retry(const AttemptError& error);

  Settings settings_;
  WireHandle wire_{};
  Address target_;
  std::string nic_name_;
  uint32_t silent_attempts_ = 0;   // the last ones in a row
  std::vector<Attempt> attempts_;  // one per socket; empty: waiting for `retry_time_`
  uint32_t attempt_count_ = 0;
  Clock::time_point first_time_;
  Clock::time_point attempt_time_;
  Clock::time_point retry_time_;
};

}  // namespace plexus::net_socket
