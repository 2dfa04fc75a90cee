// SPDX-License-Identifier: Apache-2.0
#include "core/control/agent_host.hpp"

#include <new>
#include <unistd.h>
#include <utility>

#include "core/base/memory.hpp"
#include "core/base/thread.hpp"
#include "core/control/family.hpp"
#include "core/os/host.hpp"
#include "guest/assert.hpp"

namespace plexus {
namespace {

constexpr auto kBusyTick = std::chrono::milliseconds(20);
constexpr auto kTick = std::chrono::milliseconds(100);
constexpr auto kLeaveTime = std::chrono::seconds(2);  // for the others to close
constexpr auto kDeliveryTime =
    std::chrono::seconds(10);  // for the network to deliver the leave message
constexpr uint64_t kLocalProcess = 1;

}  // namespace

// ---- AgentHost ----

AgentHost::AgentHost(uint64_t world, uint64_t process, AgentHooks hooks)
    : agent_(world,
             process,
             {.send = [this](uint32_t to, const Message& message) { send(to, message); },
              .deliver = [this](uint32_t rank, const Message& message) { deliver(rank, message); },
              .to_introducer = [this](const Message& message) { send_to_introducer(message); },
              .announce_leave = [this](const Message& message) { announce_leave(message); },
              .hooks = std::move(hooks)}) {}

void AgentHost::deliver(uint32_t rank, const Message& message) {
  const auto at = families_.find(rank);
  if (at == families_.end()) {
    return;
  }
  if (message.type != MessageType::kGathered) {
    at->second->deliver(message);
    return;
  }
  const std::pair key(message.group, message.tag);
  if (gathered_.size() == 0 || gathered_key_ != key) {
    auto gathered = Gathered::decode(message.payload);
    if (gathered.has_error()) {
      at->second->deliver({.type = MessageType::kFail,
                           .group = message.group,
                           .payload = encode(gathered.error())});
      return;
    }
    gathered_ = std::move(gathered).value();
    gathered_key_ = key;
  }
  at->second->deliver_gathered(message.group, message.tag, gathered_);
}

void AgentHost::send(uint32_t /*process*/, const Message& /*message*/) {}
void AgentHost::send_to_introducer(const Message& /*message*/) {}
void AgentHost::announce_leave(const Message& /*message*/) {}

void AgentHost::add(uint32_t rank, Family& family) {
  const std::lock_guard lock(mutex_);
  PLEXUS_DCHECK(families_.count(rank) == 0, rank);
  families_[rank] = &family;
}

void AgentHost::remove(uint32_t rank, const Family& family) {
  const std::lock_guard lock(mutex_);
  const auto at = families_.find(rank);
  if (at != families_.end() && at->second == &family) {
    families_.erase(at);
  }
}

std::string AgentHost::host_name_of(uint32_t rank) {
  const std::lock_guard lock(mutex_);
  return agent_.map() == nullptr ? std::string() : agent_.map()->table.host_name_of(rank);
}

std::string AgentHost::process_name_of(uint32_t rank) {
  const std::lock_guard lock(mutex_);
  const FamilyMap* const map = agent_.map();
  const bool is_here = map == nullptr || map->table.nprocesses() == 1;
  return is_here ? std::string() : map->table.process_name_of(rank);
}

ProcessPlace AgentHost::place_of(uint32_t rank) {
  const std::lock_guard lock(mutex_);
  const FamilyMap* const map = agent_.map();
  if (map == nullptr || map->table.nprocesses() == 1) {
    return {};
  }
  const uint32_t process = map->table.process_of(rank);
  const auto address = map->table.address_of(process);
  return {.address = address.has_value() ? address.value().to_host() : std::string(),
          .pid = map->table.pid_of(process),
          .is_dead = agent_.knows_death_of(process),
          .is_gone = agent_.is_gone(process)};
}

std::vector<uint32_t> AgentHost::gone_ranks(uint64_t group) {
  const std::lock_guard lock(mutex_);
  return agent_.gone_ranks(group);
}

Result<void> AgentHost::take(uint32_t rank, Message message) {
  const std::lock_guard lock(mutex_);
  auto taken = agent_.take(rank, std::move(message));
  take_all_later();
  return taken;
}

void AgentHost::take_all_later() {
  while (!later_.empty()) {
    auto [rank, message] = std::move(later_.front());
    later_.pop_front();
    (void)agent_.take(rank, std::move(message));  // refused where the group has ended
  }
}

// ---- LocalAgentHost ----

LocalAgentHost::LocalAgentHost(uint64_t world, uint32_t nranks, AgentHooks hooks)
    : AgentHost(world, kLocalProcess, std::move(hooks)) {
  ProcessEntry self{.process = kLocalProcess,
                    .pid = static_cast<int32_t>(getpid()),
                    .host = host_identity("").name,
                    .ranks = all_ranks(nranks)};
  // Cannot fail: one process with all ranks.
  const auto opened =
      agent_.open(std::make_shared<const FamilyMap>(ProcessTable::make({std::move(self)}).value()));
  PLEXUS_DCHECK(opened.has_value(), nranks);
}

// ---- AgentServer ----

Result<std::shared_ptr<AgentServer>> AgentServer::start(const UniqueId& id,
                                                        uint64_t process,
                                                        Socket listener,
                                                        ProvenSocket& introducer,
                                                        size_t links_max,
                                                        AgentHooks hooks) {
  auto server = std::make_shared<AgentServer>(id, process, std::move(hooks));
  PLEXUS_TRY(address, listener.local_address());
  server->address_ = address;
  server->introducer_name_ = introducer.socket.peer_name();
  const security::Terms terms{.mode = introducer.session.terms().mode, .key = id.secret};
  PLEXUS_TRY(
      links,
      LinkSet::make(
          terms, LinkSet::ListenerKey::kOfAddress, std::move(listener), {},
          {.take = [self = server.get()](Link link,
                                         Message message) { self->take(link, std::move(message)); },
           .end = [self = server.get()](Link link, LinkSet::End end,
                                        const std::string& why) { self->end(link, end, why); },
           .differ = {},
           .take_late =
               [self = server.get()](Link link, Message message) {
                 self->peers_->take_late(link, std::move(message));
               }}));
  server->links_ = std::move(links);
  server->peers_ = std::make_unique<PeerLinks>(
      *server->links_, id.job, links_max,
      PeerLinks::Handler{
          .take = [self = server.get()](
                      uint32_t peer,
                      Message message) { return self->agent_.take_from(peer, std::move(message)); },
          .lose =
              [self = server.get()](uint32_t peer, LinkSet::End end, const std::string& why) {
                self->agent_.lose(
                    peer,
                    end == LinkSet::End::kBroken ? Agent::Loss::kBroken : Agent::Loss::kRefused,
                    why);
              },
          .keeps = [self = server.get()](uint32_t peer) { return self->agent_.is_neighbour(peer); },
          .break_down = [self = server.get()](const Error& error) { self->fail_all(error); }});
  // The thread waits for the lock, and ends at once if it is not to serve.
  const std::lock_guard lock(server->mutex_);
  server->has_ended_ = true;
  PLEXUS_TRY(thread, start_thread("the control plane", [server] { server->serve(); }));
  thread.detach();  // it ends when the ranks of this process have left
  PLEXUS_TRY(link, server->links_->adopt(std::move(introducer)));
  server->introducer_ = link;
  server->has_ended_ = false;
  return server;
}

void AgentServer::name_first_id(std::string sealed) {
  const std::lock_guard lock(mutex_);
  links_->send(introducer_, {.type = MessageType::kFirstId, .payload = std::move(sealed)});
}

Result<void> AgentServer::join(JoinInfo info, Family& family) {
  address_.pack(info.process.address.data());
  const std::lock_guard lock(mutex_);
  if (lacks_memory_ || broken_.has_value()) {
    return lacks_memory_ ? describe_lack_of_memory() : broken_->clone();
  }
  PLEXUS_TRY(agent_.join(info));
  PLEXUS_DCHECK(families_.count(info.rank) == 0, info.rank);  // else the agent has refused it
  families_[info.rank] = &family;
  return ok();
}

bool AgentServer::is_joinable() {
  const std::lock_guard lock(mutex_);
  return agent_.map() == nullptr && !agent_.is_over() && introducer_ != 0 && !lacks_memory_ &&
         !broken_.has_value();
}

void AgentServer::send_to_introducer(const Message& message) {
  links_->send(introducer_, message);
  if (message.type == MessageType::kLeave) {
    links_->finish(std::exchange(introducer_, 0));
  }
}

void AgentServer::serve() {
  for (;;) {
    std::chrono::milliseconds time = kTick;
    {
      const std::lock_guard lock(mutex_);
      if (has_ended_) {
        return;
      }
      time = links_->is_busy() ? kBusyTick : kTick;
    }
    links_->wait(time);
    const std::lock_guard lock(mutex_);
    try {
      if (lacks_memory_) {
        break_down(describe_lack_of_memory());
      }
      step();
    } catch (const std::bad_alloc&) {
      lacks_memory_ = !broken_.has_value();  // to be told when there is some for that
    }
  }
}

/// Requires mutex_.
void AgentServer::step() {
  links_->progress();
  if (links_->is_lost() && !broken_.has_value()) {
    break_down(fail(Code::kSystemError,
                    "file descriptors of the library were closed by the program, which must leave "
                    "those alone that it has not opened: others of its threads use them"));
  }
  peers_->progress();
  agent_.tick(Clock::now());
  take_all_later();
  const bool is_late = leave_deadline_.expired() && (links_->is_delivered() || delivery_.expired());
  if (ends_ && (has_left() || is_late)) {
    has_ended_ = true;
    links_->stop_listening();
    ended_.notify_all();
  }
}

/// A message may have been taken in part, so what the agent knows of groups may be wrong: it tells
/// those of other processes whom it can, and its own ranks in any case.
void AgentServer::break_down(const Error& error) {
  PLEXUS_DCHECK(!broken_.has_value());
  fail_all(error);
  for (const auto& [rank, family] : families_) {
    family->break_down(error);
  }
  lacks_memory_ = false;
  broken_ = error.clone();
}

void AgentServer::fail_all(const Error& error) {
  for (const auto& [rank, family] : families_) {
    agent_.break_down(rank, error);
    return;
  }
}

void AgentServer::wait_for_leave() {
  std::unique_lock lock(mutex_);
  if (!agent_.is_over()) {
    return;
  }
  ended_.wait_for(lock, 2 * kDeliveryTime, [this] { return has_ended_; });
}

bool AgentServer::has_left() const { return links_->is_empty() && !peers_->is_holding(); }

void AgentServer::announce_leave(const Message& message) {
  PLEXUS_DCHECK(!ends_ && !has_ended_);
  if (introducer_ != 0) {
    links_->send(introducer_, {.type = MessageType::kLeave});
    links_->finish(std::exchange(introducer_, 0));
  }
  peers_->announce_leave(message);
  links_->finish_all();
  links_->stop_listening();
  ends_ = true;
  leave_deadline_ = Deadline::after(kLeaveTime);
  delivery_ = Deadline::after(kDeliveryTime);
}

void AgentServer::send(uint32_t process, const Message& message) {
  peers_->set_table(agent_.map()->table, agent_.self());
  PLEXUS_DCHECK(process != agent_.self() && process < agent_.map()->table.nprocesses(), process);
  peers_->send(process, message);
}

void AgentServer::take(Link link, Message message) {
  const bool is_from_introducer = link == introducer_;
  if (is_from_introducer) {
    agent_.take_from_introducer(message);
  } else if (agent_.map() == nullptr && message.type == MessageType::kTable) {
    if (auto taken = agent_.take_table(message); taken.has_error()) {
      links_->drop(link, taken.error().message());
      return;
    }
  }
  if (agent_.map() != nullptr) {
    peers_->set_table(agent_.map()->table, agent_.self());
    peers_->bind_all();
  }
  if (!is_from_introducer) {
    peers_->take(link, std::move(message));
  }
}

void AgentServer::end(Link link, LinkSet::End end, const std::string& why) {
  if (link == introducer_) {
    introducer_ = 0;
    agent_.lose_introducer(introducer_name_);
  } else {
    peers_->end(link, end, why);
  }
}

}  // namespace plexus
