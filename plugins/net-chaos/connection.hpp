// SPDX-License-Identifier: Apache-2.0
// The ends of a connection, with the script's effects. There is no thread: everything happens
// inside isend(), irecv() and test() of the connection, which the host calls repeatedly anyway.
//
//   sending     isend > (wait until due) > inner isend, piece by piece > inner test > told
//   receiving   irecv > inner irecv, piece by piece > inner test > told
//
// With pieces, a message is sent as pieces of `piece_bytes` and a last, shorter piece, possibly of
// 0 bytes; the receiving end joins them. Pieces of one tag are sent one after the other.
//
// Threads: any; those of one communicator take turns (Neighbours).
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "plugin-api/plexus_net.h"

#include "plugins/net-chaos/neighbours.hpp"
#include "plugins/net-chaos/settings.hpp"
#include "plugins/support/log.hpp"

namespace plexus::net_chaos {

using Clock = std::chrono::steady_clock;

}  // namespace plexus::net_chaos

/// A request as the host sees it.
struct plexus_net_request {
  enum class Kind { kSend, kRecv, kFlush };
  Kind kind = Kind::kSend;
  plexus::net_chaos::Connection* connection = nullptr;
  plexus_net_request_t* inner = nullptr;  // request of the piece in flight; null: none
  bool is_last = false;                   // that piece ends the message
  bool is_done = false;
  uint32_t tests_held = 0;  // number of further tests before the result is reported
  uint64_t completion = 0;  // its number in the communicator, once it is done
  plexus::net_chaos::Clock::time_point done;  // when it was
  uint32_t count = 0;
  uint64_t moved_bytes = 0;                  // in finished pieces
  plexus::net_chaos::Clock::time_point due;  // for sends: earliest time
  // what is sent, or the single buffer of a message in pieces
  plexus_net_buffer_t buffer{};
  std::array<uint64_t, PLEXUS_NET_RECVS_MAX> sizes_bytes{};
};

struct plexus_net_memory {
  plexus::net_chaos::Connection* connection;
  plexus_net_memory_t* inner;  // null: its connection was cut
};

namespace plexus::net_chaos {

/// splitmix64: small, with the same results everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  /// A number in 0 .. `most`.
  [[nodiscard]] uint64_t next(uint64_t most) noexcept;

 private:
  uint64_t state_;
};

class Connection {
 public:
  struct Options {
    const plexus_net_ops_t* ops;
    plugin::Log log;
    Effects effects;
    uint64_t seed;
    size_t requests;
    Neighbours* neighbours;
    const Block* block;
  };
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  virtual ~Connection();

  [[nodiscard]] const plugin::Log& log() const noexcept { return options_.log; }
  [[nodiscard]] Result<plexus_net_memory_t*> register_memory(const plexus_net_region_t& region);
  [[nodiscard]] int32_t deregister(plexus_net_memory_t* memory);
  [[nodiscard]] int32_t test(plexus_net_request_t& request, uint64_t* sizes_bytes);
  /// Advances it in a test of another connection, if the script says so.
  void advance_elsewhere();
  /// Number of the latest completion that was reported.
  [[nodiscard]] uint64_t last_reported() const noexcept { return last_reported_; }

 protected:
  explicit Connection(Options options);
  [[nodiscard]] virtual int32_t register_inner(const plexus_net_region_t& region,
                                               plexus_net_memory_t** memory) = 0;
  virtual void close_inner() = 0;
  /// Advances what can advance; a failing code breaks the connection.
  [[nodiscard]] virtual int32_t progress() = 0;
  /// progress() in a call of this connection, unless the script leaves that to others'.
  [[nodiscard]] int32_t progress_here();
  /// Leaves its neighbours; each derived class's destructor begins with it.
  void leave();

