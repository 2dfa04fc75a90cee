// SPDX-License-Identifier: Apache-2.0
// Messages over the rails of one connection: `SendConnection` and `RecvConnection`.
//
// A message is one tagged send on the first rail. With several rails, the end of a long message is
// sent in parts over the others; its immediate data says how much of it (wire.hpp). The receiver
// reports from time to time how many messages it has received (kCredit); a sender is at most
// kWindow messages ahead, so that messages without a posted receive cannot fill the receiver's
// memory.
//
// All requests exist from the start. Threads: one at a time per connection.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "plugin-api/plexus_net.h"

#include "plugins/net-ofi/flow.hpp"
#include "plugins/net-ofi/flush.hpp"
#include "plugins/support/pointer_queue.hpp"

namespace plexus::net_ofi {

/// Receives in flight per connection, and sends per buffer of these receives.
inline constexpr uint32_t kRequests = 32;
inline constexpr uint32_t kSendRequests = kRequests * PLEXUS_NET_RECVS_MAX;
// The two connections of a link share this, together with their flows' control messages.
static_assert(kOperationsMax >= kSendRequests + 2 * kRequests);
/// Number of messages that a sender may be ahead of its receiver.
inline constexpr uint64_t kWindow = 512;
/// Number of bytes after which it sends no more: messages without a posted receive are kept.
inline constexpr uint64_t kWindowBytes = uint64_t{64} << 20;
/// Number of messages, and of bytes, after which the receiver reports to the sender.
inline constexpr uint64_t kCreditStep = 128;
inline constexpr uint64_t kCreditStepBytes = kWindowBytes / 4;

using plugin::PointerQueue;

/// The common part of both ends: the flow, registration, the reason of a failure.
class Connection : private EventSink {
 public:
  [[nodiscard]] const plugin::Log& log() const noexcept { return flow_->log(); }
  [[nodiscard]] Result<plexus_net_memory_t*> register_memory(
      const plexus_net_region_t& region) const;

 protected:
  explicit Connection(std::unique_ptr<Flow> flow);
  ~Connection() = default;

  [[nodiscard]] Flow& flow() const noexcept { return *flow_; }
  [[nodiscard]] Rails& rails() const noexcept { return flow_->rails(); }
  [[nodiscard]] const std::string& peer() const noexcept { return flow_->peer(); }
  [[nodiscard]] static void* descriptor(const plexus_net_memory_t* memory, uint32_t rail) noexcept {
    const bool is_registered = memory != nullptr && memory->registrations[rail] != nullptr;
    return is_registered ? ::fi_mr_desc(memory->registrations[rail]) : nullptr;
  }
  /// Drives the flow; notices after an idle time that the peer is gone.
  void advance();
  /// Starts nothing more. report_failure() closes the flow.
  void break_off(Failure failure);
  [[nodiscard]] bool is_broken() const noexcept { return failure_.has_value(); }
  /// For a broken connection: closes the flow, after which no buffer is accessed, reports the
  /// reason to the host and returns the code.
  [[nodiscard]] int32_t report_failure() noexcept;
  /// The connection's failure for an operation that ended with an error.
  [[nodiscard]] Failure failure_of(const Event& event, const char* what) const;

 private:
  virtual void take_done(const Event& event) = 0;
  void take(const Event& event) final;

  std::unique_ptr<Flow> flow_;
  std::optional<Failure> failure_;
};

/// Ends the registrations. The connection must still exist.
void deregister(plexus_net_memory_t& memory);

class SendConnection;
class RecvConnection;
struct RecvRequest;

struct SendRequest : plexus_net_request {
  SendConnection* connection = nullptr;
  std::byte* data = nullptr;  // only read
  uint64_t size_bytes = 0;
  const plexus_net_memory_t* memory = nullptr;
  int32_t tag = 0;
  Split split;
  uint32_t started_rails = 0;  // next rail to start
  // number of operations that are running or not started yet
  uint32_t unfinished = 0;
  std::array<Operation, kRailsMax> operations;  // [rails]
};

class SendConnection final : public Connection {
 public:
  struct Options {
    uint64_t stripe_bytes_min;
    uint64_t message_bytes_max;
  };
  SendConnection(std::unique_ptr<Flow> flow, const Options& options);
  ~SendConnection();
  /// Returns a PLEXUS_* code, as plexus_net.h specifies; so does test().
  [[nodiscard]] int32_t isend(const void* data,
                              uint64_t size_bytes,
                              int32_t tag,
                              const plexus_net_memory_t* memory,
                              plexus_net_request_t** request);
  [[nodiscard]] int32_t test(SendRequest& request, uint64_t* sizes_bytes);

