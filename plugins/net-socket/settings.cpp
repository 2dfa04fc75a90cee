// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-socket/settings.hpp"

#include "plugins/support/number_setting.hpp"
#include "plugins/support/port_setting.hpp"
#include "plugins/support/security_mode.hpp"

namespace plexus::net_socket {
namespace {

using plugin::read_number;
using Range = plugin::NumberRange;

Result<void> read_parallelism(const ReadVariable& read, Settings& settings) {
  auto& limited = settings.limited;
  PLEXUS_TRY(sockets, read_number(read, "NCCL_NSOCKS_PERTHREAD", {1, 1, kDataSocketsMax}, limited));
  // Several sockets without a number of threads get one thread.
  const int64_t threads_initial = sockets > 1 ? 1 : 0;
  PLEXUS_TRY(threads,
             read_number(read, "NCCL_SOCKET_NTHREADS", {threads_initial, 0, kThreadsMax}, limited));
  if (threads * sockets > kDataSocketsMax) {
    limited.push_back(
        fmt::format("NCCL_SOCKET_NTHREADS={} times NCCL_NSOCKS_PERTHREAD={} is more than {} "
                    "sockets: the latter "
                    "is limited to {}",
                    threads, sockets, kDataSocketsMax, kDataSocketsMax / threads));
    sockets = kDataSocketsMax / threads;
  }
  settings.threads = static_cast<uint32_t>(threads);
  settings.sockets_per_thread = static_cast<uint32_t>(sockets);
  return ok();
}

}  // namespace

Result<Settings> read_settings(const ReadVariable& read) {
  constexpr int64_t kKibibyte = 1024;
  constexpr int64_t kGibibyte = kKibibyte * kKibibyte * kKibibyte;
  // NCCL's defaults: 34 retries, the n-th after n * 100 ms: about one minute in total.
  constexpr Range kRetries = {34, 0, 10'000};
  constexpr Range kRetrySleep = {100, 0, 60'000};
  // Up to this size, sending a message whole over one socket is cheaper than dividing it among
  // helpers.
  constexpr Range kInline = {64 * kKibibyte, 0, kGibibyte};
  constexpr Range kTask = {64 * kKibibyte, 1, kGibibyte};
  constexpr Range kSocketBuffer = {-1, -1, kGibibyte};
  constexpr Range kTimeout = {30, 2, 3'600};

  Settings settings;
  const char* interfaces = read("NCCL_SOCKET_IFNAME");
  settings.interfaces = interfaces == nullptr ? "" : interfaces;
  PLEXUS_TRY(family, plugin::parse_family(read("NCCL_SOCKET_FAMILY")));
  PLEXUS_TRY(read_parallelism(read, settings));
  PLEXUS_TRY(retries, read_number(read, "NCCL_SOCKET_RETRY_CNT", kRetries, settings.limited));
  PLEXUS_TRY(retry_sleep,
             read_number(read, "NCCL_SOCKET_RETRY_SLEEP_MSEC", kRetrySleep, settings.limited));
  PLEXUS_TRY(inline_bytes, read_number(read, "NCCL_SOCKET_INLINE", kInline, settings.limited));
  PLEXUS_TRY(task_bytes, read_number(read, "NCCL_SOCKET_MIN_TASKSIZE", kTask, settings.limited));
  PLEXUS_TRY(send_buffer, read_number(read, "NCCL_SOCKET_SNDBUF", kSocketBuffer, settings.limited));
  PLEXUS_TRY(recv_buffer, read_number(read, "NCCL_SOCKET_RCVBUF", kSocketBuffer, settings.limited));
  PLEXUS_TRY(timeout, read_number(read, "PLEXUS_SOCKET_TIMEOUT_S", kTimeout, settings.limited));
  PLEXUS_TRY(security, plugin::read_mode(read));
  PLEXUS_TRY(ports, plugin::read_ports(read));
  settings.ports = ports;
  settings.family = family;
  settings.security = security;
  settings.connect_retries = static_cast<uint32_t>(retries);
  settings.connect_retry_sleep = std::chrono::milliseconds(retry_sleep);
  settings.timeout = std::chrono::seconds(timeout);
  settings.inline_bytes_max = static_cast<uint64_t>(inline_bytes);
  settings.task_bytes_min = static_cast<uint64_t>(task_bytes);
  settings.send_buffer_bytes = static_cast<int32_t>(send_buffer);
  settings.recv_buffer_bytes = static_cast<int32_t>(recv_buffer);
  return settings;
}

}  // namespace plexus::net_socket
