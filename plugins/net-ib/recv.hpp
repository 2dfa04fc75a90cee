// SPDX-License-Identifier: Apache-2.0
// The receiving end. A receive is written into the sender's Area; its request is done when every
// buffer has all parts of its message, which immediates say. What is lost with a rail comes again
// over another one; what is here does not, so that each immediate comes once.
//
// All requests exist from the start; nothing allocates after connecting, except the reason of a
// failure. Threads: one at a time.
#pragma once

#include <array>
#include <cstdint>

#include "plugins/net-ib/connection.hpp"
#include "plugins/support/pointer_queue.hpp"

namespace plexus::net_ib {

class RecvConnection;

struct RecvBuffer {
  uint64_t capacity_bytes = 0;
  uint64_t size_bytes = 0;
  uint32_t parts_here = 0;  // bit mask; all bits: the message
};

struct RecvRequest : plexus_net_request {
  RecvConnection* connection = nullptr;
  uint64_t order = 0;  // of the receive that it serves, or served last
  uint64_t round = 0;  // counts its uses
  uint32_t count = 0;
  uint32_t unfinished = 0;  // buffers
  bool is_used = false;
  std::array<RecvBuffer, PLEXUS_NET_RECVS_MAX> buffers;
};

struct FlushRequest : plexus_net_request {
  RecvConnection* connection = nullptr;
  uint32_t number = 0;      // its index
  uint32_t unfinished = 0;  // reads
};

class RecvConnection final : public Connection {
 public:
  RecvConnection(Link link, const Place& place);
  ~RecvConnection() override;

  /// Each returns a PLEXUS_* code, as plexus_net.h specifies.
  [[nodiscard]] int32_t irecv(uint32_t count,
                              const plexus_net_buffer_t* buffers,
                              plexus_net_request_t** request);
  [[nodiscard]] int32_t test(RecvRequest& request, uint64_t* sizes_bytes);
  [[nodiscard]] int32_t flush(uint32_t count,
                              const plexus_net_buffer_t* buffers,
                              plexus_net_request_t** request);
  [[nodiscard]] int32_t test(FlushRequest& request);

 private:
  void take_done(uint32_t rail, const ibv_wc& completion) override;
  void resend(uint32_t rail, const WireDone& done) override;
  void write_done(WireDone& done) const override;
  void take_bye(const WireDone& done) override;
  [[nodiscard]] bool has_all(const WireDone& done) const override;

  /// Writes the receive into the sender's Area.
  void announce(const RecvRequest& request);
  void take_arrival(const Immediate& immediate);
  void poll_flushes();
  void finish_buffer(RecvRequest& request, uint32_t index, uint64_t size_bytes);

  uint64_t next_order_ = 1;
  uint64_t finished_ = 0;  // messages
  std::array<RecvRequest, kRequests> requests_;
  plugin::PointerQueue<RecvRequest, kRequests> free_;
  std::array<FlushRequest, kRequests> flushes_;
  plugin::PointerQueue<FlushRequest, kRequests> free_flushes_;
};

}  // namespace plexus::net_ib