 private:
  void take_done(const Event& event) override;
  /// Starts one more operation of the request. False: not possible now, or broken.
  [[nodiscard]] bool start_rail(SendRequest& request);
  /// Starts the remaining operations of begun requests.
  void start_waiting();

  Options options_;
  /// Whether the receiver is too far behind.
  [[nodiscard]] bool is_far_ahead() const noexcept;

  uint64_t sent_ = 0;        // number of messages begun
  uint64_t sent_bytes_ = 0;  // in them
  // [kWindow] bytes sent before message number i, at i % kWindow
  std::array<uint64_t, kWindow> bytes_before_{};
  uint8_t sequence_ = 0;
  std::array<SendRequest, kSendRequests> requests_;
  PointerQueue<SendRequest, kSendRequests> free_;
  PointerQueue<SendRequest, kSendRequests> waiting_;  // with rails that are not started
};

struct RecvBuffer {
  RecvRequest* request = nullptr;
  std::byte* data = nullptr;
  uint64_t capacity_bytes = 0;
  const plexus_net_memory_t* memory = nullptr;
  int32_t tag = 0;
  uint64_t size_bytes = 0;   // size of its message
  uint64_t first_bytes = 0;  // bytes that arrived with the message itself
  Split split;
  // number of operations that are running or not started yet
  uint32_t unfinished = 0;
  std::array<Operation, kRailsMax> operations;  // [rails]; index 0: the message
};

struct RecvRequest : plexus_net_request {
  RecvConnection* connection = nullptr;
  std::array<RecvBuffer, PLEXUS_NET_RECVS_MAX> buffers;
  uint32_t count = 0;
  uint32_t posted = 0;      // number of posted buffers
  uint32_t unfinished = 0;  // number of unfinished buffers
};

class RecvConnection final : public Connection {
 public:
  explicit RecvConnection(std::unique_ptr<Flow> flow);
  ~RecvConnection();
  [[nodiscard]] int32_t irecv(uint32_t count,
                              const plexus_net_buffer_t* buffers,
                              plexus_net_request_t** request);
  [[nodiscard]] int32_t test(RecvRequest& request, uint64_t* sizes_bytes);
  [[nodiscard]] int32_t flush(uint32_t count,
                              const plexus_net_buffer_t* buffers,
                              plexus_net_request_t** request);
  [[nodiscard]] int32_t test(FlushRequest& request);

 private:
  void take_done(const Event& event) override;
  void take_flushed(const Event& event);
  void start_flushes();
  void take_message(RecvBuffer& buffer, const Event& event);
  void end_buffer(RecvBuffer& buffer);
  /// Posts requested receives that are not posted yet, in order.
  void post_waiting();
  [[nodiscard]] bool post_buffer(RecvBuffer& buffer);
  /// Posts the receive for the next part of the buffer's message on another rail.
  [[nodiscard]] bool post_part(RecvBuffer& buffer, uint32_t rail);
  void post_parts();
  void send_credit();
  [[nodiscard]] Failure too_long(const RecvBuffer& buffer, uint64_t size_bytes) const;

  uint64_t received_ = 0;   // number of messages
  uint64_t announced_ = 0;  // number reported to the sender
  uint64_t unannounced_bytes_ = 0;
  std::array<RecvRequest, kRequests> requests_;
  PointerQueue<RecvRequest, kRequests> free_;
  PointerQueue<RecvRequest, kRequests> waiting_;  // with buffers that are not posted
  struct WaitingPart {
    RecvBuffer* buffer;
    uint32_t rail;
  };
  std::vector<WaitingPart> waiting_parts_;  // reserved to its full size
  Flushes flushes_;
};

}  // namespace plexus::net_ofi
