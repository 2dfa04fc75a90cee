// SPDX-License-Identifier: Apache-2.0
// A `Flow` is one direction of a link, and part of both ends of a connection: the small messages
// that maintain it (WireControl), the detection of a peer that is gone, and the end. What it has
// under way is in its `Rails`, how it comes to be in its `Greetings`.
//
//   PLEXUS_TRY(flow, Flow::open(options));
//   const auto lock = flow->lock();
//   flow->rails().send(0, bytes, flow->tags().make(TagKind::kMessage, tag), operation);
//   if (!flow->progress()) {
//     flow->wait_idle();  // may find that the peer is gone: ended()
//   }
//
// Threads: one at a time, which holds lock() but for open() and the destructor, because the flow
// of the other direction drives the same link. Only close() blocks, for a few milliseconds.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "plugins/net-ofi/greetings.hpp"
#include "plugins/net-ofi/peer.hpp"
#include "plugins/net-ofi/rails.hpp"
#include "plugins/support/log.hpp"

namespace plexus::net_ofi {

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
    return std::unique_lock(rails_.link()->mutex());
  }

  [[nodiscard]] Rails& rails() noexcept { return rails_; }
  [[nodiscard]] Greetings& greetings() noexcept { return greetings_; }
  /// Stores the peer's addresses, process and name from its greeting. Drops rails that the peer
  /// lacks.
  [[nodiscard]] Result<void> meet(const WireGreeting& peer);
  /// Takes the events of operations that are no control messages; null: nobody does.
  void set_messages(EventSink* sink) noexcept { messages_ = sink; }
  /// Drives libfabric. False: there were no events of this flow since the last call.
  bool progress();
  /// False: not possible now, call again later.
  [[nodiscard]] bool send_control(const WireControl& message, uint32_t rail = 0);
  [[nodiscard]] bool are_controls_sent() const noexcept { return free_controls_ == kControlSends; }
  /// To be called when progress() found nothing: checks from time to time that the peer is alive.
  void wait_idle();
  /// Why the connection cannot continue: the peer is gone, and nothing more of it arrives.
  [[nodiscard]] const Failure* ended() const noexcept { return has_ended_ ? &*reason_ : nullptr; }
  /// The peer is gone or has announced its close; earlier messages may still arrive.
  [[nodiscard]] const Failure* departure() const noexcept { return reason_ ? &*reason_ : nullptr; }
  /// Number of messages that the peer has received so far (kCredit).
  [[nodiscard]] uint64_t peer_count() const noexcept { return peer_count_; }

  [[nodiscard]] const Tags& tags() const noexcept { return tags_; }
  [[nodiscard]] const std::string& peer() const noexcept { return peer_text_; }
  [[nodiscard]] const plugin::Log& log() const noexcept { return log_; }
  /// Leaves the link, after which no buffer is accessed. Sends kBye if the peer is there.
  void close(uint64_t count) noexcept;
  /// Whether the provider is shm.
  [[nodiscard]] bool is_shared_memory() const noexcept {
    return rails_.domain(0).provider() == "shm";
  }

 private:
  explicit Flow(const Options& options);
  [[nodiscard]] Result<void> post_receives(Direction direction);
  [[nodiscard]] bool post_control_receive(uint32_t index);
  void take(const Event& event) override;
  void end_control_send(uint32_t index) noexcept;
  void take_control(const Event& event);
  void take_error(const Event& event);
  void depart(Failure failure);
  void lose() override;
  void say_bye(uint64_t count);

  plugin::Log log_;
  Tags tags_;
  WireProcess here_{};
  uint32_t nonce_;
  std::string peer_text_ = "the peer";
  PeerWatch watch_;

  Rails rails_;
  Greetings greetings_;
  std::array<Operation, size_t{kRailsMax} * kControlReceives> control_receives_;
  std::array<Operation, kControlSends> control_sends_;
  std::array<bool, kControlSends> is_control_busy_{};
  uint32_t free_controls_ = kControlSends;
  EventSink* messages_ = nullptr;

  bool has_completed_ = false;  // an operation has ended since the last progress()
  bool has_left_ = false;
  bool is_met_ = false;
  bool is_peer_inside_ = false;  // in this process
  uint64_t peer_count_ = 0;
  std::optional<Failure> reason_;  // set once
  bool has_ended_ = false;
  uint32_t idle_calls_ = 0;
  PeerTimer timer_;
};

}  // namespace plexus::net_ofi
