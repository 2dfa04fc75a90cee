// SPDX-License-Identifier: Apache-2.0
// Many agents in one process, connected by simulated links: a message takes a random time, messages
// of one link keep their order, a process that dies breaks its links. A run follows from its seed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/control/agent.hpp"

namespace plexus {

struct SimulatedJob {
  uint64_t seed = 1;
  uint32_t processes = 8;
  uint32_t ranks_per_process = 1;
  uint32_t processes_per_host = 2;
};

class Simulation {
 public:
  static constexpr uint64_t kWorld = 1;
  /// Receives what an agent delivers to one of its ranks.
  using Deliver = std::function<void(uint32_t rank, const Message& message)>;

  Simulation(const SimulatedJob& job, Deliver deliver)
      : deliver_(std::move(deliver)), random_(job.seed) {
    std::vector<ProcessEntry> entries;
    for (uint32_t process = 0; process < job.processes; ++process) {
      ProcessEntry entry{.process = kFirstId + process,
                         .host_key = process / job.processes_per_host,
                         .pid = static_cast<int32_t>(process),
                         .host = "node"};
      for (uint32_t i = 0; i < job.ranks_per_process; ++i) {
        entry.ranks.push_back(process * job.ranks_per_process + i);
      }
      entries.push_back(std::move(entry));
    }
    map_ = std::make_shared<const FamilyMap>(ProcessTable::make(std::move(entries)).value());
    table_bytes_ = map_->table.encode().size();
    nodes_.resize(job.processes);
    for (uint32_t process = 0; process < job.processes; ++process) {
      nodes_[process].agent = std::make_unique<Agent>(
          kWorld, kFirstId + process,
          AgentOutput{
              .send = [this, process](uint32_t to,
                                      const Message& message) { send(process, to, message); },
              .deliver = [this](uint32_t rank, const Message& message) { deliver_(rank, message); },
              .to_introducer = [](const Message&) {},
              .announce_leave = [this, process](const Message& message) { exit(process, message); },
              .hooks = {.explain = [this, process] { return explain(process); },
                        .compare =
                            [this, process](uint64_t group, size_t nranks, const auto& records) {
                              return compare(process, group, nranks, records);
                            }}},
          [this](std::string_view) { return map_; });
      for (const uint32_t rank : map_->table.ranks_of(process)) {
        (void)nodes_[process].agent->join({.rank = rank, .nranks = ranks()});
      }
    }
  }

  /// The introducer gives the table to the root.
  void start() {
    at(0, [this] {
      if (nodes_[0].is_alive) {
        (void)nodes_[0].agent->take_table({.type = MessageType::kTable, .payload = "table"});
        nodes_[0].messages += 1;
      }
    });
    at(0, [this] { tick(); });
  }

  /// Runs `action` `after_us` microseconds from now.
  void at(uint64_t after_us, std::function<void()> action) {
    events_.push({now_us_ + after_us, ++events_made_, std::move(action)});
  }
  void kill(uint32_t process) {
    Node& node = nodes_[process];
    if (!std::exchange(node.is_alive, false)) {
      return;
    }
    break_links(process);
  }
  /// Until nothing is left to do, or until `limit_us` of simulated time. True: nothing is left.
  bool run(uint64_t limit_us, const std::function<bool()>& is_done) {
    while (!events_.empty() && now_us_ <= limit_us && !is_done()) {
      Event event = events_.top();
      events_.pop();
      now_us_ = event.when_us;
      event.action();
    }
    return is_done();
  }

  [[nodiscard]] uint32_t processes() const { return static_cast<uint32_t>(nodes_.size()); }
  [[nodiscard]] uint32_t ranks() const { return static_cast<uint32_t>(map_->table.nranks()); }
  [[nodiscard]] Agent& agent_of(uint32_t rank) {
    return *nodes_[map_->table.process_of(rank)].agent;
  }
  [[nodiscard]] Agent& agent(uint32_t process) { return *nodes_[process].agent; }
  [[nodiscard]] const Agent& agent(uint32_t process) const { return *nodes_[process].agent; }
  [[nodiscard]] bool is_alive(uint32_t process) const { return nodes_[process].is_alive; }
  [[nodiscard]] const ProcessTable& table() const { return map_->table; }
  [[nodiscard]] uint64_t random(uint64_t below) { return random_() % below; }
  [[nodiscard]] uint64_t now_us() const { return now_us_; }
  [[nodiscard]] uint64_t messages() const { return messages_; }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }
  [[nodiscard]] uint64_t messages_of(uint32_t process) const { return nodes_[process].messages; }
  std::function<std::string(uint32_t process)> explain = [](uint32_t) { return std::string(); };
  std::function<bool(
      uint32_t process, uint64_t group, size_t nranks, const AgentHooks::Records& records)>
      compare = [](uint32_t, uint64_t, size_t, const auto&) { return true; };
  std::vector<std::string> errors;  // of agents that took a message for a break of the protocol

