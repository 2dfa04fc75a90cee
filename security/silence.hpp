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

namespace plexus::security {

class Silence {
 public:
  /// look() is to be called once more than this within the limit. Each look counts alone, so that a
  /// process that was stopped itself does not take its own silence for the other side's.
  static constexpr uint32_t kLooks = 8;

  /// Turns on the probes of a socket, which both ends have to. A failure is ignored, because a
  /// connection works without them.
  static void start_probes(int fd, std::chrono::milliseconds limit) noexcept;

  /// True: bytes wait, and in the last kLooks looks nothing has arrived. `waits`: bytes wait that
  /// the kernel does not have yet.
  [[nodiscard]] bool look(int fd, bool waits) noexcept;

 private:
  uint32_t segments_ = 0;  // that had arrived at the last look
  uint32_t silent_looks_ = 0;
};

}  // namespace plexus::security
