// SPDX-License-Identifier: Apache-2.0
#include "core/transport/connection.hpp"

#include <string>

#include <fmt/format.h>

#include "core/base/log.hpp"

namespace plexus {

Result<bool> ConnectionEnd::progress_connect() {
  PLEXUS_TRY(connected, try_connect());
  if (connected && !connected_ && id_.key.sends) {
    const Subsystem subsystem = has_pump_ ? Subsystem::kNet : Subsystem::kP2p;
    if (log_enabled(LogLevel::kInfo, subsystem)) {
      const int number = id_.key.index / kIndexStride;
      const std::string use = id_.key.index % 2 != 0 ? " (send/recv)"
                              : number > 0           ? fmt::format(" (connection {})", number)
                                                     : "";
      log(LogLevel::kInfo, subsystem, __FILE__, __LINE__,
          fmt::format("comm {:#x} rank {} channel {}{} -> {} via {}", id_.group, id_.rank,
                      id_.key.index % kIndexStride / 2, use, id_.peer_name, route()));
    }
  }
  connected_ = connected;
  return connected;
}

}  // namespace plexus
