// SPDX-License-Identifier: Apache-2.0
// The rails of an end, and what becomes of them.
//
// A rail is lost when a queue pair fails or a port goes down, at either end. Each end stops its
// queue pairs, the receiver takes what had arrived, and then each says so. When an end has stopped
// its own and knows that the other has, no write of that rail can happen any more, and what the
// receiver has not got, by its own account, is sent over the others. The sending end offers a lost
// rail again, with new queue pairs, until a probe comes through.
//
// Threads: one at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plugins/net-ib/rail.hpp"
#include "plugins/support/log.hpp"

namespace plexus::net_ib {

class RailSet {
 public:
  /// The end that has the rails.
  class End {
   public:
    virtual ~End() = default;
    /// Takes some completions of a rail. True: there were some.
    virtual bool drain(uint32_t rail) = 0;
    /// The rail is stopped at both ends: what was under way is to be sent over the others, but for
    /// what is here, `done` says, when this is the sender.
    virtual void resend(uint32_t rail, const WireDone& done) = 0;
    virtual void write_done(WireDone& done) const = 0;
    virtual void read_control() = 0;
    virtual void send_control(const WireControl& control) = 0;
    [[nodiscard]] virtual bool has_peer_left() const noexcept = 0;
    virtual void break_off(Failure failure) = 0;
    [[nodiscard]] virtual bool is_broken() const noexcept = 0;
  };
  struct Options {
    const plugin::Log& log;
    Role role;
    const std::string& peer_name;
    uint64_t peer_area;
  };
  /// What `options` name is the end's, and lives as long.
  RailSet(std::vector<std::unique_ptr<Rail>> rails, const Options& options, End& end);

  [[nodiscard]] uint32_t count() const noexcept { return static_cast<uint32_t>(slots_.size()); }
  [[nodiscard]] Rail& rail(uint32_t index) const noexcept { return *slots_[index].rail; }
  [[nodiscard]] bool is_up(uint32_t index) const noexcept {
    return slots_[index].state == State::kUp;
  }
  [[nodiscard]] bool is_stopping(uint32_t index) const noexcept {
    return slots_[index].state == State::kStopping;
  }
  [[nodiscard]] bool is_proving(uint32_t index) const noexcept {
    return slots_[index].state == State::kProving;
  }
  /// Number of them that are up.
  [[nodiscard]] uint32_t up() const noexcept;

  /// A rail does not work, for the reason `why`.
  void lose(uint32_t index, const std::string& why);
  /// Posting failed with errno `error`.
  void lose_posting(uint32_t index, int error);
  /// Tells the peer that the rail is stopped here, when all that had arrived is taken: what is not
  /// reported as here comes again.
  void try_report_stop(uint32_t index);
  void watch_ports();
  /// Breaks the connection off if a rail does not end what was under way when it was lost.
  void check_stops();
  /// The sender's: makes new queue pairs of rails that are down.
  void offer_lost();
  /// A message of the peer about a rail that there is.
  void take_control(const WireControl& control);
  /// A probe came through.
  void take_up(uint32_t index);
  [[nodiscard]] WireControl message_about(ControlType type, uint32_t index) const;

 private:
  enum class State : uint8_t {
    kUp,
    kStopping,  // stopped here; what had arrived is being taken
    kStopped,   // and the peer knows; it has not said the same
    kDown,      // stopped at both ends
    kOffered,   // sender: new queue pairs here, the peer has not answered
    kProving,   // new queue pairs at both ends; not used for messages before the probe is through
  };
  struct Slot {
    std::unique_ptr<Rail> rail;
    State state = State::kUp;
    bool is_peer_stopped = false;
    uint32_t generation = 0;
    std::string reason;          // of the loss
    Clock::time_point deadline;  // kStopping: of what had arrived; kDown: of the next offer
  };

  void stop(uint32_t index, const std::string& why);
  void take_peer_stopped(uint32_t index, const WireDone& done);
  void finish_stop(uint32_t index, const WireDone& done);
  void take_offer(const WireControl& control);
  void take_answer(const WireControl& control);

  const plugin::Log& log_;
  Role role_;
  const std::string& peer_name_;
  uint64_t peer_area_;
  End& end_;
  std::vector<Slot> slots_;
};

}  // namespace plexus::net_ib
