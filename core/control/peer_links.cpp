// SPDX-License-Identifier: Apache-2.0
#include "core/control/peer_links.hpp"

#include <algorithm>

#include "guest/assert.hpp"

namespace plexus {

// ---- sending ----

void PeerLinks::send(uint32_t process, const Message& message) {
  PLEXUS_DCHECK(table_ != nullptr && process != self_, process);
  if (held_.count(process) != 0 || (link_to_.count(process) == 0 && must_wait(process))) {
    hold(process, message);
  } else {
    transmit(process, message);
  }
}

void PeerLinks::hold(uint32_t process, const Message& message) {
  auto& held = held_[process];
  if (held.empty()) {
    turns_.push_back(process);
  }
  held.push_back(message);
  PLEXUS_DCHECK(turns_.size() == held_.size(), turns_.size(), held_.size());
}

void PeerLinks::transmit(uint32_t process, const Message& message) {
  auto at = link_to_.find(process);
  if (at == link_to_.end()) {
    const auto link = open(process);
    if (link.has_error()) {
      if (link.error().code() == Code::kRemoteError) {
        unreachable_.emplace_back(process, link.error().message());
      } else {
        hold(process, message);
      }
      return;
    }
    at = link_to_.emplace(process, link.value()).first;
  }
  Connection& connection = connections_.at(at->second);
  PLEXUS_DCHECK(connection.process == process && connection.rest == Connection::Rest::kNo, process);
  connection.last_use = ++uses_;
  links_.send(at->second, message);
}

/// An Error: it cannot be reached (kRemoteError), or no descriptor is left for now.
Result<PeerLinks::Link> PeerLinks::open(uint32_t process) {
  if (const auto link = find_open(process); link.has_value()) {
    return *link;
  }
  const auto address = table_->address_of(process);
  if (address.has_error()) {
    return fail(Code::kRemoteError, "{}", address.error().message());
  }
  PLEXUS_TRY(link, connect(address.value()));
  connections_[link] = {.process = process, .last_use = ++uses_};
  links_.send(link, {.type = MessageType::kLink, .group = job_, .tag = table_->id_of(self_)});
  make_room();
  return link;
}

Result<PeerLinks::Link> PeerLinks::connect(const SocketAddress& address) {
  auto link = links_.connect(address);
  if (link.has_value() || link.error().code() == Code::kRemoteError) {
    return link;
  }
  if (!std::exchange(is_broken_, true)) {
    broken_ = std::move(link).error().with_context("this process cannot connect to another rank's");
  }
  if (by_reserve_.has_value()) {
    return fail(Code::kSystemError, "the descriptor in reserve is in use");
  }
  link = links_.connect_by_reserve(address);
  if (link.has_value()) {
    by_reserve_ = link.value();
  }
  return link;
}

/// A connection that the other side made.
std::optional<PeerLinks::Link> PeerLinks::find_open(uint32_t process) const {
  for (const auto& [link, connection] : connections_) {
    if (connection.process == process && connection.rest == Connection::Rest::kNo) {
      return link;
    }
  }
  return std::nullopt;
}

/// A connection to it is being closed, or too many to others are.
bool PeerLinks::must_wait(uint32_t process) const {
  size_t counted = 0;
  for (const auto& [link, connection] : connections_) {
    if (connection.process == process && connection.rest != Connection::Rest::kNo) {
      return true;
    }
    counted += is_counted(connection) ? 1 : 0;
  }
  return counted >= 2 * links_max_ && !handler_.keeps(process) && !find_open(process).has_value();
}

bool PeerLinks::is_counted(const Connection& connection) const {
  return connection.process.has_value() && !handler_.keeps(*connection.process);
}

/// Begins to close the connections that were not used for longest.
void PeerLinks::make_room() {
  if (connections_.size() <= links_max_) {
    return;
  }
  std::vector<std::pair<uint64_t, Link>> open;
  for (const auto& [link, connection] : connections_) {
    if (is_counted(connection) && connection.rest == Connection::Rest::kNo) {
      open.emplace_back(connection.last_use, link);
    }
  }
  std::sort(open.begin(), open.end());
  for (size_t i = 0; i + links_max_ < open.size(); ++i) {
    ask_to_rest(open[i].second);
  }
}

void PeerLinks::ask_to_rest(Link link) {
  Connection::Rest& rest = connections_.at(link).rest;
  PLEXUS_DCHECK(rest == Connection::Rest::kNo, link, rest);
  rest = Connection::Rest::kAsked;
  std::erase_if(link_to_, [&](const auto& entry) { return entry.second == link; });
  links_.send(link, {.type = MessageType::kRest, .group = job_});
}

void PeerLinks::send_held() {
  for (size_t turns = turns_.size(); turns > 0; --turns) {
    const uint32_t process = turns_.front();
    turns_.pop_front();
    if (must_wait(process)) {
      turns_.push_back(process);
      continue;
    }
    const auto held = held_.extract(process);
    PLEXUS_DCHECK(!held.empty() && !held.mapped().empty(), process);
    for (const Message& message : held.mapped()) {
      send(process, message);
    }
  }
}

void PeerLinks::progress() {
  make_room();
  if (by_reserve_.has_value() && !turns_.empty() &&
      connections_.at(*by_reserve_).rest == Connection::Rest::kNo) {
    ask_to_rest(*by_reserve_);
  }
  send_held();
  PLEXUS_DCHECK(turns_.size() == held_.size(), turns_.size(), held_.size());
  if (leave_message_.has_value()) {
    finish_all();
  }
  for (const auto& [process, why] : std::exchange(unreachable_, {})) {
    handler_.lose(process, LinkSet::End::kRefused, why);
  }
  if (broken_.has_value()) {
    const Error error = std::move(*broken_);
    broken_.reset();
    handler_.break_down(error);
  }
}

void PeerLinks::announce_leave(const Message& message) {
  leave_message_ = message;
  turns_.clear();
  for (const auto& [process, messages] : std::exchange(held_, {})) {
    for (const Message& held : messages) {
      transmit(process, held);
    }
  }
  finish_all();
}

/// Sends the leave message on every connection.
void PeerLinks::finish_all() {
  for (const auto& [link, connection] : connections_) {
    if (connection.process.has_value()) {
      links_.send(link, *leave_message_);
      finishing_.emplace(link, *connection.process);
    }
    links_.finish(link);
  }
  connections_.clear();
  link_to_.clear();
  by_reserve_.reset();
}

// ---- receiving ----

/// The first message of a connection says whose it is.
void PeerLinks::take(Link link, Message message) {
  Connection& connection = connections_[link];
  if (message.type == MessageType::kLink) {
    if (!connection.id.has_value()) {
      connection.id = message.tag;
      if (!connection.process.has_value()) {
        links_.send(link, message);
      }
    }
    bind(link);
    return;
  }
  if (table_ == nullptr) {
    connection.early.push_back(std::move(message));
    return;
  }
  take_known(link, std::move(message));
}

void PeerLinks::take_late(Link link, Message message) {
  const auto at = finishing_.find(link);
  if (at != finishing_.end() && message.type == MessageType::kLeaveGroup) {
    (void)handler_.take(at->second, std::move(message));  // a link that finishes is not dropped
  }
}

void PeerLinks::bind_all() {
  if (std::exchange(is_bound_, true)) {
    return;
  }
  std::vector<Link> all;
  for (const auto& [link, connection] : connections_) {
    all.push_back(link);
  }
  for (const Link link : all) {
    bind(link);
  }
}

/// Gives a connection its process, once both are known.
void PeerLinks::bind(Link link) {
  const auto at = connections_.find(link);
  if (at == connections_.end() || table_ == nullptr || !at->second.id.has_value() ||
      at->second.process.has_value()) {
    return;
  }
  const auto process = table_->find(*at->second.id);
  if (!process.has_value() || *process == self_) {
    links_.drop(link, "its process is not one of this job");
    return;
  }
  at->second.process = process;
  at->second.last_use = ++uses_;
  PLEXUS_DCHECK(at->second.rest == Connection::Rest::kNo, link);
  if (held_.count(*process) == 0 && !must_wait(*process)) {
    link_to_.try_emplace(*process, link);
  }
  for (Message& message : std::exchange(at->second.early, {})) {
    take_known(link, std::move(message));
  }
}

void PeerLinks::take_known(Link link, Message message) {
  const auto at = connections_.find(link);
  if (at == connections_.end() || !at->second.process.has_value()) {
    links_.drop(link, "it did not say whose it is");
    return;
  }
  at->second.last_use = ++uses_;
  if (message.type == MessageType::kRest) {
    take_rest(link);
    return;
  }
  const bool leaves = message.type == MessageType::kLeave;
  auto taken = handler_.take(*at->second.process, std::move(message));
  if (connections_.count(link) == 0) {
    return;  // this process has left meanwhile
  }
  if (taken.has_error()) {
    links_.drop(link, taken.error().message());
  } else if (leaves) {
    forget(link);
    links_.finish(link);
  }
}

void PeerLinks::take_rest(Link link) {
  Connection& connection = connections_.at(link);
  switch (connection.rest) {
    case Connection::Rest::kNo:
      connection.rest = Connection::Rest::kAnswered;
      std::erase_if(link_to_, [&](const auto& entry) { return entry.second == link; });
      links_.send(link, {.type = MessageType::kRest, .group = job_});
      return;
    case Connection::Rest::kAsked:
      forget(link);
      links_.finish(link);
      return;
    case Connection::Rest::kAnswered:
      links_.drop(link, "it rests twice");
      return;
  }
}

/// The connection is closed in order. One to a neighbour is made anew: it may have become one after
/// the other side had said kRest.
void PeerLinks::forget(Link link) {
  std::erase_if(link_to_, [&](const auto& entry) { return entry.second == link; });
  const auto process = connections_.at(link).process;
  const bool rests = connections_.at(link).rest != Connection::Rest::kNo;
  const bool was_by_reserve = by_reserve_ == link;
  connections_.erase(link);
  if (was_by_reserve) {
    by_reserve_.reset();
  } else if (rests && process.has_value() && handler_.keeps(*process)) {
    hold(*process, {.type = MessageType::kFailureNotice, .group = job_});
  }
}

void PeerLinks::end(Link link, LinkSet::End end, const std::string& why) {
  const auto at = connections_.find(link);
  if (at == connections_.end()) {
    return;
  }
  const auto process = at->second.process;
  const bool is_in_order = at->second.rest == Connection::Rest::kAnswered;
  forget(link);
  if (process.has_value() && !is_in_order) {
    handler_.lose(*process, end, why);
  }
}

}  // namespace plexus
