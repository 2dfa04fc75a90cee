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
// fetched when the executor waits for it, to where it wants it.
//
// The receiver listens and posts a control message: the plugin's handle, whether it wants an
// answer, and the route as it sees it (net, devices). The sender compares the route with its own
// before it connects. Libraries of NCCL's ABI may block in accept, so there the sender answers when
// it has called connect, and only then the receiver accepts.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>

#include "core/bootstrap/exchange.hpp"
#include "core/plugin/net_plugin.hpp"
#include "core/transport/connection.hpp"
#include "core/transport/direct.hpp"
#include "core/transport/net_message.hpp"
#include "core/transport/net_set.hpp"

namespace plexus {

struct NetEndOptions {
  Exchange* exchange;
  NetSet::Path path;
  uint32_t slot_bytes;
  std::string peer_name;             // for messages
  DeviceRuntime* runtime = nullptr;  // of a CUDA rank, whose kernels fill and empty the slots
  int device = -1;                   // of that rank
  bool* gdr_refused = nullptr;       // of the rank with the network device: tried once, in vain
};

/// An end that no network can connect: connecting says why.
class UnreachableEnd final : public ConnectionEnd {
 public:
  UnreachableEnd(const ConnectionKey& key, Error why) : ConnectionEnd(key), why_(std::move(why)) {}
  Result<bool> progress_connect() override { return why_.clone(); }

 private:
  Error why_;
};

/// What both directions share: slots in registered memory.
class NetEnd : public ConnectionEnd {
 protected:
  /// A connection's registrations; they go before it.
  struct Registrations {
    std::optional<NetMemory> host;
    std::optional<NetMemory> gpu;  // of the payloads, where they lie in GPU memory
    [[nodiscard]] plexus_net_memory_t* of_payload() const {
      return gpu.has_value() ? gpu->raw() : host->raw();
    }
  };
  using Register = std::function<Result<NetMemory>(const plexus_net_region_t&)>;

  NetEnd(const ConnectionKey& key, NetEndOptions options);
  /// Makes and registers slots, for payloads on the GPU when the path says so and all agree.
  Result<void> make_slots(Registrations& registrations, const Register& add);
  /// What goes first, in host memory: the header, and the payload behind it unless that is apart.
  [[nodiscard]] std::byte* slot(uint64_t step) const;
  [[nodiscard]] std::byte* payload(uint64_t step) const;
  [[nodiscard]] size_t slot_stride() const;
  /// Of a whole message.
  [[nodiscard]] size_t message_bytes_max() const;
  [[nodiscard]] Fifo& fifo() const;
  [[nodiscard]] Error failed(Error error) const;
  [[nodiscard]] DeviceView view() const;

  NetEndOptions options_;
  uint64_t identity_;  // of the connection, in every header
  /// Payloads go between user memory and the network without a stop in a slot.
  bool takes_pieces_;
  std::shared_ptr<LocalFifo> memory_;
  DeviceMemory payloads_;                       // null: in `memory_`, behind the headers
  std::array<NetRequest*, kSlots> requests_{};  // of messages, or of payloads that travel apart
  std::array<NetRequest*, kSlots> headers_{};   // of headers that do; null: done

 private:
  Result<void> make_payloads(Registrations& registrations, const Register& add);
};

class NetSendEnd final : public NetEnd {
 public:
  NetSendEnd(const ConnectionKey& key, NetEndOptions options) : NetEnd(key, std::move(options)) {}
  Result<bool> progress_connect() override;
  Result<bool> progress_pump() override;
  [[nodiscard]] bool drained() noexcept override;

 private:
  Result<bool> take_control_message();
  Result<bool> send_filled();
  [[nodiscard]] NetStatus send_step(const SlotHeader& header);
  Result<bool> test_sent();

  std::optional<NetSend> net_;
  Registrations registrations_;
  bool is_asked_to_answer_ = false;
  bool header_sent_ = false;  // of the step that is next, whose payload is not
  uint64_t sent_ = 0;         // steps handed to the plugin
  uint64_t done_ = 0;         // steps the plugin is done with
};

class NetRecvEnd final : public NetEnd {
 public:
  NetRecvEnd(const ConnectionKey& key, NetEndOptions options) : NetEnd(key, std::move(options)) {}
  Result<bool> progress_connect() override;
  Result<bool> progress_pump() override;
  void expect(uint64_t messages) noexcept override { expected_ += messages; }
  void observe(StepObserver* observer) override;
  [[nodiscard]] const Error* broken() const noexcept override {
    return broken_ ? &*broken_ : nullptr;
  }

 private:
  Result<void> start_listening();
  Result<bool> post_free();
  [[nodiscard]] bool may_post() const;
  [[nodiscard]] NetStatus post_step();
  [[nodiscard]] NetStatus post_landing();
  Result<bool> test_posted();
  [[nodiscard]] NetStatus test_step(uint64_t& size_bytes);
  [[nodiscard]] MessageSource source() const {
    return {.peer_name = options_.peer_name,
            .may_lack_sizes = !options_.path.context->plugin().is_native()};
  }
  [[nodiscard]] bool flush_received(uint32_t payload_bytes);
  bool announce_flushed();
  void tell_taken();

  std::optional<NetListen> listen_;
  std::optional<NetRecv> net_;
  Registrations registrations_;
  bool awaits_answer_ = false;                   // that the sender has called connect
  std::array<NetRequest*, kSlots> flushes_{};    // null: none needed, or done
  std::array<uint64_t, kSlots> header_bytes_{};  // of headers that travel apart
  std::array<std::byte*, kSlots> landings_{};    // of payloads in user memory; null: in slots
  bool header_posted_ = false;                   // of the step that is next, whose payload is not
  uint64_t expected_ = 0;                        // steps that the calls so far take
  uint64_t posted_ = 0;                          // steps whose slot waits for a message
  uint64_t received_ = 0;                        // steps that the plugin is done with
  uint64_t arrived_ = 0;                         // steps that arrived, and are flushed
  uint64_t told_ = 0;                 // steps of which the observer knows that they were taken
  std::optional<Error> cannot_post_;  // what is posted or received already may still be messages
  std::optional<Error> broken_;
};

}  // namespace plexus
