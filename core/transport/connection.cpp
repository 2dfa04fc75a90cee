// SPDX-License-Identifier: Apache-2.0
#include "core/transport/connection.hpp"

#include <chrono>
#include <string>
#include <thread>

#include <fmt/format.h>

#include "core/base/log.hpp"
#include "guest/assert.hpp"

namespace plexus {
namespace {

// Longer than a process that runs takes for a slice; one that has died may have left the mark.
constexpr auto kWriteTime = std::chrono::seconds(1);

}  // namespace

Result<bool> ConnectionEnd::progress_connect() {
  PLEXUS_TRY(connected, try_connect());
  if (connected && !connected_ && id_.key.sends) {
    const Subsystem subsystem = has_pump_ ? Subsystem::kNet : Subsystem::kP2p;
    if (log_enabled(LogLevel::kInfo, subsystem)) {
      const int number = id_.key.index / kIndexStride;
      const bool is_message = id_.key.index % 2 != 0;
      const std::string use = is_message
                                  ? number > 0 ? " (send/recv, counts per rank)" : " (send/recv)"
                              : number > 0 ? fmt::format(" (connection {})", number)
                                           : "";
      log(LogLevel::kInfo, subsystem, __FILE__, __LINE__,
          fmt::format("comm {:#x} rank {} channel {}{} -> {} via {}", id_.group, id_.rank,
                      id_.key.index % kIndexStride / 2, use, id_.peer_name, route()));
    }
  }
  PLEXUS_DCHECK(connected || !connected_, id_.key.peer, id_.key.index);  // never back
  connected_ = connected;
  return connected;
}

void RecvEnd::revoke() noexcept {
  connection_.close_output();
  const auto until = std::chrono::steady_clock::now() + kWriteTime;
  while (connection_.is_written() && std::chrono::steady_clock::now() < until) {
    std::this_thread::yield();
  }
}

}  // namespace plexus
