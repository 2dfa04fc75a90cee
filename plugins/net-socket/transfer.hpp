// SPDX-License-Identifier: Apache-2.0
// Messages over the sockets of one connection: `SendConnection` and `RecvConnection`.
//
// The caller's thread does the work inside isend() and test(): a message is sent with one system
// call (header and payload together) and received with one (several small ones together). With
// helper threads, messages longer than NCCL_SOCKET_INLINE are divided into parts that the helpers
// move over the data sockets; their headers still use the first socket, which keeps the order.
//
// All requests exist from the start; nothing allocates after connecting, except the reason of a
// failure. Threads: one at a time per connection.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <sys/uio.h>
#include <vector>

#include "plugin-api/plexus_net.h"

#include "guest/assert.hpp"
#include "plugins/net-socket/endpoint.hpp"
#include "plugins/net-socket/fault.hpp"
#include "plugins/net-socket/helper.hpp"
#include "plugins/net-socket/liveness.hpp"
#include "plugins/net-socket/wire.hpp"
#include "plugins/support/pointer_queue.hpp"

/// A request as the host sees it.
struct plexus_net_request {
  enum class Kind : uint8_t { kSend, kRecv } kind = Kind::kSend;
};

namespace plexus::net_socket {

/// Receives in flight per connection, and sends per buffer of these receives.
inline constexpr uint32_t kRequests = 32;
inline constexpr uint32_t kSendRequests = kRequests * PLEXUS_NET_RECVS_MAX;

using plugin::PointerQueue;

/// The payload of a message as a list of memory pieces.
class Pieces {
 public:
  void add(const void* data, uint64_t size_bytes) noexcept {
    // Payload that is sent is only read.
    PLEXUS_DCHECK(count_ < pieces_.size(), count_);
    pieces_[count_++] = {static_cast<std::byte*>(const_cast<void*>(
                             data)),  // NOLINT(cppcoreguidelines-pro-type-const-cast)
                         size_bytes};
    size_bytes_ += size_bytes;
  }
  [[nodiscard]] uint64_t size_bytes() const noexcept { return size_bytes_; }
  /// Stores iovecs for at most `most` bytes from `offset` on; returns their number.
  size_t lay_out(uint64_t offset, uint64_t most, iovec* out) const noexcept;
  /// Copies contiguous memory into the pieces.
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

/// The common part of both ends: sockets, helper threads, the reason of a failure. Closing stops
/// the helpers first, then closes the sockets.
class Connection {
 public:
  [[nodiscard]] const plugin::Log& log() const noexcept { return log_; }
  /// Refuses memory that system calls cannot access. TCP needs no registration: nullptr.
  [[nodiscard]] static Result<plexus_net_memory_t*> register_memory(
      const plexus_net_region_t& region);

 protected:
  Connection(Link link, const Settings& settings, const plugin::Log& log);
  [[nodiscard]] Result<void> start_helpers(Direction direction);
  /// False: no pieces, or too many; the host is told.
  [[nodiscard]] bool take_pieces(uint32_t count,
                                 const plexus_net_piece_t* pieces,
                                 Pieces& taken) const;

  [[nodiscard]] Socket& first_socket() noexcept { return sockets_.front(); }
  [[nodiscard]] uint32_t data_sockets() const noexcept {
    return static_cast<uint32_t>(sockets_.size() - 1);
  }
  /// Passes the payload of a message with `header.parts` > 0 to the helpers.
  void push_parts(const WireHeader& header,
                  const Pieces& payload,
                  std::atomic<uint32_t>& parts_left) noexcept;
  void break_off(Failure failure) { fault_.set(std::move(failure)); }
  /// For a broken connection: stops the helpers, reports the reason to the host and returns the
  /// code.
  [[nodiscard]] int32_t report_fault() noexcept;
  [[nodiscard]] const std::string& peer() const noexcept { return peer_; }
  [[nodiscard]] bool is_broken() const noexcept { return fault_.is_set(); }
  [[nodiscard]] std::span<const Socket> sockets() const noexcept { return sockets_; }
  [[nodiscard]] std::chrono::seconds timeout() const noexcept { return timeout_; }

 private:
  plugin::Log log_;
  std::string peer_;
  uint32_t threads_;
  std::chrono::seconds timeout_;
  Fault fault_;
  std::vector<Socket> sockets_;  // [1 + data sockets]
  std::vector<std::unique_ptr<Helper>>
      helpers_;  // [threads]; socket 1 + i belongs to helper i % threads
};

class SendConnection;
class RecvConnection;

struct SendRequest : plexus_net_request {
  SendConnection* connection = nullptr;
  Pieces payload;
  WireHeader header{};
  uint64_t first_socket_bytes = 0;  // header, and payload if it has no parts
  uint64_t written_bytes = 0;       // written so far of first_socket_bytes
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
  /// Each returns a PLEXUS_* code, as plexus_net.h specifies.
  [[nodiscard]] int32_t isend(const void* data,
                              uint64_t size_bytes,
                              int32_t tag,
                              const plexus_net_memory_t* memory,
                              plexus_net_request_t** request);
  [[nodiscard]] int32_t isend_pieces(uint32_t count,
                                     const plexus_net_piece_t* pieces,
                                     int32_t tag,
                                     plexus_net_request_t** request);
  [[nodiscard]] int32_t test(SendRequest& request, uint64_t* sizes_bytes);

