// SPDX-License-Identifier: Apache-2.0
// The cross-DC transport: a connection between two datacenters, through a net plugin. Over a long
// path more is under way than a Fifo has slots, and links break that others could stand in for. So
// the sender copies slots into a ring of messages and keeps each until the receiver says that it
// came; when a link is lost, both go on by the next of the paths between them, and what was not
// acknowledged is sent again. Nobody above notices: same messages, same order.
//
// Every attempt has a number, `epoch`; attempt e takes path e modulo their number. The receiver
// leads:
//   receiver  listens, and posts kListening with its handle and how many messages it has
//   sender    connects, listens for the acknowledgements, and posts kAcks with that handle
//   receiver  connects for these
// and both post kCalled with the number of connections that they have called so far: the other end
// accepts these and no others, for some plugins block in accept.
//   sender    lost the link, or hears nothing: posts kMove with the number of the attempt
//   receiver  asked to move: the next attempt begins
// A receiver that loses the link closes its end and waits to be asked, because a sender that is
// done closes too. These control messages go by the control plane, which has connections of its
// own.
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.hpp"
#include "core/bootstrap/exchange.hpp"
#include "core/plugin/net_plugin.hpp"
#include "core/transport/connection.hpp"
#include "core/transport/direct.hpp"
#include "core/transport/net_set.hpp"

namespace plexus {

struct XdcEndOptions {
  Exchange* exchange;
  std::vector<NetSet::Path> paths;  // at least one, the first is tried first
  uint32_t slot_bytes;
  uint32_t window;   // messages that may be sent and not acknowledged, at least kSlots
  uint32_t sockets;  // connections that messages take turns over, at least 1; the same at both ends
  std::chrono::milliseconds patience;  // without a sign of life a link counts as lost
  std::string peer_name;               // for messages
  DeviceRuntime* runtime = nullptr;    // of a CUDA rank, whose kernels fill and empty the slots
  int device = -1;                     // of that rank
};

/// What the two directions share: control messages, attempts, and a ring of messages.
class XdcEnd : public ConnectionEnd {
 public:
  Result<bool> progress_connect() final;
  Result<bool> progress_pump() final { return advance(Clock::now()); }

 protected:
  enum class Kind : uint64_t { kListening, kAcks, kMove, kCalled };
  struct ControlMessage {
    Kind kind;
    uint64_t epoch;
    uint64_t count;  // kListening: messages that arrived; kMove: 1 = at once, 0 = when nothing
                     // comes; kAcks, kCalled: connections that were called
    NetHandle handle;
    std::string route;  // kListening
  };
  enum class State : uint8_t { kLost, kOpening, kOpen };

  XdcEnd(const ConnectionKey& key, XdcEndOptions options);
  virtual Result<bool> advance(Clock::time_point now) = 0;

  Result<void> make_memory(size_t messages);
  Result<void> post(Kind kind, uint64_t count, const NetHandle& handle = {});
  Result<std::optional<ControlMessage>> take_control_message();
  /// How long nobody was here: silence meanwhile means nothing. 0: it was but a moment.
  Clock::duration was_away(Clock::time_point now);
  [[nodiscard]] const NetSet::Path& path() const;
  [[nodiscard]] std::byte* message(uint64_t step) const;
  [[nodiscard]] size_t message_bytes_max() const;
  [[nodiscard]] std::byte* slot(uint64_t step) const;
  [[nodiscard]] Fifo& fifo() const;
  [[nodiscard]] plexus_net_region_t region() const;
  [[nodiscard]] DeviceView view() const;
  [[nodiscard]] bool lacks_sizes() const { return !path().context->plugin().is_native(); }
  [[nodiscard]] size_t socket_of(uint64_t step) const { return step % options_.sockets; }

  XdcEndOptions options_;
  std::shared_ptr<LocalFifo> memory_;
  std::unique_ptr<std::byte[]> ring_;
  size_t ring_messages_ = 0;
  std::vector<NetRequest*> requests_;  // [ring_messages_]
  State state_ = State::kLost;
  uint64_t epoch_ = 0;
  Clock::time_point look_at_{};  // for control messages, next

