// SPDX-License-Identifier: Apache-2.0
#include "core/bootstrap/agent_host.hpp"

#include <new>
#include <utility>

#include "core/base/memory.hpp"
#include "core/base/thread.hpp"
#include "core/bootstrap/family.hpp"

namespace plexus {
namespace {

constexpr auto kBusyTick = std::chrono::milliseconds(20);
constexpr auto kTick = std::chrono::milliseconds(100);
constexpr auto kGoodbyeTime = std::chrono::seconds(2);
constexpr uint64_t kLocalProcess = 1;

}  // namespace

// ---- AgentHost ----

AgentHost::AgentHost(uint64_t world, uint64_t process, Explain explain)
    : agent_(world,
             process,
             {.send = [this](uint32_t to, const Message& message) { send(to, message); },
              .deliver = [this](uint32_t rank, const Message& message) { deliver(rank, message); },
              .to_introducer = [this](const Message& message) { send_to_introducer(message); },
              .say_goodbye = [this](const Message& message) { say_goodbye(message); },
              .explain = std::move(explain)}) {}

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
void AgentHost::say_goodbye(const Message& /*message*/) {}

void AgentHost::add(uint32_t rank, Family& family) {
  const std::lock_guard lock(mutex_);
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

Result<void> AgentHost::take(uint32_t rank, Message message) {
  const std::lock_guard lock(mutex_);
  return agent_.take(rank, std::move(message));
}

// ---- LocalAgentHost ----

LocalAgentHost::LocalAgentHost(uint64_t world, uint32_t nranks) : AgentHost(world, kLocalProcess) {
  ProcessEntry self{.process = kLocalProcess, .host = "this process", .ranks = all_ranks(nranks)};
  // Cannot fail: one process with all ranks.
  (void)agent_.open(
      std::make_shared<const FamilyMap>(ProcessTable::make({std::move(self)}).value()));
}

// ---- AgentServer ----

Result<std::shared_ptr<AgentServer>> AgentServer::start(const UniqueId& id,
                                                        uint64_t process,
                                                        Socket listener,
                                                        ProvenSocket introducer,
                                                        Explain explain) {
  auto server = std::make_shared<AgentServer>(id, process, std::move(explain));
  PLEXUS_TRY(address, listener.local_address());
  server->address_ = address;
  server->introducer_name_ = introducer.socket.peer_name();
  const security::Terms terms{.mode = introducer.channel.terms().mode, .key = id.secret};
  PLEXUS_TRY(
      links,
      LinkSet::make(
          terms, LinkSet::ListenerKey::kOfAddress, std::move(listener), {},
          {.take = [self = server.get()](Link link,
                                         Message message) { self->take(link, std::move(message)); },
           .end = [self = server.get()](Link link, LinkSet::End end,
                                        const std::string& why) { self->end(link, end, why); }}));
  server->links_ = std::move(links);
  PLEXUS_TRY(link, server->links_->adopt(std::move(introducer)));
  server->introducer_ = link;
  auto thread = start_thread("the control plane", [server] { server->serve(); });
  if (thread.has_error()) {
    server->links_->send(
        link, {.type = MessageType::kFail, .from = ~0U, .payload = encode(thread.error())});
    return std::move(thread).error();
  }
  thread.value().detach();  // it ends when the ranks of this process have left
  return server;
}

void AgentServer::name_first_id(std::string sealed) {
  const std::lock_guard lock(mutex_);
  links_->send(introducer_, {.type = MessageType::kFirstId, .payload = std::move(sealed)});
}

Result<void> AgentServer::join(JoinInfo info, Family& family) {
  address_.pack(info.process.address.data());
  const std::lock_guard lock(mutex_);
  PLEXUS_TRY(agent_.join(info));
  families_[info.rank] = &family;
  return ok();
}

bool AgentServer::is_joinable() {
  const std::lock_guard lock(mutex_);
  return agent_.map() == nullptr && !agent_.is_over() && introducer_ != 0;
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
      step();
    } catch (const std::bad_alloc&) {
      fail_all(describe_lack_of_memory());
    }
  }
}

/// Requires mutex_.
void AgentServer::step() {
  links_->progress();
  for (const auto& [process, why] : std::exchange(unreachable_, {})) {
    agent_.lose(process, Agent::Loss::kRefused, why);
  }
  if (broken_.has_value()) {
    fail_all(*broken_);
    broken_.reset();
  }
  agent_.tick(Clock::now());
  if (ends_ && (links_->is_empty() || goodbye_.expired())) {
    has_ended_ = true;
    links_->stop_listening();
    ended_.notify_all();
  }
}

