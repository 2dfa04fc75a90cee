// SPDX-License-Identifier: Apache-2.0
// The net transport: a connection through a net plugin. The executor fills and empties the slots of
// a private Fifo; the pump, called by the same thread between its turns, sends and receives them.
//
// A message is a 64-byte NetHeader (the slot's header) and the payload, contiguous in
// registered memory, so that a slot costs one isend and one irecv. Where the payload of an end is
// to lie in GPU memory (`Path::apart`, the same at both ends), header and payload are two messages
// with two tags, and the payload lies where each end has it: in memory of its GPU that is
// registered with the plugin, or, when the plugin or the GPU refuses, in host memory as ever. What
// was received into GPU memory is flushed before the slot counts as filled.
//
// A receive is posted for each message that the calls under way still take, as far as there are
// slots, and for no other: when a call ends, so has every receive that was posted. Some plugins
// share what lies below between connections, and lose it when one is closed with receives posted.
//
// A host rank's payloads travel between its user's memory and a plugin that takes pieces without a
// stop in a slot: what the executor passes by address is sent from where it lies, and a message is
// fetched when the executor waits for it, to where it wants it. Where the plugin gathers registered
// memory, payloads in what the user registered are sent from where they lie; what arrives goes
// through slots, and so does what is not registered, copied here in place of by the executor.
//
// The receiver listens and posts a control message: the plugin's handle, whether it wants an
// answer, and the route as it sees it (net, devices). The sender compares the route with its own
// before it connects. Libraries of NCCL's ABI may block in accept, so there the sender answers when
// it has called connect, and only then the receiver accepts. They may also block in isend and test
// until the peer has accepted (FastSocket), as NCCL makes all connections of a call before it sends
// anything: the sender hands over no message before the receiver has said that it has accepted.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "core/control/exchange.hpp"
#include "core/plugin/net_plugin.hpp"
#include "core/transport/network/net_message.hpp"
#include "core/transport/network/net_set.hpp"
#include "core/transport/network/pumped_end.hpp"
#include "core/transport/network/recv_report.hpp"
#include "core/transport/network/registered_memory.hpp"
#include "core/transport/transport_table.hpp"

namespace plexus {

/// The slots of one rank's ends, in GPU memory where that is possible.
struct NetEndOptions {
  Exchange* exchange;
  NetSet::Path path;
  uint32_t slot_bytes;
  std::string peer_name;             // for messages
  DeviceRuntime* runtime = nullptr;  // set for a CUDA rank, whose kernels use the slots
  int device = -1;                   // that rank's device
  // Shared by the rank's ends on this network device: it refused GPU memory, do not try again.
  bool* gdr_refused = nullptr;
  bool has_checksums = false;              // PLEXUS_NET_CHECKSUM
  RegisteredMemory* registered = nullptr;  // of host ranks; nullptr: all is copied to slots
};

/// What both directions share: slots in registered memory.
class NetPump : public Pump {
 public:
  using Options = NetEndOptions;
  [[nodiscard]] const PumpFifo& fifo() const noexcept { return fifo_; }
  [[nodiscard]] std::string route() const { return "net/" + options_.path.route; }
  [[nodiscard]] size_t held_bytes() const noexcept {
    return payloads_ == nullptr ? 0 : payloads_bytes();
  }

 protected:
  /// A connection's registrations; they go before it.
  struct Registrations {
    std::optional<NetMemory> host;
    std::optional<NetMemory> gpu;  // payloads that lie in GPU memory
    [[nodiscard]] plexus_net_memory_t* of_payload() const {
      return gpu.has_value() ? gpu->raw() : host->raw();
    }
  };
  using Register = std::function<Result<NetMemory>(const plexus_net_region_t&)>;
  [[nodiscard]] size_t payloads_bytes() const noexcept;

  NetPump(const ConnectionKey& key, NetEndOptions options);
  /// Makes and registers slots, for payloads on the GPU when the path says so and all agree.
  Result<void> make_slots(Registrations& registrations, const Register& add);
  /// Header and payload.
  [[nodiscard]] size_t message_bytes_max() const { return sizeof(NetHeader) + options_.slot_bytes; }
  [[nodiscard]] Error failed(Error error) const;
  /// "isend of plugin socket on device 0 (eth0) to rank 1 (node2:1234)".
  [[nodiscard]] std::string describe_entry(std::string_view entry) const;

  ConnectionKey key_;
  NetEndOptions options_;
  uint64_t identity_;  // the connection's number, in every header
  /// Payloads go between user memory and the network without a stop in a slot.
  bool takes_pieces_;
  DeviceMemory payloads_;  // null: in the slots of `fifo_`, behind the headers
  PumpFifo fifo_;
  std::array<NetRequest*, kSlots> requests_{};  // messages, or payloads that travel apart
  std::array<NetRequest*, kSlots> headers_{};   // headers that travel apart; null: done

 private:
  Result<void> make_payloads(Registrations& registrations, const Register& add);
};

class NetSender final : public NetPump {
 public:
  NetSender(const ConnectionKey& key, NetEndOptions options);
  ~NetSender();
  NetSender(const NetSender&) = delete;
  NetSender& operator=(const NetSender&) = delete;
  Result<bool> progress_connect();
  Result<bool> progress();
  [[nodiscard]] bool drained() const noexcept { return done_ == sent_ && !fifo_.is_filled(sent_); }
  [[nodiscard]] const Error* broken() const noexcept { return broken_ ? &*broken_ : nullptr; }
  [[nodiscard]] std::optional<HeldUp> held_up() const;
  void observe(StepObserver* observer) { observer_ = observer; }
  [[nodiscard]] Reach reach() const noexcept {
    return takes_pieces_ || gathers_ ? Reach::kProcess : Reach::kNothing;
  }

