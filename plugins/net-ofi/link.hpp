// SPDX-License-Identifier: Apache-2.0
// A `Link` is what the connections of both directions between two devices share: one endpoint per
// rail. A message and the acknowledgement of the one before it thus travel in one packet, and
// waiting costs one poll. A link has at most one connection in each direction.
//
// A connection that closes withdraws its operations and leaves the endpoints to the other one. If
// libfabric is still busy with one of them, the endpoints are closed and the other connection
// fails, because no buffer may be accessed after the close.
//
// Threads: any that holds `mutex()`.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "plugins/net-ofi/device.hpp"
#include "plugins/net-ofi/endpoint.hpp"

namespace plexus::net_ofi {

enum class Direction : uint8_t { kOut, kIn };

class Link {
 public:
  /// A connection on the link.
  class Member : public EventSink {
   public:
    /// The endpoints are about to be closed, and the peer may still be told. Nothing follows.
    virtual void lose() = 0;

   protected:
    ~Member() = default;
  };

  [[nodiscard]] static Result<std::shared_ptr<Link>> open(const Device& device);
  explicit Link(std::vector<Endpoint> endpoints) : endpoints_(std::move(endpoints)) {}
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  ~Link() { close(); }

  /// For all other functions but those that say otherwise.
  [[nodiscard]] std::mutex& mutex() noexcept { return mutex_; }

  /// Locks by itself. `tag`: of all messages of the connection. False: the link has a connection in
  /// this direction or with this tag, or was closed.
  [[nodiscard]] bool join(Direction direction, Member& member, uint64_t tag);
  [[nodiscard]] bool is_shared() const noexcept {
    return members_[0] != nullptr && members_[1] != nullptr;
  }
  /// The endpoints stay open for the other member, if there is one.
  void leave(Member& member) noexcept;
  /// Closes the endpoints, after which no buffer is accessed. The members lose them.
  void close() noexcept;
  /// A listener may have connected to an endpoint without having sent anything (settle()).
  void expect_unauthenticated_peer() noexcept { has_unauthenticated_peer_ = true; }
  /// Gives the endpoints to the caller.
  [[nodiscard]] std::vector<Endpoint> release() noexcept { return std::exchange(endpoints_, {}); }

  [[nodiscard]] const Endpoint& endpoint(uint32_t rail) const noexcept { return endpoints_[rail]; }
  /// Drives libfabric and hands out what has ended.
  void progress();
  /// Withdraws a receive that no message has reached; it ends with FI_ECANCELED.
  void cancel(Operation& operation) const noexcept;

 private:
  std::mutex mutex_;
  std::vector<Endpoint> endpoints_;   // [rails]; empty: released
  std::array<Member*, 2> members_{};  // [directions]
  std::array<uint64_t, 2> tags_{};
  bool is_open_ = true;
  bool has_unauthenticated_peer_ = false;
};

/// The links of a context. Both ends number the links between two devices from 0, by their outgoing
/// connections, so that connection i of one direction meets connection i of the other. Where that
/// fails, for instance because only one direction is used, a connection has a link for itself.
/// Threads: any.
class Links {
 public:
  struct Wish {
    const Device* device;
    uint64_t peer;  // number of the peer's context and device
    Direction direction;
    uint32_t number;  // kOut: the first to try
    uint64_t tag;
  };
  struct Found {
    std::shared_ptr<Link> link;
    uint32_t number;
  };
  [[nodiscard]] static Result<std::unique_ptr<Links>> create();
  /// The number by which peers know the device of this context.
  [[nodiscard]] uint64_t number_of(const Device& device) const noexcept {
    return number_ + device.index;
  }
  [[nodiscard]] Result<Found> join(const Wish& wish, Link::Member& member);

 private:
  explicit Links(uint64_t number) : number_(number) {}
  uint64_t number_;  // random
  std::mutex mutex_;
  std::map<std::tuple<const Device*, uint64_t, uint32_t>, std::weak_ptr<Link>> links_;
};

}  // namespace plexus::net_ofi