 private:
  [[nodiscard]] uint64_t tag(bool to_receiver) const;
  Clock::time_point pumped_at_{};
};

class XdcSendEnd final : public XdcEnd {
 public:
  XdcSendEnd(const ConnectionKey& key, XdcEndOptions options) : XdcEnd(key, std::move(options)) {}
  [[nodiscard]] bool drained() noexcept override;
  [[nodiscard]] bool settled() const noexcept override { return acked_ == filled_; }

 private:
  Result<bool> advance(Clock::time_point now) override;
  bool take_filled();
  Result<void> follow_control_messages(Clock::time_point now);
  Result<void> open(const ControlMessage& message, Clock::time_point now);
  Result<void> progress_open(Clock::time_point now);
  Result<NetProgress> try_open();
  Result<void> tell_called();
  Result<bool> send_ring(Clock::time_point now);
  Result<bool> test_sent();
  Result<bool> take_acks(Clock::time_point now);
  Result<void> ask_when_silent(Clock::time_point now);
  NetStatus post_ack_buffer();
  Result<void> lose(std::string why);
  Result<void> count_loss(const ControlMessage& message);
  void drop();

  std::vector<NetSend> data_;  // message s goes by number s modulo options_.sockets
  std::vector<NetMemory> data_memory_;
  NetHandle data_handle_{};
  std::optional<NetListen> listen_;  // for acknowledgements
  std::optional<NetRecv> acks_;
  std::optional<NetMemory> acks_memory_;
  bool acks_open_ = false;
  uint64_t called_ = 0;      // connections that connect was called for, as the receiver knows
  bool may_accept_ = false;  // the receiver has called
  uint64_t ack_buffer_ = 0;
  NetRequest* ack_request_ = nullptr;
  uint64_t filled_ = 0;  // steps in the ring
  uint64_t next_ = 0;    // the next to hand to the plugin
  uint64_t done_ = 0;    // steps the plugin is done with
  uint64_t acked_ = 0;   // steps that arrived
  uint64_t told_ = 0;    // steps of which the observer knows that they were sent
  Clock::time_point progress_at_{};
  Clock::time_point ask_at_{};
  Clock::time_point open_until_{};
  uint64_t losses_ = 0;  // since something was acknowledged
  std::string why_;      // of the last one
};

class XdcRecvEnd final : public XdcEnd {
 public:
  XdcRecvEnd(const ConnectionKey& key, XdcEndOptions options) : XdcEnd(key, std::move(options)) {}
  [[nodiscard]] bool drained() noexcept override {
    return state_ != State::kOpen || (acked_ == arrived_ && ack_request_ == nullptr);
  }
  void expect(uint64_t messages) noexcept override { expected_ += messages; }
  void observe(StepObserver* observer) override;
  [[nodiscard]] const Error* broken() const noexcept override {
    return broken_ ? &*broken_ : nullptr;
  }

 private:
  Result<bool> advance(Clock::time_point now) override;
  Result<void> follow_control_messages(Clock::time_point now);
  Result<void> restart();
  void lose(const Error& why, Clock::time_point now);
  void progress_open(Clock::time_point now);
  Result<NetProgress> try_open();
  bool post_free(Clock::time_point now);
  bool test_posted(Clock::time_point now);
  Result<bool> deliver();
  void send_ack(Clock::time_point now);
  void tell_taken();
  void drop();

  std::optional<NetListen> listen_;
  std::vector<NetRecv> data_;
  std::vector<NetMemory> data_memory_;
  std::optional<NetSend> acks_;
  std::optional<NetMemory> acks_memory_;
  bool acks_open_ = false;
  bool has_called_ = false;     // connect for the acknowledgements, and told the sender
  uint64_t senders_calls_ = 0;  // connections that the sender has called connect for
  bool asked_ = false;          // to move, when nothing comes
  uint64_t ack_buffer_ = 0;
  NetRequest* ack_request_ = nullptr;
  std::vector<uint64_t> sizes_;  // [ring_messages_] of messages that arrived
  uint64_t expected_ = 0;        // steps that the calls so far take
  uint64_t posted_ = 0;
  uint64_t arrived_ = 0;
  uint64_t delivered_ = 0;  // steps that are in the Fifo
  uint64_t acked_ = 0;      // the last number told
  uint64_t told_ = 0;       // steps of which the observer knows that they were taken
  Clock::time_point quiet_since_{};
  Clock::time_point lost_at_{};
  std::string why_;  // it was lost
  std::optional<Error> broken_;
};

}  // namespace plexus
