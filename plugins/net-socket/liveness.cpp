// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-socket/liveness.hpp"

#include <algorithm>
#include <cerrno>

#include "plugins/net-socket/option.hpp"
#include "plugins/net-socket/socket.hpp"
#include "plugins/support/errno_text.hpp"

namespace plexus::net_socket {
namespace {

using std::chrono::seconds;

/// So many probes may be lost before the limit passes, at limits that are not shorter.
constexpr int kProbes = 6;
/// The clock is read once per this many calls.
constexpr uint32_t kCallsPerClock = 32;

int pace_of(seconds limit) {
  return std::max(1, static_cast<int>(limit.count()) / kProbes);  // the kernel counts in seconds
}

Result<void> start_probes(int fd, int pace_s, int count) {
  PLEXUS_TRY(set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1, "SO_KEEPALIVE"));
  PLEXUS_TRY(set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, pace_s, "TCP_KEEPIDLE"));
  PLEXUS_TRY(set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, pace_s, "TCP_KEEPINTVL"));
  return set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, count, "TCP_KEEPCNT");
}

}  // namespace

Result<void> watch_receiver(int fd, seconds limit) {
  const int pace_s = pace_of(limit);
  // The first probe leaves after one pause, and the last one has a pause to be answered.
  const int count = std::max(1, static_cast<int>(limit.count()) / pace_s - 1);
  return start_probes(fd, pace_s, count);
}

Result<void> watch_sender(int fd, seconds limit, seconds limit_of_peer) {
  PLEXUS_TRY(start_probes(fd, pace_of(std::min(limit, limit_of_peer)), kProbes));
  // In place of the count of probes, because their pace may follow the peer's limit.
  const auto limit_ms = std::chrono::milliseconds(limit).count();
  return set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(limit_ms),
                    "TCP_USER_TIMEOUT");
}

std::string describe_loss(int error, seconds limit) {
  if (error == 0) {
    return "the peer closed it";
  }
  if (error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH) {
    return fmt::format(
        "its host has not answered for {} s (PLEXUS_SOCKET_TIMEOUT_S): {}; check the network "
        "between the two hosts",
        limit.count(), plugin::errno_text(error));
  }
  return plugin::errno_text(error);
}

SilenceWatch::SilenceWatch(seconds limit, size_t sockets)
    : limit_(limit),
      pause_(Clock::duration(limit) / security::Silence::kLooks),
      next_look_(Clock::now() + pause_),
      silences_(sockets) {}

bool SilenceWatch::has_expired(std::span<const Socket> sockets) noexcept {
  if (++calls_ % kCallsPerClock != 0) {
    return false;
  }
  const auto now = Clock::now();
  if (now < next_look_) {
    return false;
  }
  next_look_ = now + pause_;
  bool has_expired = false;
  for (size_t i = 0; i < sockets.size(); ++i) {
    has_expired = silences_[i].look(sockets[i].fd.get(), true) || has_expired;
  }
  return has_expired;
}

std::string SilenceWatch::describe() const {
  for (const security::Silence& silence : silences_) {
    if (silence.lost_segment_bytes() != 0) {
      return security::describe_silence(silence.lost_segment_bytes(), limit_.count());
    }
  }
  return describe_loss(ETIMEDOUT, limit_);
}

}  // namespace plexus::net_socket
