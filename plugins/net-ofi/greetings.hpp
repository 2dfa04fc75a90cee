// SPDX-License-Identifier: Apache-2.0
// What the two sides of a connection tell each other before it is one: a greeting from either side,
// and from the connecting one a proof over each rail. Belongs to a Flow, whose events it takes;
// Listener and Connector (connect.hpp) say what happens when.
//
// Threads: one at a time, which holds the link's lock.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "plugins/net-ofi/deferred_close.hpp"
#include "plugins/net-ofi/rails.hpp"
#include "plugins/net-ofi/wire.hpp"

namespace plexus::net_ofi {

class Greetings {
 public:
  /// `nonce`: of all tags of the connection.
  Greetings(Rails& rails, const WireProcess& here, uint32_t nonce);
  /// Number of the link between the two origins.
  void set_link(uint32_t link) noexcept { link_ = link; }
  /// The greeting that describes this side, to be sealed.
  [[nodiscard]] Result<WireGreeting> make() const;
  /// Sends it once, over the first rail. kPending: call again.
  [[nodiscard]] Result<Progress> send(const WireGreeting& greeting, fi_addr_t to, uint64_t tag);
  /// Allows the greeting to be sent again.
  void forget() noexcept { state_ = Sending::kNot; }
  /// Has tried to send one, so the listener may know this side.
  [[nodiscard]] bool has_called() const noexcept { return has_called_; }

  /// Posts the receive of the peer's answer.
  [[nodiscard]] Result<void> expect_answer(uint64_t tag);
  /// The peer's checked answer; nullopt: not received yet.
  [[nodiscard]] Result<std::optional<WireGreeting>> answer(const security::Key& key,
                                                           const security::Nonce& asked) const;
  /// The listener that is greeted, if it is in this process: its endpoint stays open until it has
  /// answered, or the flow closes.
  void keep_open(std::shared_ptr<ListenEnd> listener) noexcept { greeted_ = std::move(listener); }
  /// Null: not in this process, or it has answered.
  [[nodiscard]] const std::shared_ptr<ListenEnd>& greeted() const noexcept { return greeted_; }

  /// The accepting side's: how the peer proves itself on each rail. Without it a kReady ends the
  /// connection.
  void expect_ready(const security::Key& key, const Challenges& challenges);
  /// False: no proof.
  [[nodiscard]] bool take_ready(const WireControl& ready, uint32_t rail);
  /// The peer's kReady has arrived on every rail.
  [[nodiscard]] bool is_ready() const noexcept {
    return ready_rails_ == (1u << rails_.count()) - 1;
  }
  /// An operation of kGreetingSend or kGreetingReceive has ended.
  void note_end(const Event& event) noexcept;

 private:
  enum class Sending { kNot, kPosted, kSent };
  Rails& rails_;
  WireProcess here_;
  uint32_t nonce_;
  uint32_t link_ = 0;
  Operation send_;
  Operation receive_;
  Sending state_ = Sending::kNot;
  bool has_called_ = false;
  std::optional<size_t> answer_bytes_;  // size of the greeting that arrived
  std::shared_ptr<ListenEnd> greeted_;
  uint32_t ready_rails_ = 0;
  std::vector<WireControl> expected_ready_;  // [rails]; empty: none
};

}  // namespace plexus::net_ofi
