// SPDX-License-Identifier: Apache-2.0
// Both ends of a connection have a `Channel`: one endpoint per rail, the small messages that keep
// the connection (WireControl), and the knowledge whether the peer is still there.
//
// Threads: one at a time. Nothing blocks but close(), for a moment.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plugins/net-ofi/endpoint.hpp"
#include "plugins/net-ofi/peer.hpp"
#include "plugins/support/log.hpp"

namespace plexus::net_ofi {

using Clock = std::chrono::steady_clock;

/// Registers host memory of ours where the domain wants that.
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

class Channel {
 public:
  /// Takes the events of messages.
  class Sink {
   public:
    virtual void take(const Event& event) = 0;

   protected:
    ~Sink() = default;
  };
  struct Options {
    const Device* device;
    const Settings* settings;  // copied
    plugin::Log log;
    uint32_t rails;
    uint32_t nonce;
  };

  [[nodiscard]] static Result<std::unique_ptr<Channel>> open(const Options& options);
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  ~Channel();

  // ---- while connecting ----

  /// What this side says of itself.
  [[nodiscard]] Result<WireGreeting> make_greeting(const Cookie& cookie) const;
  /// Sends it over the first rail, once. kPending: again.
  [[nodiscard]] Result<Progress> send_greeting(const WireGreeting& greeting,
                                               fi_addr_t to,
                                               uint64_t tag);
  [[nodiscard]] bool is_greeting_sent() const noexcept { return greeting_state_ == Sending::kSent; }
  /// Lets it be sent once more.
  void forget_greeting() noexcept { greeting_state_ = Sending::kNot; }
  /// The peer's answer, checked. Empty: not here yet.
  [[nodiscard]] Result<std::optional<WireGreeting>> receive_greeting(const Cookie& cookie);
  /// From here the peer is known: its addresses, its process, its name. Takes off rails it lacks.
  [[nodiscard]] Result<void> meet(const WireGreeting& peer);
  [[nodiscard]] fi_addr_t peer_address(uint32_t rail) const noexcept { return rails_[rail].peer; }
  [[nodiscard]] const Endpoint& endpoint(uint32_t rail) const noexcept {
    return rails_[rail].endpoint;
  }
  /// Rails on which the peer's kReady came.
  [[nodiscard]] uint32_t ready_rails() const noexcept { return ready_rails_; }

  // ---- always ----

  /// Lets libfabric work, takes events. False: none came.
  bool progress(Sink* sink);
  /// False: not now, call again later.
  [[nodiscard]] bool send_control(ControlType type, uint64_t count, uint32_t rail = 0);
  [[nodiscard]] bool are_controls_sent() const noexcept { return free_controls_ == kControlSends; }
  /// To be called when progress() found nothing: looks whether the peer lives, now and then.
  void wait_idle();
  /// Why the connection cannot go on: the peer is gone and nothing more of it arrives.
  [[nodiscard]] const Failure* ended() const noexcept { return has_ended_ ? &*reason_ : nullptr; }
  /// The peer is gone or said that it closes; what it sent before may still arrive.
  [[nodiscard]] const Failure* departure() const noexcept { return reason_ ? &*reason_ : nullptr; }
  /// Memory of this process that a card has written.
  struct ReadBack {
    uint64_t address;  // as the domain counts
    uint64_t key;
    uint64_t size_bytes;  // the first ones of it are read
  };
  /// Reads some of it through the card of `rail`, behind all that the card has written. 0, or
  /// libfabric's error; -FI_EAGAIN: not now.
  [[nodiscard]] ssize_t read_back(uint32_t rail, ReadBack read, Operation& operation);
  /// Messages the peer has received in all (kCredit).
  [[nodiscard]] uint64_t peer_count() const noexcept { return peer_count_; }

  [[nodiscard]] uint32_t rails() const noexcept { return static_cast<uint32_t>(rails_.size()); }
  [[nodiscard]] const Tags& tags() const noexcept { return tags_; }
  [[nodiscard]] const std::string& peer() const noexcept { return peer_text_; }
  [[nodiscard]] const plugin::Log& log() const noexcept { return log_; }
  /// Closes the endpoints: no buffer is touched any more. With a good bye when the peer is there.
  void close(uint64_t count) noexcept;
  /// Of the provider shm.
  [[nodiscard]] bool is_shared_memory() const noexcept;
  [[nodiscard]] bool is_open() const noexcept { return is_open_; }

 private:
  static constexpr uint32_t kControlReceives = 8;
  static constexpr uint32_t kControlSends = 8;
  enum class Sending { kNot, kPosted, kSent };
  struct Rail {
    Endpoint endpoint;
    fi_addr_t peer = FI_ADDR_UNSPEC;
    fi_addr_t self = FI_ADDR_UNSPEC;  // once something was read back
    OwnMemory memory;                 // of `buffers_`
    bool is_shared_memory = false;
  };
  /// What libfabric reads and writes for us, in one block.
  struct Buffers {
    std::array<WireControl, kRailsMax * kControlReceives> incoming{};
    std::array<WireControl, kControlSends> outgoing{};
    WireGreeting greeting_out{};
    WireGreeting greeting_in{};
    std::array<uint64_t, kRailsMax> read_back{};  // nobody looks at it
  };

  Channel(const Options& options);
  [[nodiscard]] Result<void> open_rails(const Options& options);
  [[nodiscard]] bool post_control_receive(uint32_t index);
  void take(const Event& event, Sink* sink);
  void take_control(const Event& event);
  void take_error(const Event& event, Sink* sink);
  void depart(Failure failure);
  void probe(Clock::time_point now);

  Settings settings_;
  plugin::Log log_;
  Tags tags_;
  WireProcess here_{};
  uint32_t nonce_;
  std::string peer_text_ = "the peer";
  PeerWatch watch_;

  std::unique_ptr<Buffers> buffers_;
  std::array<Operation, kRailsMax * kControlReceives> control_receives_;
  std::array<Operation, kControlSends> control_sends_;
  std::array<bool, kControlSends> is_control_busy_{};
  uint32_t free_controls_ = kControlSends;
  Operation greeting_send_;
  Operation greeting_receive_;
  Sending greeting_state_ = Sending::kNot;
  std::optional<size_t> greeting_bytes_;  // arrived
  std::vector<Rail> rails_;               // after what their operations use

  bool is_open_ = true;
  bool is_met_ = false;
  bool is_peer_inside_ = false;  // in this very process
  bool has_called_ = false;      // tried to send a greeting: the listener may know of us
  uint32_t ready_rails_ = 0;
  uint64_t peer_count_ = 0;
  std::optional<Failure> reason_;  // set once
  bool has_ended_ = false;
  uint32_t idle_calls_ = 0;
  Clock::time_point last_event_;
  Clock::time_point last_look_;
  Clock::time_point next_probe_;
  std::optional<Clock::time_point> refused_since_;  // probes that could not be sent
  Clock::duration probe_pause_;
};

}  // namespace plexus::net_ofi
