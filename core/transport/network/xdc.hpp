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
//
// A path that was lost is tried again while messages go by another one: an attempt beside the one
// that is open, a trial.
//   receiver  now and then, by a path before its own: posts kTry with a number and a handle
//   both      connect as above, with that number
//   receiver  the trial is open: posts kReady, and keeps it
//   sender    all that it sent is acknowledged: leaves the other attempt for the trial, and posts
//             kSwitch
// So a sender that has returned from its call has left nothing on the way that would be lost, and
// nothing is sent twice. Whoever finds that a trial fails before it is ready forgets it; the sender
// says so by kMove with its number.
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.hpp"
#include "core/control/exchange.hpp"
#include "core/plugin/net_plugin.hpp"
#include "core/transport/network/net_set.hpp"
#include "core/transport/network/pumped_end.hpp"
#include "core/transport/network/recv_report.hpp"
#include "core/transport/network/xdc_routes.hpp"
#include "core/transport/transport_table.hpp"
#include "guest/assert.hpp"

namespace plexus {

struct XdcEndOptions {
  Exchange* exchange;
  std::vector<NetSet::Path> paths;  // at least one, the first is tried first
  uint32_t slot_bytes;
  uint32_t life;     // TransportContext::life: messages of an earlier one may still come
  uint32_t window;   // messages that may be sent and not acknowledged, at least kSlots
  uint32_t sockets;  // connections that messages take turns over, at least 1; the same at both ends
  std::chrono::milliseconds patience;  // without a sign of life a link counts as lost
  std::chrono::milliseconds retry{0};  // until a lost path is tried again; 0: never
  std::string peer_name;               // for messages
  XdcRoutes* routes = nullptr;         // hears which path is used; nullptr: nobody does
  uint32_t peer_datacenter = 0;
  LinkCounts* counts = nullptr;      // nullptr: nobody counts
  DeviceRuntime* runtime = nullptr;  // set for a CUDA rank, whose kernels use the slots
  int device = -1;                   // that rank's device
  bool has_checksums = false;        // PLEXUS_NET_CHECKSUM
};

/// The connections of one attempt, of one direction: opened one after the other, so that both ends
/// number them alike. `Socket`: NetSend or NetRecv.
template <class Socket>
class XdcSockets {
 public:
  /// Goes on until `count` are open and registered with `region`. `call` makes the next socket;
  /// `progress` goes on with it, as try_connect() does.
  template <class Call, class Advance>
  Result<void> open(size_t count, const plexus_net_region_t& region, Call call, Advance progress) {
    while (memory_.size() < count) {
      PLEXUS_DCHECK(sockets_.size() - memory_.size() <= 1, sockets_.size(), memory_.size());
      if (sockets_.size() == memory_.size()) {
        sockets_.push_back(call());
      }
      PLEXUS_TRY(state, progress(sockets_.back()));
      if (state == NetProgress::kPending) {
        break;
      }
      PLEXUS_TRY(memory, sockets_.back().register_memory(region));
      memory_.push_back(std::move(memory));
    }
    return ok();
  }
  /// Those that were called, whether open or not.
  [[nodiscard]] size_t called() const noexcept { return sockets_.size(); }
  [[nodiscard]] size_t opened() const noexcept { return memory_.size(); }
  /// The one that message `step` goes by.
  [[nodiscard]] Socket& at(uint64_t step) noexcept {
    PLEXUS_DCHECK(!sockets_.empty() && sockets_.size() == memory_.size(), sockets_.size());
    return sockets_[step % sockets_.size()];
  }
  [[nodiscard]] plexus_net_memory_t* memory_at(uint64_t step) noexcept {
    return memory_[step % memory_.size()].raw();
  }
  void close() noexcept {
    memory_.clear();  // goes before the connections
    sockets_.clear();
  }

 private:
  std::vector<Socket> sockets_;
  std::vector<NetMemory> memory_;  // registered with the first ones
};

/// What the two directions share: control messages, attempts, and a ring of messages.
class XdcPump : public Pump {
 public:
  using Options = XdcEndOptions;
  [[nodiscard]] const PumpFifo& fifo() const noexcept { return fifo_; }
  [[nodiscard]] std::string route() const { return "xdc/" + path().route; }
  [[nodiscard]] size_t held_bytes() const noexcept { return ring_messages_ * message_bytes_max(); }

 protected:
  enum class Kind : uint64_t { kListening, kAcks, kMove, kCalled, kTry, kReady, kSwitch };
  struct ControlMessage {
    Kind kind;
    uint64_t epoch;
    uint64_t count;  // kListening: messages that arrived; kMove: 1 = at once, 0 = when nothing
                     // comes; kAcks, kCalled: connections that were called; kSwitch: messages
                     // that were sent
    NetHandle handle;
    std::string route;  // kListening, kTry
  };
  enum class State : uint8_t { kLost, kOpening, kOpen };

  XdcPump(const ConnectionKey& key, XdcEndOptions options);

