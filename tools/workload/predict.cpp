// SPDX-License-Identifier: Apache-2.0
#include "tools/workload/predict.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "core/base/text.hpp"

namespace plexus {
namespace {

constexpr uint32_t kNone = UINT32_MAX;

struct WorkState {
  double ready_us = 0;
  double begin_us = -1;
  double end_us = -1;
  uint32_t missing = 0;    // that have not ended
  uint32_t cause = kNone;  // what it waited for last
};

struct WorkEvent {
  double at_us;
  uint32_t call;
  bool ends;
  friend bool operator>(const WorkEvent& a, const WorkEvent& b) {
    return std::tie(a.at_us, b.ends, a.call) > std::tie(b.at_us, a.ends, b.call);
  }
};

/// What one call at a time uses, and who used it last.
struct WorkPort {
  double free_us = 0;
  uint32_t last = kNone;
};

struct WorkMessage {
  double at_us = 0;
  uint32_t call = kNone;
};

struct WorkMailbox {
  std::deque<WorkMessage> arrived;
  std::deque<uint32_t> asked;  // receives
};

/// A collective of ranks that are told apart: it runs when all have come to it.
struct WorkMeeting {
  std::vector<uint32_t> calls;  // one of each rank
  size_t come = 0;
};

class WorkClock {
 public:
  WorkClock(const Workload& work, const WorkCosts& costs)
      : work_(work), calls_(work.calls), costs_(costs), states_(calls_.size()) {}

  Result<WorkPrediction> run() {
    link();
    PLEXUS_TRY(arrange_meetings());
    for (uint32_t call = 0; call < calls_.size(); ++call) {
      if (states_[call].missing == 0) {
        events_.push({0, call, false});
      }
    }
    while (true) {
      while (!events_.empty()) {
        const WorkEvent event = events_.top();
        events_.pop();
        if (event.ends) {
          end(event.call);
        } else {
          PLEXUS_TRY(begin(event.call));
        }
      }
      if (ended_ == calls_.size()) {
        return sum_up();
      }
      PLEXUS_TRY(answer_unmatched());
    }
  }

 private:
  /// Who waits for whom, as lists side by side.
  void link() {
    const auto for_all = [&](const auto& use) {
      std::map<std::pair<int, uint32_t>, uint32_t> last;  // by rank and stream
      for (uint32_t call = 0; call < calls_.size(); ++call) {
        for (const uint32_t other : calls_[call].after) {
          use(other, call);
        }
        if (calls_[call].stream == kNoStream) {
          continue;
        }
        const auto [at, is_first] =
            last.emplace(std::pair(calls_[call].rank, calls_[call].stream), call);
        if (!is_first) {
          use(std::exchange(at->second, call), call);
        }
      }
    };
    first_.assign(calls_.size() + 1, 0);
    for_all([&](uint32_t other, uint32_t call) {
      ++first_[other + 1];
      ++states_[call].missing;
    });
    for (size_t i = 1; i < first_.size(); ++i) {
      first_[i] += first_[i - 1];
    }
    next_.resize(first_.back());
    std::vector<size_t> filled = first_;
    for_all([&](uint32_t other, uint32_t call) { next_[filled[other]++] = call; });
  }

  void end(uint32_t call) {
    ++ended_;
    for (size_t i = first_[call]; i < first_[call + 1]; ++i) {
      WorkState& next = states_[next_[i]];
      if (states_[call].end_us >= next.ready_us) {
        next.ready_us = states_[call].end_us;
        next.cause = call;
      }
      if (--next.missing == 0) {
        events_.push({next.ready_us, next_[i], false});
      }
    }
  }

  /// Not an exchange, nor a call of which only its time is known: the rank does it for itself.
  static bool meets(const WorkloadCall& call) {
    return call.kind == WorkKind::kCall && call.rank >= 0 && call.bytes > 0 &&
           call.exchanges.empty();
  }

