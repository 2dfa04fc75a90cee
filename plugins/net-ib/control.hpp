// SPDX-License-Identifier: Apache-2.0
// The TCP connection beside the queue pairs: handshake, then messages about rails and the end.
// It is also how each side learns that the other process has died. Never blocks.
//
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plugins/net-ib/wire.hpp"
#include "plugins/support/unique_fd.hpp"
#include "security/session.hpp"

namespace plexus::net_ib {

class ControlSocket {
 public:
  ControlSocket() = default;
  /// `fd`: connected, non-blocking.
  ControlSocket(plugin::UniqueFd fd, security::Role role, const security::Terms& terms);

  /// The proof of both sides. kDone: messages may follow.
  [[nodiscard]] Result<Progress> prove();
  /// Sends now, or later in flush(). An Error: the connection is cut.
  [[nodiscard]] Result<void> send(std::span<const std::byte> bytes);
  [[nodiscard]] Result<void> flush();
  /// Waits for `message.size()` bytes, over several calls. An Error: the connection has ended.
  [[nodiscard]] Result<Progress> receive(std::span<std::byte> message);

 private:
  plugin::UniqueFd fd_;
  security::Session session_;  // borrows it
  std::vector<std::byte> output_;
  std::vector<std::byte> input_;
};

/// A socket for a handshake, of the family of `address`.
[[nodiscard]] Result<plugin::UniqueFd> make_control_socket(int family);
/// Options of a connected one: no delay, and probes that notice a dead host.
[[nodiscard]] Result<void> prepare_control_socket(int fd);

template <class T>
std::span<const std::byte> bytes_of(const T& message) noexcept {
  return std::as_bytes(std::span(&message, 1));
}
template <class T>
std::span<std::byte> writable_bytes_of(T& message) noexcept {
  return std::as_writable_bytes(std::span(&message, 1));
}

}  // namespace plexus::net_ib
