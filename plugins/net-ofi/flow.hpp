// SPDX-License-Identifier: Apache-2.0
// A `Flow` is one direction of a link, and part of both ends of a connection: its place there, the
// small messages that maintain the connection (WireControl), and the detection of a peer that is
// gone.
//
// Threads: one at a time, which holds lock() but for open() and the destructor, because the flow
// of the other direction drives the same link. Only close() blocks, for a few milliseconds.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "plugins/net-ofi/deferred_close.hpp"
#include "plugins/net-ofi/endpoint.hpp"
#include "plugins/net-ofi/link.hpp"
#include "plugins/net-ofi/peer.hpp"
#include "plugins/support/log.hpp"

namespace plexus::net_ofi {

using Clock = std::chrono::steady_clock;

/// Registers the plugin's own host memory if the domain requires it.
class OwnMemory {
 public:
  OwnMemory() = default;
  [[nodiscard]] static Result<OwnMemory> create(Domain& domain, void* data, size_t size_bytes);
  OwnMemory(OwnMemory&& other) noexcept;
  OwnMemory& operator=(OwnMemory&& other) noexcept;
  ~OwnMemory();
  [[nodiscard]] void* descriptor() const noexcept {
    return registration_ == nullptr ? nullptr : ::fi_mr_desc(registration_);
  }

 private:
  MemoryCache* cache_ = nullptr;
  fid_mr* registration_ = nullptr;
};

class Flow final : private Link::Member {
 public:
  struct Options {
    const Device* device;
    const Settings* settings;  // copied
    Links* links;
    plugin::Log log;
    Direction direction;
    uint64_t peer;  // Links::number_of() of the peer
    uint32_t link;  // number of the link; kOut: the first to try
    uint32_t rails;
    uint32_t nonce;
  };

  [[nodiscard]] static Result<std::unique_ptr<Flow>> open(const Options& options);
  Flow(const Flow&) = delete;
  Flow& operator=(const Flow&) = delete;
  ~Flow();
  /// While it is held, the flow of the other direction does nothing.
  [[nodiscard]] std::unique_lock<std::mutex> lock() const {
    return std::unique_lock(link_->mutex());
  }

  // ---- connecting ----

  /// The greeting that describes this side, to be sealed.
  [[nodiscard]] Result<WireGreeting> make_greeting() const;
  /// Sends it once, over the first rail. kPending: call again.
  [[nodiscard]] Result<Progress> send_greeting(const WireGreeting& greeting,
                                               fi_addr_t to,
                                               uint64_t tag);
  [[nodiscard]] bool is_greeting_sent() const noexcept { return greeting_state_ == Sending::kSent; }
  /// Allows the greeting to be sent again.
  void forget_greeting() noexcept { greeting_state_ = Sending::kNot; }
  /// The listener that is greeted, if it is in this process: its endpoint stays open until it has
  /// answered, or this flow closes.
  void keep_open(std::shared_ptr<ListenEnd> listener) noexcept { greeted_ = std::move(listener); }
  /// That listener has ended before it answered.
  [[nodiscard]] bool is_deserted() const noexcept {
    return greeted_ != nullptr && greeted_->has_ended.load();
  }
  /// The peer's checked answer; nullopt: not received yet.
  [[nodiscard]] Result<std::optional<WireGreeting>> receive_greeting(const security::Key& key,
                                                                     const security::Nonce& asked);
  /// Stores the peer's addresses, process and name from its greeting. Drops rails that the peer
  /// lacks.
  [[nodiscard]] Result<void> meet(const WireGreeting& peer);
  [[nodiscard]] fi_addr_t peer_address(uint32_t rail) const noexcept { return rails_[rail].peer; }
  /// Not after close().
  [[nodiscard]] const Endpoint& endpoint(uint32_t rail) const noexcept {
    return link_->endpoint(rail);
  }
  [[nodiscard]] Domain& domain(uint32_t rail) const noexcept { return *device_.rails[rail]; }
  /// The accepting side's: how the peer proves itself on each rail. Without it a kReady ends the
  /// connection.
  void expect_ready(const security::Key& key, const Challenges& challenges);
  /// Number of rails on which the peer's kReady arrived.
  [[nodiscard]] uint32_t ready_rails() const noexcept { return ready_rails_; }

  // ---- connecting and connected ----