  /// Delay of a message: from this to four times this.
  void set_delay_us(uint64_t delay_us) { delay_us_ = delay_us; }

 private:
  static constexpr uint64_t kFirstId = 1000;
  static constexpr uint64_t kTickUs = 100'000;
  struct Node {
    std::unique_ptr<Agent> agent;
    bool is_alive = true;  // neither dead nor gone
    uint64_t messages = 0;
    std::map<uint32_t, uint64_t> links;  // peer -> when the last message to it arrives
  };
  struct Event {
    uint64_t when_us;
    uint64_t number;
    std::function<void()> action;
    bool operator<(const Event& other) const {
      return std::pair(when_us, number) > std::pair(other.when_us, other.number);
    }
  };

  uint64_t delay() { return delay_us_ + random(3 * delay_us_ + 1); }

  void send(uint32_t from, uint32_t to, const Message& message) {
    ++messages_;
    ++nodes_[from].messages;
    bytes_ += kHeaderBytes +
              (message.type == MessageType::kTable ? table_bytes_ : message.payload.size());
    Node& sender = nodes_[from];
    const bool is_new = sender.links.count(to) == 0;
    if (is_new && !nodes_[to].is_alive) {
      at(delay(), [this, from, to] {
        if (nodes_[from].is_alive) {
          nodes_[from].agent->lose(to, Agent::Loss::kRefused);
        }
      });
      return;
    }
    nodes_[to].links.try_emplace(from, now_us_);
    uint64_t& last = sender.links[to];
    last = std::max(last, now_us_ + delay());
    at(last - now_us_, [this, from, to, sent = share(message)] {
      if (nodes_[to].is_alive) {
        arrive(from, to, *sent);
      }
    });
  }
  /// The result of a gather goes to everybody: one copy of it is under way.
  std::shared_ptr<const Message> share(const Message& message) {
    const bool is_same = last_sent_ != nullptr && last_sent_->type == message.type &&
                         last_sent_->group == message.group && last_sent_->tag == message.tag &&
                         last_sent_->from == message.from && last_sent_->to == message.to &&
                         last_sent_->payload == message.payload;
    if (!is_same) {
      last_sent_ = std::make_shared<const Message>(message);
    }
    return last_sent_;
  }
  /// What comes before the table waits, as it does in a connection whose other end is not known
  /// yet.
  void arrive(uint32_t from, uint32_t to, const Message& message) {
    Agent& agent = *nodes_[to].agent;
    if (agent.map() == nullptr && message.type != MessageType::kTable) {
      early_[to].emplace_back(from, message);
      return;
    }
    if (agent.map() == nullptr) {
      check(agent.take_table(message));
    }
    check(agent.take_from(from, message));
    for (auto& [peer, early] : std::exchange(early_[to], {})) {
      check(agent.take_from(peer, early));
    }
  }
  void check(const Result<void>& taken) {
    if (taken.has_error()) {
      errors.push_back(taken.error().message());
    }
  }
  /// The agent of `process` has sent its last message, or died.
  void break_links(uint32_t process) {
    for (const auto& [peer, last] : nodes_[process].links) {
      const uint64_t when = std::max(last, now_us_) + delay();
      at(when - now_us_, [this, process, other = peer] {
        if (nodes_[other].is_alive) {
          nodes_[other].agent->lose(process, Agent::Loss::kBroken);
        }
      });
    }
  }
  void exit(uint32_t process, const Message& message) {
    for (const auto& [peer, unused] : std::map(nodes_[process].links)) {
      send(process, peer, message);
    }
    nodes_[process].is_alive = false;
    break_links(process);
  }
  void tick() {
    const auto now = Clock::time_point(std::chrono::microseconds(now_us_));
    for (Node& node : nodes_) {
      if (node.is_alive) {
        node.agent->tick(now);
      }
    }
    at(kTickUs, [this] { tick(); });
  }

  Deliver deliver_;
  std::mt19937_64 random_;
  std::shared_ptr<const FamilyMap> map_;
  uint64_t table_bytes_ = 0;  // all agents share `map_`, so the table itself does not travel
  std::vector<Node> nodes_;
  std::map<uint32_t, std::vector<std::pair<uint32_t, Message>>> early_;
  std::shared_ptr<const Message> last_sent_;
  std::priority_queue<Event> events_;
  uint64_t events_made_ = 0;
  uint64_t now_us_ = 0;
  uint64_t delay_us_ = 50;
  uint64_t messages_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace plexus