  /// The Fifo, and a ring of `messages`.
  Result<void> make_memory(size_t messages);
  Result<void> post(Kind kind, uint64_t epoch, uint64_t count, const NetHandle& handle = {});
  Result<std::optional<ControlMessage>> take_control_message();
  /// How long this rank did not call: silence meanwhile means nothing. 0: it was but a moment.
  Clock::duration was_away(Clock::time_point now);
  /// The path of the attempt that is not a trial, and of attempt `epoch`.
  [[nodiscard]] const NetSet::Path& path() const { return path_of(epoch_); }
  [[nodiscard]] const NetSet::Path& path_of(uint64_t epoch) const {
    return options_.paths[index_of(epoch)];
  }
  [[nodiscard]] size_t index_of(uint64_t epoch) const { return epoch % options_.paths.size(); }
  /// Goes by another path than the one that it prefers.
  [[nodiscard]] bool is_rerouted() const noexcept { return index_of(epoch_) != 0; }
  /// The attempt is open: counts for its path from here on.
  void note_open();
  /// For the log: "Socket 0 (eth0) > 0 (eth0) (12.3 MB)": a path, and what went by it.
  [[nodiscard]] std::string describe_use(uint64_t epoch) const;
  [[nodiscard]] std::byte* message(uint64_t step) const;
  [[nodiscard]] size_t message_bytes_max() const;
  /// The ring, and the buffer of acknowledgements, as plugins register them.
  [[nodiscard]] plexus_net_region_t ring_region() const;
  [[nodiscard]] plexus_net_region_t ack_region();
  [[nodiscard]] bool lacks_sizes() const { return !path().context->plugin().is_native(); }
  [[nodiscard]] NetRequest*& request(uint64_t step) { return requests_[step % ring_messages_]; }

  static constexpr int32_t kTag = 0;
  static constexpr auto kLookEvery = std::chrono::milliseconds(10);  // while the link seems well
  /// For the next step of opening an attempt.
  [[nodiscard]] std::chrono::milliseconds open_patience() const {
    return std::max(options_.patience, std::chrono::milliseconds(std::chrono::seconds(1)));
  }
  /// The same for the first connection by the last path that is left.
  static constexpr auto kLastPatience = std::chrono::seconds(120);

  ConnectionKey key_;
  XdcEndOptions options_;
  PumpFifo fifo_;
  std::unique_ptr<std::byte[]> ring_;
  size_t ring_messages_ = 0;
  std::vector<NetRequest*> requests_;  // [ring_messages_]
  uint64_t ack_buffer_ = 0;            // the number of messages that arrived
  NetRequest* ack_request_ = nullptr;
  State state_ = State::kLost;
  uint64_t epoch_ = 0;
  Clock::time_point look_at_{};          // for control messages, next
  std::vector<uint64_t> bytes_of_path_;  // that were sent, or arrived

 private:
  [[nodiscard]] uint64_t tag(bool to_receiver) const;
  Clock::time_point pumped_at_{};
};

class XdcSender final : public XdcPump {
 public:
  XdcSender(const ConnectionKey& key, XdcEndOptions options) : XdcPump(key, std::move(options)) {}
  Result<bool> progress_connect();
  Result<bool> progress() { return advance(Clock::now()); }
  [[nodiscard]] bool drained() const noexcept;
  [[nodiscard]] bool settled() const noexcept { return acked_ == filled_; }
  [[nodiscard]] bool seeks() const noexcept { return is_rerouted(); }
  void observe(StepObserver* observer) { observer_ = observer; }

 private:
  /// The connections of one attempt.
  struct Attempt {
    uint64_t epoch = 0;
    XdcSockets<NetSend> data = {};
    NetHandle data_handle{};
    std::optional<NetListen> listen = {};  // for acknowledgements
    XdcSockets<NetRecv> acks = {};         // one
    uint64_t announced_called =
        0;                    // connections that connect was called for, as the receiver knows
    bool may_accept = false;  // the receiver has called
    Clock::time_point open_until{};
    size_t steps = 0;  // of opening, that were seen: each gives it more time
    std::optional<Clock::time_point> ready_at = {};  // of a trial: both ends have opened it
  };

  Result<bool> advance(Clock::time_point now);
  bool take_filled();
  Result<void> follow_control_messages(Clock::time_point now);
  Result<void> check_count(uint64_t arrived) const;
  Result<Attempt> start(const ControlMessage& message, Clock::time_point until);
  Result<void> open(const ControlMessage& message, Clock::time_point now);
  Result<void> progress_open(Clock::time_point now);
  Result<NetProgress> try_open(Attempt& attempt);
  [[nodiscard]] Clock::duration time_to_open() const;
  Result<void> tell_called(Attempt& attempt);
  Result<void> start_trial(const ControlMessage& message, Clock::time_point now);
  Result<void> progress_trial(Clock::time_point now);
  Result<void> end_trial(const std::string& why);
  Result<void> go_by_trial(Clock::time_point now);
  [[nodiscard]] bool holds_back(Clock::time_point now) const;
  Result<bool> send_ring(Clock::time_point now);
  Result<bool> test_sent();
  Result<bool> take_acks(Clock::time_point now);
  Result<void> ask_when_silent(Clock::time_point now);
  NetStatus post_ack_buffer();
  Result<void> lose(std::string why);
  Result<void> count_loss(const ControlMessage& message);
  void drop();