 private:
  SendConnection(Link link, const Settings& settings, const plugin::Log& log);
  [[nodiscard]] int32_t post(const Pieces& payload, int32_t tag, plexus_net_request_t** request);
  [[nodiscard]] WireHeader make_header(uint64_t size_bytes, int32_t tag);
  /// Writes what the first socket accepts, with at most one system call.
  void progress();
  /// To be called when nothing could be done. Breaks the connection if the peer's host is silent.
  void wait_idle();

  SilenceWatch silence_;
  uint64_t inline_bytes_max_;
  uint64_t task_bytes_min_;
  uint32_t next_data_socket_ = 0;
  std::array<SendRequest, kSendRequests> requests_;
  PointerQueue<SendRequest, kSendRequests> free_;
  PointerQueue<SendRequest, kSendRequests> unwritten_;  // in the order of isend
};

struct RecvBuffer {
  Pieces room;
  uint64_t size_bytes = 0;  // size of its message
  int32_t tag = 0;
  bool is_taken = false;  // its message has begun to arrive
};

struct RecvRequest : plexus_net_request {
  RecvConnection* connection = nullptr;
  std::array<RecvBuffer, PLEXUS_NET_RECVS_MAX> buffers;
  uint32_t count = 0;
  uint32_t free_buffers = 0;            // number of buffers without a message
  uint32_t unfinished_messages = 0;     // number of unfinished messages on the first socket
  std::atomic<uint32_t> parts_left{0};  // number of unfinished parts at the helpers
  [[nodiscard]] bool is_done() const noexcept {
    return unfinished_messages == 0 &&
           parts_left.load(std::memory_order_acquire) == 0;  // pairs with the helper's release
  }
};

class RecvConnection : public Connection {
 public:
  [[nodiscard]] static Result<std::unique_ptr<RecvConnection>> create(Link link,
                                                                      const Settings& settings,
                                                                      const plugin::Log& log);
  [[nodiscard]] int32_t irecv(uint32_t count,
                              const plexus_net_buffer_t* buffers,
                              plexus_net_request_t** request);
  [[nodiscard]] int32_t irecv_pieces(uint32_t count,
                                     const plexus_net_piece_t* pieces,
                                     int32_t tag,
                                     plexus_net_request_t** request);
  [[nodiscard]] int32_t test(RecvRequest& request, uint64_t* sizes_bytes);

 private:
  RecvConnection(Link link, const Settings& settings, const plugin::Log& log);
  /// A request for `count` messages whose buffers the caller fills in; nullptr: none is free.
  [[nodiscard]] RecvRequest* post(uint32_t count) noexcept;
  /// Reads and delivers until `wanted` is done or no data is left, with at most two system calls.
  void progress(const RecvRequest& wanted);
  /// Makes one system call. False: no data, or the connection is broken.
  [[nodiscard]] bool read_more();
  /// Delivers the stash. False: the next message has no buffer yet, or is malformed.
  [[nodiscard]] bool use_stash();
  [[nodiscard]] bool begin_message(const WireHeader& header);
  /// The oldest free buffer with `tag`.
  [[nodiscard]] RecvBuffer* take_buffer(int32_t tag, RecvRequest** owner);
  void end_message();
  [[nodiscard]] uint64_t stash_size() const noexcept { return stash_end_ - stash_begin_; }
  void break_off_reading(ssize_t result, int error);

  /// Buffer for data whose message has no known buffer yet: a header, and small messages after it.
  /// A larger one saves system calls for many small messages; a smaller one saves copying the
  /// beginning of large ones.
  static constexpr uint64_t kStashBytes = uint64_t{16} * 1024;
  std::array<std::byte, kStashBytes> stash_{};
  uint64_t stash_begin_ = 0;
  uint64_t stash_end_ = 0;
  uint32_t reads_ = 0;
  bool is_drained_ = false;  // the last read returned less than requested

  RecvRequest* current_ = nullptr;  // request of the message that is arriving on the first socket
  RecvBuffer* current_buffer_ = nullptr;
  uint64_t current_bytes_ = 0;  // bytes of it received so far

  std::array<RecvRequest, kRequests> requests_;
  PointerQueue<RecvRequest, kRequests> free_;
  PointerQueue<RecvRequest, kRequests> posted_;  // with a free buffer, oldest first
};

}  // namespace plexus::net_socket