 private:
  Result<bool> take_control_message();
  Result<bool> try_connect();
  bool send_filled();
  [[nodiscard]] NetStatus send_step(const SlotHeader& header);
  [[nodiscard]] NetStatus send_from_user(const SlotHeader& header);
  [[nodiscard]] uint32_t sum_of(const SlotHeader& header);
  bool test_sent();

  /// Payloads in registered user memory leave from there.
  bool gathers_;
  std::optional<NetSend> net_;
  Registrations registrations_;
  // Registrations of user memory that messages under way are sent from.
  std::array<RegisteredMemory::Held, kSlots> sources_;
  uint64_t gathered_bytes_ = 0;     // sent from there
  uint64_t gathered_messages_ = 0;  // likewise
  StepObserver* observer_ = nullptr;
  bool is_asked_to_answer_ = false;
  bool is_connected_ = false;
  bool awaits_accept_ = false;   // that the receiver has accepted
  std::optional<Error> broken_;  // nothing can be sent any more
  bool header_sent_ = false;     // of the next step the header is, the payload is not
  bool is_refused_ = false;      // the plugin had no room for the next step
  uint64_t sent_ = 0;            // steps handed to the plugin
  uint64_t done_ = 0;            // steps the plugin is done with
  uint64_t summed_ = 0;          // steps whose payload was summed: the last one in `sum_`
  uint32_t sum_ = 0;
  uint64_t copied_ = 0;  // steps whose payload in user memory was looked at and copied to the slot
};

class NetReceiver final : public NetPump {
 public:
  /// `reader`: the executor, which says where it wants the next message; nullptr: a kernel.
  NetReceiver(const ConnectionKey& key,
              NetEndOptions options,
              const RecvConnection* reader = nullptr)
      : NetPump(key, std::move(options)), reader_(reader) {}
  Result<bool> progress_connect();
  Result<bool> progress();
  void expect(uint64_t messages) noexcept { expected_ += messages; }
  void observe(StepObserver* observer) { report_.observe(observer, fifo_, arrived_); }
  [[nodiscard]] const Error* broken() const noexcept { return broken_ ? &*broken_ : nullptr; }
  [[nodiscard]] std::optional<HeldUp> held_up() const;

 private:
  Result<void> start_listening();
  Result<bool> post_free();
  [[nodiscard]] bool may_post() const;
  [[nodiscard]] NetStatus post_step();
  [[nodiscard]] NetStatus post_landing();
  Result<bool> test_posted();
  [[nodiscard]] NetStatus test_step(uint64_t& size_bytes);
  [[nodiscard]] Result<NetHeader> check_received(uint64_t size_bytes) const;
  [[nodiscard]] MessageSource source(uint64_t step) const {
    return {.peer_name = options_.peer_name,
            .step = step,
            .may_lack_sizes = !options_.path.context->plugin().is_native()};
  }
  /// An Error: the network changed the message of the step that was received.
  [[nodiscard]] Result<void> check_sums() const;
  [[nodiscard]] bool flush_received(uint32_t payload_bytes);
  bool announce_flushed();

  const RecvConnection* reader_;
  RecvReport report_;
  std::optional<NetListen> listen_;
  std::optional<NetRecv> net_;
  Registrations registrations_;
  bool awaits_answer_ = false;                   // that the sender has called connect
  std::array<NetRequest*, kSlots> flushes_{};    // null: none needed, or done
  std::array<uint64_t, kSlots> header_bytes_{};  // sizes of headers that travel apart
  std::array<std::byte*, kSlots> landings_{};    // payloads in user memory; null: in slots
  std::array<size_t, kSlots> landing_bytes_{};   // room there; what is more goes to the slot
  bool header_posted_ = false;  // of the next step the header is, the payload is not
  bool is_refused_ = false;     // the plugin had no room for the next step's buffer
  uint64_t expected_ = 0;       // steps that the calls so far take
  uint64_t posted_ = 0;         // steps whose slot waits for a message
  uint64_t received_ = 0;       // steps that the plugin is done with
  uint64_t arrived_ = 0;        // steps that arrived, and are flushed
  // Messages that were posted before this may still arrive; then the connection is broken.
  std::optional<Error> cannot_post_;
  std::optional<Error> broken_;
};

using NetSendEnd = PumpedEnd<SendEnd, NetSender>;
using NetRecvEnd = PumpedEnd<RecvEnd, NetReceiver>;
extern template class PumpedEnd<SendEnd, NetSender>;
extern template class PumpedEnd<RecvEnd, NetReceiver>;
extern template class PumpedEnd<DeviceEnd, NetSender>;
extern template class PumpedEnd<DeviceEnd, NetReceiver>;

std::unique_ptr<SendEnd> make_net_send(EndRequest& request);
std::unique_ptr<RecvEnd> make_net_recv(EndRequest& request);
std::unique_ptr<DeviceEnd> make_net_on_device(EndRequest& request);

}  // namespace plexus