  /// Takes the events of operations that are no control messages; null: nobody does.
  void set_messages(EventSink* sink) noexcept { messages_ = sink; }
  /// Starts an operation, of which `messages` hears. 0, or libfabric's error; -FI_EAGAIN: not
  /// possible now.
  [[nodiscard]] ssize_t send(uint32_t rail, Bytes bytes, uint64_t tag, Operation& operation) {
    return is_open_
               ? note(endpoint(rail).send(bytes, peer_address(rail), tag, operation), operation)
               : -FI_ESHUTDOWN;
  }
  [[nodiscard]] ssize_t send_with_data(
      uint32_t rail, Bytes bytes, uint64_t data, uint64_t tag, Operation& operation) {
    return is_open_ ? note(endpoint(rail).send_with_data(bytes, data, peer_address(rail), tag,
                                                         operation),
                           operation)
                    : -FI_ESHUTDOWN;
  }
  [[nodiscard]] ssize_t receive(uint32_t rail, Bytes bytes, uint64_t tag, Operation& operation) {
    return is_open_ ? note(endpoint(rail).receive(bytes, tag, operation), operation)
                    : -FI_ESHUTDOWN;
  }
  /// Drives libfabric. False: there were no events of this flow since the last call.
  bool progress();
  /// False: not possible now, call again later.
  [[nodiscard]] bool send_control(ControlType type, uint64_t count) {
    return send_control({static_cast<uint32_t>(type), 0, count}, 0);
  }
  [[nodiscard]] bool send_control(const WireControl& message, uint32_t rail);
  [[nodiscard]] bool are_controls_sent() const noexcept { return free_controls_ == kControlSends; }
  /// To be called when progress() found nothing: checks from time to time that the peer is alive.
  void wait_idle();
  /// Why the connection cannot continue: the peer is gone, and nothing more of it arrives.
  [[nodiscard]] const Failure* ended() const noexcept { return has_ended_ ? &*reason_ : nullptr; }
  /// The peer is gone or has announced its close; earlier messages may still arrive.
  [[nodiscard]] const Failure* departure() const noexcept { return reason_ ? &*reason_ : nullptr; }
  /// Memory of this process that a NIC has written.
  struct ReadBack {
    uint64_t address;  // in the domain's addressing
    uint64_t key;
    uint64_t size_bytes;  // size of the range; its first bytes are read
  };
  /// Reads some of it through the NIC of `rail`, ordered after everything that the NIC has written.
  /// 0, or libfabric's error; -FI_EAGAIN: not possible now.
  [[nodiscard]] ssize_t read_back(uint32_t rail, ReadBack read, Operation& operation);
  /// Number of messages that the peer has received so far (kCredit).
  [[nodiscard]] uint64_t peer_count() const noexcept { return peer_count_; }

  [[nodiscard]] uint32_t rails() const noexcept { return rail_count_; }
  [[nodiscard]] const Tags& tags() const noexcept { return tags_; }
  [[nodiscard]] const std::string& peer() const noexcept { return peer_text_; }
  [[nodiscard]] const plugin::Log& log() const noexcept { return log_; }
  /// Leaves the link, after which no buffer is accessed. Sends kBye if the peer is there.
  void close(uint64_t count) noexcept;
  /// Whether the provider is shm.
  [[nodiscard]] bool is_shared_memory() const noexcept;

 private:
  static constexpr uint32_t kControlReceives = 8;
  static constexpr uint32_t kControlSends = 8;
  enum class Sending { kNot, kPosted, kSent };
  struct Rail {
    fi_addr_t peer = FI_ADDR_UNSPEC;
    fi_addr_t self = FI_ADDR_UNSPEC;  // set by the first read_back()
    OwnMemory memory;                 // registers `buffers_`
  };
  /// Memory that libfabric reads and writes for the flow, in one block.
  struct Buffers {
    std::array<WireControl, size_t{kRailsMax} * kControlReceives> incoming{};
    std::array<WireControl, kControlSends> outgoing{};
    WireGreeting greeting_out{};
    WireGreeting greeting_in{};
    std::array<uint64_t, kRailsMax> read_back{};  // target of reads; its contents are not used
  };

  explicit Flow(const Options& options);
  [[nodiscard]] Result<void> open_rails(const Options& options);
  [[nodiscard]] bool post_control_receive(uint32_t index);
  /// Notes an operation that has started if `result` is 0, and returns `result`.
  ssize_t note(ssize_t result, Operation& operation) noexcept;
  void take(const Event& event) override;
  void end_control_send(uint32_t index) noexcept;
  void take_control(const Event& event);
  void take_ready(const WireControl& ready, uint32_t rail);
  void take_error(const Event& event);
  void depart(Failure failure);
  void lose() override;
  void probe(Clock::time_point now);
  void say_bye(uint64_t count);
  /// Withdraws what has not ended. Some of it may be left, if libfabric is busy with it.
  void withdraw();

  const Device& device_;
  Settings settings_;
  plugin::Log log_;
  Tags tags_;
  WireProcess here_{};
  uint32_t nonce_;
  std::string peer_text_ = "the peer";
  PeerWatch watch_;

  std::unique_ptr<Buffers> buffers_;
  std::array<Operation, size_t{kRailsMax} * kControlReceives> control_receives_;
  std::array<Operation, kControlSends> control_sends_;
  std::array<bool, kControlSends> is_control_busy_{};
  uint32_t free_controls_ = kControlSends;
  Operation greeting_send_;
  Operation greeting_receive_;
  Sending greeting_state_ = Sending::kNot;
  std::optional<size_t> greeting_bytes_;  // size of the greeting that arrived
  std::vector<Rail> rails_;               // of the link; the first `rail_count_` are used
  uint32_t rail_count_;
  Operations operations_;  // that have not ended
  EventSink* messages_ = nullptr;
  bool has_completed_ = false;          // an operation has ended since the last progress()
  std::shared_ptr<ListenEnd> greeted_;  // null: not in this process, or it has answered
  std::shared_ptr<Link> link_;
  uint32_t link_number_;

  bool is_open_ = true;  // operations may be started
  bool has_left_ = false;
  bool is_met_ = false;
  bool is_peer_inside_ = false;  // in this process
  bool has_called_ = false;      // has tried to send a greeting, so the listener may know this side
  uint32_t ready_rails_ = 0;
  std::vector<WireControl> expected_ready_;  // [rails]; empty: none
  uint64_t peer_count_ = 0;
  std::optional<Failure> reason_;  // set once
  bool has_ended_ = false;
  uint32_t idle_calls_ = 0;
  Clock::time_point last_event_;
  Clock::time_point last_look_;
  Clock::time_point next_probe_;
  std::optional<Clock::time_point> refused_since_;  // since when probes cannot be sent
  Clock::duration probe_pause_;
};

}  // namespace plexus::net_ofi
