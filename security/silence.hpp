// SPDX-License-Identifier: Apache-2.0
// Whether the host at the other end of a TCP connection still answers. A process that is only
// stopped is alive: its kernel answers for it.
//
// The kernel's keepalive probes find that out while nothing is to be sent. While something is, the
// kernel sends none, and TCP_USER_TIMEOUT would also end a connection whose other end answers every
// probe of a window that stays closed (tcp(7)), as that of a stopped process does. So then the
// segments that arrive are counted: the other end's keepalive probes make sure that some do.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace plexus::security {

/// What the user is told of a connection on which, for `seconds`, look() saw nothing arrive.
[[nodiscard]] std::string describe_silence(uint32_t lost_segment_bytes, int64_t seconds);

class Silence {
 public:
  /// look() is to be called once more than this within the limit. Each look counts alone, so that a
  /// process that was stopped itself does not take its own silence for the other side's.
  static constexpr uint32_t kLooks = 8;

  /// Turns on the probes of a socket, which both ends have to. A failure is ignored, because a
  /// connection works without them.
  static void start_probes(int fd, std::chrono::milliseconds limit) noexcept;

  /// True: bytes wait, and in the last kLooks looks nothing has arrived, or nothing of ours there.
  /// `waits`: bytes wait that the kernel does not have yet.
  [[nodiscard]] bool look(int fd, bool waits) noexcept;
  /// Bytes of the segments that were sent again and again while the other end's arrived: more than
  /// a link on the way takes. 0: nothing has arrived at all.
  [[nodiscard]] uint32_t lost_segment_bytes() const noexcept { return lost_segment_bytes_; }

 private:
  uint32_t segments_ = 0;  // that had arrived at the last look
  uint32_t silent_looks_ = 0;
  uint64_t acknowledged_bytes_ = 0;  // at the last look
  uint32_t stuck_looks_ = 0;
  uint32_t lost_segment_bytes_ = 0;
};

}  // namespace plexus::security