void AgentServer::fail_all(const Error& error) {
  for (const auto& [rank, family] : families_) {
    agent_.break_down(rank, error);
    return;
  }
}

void AgentServer::wait_for_goodbye() {
  std::unique_lock lock(mutex_);
  if (!agent_.is_over()) {
    return;
  }
  const auto until = Clock::now() + kGoodbyeTime;
  while (!has_ended_ && !links_->is_empty() && Clock::now() < until) {
    ended_.wait_until(lock, until);
  }
}

void AgentServer::say_goodbye(const Message& message) {
  if (introducer_ != 0) {
    links_->send(introducer_, {.type = MessageType::kLeave});
    links_->finish(std::exchange(introducer_, 0));
  }
  for (const auto& [link, process] : processes_) {
    links_->send(link, message);
  }
  links_->finish_all();
  processes_.clear();
  link_to_.clear();
  ids_.clear();
  links_->stop_listening();
  ends_ = true;
  goodbye_ = Deadline::after(kGoodbyeTime);
}

void AgentServer::send(uint32_t process, const Message& message) {
  auto at = link_to_.find(process);
  if (at == link_to_.end()) {
    auto address = agent_.map()->table.address_of(process);
    auto link = address.has_value() ? links_->connect(address.value())
                                    : Result<Link>(std::move(address).error());
    if (link.has_error()) {
      if (link.error().code() == Code::kRemoteError) {
        unreachable_.emplace_back(process, link.error().message());
      } else {
        broken_ =
            std::move(link).error().with_context("this process cannot connect to another rank's");
      }
      return;
    }
    processes_[link.value()] = process;
    at = link_to_.emplace(process, link.value()).first;
    links_->send(link.value(), {.type = MessageType::kLink,
                                .group = id_.job,
                                .tag = agent_.map()->table.id_of(agent_.self())});
  }
  links_->send(at->second, message);
}

/// A message of a connection; the first one says whose it is.
void AgentServer::take(Link link, Message message) {
  if (link == introducer_) {
    agent_.take_from_introducer(message);
    bind_all();
    return;
  }
  if (message.type == MessageType::kLink) {
    if (ids_.emplace(link, message.tag).second && processes_.count(link) == 0) {
      links_->send(link, message);
    }
    bind(link);
    return;
  }
  if (agent_.map() == nullptr && message.type == MessageType::kTable) {
    if (auto taken = agent_.take_table(message); taken.has_error()) {
      links_->drop(link, taken.error().message());
      return;
    }
    bind_all();
  }
  if (agent_.map() == nullptr) {
    early_[link].push_back(std::move(message));
    return;
  }
  take_known(link, std::move(message));
}

void AgentServer::bind_all() {
  for (const auto& [link, id] : std::map(ids_)) {
    bind(link);
  }
}

/// Gives a connection its process, once both are known.
void AgentServer::bind(Link link) {
  if (agent_.map() == nullptr || processes_.count(link) != 0) {
    return;
  }
  const auto process = agent_.map()->table.find(ids_[link]);
  if (!process.has_value() || *process == agent_.self()) {
    links_->drop(link, "its process is not one of this job");
    return;
  }
  processes_[link] = *process;
  link_to_.try_emplace(*process, link);
  for (Message& message : std::exchange(early_[link], {})) {
    take_known(link, std::move(message));
  }
}

void AgentServer::take_known(Link link, Message message) {
  const auto process = processes_.find(link);
  if (process == processes_.end()) {
    links_->drop(link, "it did not say whose it is");
    return;
  }
  const bool leaves = message.type == MessageType::kLeave;
  auto taken = agent_.take_from(process->second, std::move(message));
  if (taken.has_error()) {
    links_->drop(link, taken.error().message());
  } else if (leaves && !ends_) {
    forget(link);
    links_->finish(link);
  }
}

void AgentServer::forget(Link link) {
  std::erase_if(link_to_, [&](const auto& entry) { return entry.second == link; });
  ids_.erase(link);
  early_.erase(link);
  processes_.erase(link);
}

void AgentServer::end(Link link, LinkSet::End end, const std::string& why) {
  if (link == introducer_) {
    introducer_ = 0;
    agent_.lose_introducer(introducer_name_);
    return;
  }
  const auto at = processes_.find(link);
  const auto process = at == processes_.end() ? std::nullopt : std::optional(at->second);
  forget(link);
  if (!process.has_value()) {
    return;
  }
  agent_.lose(*process, end == LinkSet::End::kBroken ? Agent::Loss::kBroken : Agent::Loss::kRefused,
              why);
}

}  // namespace plexus