  /// The n-th collectives of the ranks of a group are one.
  Result<void> arrange_meetings() {
    std::map<std::pair<uint32_t, int>, uint32_t> made;         // by group and rank
    std::map<std::pair<uint32_t, uint32_t>, uint32_t> places;  // by group and number
    for (uint32_t call = 0; call < calls_.size(); ++call) {
      const WorkloadCall& each = calls_[call];
      if (!meets(each)) {
        continue;
      }
      meeting_of_.resize(calls_.size(), kNone);
      const uint32_t number = made[{each.group, each.rank}]++;
      const auto [at, is_first] =
          places.emplace(std::pair(each.group, number), static_cast<uint32_t>(meetings_.size()));
      if (is_first) {
        meetings_.emplace_back();
      }
      meeting_of_[call] = at->second;
      std::vector<uint32_t>& together = meetings_[at->second].calls;
      together.push_back(call);
      const WorkloadCall& first = calls_[together.front()];
      if (each.collective != first.collective) {
        return fail(Code::kInvalidArgument,
                    "collective {} of {} is {} on rank {} and {} on rank {}: the files are of "
                    "other runs, or cut at other calls",
                    number + 1, work_.groups[each.group].name, part_of(first), first.rank,
                    part_of(each), each.rank);
      }
    }
    return ok();
  }

  /// It begins for each rank when that comes, and ends for all together.
  Result<void> come_together(uint32_t number) {
    WorkMeeting& meeting = meetings_[meeting_of_[number]];
    states_[number].begin_us = states_[number].ready_us;
    if (++meeting.come < meeting.calls.size()) {
      return ok();
    }
    const bool is_near = costs_.is_near(calls_[number]);
    WorkloadCall call = calls_[number];
    double start_us = 0;
    uint32_t cause = kNone;
    for (const uint32_t each : meeting.calls) {
      const WorkState& state = states_[each];
      const WorkPort& port = ports_[{calls_[each].rank, is_near}].out;
      const double free_us = std::max(state.ready_us, port.free_us);
      if (free_us >= start_us) {
        start_us = free_us;
        cause = port.free_us > state.ready_us ? port.last : state.cause;
      }
      // of a gather the root's buffer is the larger one
      call.bytes = std::max(call.bytes, calls_[each].bytes);
      call.time_us = std::max(call.time_us, calls_[each].time_us);
    }
    PLEXUS_TRY(time_us, costs_.call_us(call));
    for (const uint32_t each : meeting.calls) {
      states_[each].cause = cause;
      states_[each].end_us = start_us + time_us;
      ports_[{calls_[each].rank, is_near}].out = {states_[each].end_us, each};
      events_.push({states_[each].end_us, each, true});
    }
    return ok();
  }

  void occupy(uint32_t call, WorkPort* port, double time_us) {
    WorkState& state = states_[call];
    state.begin_us = state.ready_us;
    if (port != nullptr) {
      if (port->free_us > state.ready_us) {
        state.begin_us = port->free_us;
        state.cause = port->last;
      }
      port->free_us = state.begin_us + time_us;
      port->last = call;
    }
    state.end_us = state.begin_us + time_us;
    events_.push({state.end_us, call, true});
  }

  Result<void> begin(uint32_t number) {
    const WorkloadCall& call = calls_[number];
    if (call.kind == WorkKind::kCompute) {
      const bool is_slow = call.rank == costs_.slow_rank;
      const double time_us = static_cast<double>(call.times) * call.time_us *
                             costs_.compute_factor * (is_slow ? costs_.slow_factor : 1);
      occupy(number, call.stream == kNoStream ? &processors_[{call.rank, call.tag}] : nullptr,
             time_us);
    } else if (meets(call)) {
      return come_together(number);
    } else if (call.kind == WorkKind::kCall) {
      PLEXUS_TRY(time_us, costs_.call_us(call));
      occupy(number, &ports_[{call.rank, costs_.is_near(call)}].out, time_us);
    } else if (call.kind == WorkKind::kSend) {
      send(number);
    } else {
      receive(number);
    }
    return ok();
  }

