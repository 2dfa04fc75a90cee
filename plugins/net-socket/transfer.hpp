// SPDX-License-Identifier: Apache-2.0
// Messages over the sockets of one connection: `SendConnection` and `RecvConnection`.
//
// The caller's thread does the work inside isend() and test(): a message leaves with one system
// call (header and payload together) and arrives with one (several small ones arrive together).
// With helper threads, what is longer than NCCL_SOCKET_INLINE is cut in parts that they move over
// the data sockets; its header still goes over the first socket, which keeps the order.
//
// All requests exist from the start; nothing here allocates after connecting, except to say why a
// connection broke. Threads: one at a time per connection.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <sys/uio.h>
#include <vector>

#include "plugin-api/plexus_net.h"

#include "plugins/net-socket/endpoint.hpp"
#include "plugins/net-socket/fault.hpp"
#include "plugins/net-socket/helper.hpp"
#include "plugins/net-socket/wire.hpp"

/// What the host sees of a request.
struct plexus_net_request {
  bool is_send;
};

namespace plexus::net_socket {

/// Receives in flight per connection, and sends per buffer of them.
inline constexpr uint32_t kRequests = 32;
inline constexpr uint32_t kSendRequests = kRequests * PLEXUS_NET_RECVS_MAX;

/// A ring of pointers with room for all there can be.
template <class T, uint32_t kSize>
class PointerQueue {
 public:
  [[nodiscard]] bool is_empty() const noexcept { return head_ == tail_; }
  [[nodiscard]] uint32_t size() const noexcept { return tail_ - head_; }
  [[nodiscard]] T& front() const noexcept { return *items_[head_ % kSize]; }
  [[nodiscard]] T& at(uint32_t index) const noexcept { return *items_[(head_ + index) % kSize]; }
  void push(T& item) noexcept { items_[tail_++ % kSize] = &item; }
  T& pop() noexcept { return *items_[head_++ % kSize]; }
  /// Takes out one in the middle; those before it move up.
  void erase(uint32_t index) noexcept {
    for (; index > 0; --index) {
      items_[(head_ + index) % kSize] = items_[(head_ + index - 1) % kSize];
    }
    ++head_;
  }

 private:
  static_assert((kSize & (kSize - 1)) == 0, "the indices wrap around");
  std::array<T*, kSize> items_{};
  uint32_t head_ = 0;
  uint32_t tail_ = 0;
};

/// Where the payload of a message lies, piece after piece.
class Pieces {
 public:
  void add(const void* data, uint64_t size_bytes) noexcept {
    // What is sent is only read.
    pieces_[count_++] = {static_cast<std::byte*>(const_cast<void*>(
                             data)),  // NOLINT(cppcoreguidelines-pro-type-const-cast)
                         size_bytes};
    size_bytes_ += size_bytes;
  }
  [[nodiscard]] uint64_t size_bytes() const noexcept { return size_bytes_; }
  /// The next `most` bytes from `offset` on, at most. Returns how many iovecs that takes.
  size_t lay_out(uint64_t offset, uint64_t most, iovec* out) const noexcept;
  /// From contiguous memory into the pieces.
  void fill(uint64_t offset, const std::byte* from, uint64_t size_bytes) const noexcept;

 private:
  struct Piece {
    std::byte* data;
    uint64_t size_bytes;
  };
  std::array<Piece, PLEXUS_NET_PIECES_MAX> pieces_{};
  uint32_t count_ = 0;
  uint64_t size_bytes_ = 0;
};

/// What both ends have: sockets, helper threads, the reason of a failure. Closing it stops the
/// helpers first, then closes the sockets.
class Connection {
 public:
  [[nodiscard]] const plugin::Log& log() const noexcept { return log_; }

 protected:
  Connection(Link link, const plugin::Log& log);
  [[nodiscard]] Result<void> start_helpers(Direction direction);

  [[nodiscard]] int first_socket() const noexcept { return sockets_.front().get(); }
  [[nodiscard]] uint32_t data_sockets() const noexcept {
    return static_cast<uint32_t>(sockets_.size() - 1);
  }
  /// Hands the payload of a message with `header.parts` > 0 to the helpers.
  void push_parts(const WireHeader& header,
                  const Pieces& payload,
                  std::atomic<uint32_t>& parts_left) noexcept;
  void break_off(Failure failure) { fault_.set(std::move(failure)); }
  /// Of a broken connection: tells the host why and returns the code. Stops the helpers first.
  [[nodiscard]] int32_t report_fault() noexcept;
  [[nodiscard]] const std::string& peer() const noexcept { return peer_; }
  [[nodiscard]] bool is_broken() const noexcept { return fault_.is_set(); }

