// SPDX-License-Identifier: Apache-2.0
// A helper thread: moves parts of large messages over some data sockets of one connection, in order
// for each socket. It sleeps in poll() while there is nothing to do or all its sockets are full or
// empty.
//
// The queue of a socket is a ring with one writer (the thread that drives the connection) and one
// reader (this helper). It has room for all parts that can be outstanding.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <poll.h>
#include <string>
#include <thread>
#include <vector>

#include "plugins/net-socket/fault.hpp"
#include "plugins/net-socket/socket.hpp"
#include "plugins/support/unique_fd.hpp"

namespace plexus::net_socket {

enum class Direction { kSend, kRecv };

/// One part of a message.
struct Part {
  std::byte* data = nullptr;  // not written to when sending
  uint64_t size_bytes = 0;
  std::atomic<uint32_t>* parts_left = nullptr;  // the request's; decremented when the part is done
};

class Helper {
 public:
  struct Options {
    Direction direction;
    std::vector<Socket*> sockets;  // borrowed
    uint32_t queue_size;           // outstanding parts per socket, a power of two
    std::string peer;              // for error messages
    Fault* fault;                  // the connection's
    std::chrono::seconds timeout;  // for error messages
  };
  [[nodiscard]] static Result<std::unique_ptr<Helper>> start(Options options);
  /// Stops at once; buffers of unfinished parts are not accessed afterwards.
  ~Helper();
  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;

  /// Appends a part to the queue of the helper's socket number `socket`.
  /// Threads: the one that drives the connection.
  void push(size_t socket, const Part& part) noexcept;

 private:
  struct Queue {
    explicit Queue(uint32_t size) : parts(size) {}
    std::vector<Part> parts;
    std::atomic<uint32_t> head{0};  // next part to move; written by the helper
    std::atomic<uint32_t> tail{0};  // next free entry; written by push()
    uint64_t moved_bytes = 0;       // moved so far of the part at head; used by the helper only
  };

  Helper(Options options, plugin::UniqueFd wake);
  void run() noexcept;
  [[nodiscard]] bool move_parts();
  /// Returns whether bytes moved.
  [[nodiscard]] bool move_part(size_t socket);
  void break_connection(const Socket& socket, int error);
  void sleep();
  /// Bytes for the next part may be there that poll() does not know of.
  [[nodiscard]] bool may_move(size_t socket) const noexcept;
  void wake_up() noexcept;

  Options options_;
  plugin::UniqueFd wake_;                       // an eventfd
  std::vector<std::unique_ptr<Queue>> queues_;  // [sockets]
  std::vector<pollfd> states_;                  // scratch of sleep()
  std::atomic<bool> is_asleep_{false};
  std::atomic<bool> is_stopping_{false};
  std::thread thread_;
};

}  // namespace plexus::net_socket
