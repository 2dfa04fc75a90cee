// SPDX-License-Identifier: Apache-2.0
// Setting an option of a socket. <linux/tcp.h> names those of TCP throughout this folder: that of
// the C library lacks the newer fields of `tcp_info`, and the two cannot be included together.
#pragma once

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "plugins/net-socket/settings.hpp"
#include "plugins/support/errno_text.hpp"

namespace plexus::net_socket {

[[nodiscard]] inline Result<void> set_option(
    int fd, int level, int name, int value, const char* what) {
  if (::setsockopt(fd, level, name, &value, sizeof value) != 0) {
    return fail(PLEXUS_SYSTEM_ERROR, "cannot set {} of a socket to {}: {}", what, value,
                plugin::errno_text());
  }
  return ok();
}

}  // namespace plexus::net_socket
