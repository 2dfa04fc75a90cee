// SPDX-License-Identifier: Apache-2.0
// Whether the host of a peer still answers, so that a network that drops everything without a word
// becomes an error. A peer that is only stopped is alive: its kernel answers for it.
//
// The receiving end has nothing to send, so keepalive probes and TCP_USER_TIMEOUT do all of its
// work. At the sending end neither does: the kernel sends no keepalive probes while data waits, and
// TCP_USER_TIMEOUT also ends a connection whose peer answers every probe of a window that stays
// closed (tcp(7)), as that of a stopped process does. So while a message waits, the sending end
// counts the segments that arrive: the receiving end's probes make sure that some do.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plugins/net-socket/settings.hpp"
#include "security/silence.hpp"

namespace plexus::net_socket {

struct Socket;

/// Turns on keepalive probes at the sending end, for the time between messages.
[[nodiscard]] Result<void> watch_receiver(int fd, std::chrono::seconds limit);

/// Turns on keepalive probes at the receiving end, often enough for `limit` and for the sending
/// end's limit.
[[nodiscard]] Result<void> watch_sender(int fd,
                                        std::chrono::seconds limit,
                                        std::chrono::seconds limit_of_peer);

/// The text for a connection that ended with errno `error`; 0: the peer closed it.
[[nodiscard]] std::string describe_loss(int error, std::chrono::seconds limit);

/// Notices at the sending end that nothing arrives any more. Threads: one at a time.
class SilenceWatch {
 public:
  SilenceWatch(std::chrono::seconds limit, size_t sockets);
  /// To be called whenever a message waits and nothing moves. True: over the time limit nothing
  /// has arrived on one of `sockets`.
  [[nodiscard]] bool has_expired(std::span<const Socket> sockets) noexcept;
  /// Why it has.
  [[nodiscard]] std::string describe() const;

 private:
  using Clock = std::chrono::steady_clock;

  const std::chrono::seconds limit_;
  const Clock::duration pause_;  // between two looks
  Clock::time_point next_look_;
  uint32_t calls_ = 0;
  std::vector<security::Silence> silences_;  // [sockets]
};

}  // namespace plexus::net_socket
