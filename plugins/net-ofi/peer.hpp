// SPDX-License-Identifier: Apache-2.0
// The process at the other end. libfabric does not tell a receiver that its peer died, so a peer on
// the same host is watched through the system, and a peer on another host is probed (flow.hpp).
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "plugins/net-ofi/wire.hpp"
#include "plugins/support/unique_fd.hpp"

namespace plexus::net_ofi {

/// Describes this process. `host_id_setting`: NCCL_HOSTID, which defines what counts as one host.
[[nodiscard]] WireProcess this_process(const std::string& host_id_setting);

class PeerWatch {
 public:
  PeerWatch() = default;
  /// For a peer on another host or in this process it watches nothing.
  PeerWatch(const WireProcess& here, const WireProcess& peer);
  /// One system call. Also false when nothing is watched.
  [[nodiscard]] bool has_ended() const noexcept;

 private:
  plugin::UniqueFd process_;
  bool had_ended_ = false;  // before the watch began
};

using Clock = std::chrono::steady_clock;

/// When to look after a peer of which nothing comes, and when it counts as gone. Pure.
///
///   if (timer.is_probe_due(now) && !timer.note_probe(send_probe(), now)) {
///     // it is no longer reachable
///   }
class PeerTimer {
 public:
  PeerTimer(Clock::duration probe_time, Clock::time_point now)
      : probe_time_(probe_time), last_look_(now) {
    note_event(now);
  }
  /// Something of the peer has arrived, or of this side there.
  void note_event(Clock::time_point now);
  /// The peer is gone: the time in which its earlier messages are received begins.
  void note_departure(Clock::time_point now) noexcept { last_event_ = now; }
  /// No earlier message has come for a while.
  [[nodiscard]] bool is_silent(Clock::time_point now) const noexcept;
  /// To be asked first. True: this is the time to look, which takes a system call.
  [[nodiscard]] bool look_is_due(Clock::time_point now) noexcept;
  [[nodiscard]] bool is_probe_due(Clock::time_point now) const noexcept {
    return now >= next_probe_;
  }
  /// False: none could be sent for so long that the peer is dead.
  [[nodiscard]] bool note_probe(bool is_sent, Clock::time_point now);

 private:
  Clock::duration probe_time_;
  Clock::duration pause_{};
  Clock::time_point last_event_;
  Clock::time_point last_look_;
  Clock::time_point next_probe_;
  std::optional<Clock::time_point> refused_since_;  // since when probes cannot be sent
};

/// "worker3 (process 123)".
[[nodiscard]] std::string process_text(const WireProcess& process);

}  // namespace plexus::net_ofi