  void send(uint32_t number) {
    const WorkloadCall& call = calls_[number];
    const WorkLink link = costs_.link(call.rank, call.peer);
    const double wire_us = static_cast<double>(call.bytes) * link.us_per_byte;
    occupy(number, &ports_[{call.rank, link.is_near}].out, wire_us);
    // of ranks that do the same, the one that the peer's messages come to is as this one
    WorkPort& in = ports_[{call.rank < 0 ? -1 : call.peer, link.is_near}].in;
    const double first_us = states_[number].begin_us + link.latency_us;
    const WorkMessage message{std::max(first_us, in.free_us) + wire_us, number};
    in.free_us = message.at_us;
    WorkMailbox& mailbox = mailbox_of(call.rank, call.peer, call);
    if (mailbox.asked.empty()) {
      mailbox.arrived.push_back(message);
    } else {
      take(mailbox.asked.front(), message);
      mailbox.asked.pop_front();
    }
  }

  void receive(uint32_t number) {
    const WorkloadCall& call = calls_[number];
    states_[number].begin_us = states_[number].ready_us;
    WorkMailbox& mailbox =
        call.rank < 0 ? mailbox_of(-1, -call.peer, call) : mailbox_of(call.peer, call.rank, call);
    if (mailbox.arrived.empty()) {
      mailbox.asked.push_back(number);
      waiting_.push_back(number);
    } else {
      take(number, mailbox.arrived.front());
      mailbox.arrived.pop_front();
    }
  }

  void take(uint32_t number, const WorkMessage& message) {
    WorkState& state = states_[number];
    if (message.at_us > state.ready_us && message.call != kNone) {
      state.cause = message.call;
    }
    state.end_us = std::max(state.ready_us, message.at_us);
    events_.push({state.end_us, number, true});
  }

  /// Of messages from one rank to another; where all do the same, of those so far ahead.
  WorkMailbox& mailbox_of(int source, int target, const WorkloadCall& call) {
    if (source < 0) {
      target = (target % costs_.nranks + costs_.nranks) % costs_.nranks;
    }
    return mailboxes_[{source, target, call.tag}];
  }

  /// A receive whose send is not in the file, of the earliest.
  Result<void> answer_unmatched() {
    std::erase_if(waiting_, [&](uint32_t number) { return states_[number].end_us >= 0; });
    if (waiting_.empty()) {
      const auto stuck = std::find_if(states_.begin(), states_.end(),
                                      [](const WorkState& state) { return state.end_us < 0; });
      return fail(Code::kInvalidArgument, "calls wait for each other, call {}{} among them",
                  stuck - states_.begin(),
                  name_of(calls_[static_cast<size_t>(stuck - states_.begin())]));
    }
    const std::vector<uint32_t> waiting = std::exchange(waiting_, {});
    for (const uint32_t number : waiting) {
      const WorkloadCall& call = calls_[number];
      if (call.rank >= 0) {
        return fail(Code::kInvalidArgument,
                    "rank {} waits for a message of rank {} (tag {}, {} bytes) that it does not "
                    "send",
                    call.rank, call.peer, call.tag, call.bytes);
      }
      WorkMailbox& mailbox = mailbox_of(-1, -call.peer, call);
      mailbox.asked.erase(std::find(mailbox.asked.begin(), mailbox.asked.end(), number));
      const WorkLink link = costs_.link(-1, call.peer);
      take(number, {states_[number].ready_us + link.latency_us +
                        static_cast<double>(call.bytes) * link.us_per_byte,
                    kNone});
      ++unmatched_;
    }
    return ok();
  }

  [[nodiscard]] std::string name_of(const WorkloadCall& call) const {
    return call.name == 0 ? "" : fmt::format(" ({})", work_.names[call.name]);
  }