 private:
  plugin::Log log_;
  std::string peer_;
  uint32_t threads_;
  Fault fault_;
  std::vector<plugin::UniqueFd> sockets_;  // [1 + data sockets]
  std::vector<std::unique_ptr<Helper>>
      helpers_;  // [threads]; socket 1 + i is of helper i % threads
};

class SendConnection;
class RecvConnection;

struct SendRequest : plexus_net_request {
  SendConnection* connection = nullptr;
  Pieces payload;
  WireHeader header{};
  uint64_t first_socket_bytes = 0;  // header, and payload when it has no parts
  uint64_t written_bytes = 0;       // of those
  std::atomic<uint32_t> parts_left{0};
  [[nodiscard]] bool is_done() const noexcept {
    return written_bytes == first_socket_bytes &&
           parts_left.load(std::memory_order_acquire) == 0;  // pairs with the helper's release
  }
};

class SendConnection : public Connection {
 public:
  [[nodiscard]] static Result<std::unique_ptr<SendConnection>> create(Link link,
                                                                      const Settings& settings,
                                                                      const plugin::Log& log);
  /// A PLEXUS_* code, as plexus_net.h says. The same for test().
  [[nodiscard]] int32_t isend(const Pieces& payload, int32_t tag, plexus_net_request_t** request);
  [[nodiscard]] int32_t test(SendRequest& request, uint64_t* sizes_bytes);

 private:
  SendConnection(Link link, const Settings& settings, const plugin::Log& log);
  [[nodiscard]] WireHeader make_header(uint64_t size_bytes, int32_t tag);
  /// Writes what the first socket takes. At most one system call.
  void progress();

  uint64_t inline_bytes_max_;
  uint64_t task_bytes_min_;
  uint32_t next_data_socket_ = 0;
  std::array<SendRequest, kSendRequests> requests_;
  PointerQueue<SendRequest, kSendRequests> free_;
  PointerQueue<SendRequest, kSendRequests> unwritten_;  // in the order of isend
};

struct RecvBuffer {
  Pieces room;
  uint64_t size_bytes = 0;  // of its message
  int32_t tag = 0;
  bool is_taken = false;  // its message has begun to arrive
};

struct RecvRequest : plexus_net_request {
  RecvConnection* connection = nullptr;
  std::array<RecvBuffer, PLEXUS_NET_RECVS_MAX> buffers;
  uint32_t count = 0;
  uint32_t free_buffers = 0;            // not taken yet
  uint32_t unfinished_messages = 0;     // those on the first socket
  std::atomic<uint32_t> parts_left{0};  // those of the helpers
  [[nodiscard]] bool is_done() const noexcept {
    return unfinished_messages == 0 &&
           parts_left.load(std::memory_order_acquire) == 0;  // pairs with the helper's release
  }
};

class RecvConnection : public Connection {
 public:
  [[nodiscard]] static Result<std::unique_ptr<RecvConnection>> create(Link link,
                                                                      const plugin::Log& log);
  [[nodiscard]] int32_t irecv(uint32_t count,
                              const plexus_net_buffer_t* buffers,
                              plexus_net_request_t** request);
  [[nodiscard]] int32_t irecv_pieces(const Pieces& room,
                                     int32_t tag,
                                     plexus_net_request_t** request);
  [[nodiscard]] int32_t test(RecvRequest& request, uint64_t* sizes_bytes);

 private:
  RecvConnection(Link link, const plugin::Log& log);
  /// A request for `count` messages, whose buffers the caller fills in; nullptr: none is free.
  [[nodiscard]] RecvRequest* post(uint32_t count) noexcept;
  /// Reads and hands out until `wanted` is done or nothing is there. At most two system calls.
  void progress(const RecvRequest& wanted);
  /// One system call. False: nothing was there, or the connection is broken.
  [[nodiscard]] bool read_more();
  /// Hands out what the stash has. False: the next message has no buffer yet, or is illegal.
  [[nodiscard]] bool use_stash();
  [[nodiscard]] bool begin_message(const WireHeader& header);
  /// The oldest free buffer with `tag`.
  [[nodiscard]] RecvBuffer* take_buffer(int32_t tag, RecvRequest** owner);
  void end_message();
  [[nodiscard]] uint64_t stash_size() const noexcept { return stash_end_ - stash_begin_; }
  void break_off_reading(ssize_t result, int error);

  /// Room for what arrives before its buffer is known: a header, and small messages behind it.
  /// Bigger saves system calls when many small ones come, smaller saves copying of what big ones
  /// begin with.
  static constexpr uint64_t kStashBytes = uint64_t{16} * 1024;
  std::array<std::byte, kStashBytes> stash_{};
  uint64_t stash_begin_ = 0;
  uint64_t stash_end_ = 0;
  uint32_t reads_ = 0;
  bool is_drained_ = false;  // the last read got less than it asked for

  RecvRequest* current_ = nullptr;  // of the message that is arriving on the first socket
  RecvBuffer* current_buffer_ = nullptr;
  uint64_t current_bytes_ = 0;  // of it, here

  std::array<RecvRequest, kRequests> requests_;
  PointerQueue<RecvRequest, kRequests> free_;
  PointerQueue<RecvRequest, kRequests> posted_;  // those with a free buffer, oldest first
};

}  // namespace plexus::net_socket
