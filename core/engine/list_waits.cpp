// SPDX-License-Identifier: Apache-2.0
#include "core/engine/list_waits.hpp"

#include <algorithm>
#include <string>

#include <fmt/format.h>

namespace plexus {
namespace {

/// Calls `use` with the place in Program::peers of each peer of a lane.
template <class Use>
void for_peers(const Lane& lane, Use use) {
  for (const Step& step : lane.steps) {
    const auto first = static_cast<size_t>(step.peers_first);
    const auto last = first + static_cast<size_t>(step.receives) + static_cast<size_t>(step.sends);
    for (size_t i = first; i < last; ++i) {
      use(i);
    }
  }
}

/// Whether the item has an end of a connection with peer `i` of its program.
bool has_end(const WorkQueue::Item& item, bool sends, size_t i) {
  if (!item.device_sends.empty()) {
    return (sends ? item.device_sends : item.device_recvs)[i] != nullptr;
  }
  return sends ? item.work.sends[i] != nullptr : item.work.recvs[i] != nullptr;
}

bool uses(const WorkQueue::Item& item, const ConnectionKey& key) {
  bool found = false;
  const Program& program = *item.work.program;
  for (const Lane& lane : program.lanes) {
    if (index_of(item, lane.connection) == key.index) {
      for_peers(lane, [&](size_t i) {
        found = found || (has_end(item, key.sends, i) && program.peers[i] == key.peer);
      });
    }
  }
  return found;
}

/// The first of the execution's calls that uses `end`; nullptr: none.
const CallRecord* find_call(const Execution& execution, const ConnectionEnd& end) {
  for (const WorkQueue& queue : execution.queues) {
    for (const WorkQueue::Item& item : queue.items) {
      if (uses(item, end.key())) {
        return &item.work.call;
      }
    }
  }
  return nullptr;
}

void add_wait(std::vector<Wait>& waits, const Wait& wait) {
  if (std::find(waits.begin(), waits.end(), wait) == waits.end()) {
    waits.push_back(wait);
  }
}

std::string describe_place(const Execution& execution,
                           const WorkQueue::Item& item,
                           const LaneRun& lane,
                           const ConnectionKey& key) {
  const auto end = std::find_if(execution.ends.begin(), execution.ends.end(),
                                [&](const ConnectionEnd* each) { return each->key() == key; });
  const auto number = static_cast<size_t>(&lane - item.lanes.data());
  return fmt::format(
      "{}, channel {}, step {} of {}",
      end == execution.ends.end() ? "a network that reduces" : (*end)->describe_route(),
      item.index % kIndexStride / 2, lane.step() + 1,
      item.work.program->lanes[number].steps.size());
}

/// Adds what the lanes of a queue's current item wait for.
void list_waits_of(const Execution& execution, const WorkQueue& queue, std::vector<Wait>& waits) {
  if (queue.current == queue.items.size() || queue.awaits_connections) {
    return;
  }
  const WorkQueue::Item& item = queue.items[queue.current];
  for (const LaneRun& lane : item.lanes) {
    if (!lane.waits_at_fifo()) {
      continue;
    }
    const bool sends = lane.waits_to_recv() == nullptr;
    const int index = index_of(item, lane.connection());
    const int peer = sends ? lane.waits_to_send()->peer() : lane.waits_to_recv()->peer();
    Wait wait{
        item.work.call, peer, true,
        describe_place(execution, item, lane, {.peer = peer, .sends = sends, .index = index})};
    if (!sends) {
      wait.arrival = {.index = index, .received = lane.waits_to_recv()->received()};
    }
    add_wait(waits, wait);
  }
}

bool is_all_done(const Execution& execution) {
  return std::all_of(execution.queues.begin(), execution.queues.end(),
                     [](const WorkQueue& queue) { return queue.current == queue.items.size(); });
}

/// Whether a lane of the queue's current item waits at `end`.
bool waits_at(const WorkQueue& queue, const ConnectionKey& end) {
  if (queue.current == queue.items.size() || queue.awaits_connections) {
    return false;
  }
  const WorkQueue::Item& item = queue.items[queue.current];
  return std::any_of(item.lanes.begin(), item.lanes.end(), [&](const LaneRun& lane) {
    const bool sends = lane.waits_to_send() != nullptr;
    return lane.waits_at_fifo() && sends == end.sends &&
           (sends ? lane.waits_to_send()->peer() : lane.waits_to_recv()->peer()) == end.peer &&
           index_of(item, lane.connection()) == end.index && !lane.can_go_on();
  });
}

/// How many messages its connections have taken. On a device that is not known.
std::vector<Sent> list_sent(const Execution& execution) {
  constexpr size_t kSentMax = 256;
  std::vector<Sent> sent;
  for (const WorkQueue& queue : execution.queues) {
    for (const WorkQueue::Item& item : queue.items) {
      for (const Lane& lane : item.work.program->lanes) {
        for_peers(lane, [&](size_t i) {
          const SendConnection* const send =
              i < item.work.sends.size() ? item.work.sends[i] : nullptr;
          if (send != nullptr && sent.size() < kSentMax) {
            sent.push_back({.peer = send->peer(),
                            .index = index_of(item, lane.connection),
                            .messages = send->sent()});
          }
        });
      }
    }
  }
  return sent;
}

}  // namespace

std::vector<Wait> list_waits(const Execution& execution) {
  std::vector<Wait> waits;
  const bool all_done = is_all_done(execution);
  for (ConnectionEnd* const end : execution.ends) {
    if (execution.remote != nullptr) {
      add_wait(waits, {execution.remote->call(), end->key().peer, false, end->describe_route()});
    } else if (!end->connected() || (all_done && !end->drained())) {
      if (const CallRecord* const call = find_call(execution, *end); call != nullptr) {
        add_wait(waits, {*call, end->key().peer, true, end->describe_route()});
      }
    }
  }
  for (const WorkQueue& queue : execution.queues) {
    list_waits_of(execution, queue, waits);
  }
  return waits;
}

std::optional<Wait> find_missing(const Execution& execution,
                                 const std::vector<int>& gone,
                                 bool connects) {
  const bool all_done = is_all_done(execution);
  const auto is_missing = [&](ConnectionEnd* end) {
    // What is in memory has arrived; a network may still bring something, or a connection.
    const bool is_over =
        !end->has_pump() || end->broken() != nullptr || !(connects || end->connected());
    if (!is_over || std::find(gone.begin(), gone.end(), end->key().peer) == gone.end()) {
      return false;
    }
    return !end->connected() || (all_done && !end->drained()) ||
           std::any_of(execution.queues.begin(), execution.queues.end(),
                       [&](const WorkQueue& queue) { return waits_at(queue, end->key()); });
  };
  const auto end = std::find_if(execution.ends.begin(), execution.ends.end(), is_missing);
  const CallRecord* const call =
      end == execution.ends.end() ? nullptr : find_call(execution, **end);
  if (call == nullptr) {
    return std::nullopt;
  }
  const Error* const broken = (*end)->broken();
  return Wait{.call = *call,
              .peer = (*end)->key().peer,
              .certain = true,
              .where = broken == nullptr ? std::string() : broken->message()};
}

Standstill describe_standstill(const Execution& execution) {
  Standstill standstill{.waits = list_waits(execution),
                        .sent = list_sent(execution),
                        .held_up = {},
                        .calls_end = execution.calls_end,
                        .since = execution.still_since};
  const bool all_done = is_all_done(execution);
  for (const ConnectionEnd* const end : execution.ends) {
    const auto held = end->held_up();
    if (!held.has_value()) {
      continue;
    }
    for (Sent& sent : standstill.sent) {  // what no plugin has taken was not sent
      if (end->key().sends && sent.peer == end->key().peer && sent.index == end->key().index) {
        sent.messages -= held->messages;
      }
    }
    if (standstill.held_up.empty() && (held->is_refusal || all_done || !end->connected())) {
      standstill.held_up = held->what;
    }
  }
  return standstill;
}

}  // namespace plexus
