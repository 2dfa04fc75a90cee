// SPDX-License-Identifier: Apache-2.0
// One connection of the control plane: how far it is, and the bytes that are to be sent over it. It
// waits for nothing and tells nobody: a LinkSet has many, and does both.
//
//   ControlLink link{.state = ControlLink::State::kProving, .socket = std::move(socket),
//                    .session = std::move(session)};
//   link.out += encode(message);  // goes when the other side has proved itself
//   if (link.session.advance() == security::Session::State::kProven) {
//     link.open(finish_time);
//   }
//   link.flush();
//   const uint32_t events = link.awaited();  // of epoll, before the next step
//
// Threads: one at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/base/clock.hpp"
#include "core/base/result.hpp"
#include "core/control/message.hpp"
#include "core/os/socket.hpp"
#include "security/session.hpp"
#include "security/silence.hpp"

namespace plexus {

struct ControlLink {
  enum class State { kConnecting, kProving, kOpen, kFinishing } state;
  Socket socket;
  security::Session session = {};  // from kProving on
  SocketAddress address = {};      // of the other side, where this one connects
  security::Key key = {};          // of the listener there
  Deadline deadline = Deadline::never();
  MessageReader reader = {};
  std::string out = {};   // to be sent
  size_t sent_bytes = 0;  // sent so far of `out`
  uint32_t watched = 0;   // the events that are watched for
  security::Silence silence = {};
  bool is_pending = false;  // has not proved itself, or sent no message yet
  bool finishes = false;
  // Whether the other side has taken this connection as a whole. One that made it cannot know
  // that before it hears something: who leaves at this moment has not died.
  bool is_mutual = true;

  /// The other side has proved itself.
  [[nodiscard]] bool is_open() const { return state >= State::kOpen; }
  /// The connect has ended: the proofs begin, in this mode. An Error: it failed.
  Result<void> start_proof(security::Mode mode);
  /// From kProving.
  void open(std::chrono::milliseconds finish_time);
  /// Sends what is left, and then that nothing follows. Not of a pending peer.
  void finish(std::chrono::milliseconds finish_time);
  /// Sends what can be, where it is open. A failed send shows as a failed receive.
  void flush();
  /// What was sent is where the other side is, if this one finishes.
  [[nodiscard]] bool is_delivered() const;
  [[nodiscard]] uint32_t awaited() const;
  [[nodiscard]] std::string peer_name() const;
};

}  // namespace plexus
