// SPDX-License-Identifier: Apache-2.0
// Sockets between processes of one host: named in Linux's abstract namespace, so that
// there is no file to clean up. Every wait is bounded.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "core/base/result.hpp"
#include "core/os/own_fds.hpp"

namespace plexus {

/// Move-only owner. Threads: one at a time. Closed in a child made by fork (own_fds.hpp).
class LocalSocket {
 public:
  LocalSocket() = default;

  static Result<LocalSocket> listen(const std::string& name);
  /// kRemoteError: nobody listens.
  static Result<LocalSocket> connect(const std::string& name);
  enum class From { kThisUser, kAnyUser };  // this one, and root
  /// Blocks until such a process has connected; others are refused.
  [[nodiscard]] Result<LocalSocket> accept(From from = From::kThisUser) const;

  [[nodiscard]] Result<void> send_all(std::string_view bytes, std::chrono::milliseconds time) const;
  /// Until the other side has closed, or `end` was received, which is not part of the result. An
  /// Error: the time is over, or there are more than `size_max` bytes.
  [[nodiscard]] Result<std::string> recv_until(char end,
                                               size_t size_max,
                                               std::chrono::milliseconds time) const;

  /// With a byte. Does not wait: nothing else was sent.
  [[nodiscard]] Result<void> send_descriptor(int fd) const;
  /// The caller closes it. kRemoteError: the other side has closed without one.
  [[nodiscard]] Result<int> recv_descriptor(std::chrono::milliseconds time) const;

 private:
  explicit LocalSocket(int fd) : fd_(fd) {}
  OwnFd fd_;
};

/// Listens at `name` in a thread that lives as long as the process, and has `answer` serve one
/// client after the other. An Error: nobody does. `purpose`: as start_thread's.
Result<void> serve_local_socket(const std::string& name,
                                std::string_view purpose,
                                LocalSocket::From from,
                                std::function<void(const LocalSocket& client)> answer);

}  // namespace plexus