  /// An unused request; null: none is free, or the script demands PLEXUS_AGAIN.
  [[nodiscard]] plexus_net_request_t* begin(plexus_net_request_t::Kind kind);
  void give_back(plexus_net_request_t& request) { free_.push_back(&request); }
  /// Tests the piece in flight. PLEXUS_OK: it is done, and `inner` is null.
  [[nodiscard]] int32_t test_inner(plexus_net_request_t& request, uint64_t* sizes_bytes) const;
  void finish(plexus_net_request_t& request);
  /// Whether the script cuts the connection within the next `size_bytes`.
  [[nodiscard]] bool is_cut_by(uint64_t size_bytes) const;
  void cut();
  [[nodiscard]] bool is_cut() const noexcept { return is_cut_; }
  /// Stores a failure for all later calls.
  [[nodiscard]] int32_t break_off(int32_t code);
  /// Reports the stored failure again; PLEXUS_OK: there is none.
  [[nodiscard]] int32_t report_fault() const;

  Options options_;
  Random random_;
  bool is_cut_ = false;  // the script's cut; the inner connection is closed
  uint64_t bytes_ = 0;   // sent or received
  bool is_closed_ = false;

 private:
  void forget_memory();
  /// Whether the report of a finished request has to wait.
  [[nodiscard]] bool is_held(plexus_net_request_t& request) const;
  [[nodiscard]] int32_t test_undone(plexus_net_request_t& request);

  Clock::time_point advanced_elsewhere_;
  uint64_t last_reported_ = 0;
  int32_t fault_ = PLEXUS_OK;
  std::string fault_text_;
  std::vector<plexus_net_request_t> requests_;
  std::deque<plexus_net_request_t> more_requests_;  // for flushes, when the others are in use
  std::vector<plexus_net_request_t*> free_;
  std::vector<plexus_net_memory_t*> memory_;  // registered, owned by the host
};

class SendConnection final : public Connection {
 public:
  SendConnection(Options options, plexus_net_send_t* inner) : Connection(options), inner_(inner) {}
  ~SendConnection() override;
  [[nodiscard]] int32_t isend(const void* data,
                              uint64_t size_bytes,
                              int32_t tag,
                              plexus_net_memory_t* memory,
                              plexus_net_request_t** request);

 private:
  [[nodiscard]] int32_t register_inner(const plexus_net_region_t& region,
                                       plexus_net_memory_t** memory) override;
  void close_inner() override;
  [[nodiscard]] int32_t progress() override;
  [[nodiscard]] int32_t send_due();
  [[nodiscard]] int32_t test_sent();
  [[nodiscard]] int32_t send_piece(plexus_net_request_t& request);
  [[nodiscard]] Clock::time_point compute_due(uint64_t size_bytes);

  plexus_net_send_t* inner_;
  std::vector<plexus_net_request_t*> unsent_;  // in the order of isend
  std::vector<plexus_net_request_t*> sent_;    // last piece in flight
  Clock::time_point path_free_;
  Clock::time_point last_due_;
  uint64_t bytes_since_stall_ = 0;
};

class RecvConnection final : public Connection {
 public:
  RecvConnection(Options options, plexus_net_recv_t* inner) : Connection(options), inner_(inner) {}
  ~RecvConnection() override;
  [[nodiscard]] int32_t irecv(uint32_t count,
                              const plexus_net_buffer_t* buffers,
                              plexus_net_request_t** request);
  [[nodiscard]] int32_t flush(uint32_t count,
                              const plexus_net_buffer_t* buffers,
                              plexus_net_request_t** request);

 private:
  [[nodiscard]] int32_t register_inner(const plexus_net_region_t& region,
                                       plexus_net_memory_t** memory) override;
  void close_inner() override;
  [[nodiscard]] int32_t progress() override;
  [[nodiscard]] int32_t receive_piece(plexus_net_request_t& request);
  using Sizes = std::array<uint64_t, PLEXUS_NET_RECVS_MAX>;
  /// Returns whether it was the last piece.
  [[nodiscard]] bool take_piece(plexus_net_request_t& request, const Sizes& sizes);
  /// Changes a bit of what arrived, where the script says so.
  void spoil(const plexus_net_request_t& request, uint64_t size_bytes) const;
  [[nodiscard]] bool is_first_of_its_tag(size_t index) const;

  plexus_net_recv_t* inner_;
  std::vector<plexus_net_request_t*> unfinished_;  // oldest first
};

}  // namespace plexus::net_chaos
