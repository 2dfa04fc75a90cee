// SPDX-License-Identifier: Apache-2.0
// A socket of a connection, secured as PLEXUS_NET_SECURITY says.
#pragma once

#include <string>

#include "plugins/net-socket/liveness.hpp"
#include "plugins/support/unique_fd.hpp"
#include "security/session.hpp"

namespace plexus::net_socket {

struct Socket {
  plugin::UniqueFd fd;
  security::Session session;  // borrows it

  /// The text for errno `error` of the session's last call; 0: the peer closed it.
  [[nodiscard]] std::string describe_loss(int error, std::chrono::seconds limit) const {
    return error == EBADMSG ? session.error() : net_socket::describe_loss(error, limit);
  }
};

}  // namespace plexus::net_socket