  StepObserver* observer_ = nullptr;
  Attempt attempt_;
  bool has_begun_ = false;  // an attempt
  bool was_open_ = false;   // one was
  std::optional<Attempt> trial_;
  uint64_t filled_ = 0;    // steps in the ring
  uint64_t next_ = 0;      // the next to hand to the plugin
  uint64_t done_ = 0;      // steps the plugin is done with
  uint64_t acked_ = 0;     // steps that arrived
  uint64_t observed_ = 0;  // steps of which the observer knows that they were sent
  Clock::time_point progress_at_{};
  Clock::time_point ask_at_{};
  uint64_t losses_ = 0;  // since something was acknowledged
  uint64_t lost_ = 0;    // messages under way at these, until they are sent again
  std::string why_;      // the link was lost last
};

class XdcReceiver final : public XdcPump {
 public:
  XdcReceiver(const ConnectionKey& key, XdcEndOptions options) : XdcPump(key, std::move(options)) {}
  Result<bool> progress_connect();
  Result<bool> progress() { return advance(Clock::now()); }
  [[nodiscard]] bool drained() const noexcept {
    return state_ != State::kOpen || (acked_ == arrived_ && ack_request_ == nullptr);
  }
  [[nodiscard]] bool seeks() const noexcept { return is_rerouted(); }
  void expect(uint64_t messages) noexcept { expected_ += messages; }
  void observe(StepObserver* observer) { report_.observe(observer, fifo_, delivered_); }
  [[nodiscard]] const Error* broken() const noexcept { return broken_ ? &*broken_ : nullptr; }

 private:
  /// The connections of one attempt.
  struct Attempt {
    uint64_t epoch = 0;
    std::optional<NetListen> listen = {};
    XdcSockets<NetRecv> data = {};
    std::optional<NetHandle> ack_handle = {};  // where the sender listens for acknowledgements
    XdcSockets<NetSend> acks = {};             // one
    bool has_called = false;         // connect for the acknowledgements, and told the sender
    uint64_t senders_calls = 0;      // connections that the sender has called connect for
    Clock::time_point open_until{};  // of a trial
    bool is_ready = false;           // the sender knows that a trial is open
  };

  Result<bool> advance(Clock::time_point now);
  Result<void> follow_control_messages(Clock::time_point now);
  Result<void> follow(const ControlMessage& message, Clock::time_point now);
  Result<void> begin();
  Result<void> move(Clock::time_point now);
  Result<void> restart();
  [[nodiscard]] uint64_t next_epoch(size_t path) const;
  void lose(const Error& why, Clock::time_point now);
  void progress_open(Clock::time_point now);
  Result<NetProgress> try_open(Attempt& attempt);
  Result<void> seek(Clock::time_point now);
  Result<void> start_trial(Clock::time_point now);
  Result<void> progress_trial(Clock::time_point now);
  void end_trial(const std::string& why, Clock::time_point now);
  Result<void> go_by_trial(const ControlMessage& message, Clock::time_point now);
  bool post_free(Clock::time_point now);
  bool test_posted(Clock::time_point now);
  [[nodiscard]] Result<void> check_sums(const std::byte* message) const;
  Result<bool> deliver();
  void send_ack(Clock::time_point now);
  void drop();

  RecvReport report_;
  bool was_open_ = false;
  Attempt attempt_;
  std::optional<Attempt> trial_;
  uint64_t newest_epoch_ = 0;    // of all attempts, trials too
  uint64_t trials_ = 0;          // so far
  Clock::time_point seek_at_{};  // the next trial
  Clock::time_point back_at_{};  // when a trial succeeded last
  std::chrono::milliseconds retry_{0};
  bool asked_ = false;           // to move, when nothing comes
  std::vector<uint64_t> sizes_;  // [ring_messages_] of messages that arrived
  uint64_t expected_ = 0;        // steps that the calls so far take
  uint64_t posted_ = 0;
  uint64_t arrived_ = 0;
  uint64_t delivered_ = 0;  // steps that are in the Fifo
  uint64_t acked_ = 0;      // the last number told
  Clock::time_point quiet_since_{};
  Clock::time_point lost_at_{};
  std::string why_;  // the link was lost last
  std::optional<Error> broken_;
};

using XdcSendEnd = PumpedEnd<SendEnd, XdcSender>;
using XdcRecvEnd = PumpedEnd<RecvEnd, XdcReceiver>;

std::unique_ptr<SendEnd> make_xdc_send(EndRequest& request);
std::unique_ptr<RecvEnd> make_xdc_recv(EndRequest& request);
std::unique_ptr<DeviceEnd> make_xdc_on_device(EndRequest& request);

}  // namespace plexus