  /// As it is named in the critical path.
  [[nodiscard]] std::string part_of(const WorkloadCall& call) const {
    const std::string& named = work_.names[call.name];
    switch (call.kind) {
      case WorkKind::kCompute:
        return named.empty() ? "computing" : named;
      case WorkKind::kSend:
        return "send";
      case WorkKind::kRecv:
        return "receive";
      default:
        break;
    }
    if (call.bytes == 0) {
      return named;
    }
    const std::string group = call.group == 0 ? "" : " of " + work_.groups[call.group].name;
    return (call.exchanges.empty() ? name(call.collective) : "exchange") + group;
  }

  WorkPrediction sum_up() const {
    WorkPrediction made;
    made.unmatched = unmatched_;
    uint32_t last = 0;
    for (uint32_t call = 0; call < calls_.size(); ++call) {
      last = states_[call].end_us > states_[last].end_us ? call : last;
    }
    made.time_us = states_[last].end_us;
    made.rank = std::max(calls_[last].rank, 0);
    const double compute_us = union_us(calls_[last].rank, true, false);
    made.compute_us = compute_us;
    made.communication_us = union_us(calls_[last].rank, false, true);
    made.exposed_us = union_us(calls_[last].rank, true, true) - compute_us;
    std::map<std::string, WorkShare> shares;
    for (uint32_t call = last; call != kNone;) {
      const uint32_t before = states_[call].cause;
      const double from_us = before == kNone ? 0 : states_[before].end_us;
      WorkShare& share = shares[part_of(calls_[call])];
      share.name = part_of(calls_[call]);
      share.computes = calls_[call].kind == WorkKind::kCompute;
      // a message may have left before its send's end counts
      share.time_us += states_[call].end_us - std::min(from_us, states_[call].end_us);
      share.count += calls_[call].times;
      call = before;
    }
    for (auto& [name, share] : shares) {
      made.path.push_back(std::move(share));
    }
    std::stable_sort(made.path.begin(), made.path.end(),
                     [](const WorkShare& a, const WorkShare& b) { return a.time_us > b.time_us; });
    return made;
  }

  /// Time in which the rank does one of these.
  [[nodiscard]] double union_us(int rank, bool computing, bool communication) const {
    std::vector<std::pair<double, double>> spans;
    for (size_t call = 0; call < calls_.size(); ++call) {
      const bool computes = calls_[call].kind == WorkKind::kCompute;
      if (calls_[call].rank == rank && (computes ? computing : communication)) {
        spans.emplace_back(states_[call].begin_us, states_[call].end_us);
      }
    }
    std::sort(spans.begin(), spans.end());
    double sum_us = 0;
    double end_us = 0;
    for (const auto& [from, to] : spans) {
      sum_us += std::max(0.0, to - std::max(from, end_us));
      end_us = std::max(end_us, to);
    }
    return sum_us;
  }

  struct Ports {
    WorkPort out;
    WorkPort in;
  };

  const Workload& work_;
  const std::vector<WorkloadCall>& calls_;
  const WorkCosts& costs_;
  std::vector<WorkState> states_;
  std::vector<size_t> first_;  // [call] in `next_`
  std::vector<uint32_t> next_;
  std::priority_queue<WorkEvent, std::vector<WorkEvent>, std::greater<>> events_;
  std::map<std::pair<int, uint64_t>, WorkPort> processors_;  // by rank and processor
  std::map<std::pair<int, bool>, Ports> ports_;              // by rank, and whether in the node
  std::map<std::tuple<int, int, uint64_t>, WorkMailbox> mailboxes_;
  std::vector<WorkMeeting> meetings_;
  std::vector<uint32_t> meeting_of_;  // [call], if there are any
  std::vector<uint32_t> waiting_;     // receives
  size_t ended_ = 0;
  size_t unmatched_ = 0;
};

}  // namespace

Result<WorkPrediction> predict(const Workload& work, const WorkCosts& costs) {
  return WorkClock(work, costs).run();
}

}  // namespace plexus
