// SPDX-License-Identifier: Apache-2.0
// The process at the other end. libfabric does not tell a receiver that its peer died, so a peer on
// the same host is watched through the system, and a peer on another host is probed (flow.hpp).
#pragma once

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

/// "worker3 (process 123)".
[[nodiscard]] std::string process_text(const WireProcess& process);

}  // namespace plexus::net_ofi
