// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-ofi/link.hpp"

#include <algorithm>
#include <bit>
#include <span>

#include "guest/assert.hpp"
#include "security/terms.hpp"

namespace plexus::net_ofi {

// ------------------------------------------------------------------------------------------ Link

Result<std::shared_ptr<Link>> Link::open(const Device& device) {
  std::vector<Endpoint> endpoints;
  for (const std::shared_ptr<Domain>& rail : device.rails) {
    PLEXUS_TRY(endpoint, Endpoint::open(rail));
    endpoints.push_back(std::move(endpoint));
  }
  return std::make_shared<Link>(std::move(endpoints));
}

bool Link::join(Direction direction, Member& member, uint64_t tag) {
  const std::scoped_lock lock(mutex_);
  const auto mine = static_cast<size_t>(direction);
  const size_t other = 1 - mine;
  if (!is_open_ || members_[mine] != nullptr ||
      (members_[other] != nullptr && tags_[other] == tag)) {
    return false;
  }
  members_[mine] = &member;
  tags_[mine] = tag;
  return true;
}

void Link::leave(Member& member) noexcept {
  std::replace(members_.begin(), members_.end(), &member, static_cast<Member*>(nullptr));
}

void Link::close() noexcept {
  if (!is_open_) {
    return;
  }
  for (Member* const member : members_) {
    if (member != nullptr) {
      member->lose();
    }
  }
  is_open_ = false;
  if (has_unauthenticated_peer_ && !endpoints_.empty()) {
    endpoints_.front().settle();
  }
  for (Endpoint& endpoint : endpoints_) {
    endpoint.close();
  }
}

void Link::progress() {
  constexpr size_t kEvents = 16;
  std::array<Event, kEvents> events;
  if (!is_open_) {
    return;
  }
  for (const Endpoint& endpoint : endpoints_) {
    const size_t count = endpoint.poll(events);
    for (const Event& event : std::span(events).first(count)) {
      if (event.operation != nullptr) {
        event.operation->sink->take(event);
        continue;
      }
      for (Member* const member : members_) {
        if (member != nullptr) {
          member->take(event);
        }
      }
    }
  }
}

void Link::cancel(Operation& operation) const noexcept {
  for (const Endpoint& endpoint : endpoints_) {
    endpoint.cancel(operation);
  }
}

// ----------------------------------------------------------------------------------------- Links

Result<std::unique_ptr<Links>> Links::create() {
  std::array<uint8_t, sizeof(uint64_t)> random{};
  if (!security::fill_random(random)) {
    return fail(PLEXUS_SYSTEM_ERROR, "this system has no source of randomness");
  }
  return std::unique_ptr<Links>(new Links(std::bit_cast<uint64_t>(random)));
}

Result<Links::Found> Links::join(const Wish& wish, Link::Member& member) {
  // The endpoints of shm in one process are closed by pairs (deferred_close.hpp), and an endpoint
  // does not connect to itself.
  const bool may_share =
      wish.device->rails.front()->provider() != "shm" && wish.peer != number_of(*wish.device);
  const std::scoped_lock lock(mutex_);
  std::erase_if(links_, [](const auto& entry) { return entry.second.expired(); });
  const auto find = [&](uint32_t number) {
    const auto known = links_.find({wish.device, wish.peer, number});
    return known == links_.end() ? nullptr : known->second.lock();
  };
  uint32_t number = wish.number;
  std::shared_ptr<Link> link = may_share ? find(number) : nullptr;
  while (link != nullptr && !link->join(wish.direction, member, wish.tag)) {
    link = wish.direction == Direction::kOut ? find(++number) : nullptr;
  }
  if (link == nullptr) {
    PLEXUS_TRY(fresh, Link::open(*wish.device));
    const bool has_joined = fresh->join(wish.direction, member, wish.tag);
    PLEXUS_DCHECK(has_joined, number);  // nobody else is there
    link = std::move(fresh);
    if (may_share) {  // an incoming connection whose place is taken keeps the link for itself
      links_.try_emplace({wish.device, wish.peer, number}, link);
    }
  }
  return Found{std::move(link), number};
}

}  // namespace plexus::net_ofi
