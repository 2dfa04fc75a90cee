// SPDX-License-Identifier: Apache-2.0
// The common part of both ends: rails and what happens to them, the control socket, registration,
// the reason of a failure.
//
// A rail is lost when a queue pair fails or a port goes down, at either end. Each end stops its
// queue pairs, the receiver takes what had arrived, and then each says so. When an end has stopped
// its own and knows that the other has, no write of that rail can happen any more, and what the
// receiver has not got, by its own account, is sent over the others. The sending end offers a lost
// rail again, with new queue pairs, until a probe comes through.
//
// The control socket and the card's events are looked at when nothing has happened for some calls,
// and once in many calls, so that the data path makes no system call. A connection that waits also
// has the others of the process served (neighbours.hpp).
//
// Threads: the host's, one at a time, and others in try_serve(); a `Turn` keeps them apart.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plugin-api/plexus_net.h"

#include "plugins/net-ib/endpoint.hpp"

/// A request as the host sees it.
struct plexus_net_request {
  enum class Kind : uint8_t { kSend, kRecv, kFlush } kind = Kind::kSend;
};

/// A registered range: one registration per rail.
struct plexus_net_memory {
  struct Registration {
    plexus::net_ib::Card* card;
    ibv_mr* region;
  };
  uint32_t kind = PLEXUS_MEMORY_HOST;
  std::vector<Registration> rails;
};

namespace plexus::net_ib {

class Connection {
 public:
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  virtual ~Connection();

  /// Takes completions and looks around on behalf of the host, unless a call of its is under way.
  /// Threads: any.
  void try_serve();

  [[nodiscard]] const plugin::Log& log() const noexcept { return log_; }
  [[nodiscard]] Result<plexus_net_memory_t*> register_memory(const plexus_net_region_t& region);

 protected:
  /// Held during each call of the host that uses the connection's state.
  class Turn {
   public:
    explicit Turn(Connection& connection) noexcept : is_taken_(connection.is_taken_) {
      while (is_taken_.test_and_set(std::memory_order_acquire)) {
        yield();  // another thread serves it, which does not block
      }
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn() { is_taken_.clear(std::memory_order_release); }  // pairs with both test_and_set

   private:
    static void yield() noexcept;
    std::atomic_flag& is_taken_;
  };

  Connection(Link link, const Place& place, Role role);
  /// First and last of the part that derived classes do: between, others may call try_serve().
  void enlist();
  void retire();

  [[nodiscard]] uint32_t rails() const noexcept { return static_cast<uint32_t>(rails_.size()); }
  [[nodiscard]] Rail& rail(uint32_t index) const noexcept { return *rails_[index].rail; }
  [[nodiscard]] bool is_up(uint32_t index) const noexcept {
    return rails_[index].state == RailState::kUp;
  }
  [[nodiscard]] uint32_t rails_up() const noexcept;
  [[nodiscard]] Area& area() const noexcept { return *area_; }
  [[nodiscard]] uint64_t peer_area() const noexcept { return peer_area_; }
  [[nodiscard]] const std::string& peer() const noexcept { return peer_name_; }
  [[nodiscard]] const Settings& settings() const noexcept { return *place_.settings; }

  /// Takes completions of all rails. Looks around after some calls without any.
  void poll();
  /// The connection has failed: ends all access to buffers, and tells the peer.
  void break_off(Failure failure);
  [[nodiscard]] bool is_broken() const noexcept { return failure_.has_value(); }
  /// For a broken connection: reports the reason to the host and returns the code.
  [[nodiscard]] int32_t report_failure() const noexcept;
  /// A rail does not work, for the reason `why`.
  void lose_rail(uint32_t index, const std::string& why);
  /// Posting failed with errno `error`.
  void lose_rail_posting(uint32_t index, int error);
  /// Tells the peer what is known to be complete, before the end is destroyed.
  void say_bye();

 private:
  enum class RailState : uint8_t {
    kUp,
    kStopping,  // stopped here; what had arrived is being taken
    kStopped,   // and the peer knows; it has not said the same
    kDown,      // stopped at both ends
    kOffered,   // sender: new queue pairs here, the peer has not answered
    kProving,   // new queue pairs at both ends; not used for messages before the probe is through
  };
  struct RailSlot {
    std::unique_ptr<Rail> rail;
    RailState state = RailState::kUp;
    bool is_peer_stopped = false;
    uint32_t generation = 0;
    std::string reason;          // of the loss
    Clock::time_point deadline;  // kStopping: of what had arrived; kDown: of the next offer
  };

  /// A completion without an error.
  virtual void take_done(uint32_t rail, const ibv_wc& completion) = 0;
  /// The rail is stopped at both ends: what was under way is to be sent over the others, but for
  /// what is here, `done` says, when this is the sender.
  virtual void resend(uint32_t rail, const WireDone& done) = 0;
  virtual void write_done(WireDone& done) const = 0;
  virtual void take_bye(const WireDone& done) = 0;
  /// The peer has left, and everything that it sent is here.
  [[nodiscard]] virtual bool has_all(const WireDone& done) const = 0;

  [[nodiscard]] bool drain(uint32_t index);
  void drain_stopping();
  void take_completion(uint32_t index, const ibv_wc& completion);
  void look_around();
  void watch_ports();
  void read_control();
  void take_control(const WireControl& control);
  void take_rail_control(const WireControl& control);
  void take_offer(const WireControl& control);
  void take_answer(const WireControl& control);
  void take_rail_up(uint32_t index);
  void lose_peer(const std::string& why);
  void end_without_peer();
  void offer_lost_rails();
  void stop_rail(uint32_t index, const std::string& why);
  void try_report_stop(uint32_t index);
  void take_peer_stopped(uint32_t index, const WireDone& done);
  void check_stops();
  void finish_stop(uint32_t index, const WireDone& done);
  [[nodiscard]] WireControl message_about(ControlType type, uint32_t index) const;
  void send_control(const WireControl& control);

  plugin::Log log_;
  Place place_;
  Role role_;
  std::string peer_name_;
  uint64_t peer_area_;
  AreaPtr area_;  // outlives the rails, which have it registered
  std::vector<RailSlot> rails_;
  ControlSocket control_;
  std::optional<Failure> failure_;
  std::atomic_flag is_taken_;
  uint32_t calls_ = 0;       // of poll()
  uint32_t idle_calls_ = 0;  // in a row
  // The peer has left: why, what it said, and how long its last messages may take.
  std::optional<std::string> peer_loss_;
  std::optional<WireDone> peer_done_;
  Clock::time_point patience_;
};

/// Ends the registrations.
void deregister(plexus_net_memory_t& memory);

}  // namespace plexus::net_ib
