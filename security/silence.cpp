// SPDX-License-Identifier: Apache-2.0
#include "security/silence.hpp"

#include <algorithm>
#include <cstddef>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <fmt/format.h>

namespace plexus::security {

void Silence::start_probes(int fd, std::chrono::milliseconds limit) noexcept {
  constexpr int kOn = 1;
  constexpr int kProbes = 5;
  constexpr unsigned kNever = 0;
  const auto limit_s = std::chrono::duration_cast<std::chrono::seconds>(limit).count();
  const int pace_s = std::max(1, static_cast<int>(limit_s) / (kProbes + 1));
  (void)::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &kOn, sizeof kOn);
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &pace_s, sizeof pace_s);
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &pace_s, sizeof pace_s);
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &kProbes, sizeof kProbes);
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &kNever, sizeof kNever);
}

bool Silence::look(int fd, bool waits) noexcept {
  int unacknowledged_bytes = 0;
  waits = waits || (::ioctl(fd, SIOCOUTQ, &unacknowledged_bytes) == 0 && unacknowledged_bytes > 0);
  tcp_info info{};
  socklen_t size = sizeof info;
  const bool is_known = ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
                        size >= offsetof(tcp_info, tcpi_segs_in) + sizeof info.tcpi_segs_in;
  // The other end's segments arrive, and ours do not get there however often they are sent.
  constexpr unsigned kRetransmits = 4;
  const bool is_stuck = is_known && info.tcpi_segs_in != segments_ && info.tcpi_unacked > 0 &&
                        info.tcpi_retransmits >= kRetransmits &&
                        info.tcpi_bytes_acked == acknowledged_bytes_;
  const bool moved = !is_known || info.tcpi_bytes_acked != acknowledged_bytes_;
  stuck_looks_ = moved ? 0 : stuck_looks_ + (is_stuck ? 1 : 0);
  acknowledged_bytes_ = info.tcpi_bytes_acked;
  lost_segment_bytes_ = stuck_looks_ > 0 ? info.tcpi_snd_mss : 0;
  if (stuck_looks_ >= kLooks / 2) {
    return true;
  }
  if (!waits || !is_known || info.tcpi_segs_in != segments_) {
    segments_ = info.tcpi_segs_in;
    silent_looks_ = 0;
    return false;
  }
  return ++silent_looks_ >= kLooks;
}

std::string describe_silence(uint32_t lost_segment_bytes, int64_t seconds) {
  return lost_segment_bytes == 0
             ? fmt::format("its host has not answered for {} s", seconds)
             : fmt::format(
                   "its host answers, but segments of {} bytes do not arrive there, sent again and "
                   "again: a link between the hosts has a smaller MTU and the ICMP that says so is "
                   "dropped (lower the MTU of the interface), or a firewall drops large ones",
                   lost_segment_bytes);
}

}  // namespace plexus::security
