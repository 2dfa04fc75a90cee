// SPDX-License-Identifier: Apache-2.0
// What `plexus doctor` asks: a local socket, open to processes of the same user and of root, at
// which this process says what its ranks do, and asks all others for it.
//
//   request: "ranks\n" or "all\n"
//   answer:  {"pid", "ranks": StallWatch::report(), "comms": StallWatch::inquire()},
//            "comms" only for "all"; then the socket is closed
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "core/os/local_socket.hpp"
#include "core/stall/stall_watch.hpp"

namespace plexus {

/// Lives as long as the process, as its thread does. Threads: any.
class StatusServer {
 public:
  explicit StatusServer(StallWatch& watch) : watch_(watch) {}
  StatusServer(const StatusServer&) = delete;
  StatusServer& operator=(const StatusServer&) = delete;

  /// The first call starts the thread. If it cannot, calls go on without, and the log says so.
  void start();

  static std::string name_of(int64_t pid) { return "plexus-doctor-" + std::to_string(pid); }

 private:
  void answer(const LocalSocket& client);

  StallWatch& watch_;
  std::once_flag once_;
};

}  // namespace plexus
