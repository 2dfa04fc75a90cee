// SPDX-License-Identifier: Apache-2.0
// The common part of both ends: completions of the rails (rail_set.hpp), the control socket,
// registration, the reason of a failure.
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
#include "plugins/net-ib/rail_set.hpp"

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

class Connection : private RailSet::End {
 public:
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() override;

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

  [[nodiscard]] RailSet& rail_set() noexcept { return rails_; }
  [[nodiscard]] const RailSet& rail_set() const noexcept { return rails_; }
  [[nodiscard]] uint32_t rails() const noexcept { return rails_.count(); }
  [[nodiscard]] Rail& rail(uint32_t index) const noexcept { return rails_.rail(index); }
  [[nodiscard]] Area& area() const noexcept { return *area_; }
  [[nodiscard]] uint64_t peer_area() const noexcept { return peer_area_; }
  [[nodiscard]] const std::string& peer() const noexcept { return peer_name_; }
  [[nodiscard]] const Settings& settings() const noexcept { return *place_.settings; }

  /// Takes completions of all rails. Looks around after some calls without any.
  void poll();
  /// The connection has failed: ends all access to buffers, and tells the peer.
  void break_off(Failure failure) final;
  [[nodiscard]] bool is_broken() const noexcept final { return failure_.has_value(); }
  /// For a broken connection: reports the reason to the host and returns the code.
  [[nodiscard]] int32_t report_failure() const noexcept;
  /// Tells the peer what is known to be complete, before the end is destroyed.
  void say_bye();

 private:
  /// A completion without an error.
  virtual void take_done(uint32_t rail, const ibv_wc& completion) = 0;
  virtual void take_bye(const WireDone& done) = 0;
  /// The peer has left, and everything that it sent is here.
  [[nodiscard]] virtual bool has_all(const WireDone& done) const = 0;

  bool drain(uint32_t index) final;
  void read_control() final;
  void send_control(const WireControl& control) final;
  [[nodiscard]] bool has_peer_left() const noexcept final { return peer_loss_.has_value(); }
  void drain_stopping();
  void take_completion(uint32_t index, const ibv_wc& completion);
  void look_around();
  void take_control(const WireControl& control);
  void lose_peer(const std::string& why);
  void end_without_peer();

  plugin::Log log_;
  Place place_;
  Role role_;
  std::string peer_name_;
  uint64_t peer_area_;
  AreaPtr area_;  // outlives the rails, which have it registered
  RailSet rails_;
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
