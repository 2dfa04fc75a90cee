// SPDX-License-Identifier: Apache-2.0
// The settings of a context (NCCL_SOCKET_* and PLEXUS_SOCKET_*), read once at `init` and validated:
// a bad value is a failure that names it. README.md explains them.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "guest/port_range.hpp"
#include "plugins/support/result.hpp"
#include "plugins/support/socket_interface.hpp"
#include "security/terms.hpp"

namespace plexus::net_socket {

using plugin::fail;
using plugin::Failure;
using plugin::ok;
using plugin::Progress;
using plugin::Result;

using plugin::AddressFamily;

struct Settings {
  PortRange ports;                   // PLEXUS_PORT_RANGE
  std::vector<std::string> limited;  // what to tell the user of settings beyond their limits
  std::string interfaces;            // NCCL_SOCKET_IFNAME
  AddressFamily family = AddressFamily::kAny;        // NCCL_SOCKET_FAMILY
  uint32_t threads = 0;                              // NCCL_SOCKET_NTHREADS; 0: the caller's thread
  uint32_t sockets_per_thread = 1;                   // NCCL_NSOCKS_PERTHREAD
  uint32_t connect_retries = 0;                      // NCCL_SOCKET_RETRY_CNT
  std::chrono::milliseconds connect_retry_sleep{0};  // NCCL_SOCKET_RETRY_SLEEP_MSEC
  std::chrono::seconds timeout{0};                   // PLEXUS_SOCKET_TIMEOUT_S
  uint64_t inline_bytes_max = 0;                     // NCCL_SOCKET_INLINE
  uint64_t task_bytes_min = 0;                       // NCCL_SOCKET_MIN_TASKSIZE
  int32_t send_buffer_bytes = -1;                    // NCCL_SOCKET_SNDBUF; -1: the kernel's choice
  int32_t recv_buffer_bytes = -1;                    // NCCL_SOCKET_RCVBUF; -1: the kernel's choice
  security::Mode security = security::Mode::kAuth;   // PLEXUS_NET_SECURITY

  /// Number of sockets besides the first that carry parts of large messages; 0 without helper
  /// threads.
  [[nodiscard]] uint32_t data_sockets() const noexcept { return threads * sockets_per_thread; }
};

/// Limits that also apply to a peer's proposal.
inline constexpr uint32_t kThreadsMax = 16;
inline constexpr uint32_t kDataSocketsMax = 64;

using ReadVariable = std::function<const char*(const char* name)>;

/// `read` queries the host; tests replace it.
[[nodiscard]] Result<Settings> read_settings(const ReadVariable& read);

}  // namespace plexus::net_socket
