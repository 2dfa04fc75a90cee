// SPDX-License-Identifier: Apache-2.0
// From a plan to lanes: the plan is executed once, with a clock of vectors that tells what each
// thread block knows to have happened. A lane waits for what its block knew, no more.
#include <algorithm>
#include <deque>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "core/programs/mscclpp.hpp"
#include "core/programs/resolve.hpp"

namespace plexus {
namespace {

/// By block of all ranks: how many of its operations are known to be done.
using PlanClock = std::vector<uint32_t>;

/// A lane, and for which operations of its owner its steps stand.
struct PlanLane {
  size_t owner = 0;                                  // block, of all ranks
  std::vector<std::pair<uint32_t, int>> marks = {};  // operation, last step
  std::map<size_t, int> waited = {};                 // by lane: its step
};

class PlanRun {
 public:
  explicit PlanRun(const PlanFile& plan) : plan_(plan), scratch_(plan.ranks.size()) {
    for (const auto& blocks : plan.ranks) {
      firsts_.push_back(blocks_);
      blocks_ += blocks.size();
      blocks_most_ = std::max(blocks_most_, blocks.size());
    }
    lanes_.resize(plan.ranks.size());
    semaphores_.resize(plan.ranks.size());
    for (size_t rank = 0; rank < plan.ranks.size(); ++rank) {
      Program& program = programs_.emplace_back();
      program.rank = static_cast<int>(rank);
      program.nranks = static_cast<int>(plan.ranks.size());
      program.chunks = plan.chunks;
      program.scratch_chunks = plan.scratch_chunks;
      program.divides_buffer = true;
      for (size_t block = 0; block < plan.ranks[rank].size(); ++block) {
        add_lane(rank, firsts_[rank] + block, block);
      }
      for (const int value : plan.semaphores[rank]) {
        semaphores_[rank].emplace_back(static_cast<size_t>(value), PlanClock(blocks_));
      }
    }
    next_.resize(blocks_);
    clocks_.assign(blocks_, PlanClock(blocks_));
  }

  Result<std::vector<Program>> run() {
    bool moves = true;
    size_t left = 0;
    while (moves) {
      moves = false;
      left = 0;
      for (size_t rank = 0; rank < plan_.ranks.size(); ++rank) {
        for (size_t block = 0; block < plan_.ranks[rank].size(); ++block) {
          const auto& operations = plan_.ranks[rank][block];
          size_t& next = next_[firsts_[rank] + block];
          while (next < operations.size() && try_run(rank, block, operations[next])) {
            ++next;
            moves = true;
          }
          if (next < operations.size()) {
            stuck_ = operations[next].where;
            ++left;
          }
        }
      }
    }
    if (left > 0) {
      return fail(Code::kInvalidArgument,
                  "{}: waits forever (a deadlock), as do {} other thread blocks", stuck_, left - 1);
    }
    return std::move(programs_);
  }

 private:
  // ---- order ----

  bool try_run(size_t rank, size_t block, const PlanOperation& operation) {
    const size_t self = firsts_[rank] + block;
    if (operation.kind == PlanKind::kBarrier) {
      return try_barrier(rank, self, operation);
    }
    if (!is_ready(rank, operation)) {
      return false;
    }
    take(rank, self, operation);
    const uint32_t number = ++clocks_[self][self];
    if (operation.kind == PlanKind::kData) {
      make_steps(rank, block, operation, number);
    }
    give(rank, self, operation);
    return true;
  }

  [[nodiscard]] bool is_ready(size_t rank, const PlanOperation& operation) const {
    if (operation.kind == PlanKind::kWait) {
      return std::all_of(operation.channels.begin(), operation.channels.end(),
                         [&](const PlanChannel& channel) {
                           const auto at = signals_.find(key_of(channel.peer, rank, channel));
                           return at != signals_.end() && !at->second.empty();
                         });
    }
    if (operation.kind == PlanKind::kAcquire) {
      return std::all_of(operation.semaphores.begin(), operation.semaphores.end(), [&](int id) {
        return !semaphores_[rank][static_cast<size_t>(id)].empty();
      });
    }
    return !operation.packets || std::all_of(operation.sources.begin(), operation.sources.end(),
                                             [&](const PlanPlace& place) {
                                               return place.rank >= 0 ||
                                                      place.buffer != Buffer::kScratch ||
                                                      has_packets(rank, place);
                                             });
  }

  [[nodiscard]] bool has_packets(size_t rank, const PlanPlace& place) const {
    for (int i = 0; i < place.count; ++i) {
      if (!scratch_[rank].contains(place.at(i))) {
        return false;
      }
    }
    return true;
  }

  static void join(PlanClock& clock, const PlanClock& other) {
    for (size_t i = 0; i < clock.size(); ++i) {
      clock[i] = std::max(clock[i], other[i]);
    }
  }

  /// What the operation's block learns before it.
  void take(size_t rank, size_t self, const PlanOperation& operation) {
    if (operation.kind == PlanKind::kWait) {
      for (const PlanChannel& channel : operation.channels) {
        std::deque<PlanClock>& queue = signals_[key_of(channel.peer, rank, channel)];
        if (!queue.empty()) {  // a channel may be named twice
          join(clocks_[self], queue.front());
          queue.pop_front();
        }
      }
    }
    if (operation.kind == PlanKind::kAcquire) {
      for (const int id : operation.semaphores) {
        std::deque<PlanClock>& queue = semaphores_[rank][static_cast<size_t>(id)];
        if (!queue.empty()) {
          join(clocks_[self], queue.front());
          queue.pop_front();
        }
      }
    }
    for (const PlanPlace& place : operation.sources) {
      const bool waits = operation.packets && place.rank < 0 && place.buffer == Buffer::kScratch;
      for (int i = 0; waits && i < place.count; ++i) {
        join(clocks_[self], scratch_[rank][place.at(i)]);
      }
    }
  }

  /// What it lets others know after it.
  void give(size_t rank, size_t self, const PlanOperation& operation) {
    if (operation.kind == PlanKind::kSignal || operation.signals) {
      for (const PlanChannel& channel : operation.channels) {
        signals_[key_of(static_cast<int>(rank), static_cast<size_t>(channel.peer), channel)]
            .push_back(clocks_[self]);
      }
    }
    if (operation.kind == PlanKind::kRelease) {
      for (const int id : operation.semaphores) {
        semaphores_[rank][static_cast<size_t>(id)].push_back(clocks_[self]);
      }
    }
    for (const PlanPlace& place : operation.targets) {
      const bool tells = operation.packets && place.buffer == Buffer::kScratch;
      const size_t target = place.rank < 0 ? rank : static_cast<size_t>(place.rank);
      for (int i = 0; tells && i < place.count; ++i) {
        scratch_[target][place.at(i)] = clocks_[self];
      }
    }
  }

  /// In rounds of as many blocks as it is for.
  bool try_barrier(size_t rank, size_t self, const PlanOperation& operation) {
    Barrier& barrier = barriers_[{rank, operation.semaphores.front()}];
    const auto [at, is_new] = at_barrier_.try_emplace(self, barrier.arrived / operation.blocks);
    if (is_new) {
      ++clocks_[self][self];
      ++barrier.arrived;
      join(barrier.rounds.try_emplace(at->second, PlanClock(blocks_)).first->second, clocks_[self]);
    }
    if (barrier.arrived < (at->second + 1) * operation.blocks) {
      return false;
    }
    join(clocks_[self], barrier.rounds.at(at->second));
    at_barrier_.erase(at);
    return true;
  }

  using SignalKey = std::tuple<int, size_t, std::string, int>;
  static SignalKey key_of(int from, size_t to, const PlanChannel& channel) {
    return {from, to, channel.type, channel.number};
  }

  // ---- lanes ----

  size_t add_lane(size_t rank, size_t owner, size_t connection) {
    Lane& lane = programs_[rank].lanes.emplace_back();
    lane.connection = static_cast<int>(connection);
    lanes_[rank].push_back({.owner = owner});
    return lanes_[rank].size() - 1;
  }

  /// The lane of `rank` that stands for what `owner`'s block does there, by puts or reads.
  size_t lane_for(size_t rank, size_t owner, size_t block, bool reads) {
    const auto [at, is_new] = made_.try_emplace({rank, owner, reads}, 0);
    if (is_new) {
      at->second = add_lane(rank, owner, block + (reads ? blocks_most_ : 0));
    }
    return at->second;
  }

  std::vector<Step>& steps_of(size_t rank, size_t lane) {
    return programs_[rank].lanes[lane].steps;
  }

  /// Makes a lane wait for what `clock` knows of the other lanes of its rank.
  void wait_for(size_t rank, size_t lane, const PlanClock& clock) {
    for (size_t other = 0; other < lanes_[rank].size(); ++other) {
      const PlanLane& from = lanes_[rank][other];
      const auto after =
          std::upper_bound(from.marks.begin(), from.marks.end(), clock[from.owner],
                           [](uint32_t known, const auto& mark) { return known < mark.first; });
      if (other == lane || after == from.marks.begin()) {
        continue;
      }
      const int step = std::prev(after)->second;
      const auto [waited, is_new] = lanes_[rank][lane].waited.try_emplace(other, -1);
      if (step > waited->second) {
        waited->second = step;
        steps_of(rank, lane).push_back({.after = {.lane = static_cast<int>(other), .step = step}});
      }
    }
  }

  void mark(size_t rank, size_t lane, uint32_t operation) {
    lanes_[rank][lane].marks.emplace_back(operation,
                                          static_cast<int>(steps_of(rank, lane).size()) - 1);
  }

  void add_step(size_t rank, size_t lane, Step step, int recv, int send) {
    Program& program = programs_[rank];
    step.by_address = false;
    step.peers_first = static_cast<int>(program.peers.size());
    step.receives = recv >= 0 ? 1 : 0;
    step.sends = send >= 0 ? 1 : 0;
    for (const int peer : {recv, send}) {
      if (peer >= 0) {
        program.peers.push_back(peer);
      }
    }
    program.lanes[lane].steps.push_back(step);
  }

  struct Doing {
    size_t rank;
    size_t block;
    size_t self;  // the block, of all ranks
    uint32_t number;
  };

  void make_steps(size_t rank, size_t block, const PlanOperation& operation, uint32_t number) {
    const Doing doing{rank, block, firsts_[rank] + block, number};
    if (operation.reduces) {
      reduce(doing, operation);
      return;
    }
    for (size_t i = 0; i < operation.targets.size(); ++i) {
      const PlanPlace& source = operation.sources[operation.sources.size() == 1 ? 0 : i];
      const PlanPlace& target = operation.targets[i];
      if (source.rank >= 0) {
        read(doing, source, {}, target);
      } else if (target.rank >= 0) {
        put(doing, source, target);
      } else {
        combine(doing, source, target, false);
      }
    }
  }

  /// target = source, or target += source, in the rank's own memory.
  void combine(const Doing& doing, const PlanPlace& source, const PlanPlace& target, bool adds) {
    wait_for(doing.rank, doing.block, clocks_[doing.self]);
    for (int i = 0; i < target.count; ++i) {
      add_step(doing.rank, doing.block,
               {.source = source.buffer,
                .target = target.buffer,
                .accumulates = adds,
                .source_chunk = source.at(i),
                .target_chunk = target.at(i)},
               -1, -1);
    }
    mark(doing.rank, doing.block, doing.number);
  }

  /// Sends to a lane of the target, which stores when what the sender knew there has happened.
  void put(const Doing& doing, const PlanPlace& source, const PlanPlace& target) {
    const auto peer = static_cast<size_t>(target.rank);
    wait_for(doing.rank, doing.block, clocks_[doing.self]);
    const size_t lane = lane_for(peer, doing.self, doing.block, false);
    wait_for(peer, lane, clocks_[doing.self]);
    for (int i = 0; i < source.count; ++i) {
      add_step(doing.rank, doing.block, {.source = source.buffer, .source_chunk = source.at(i)}, -1,
               target.rank);
      add_step(peer, lane, {.target = target.buffer, .target_chunk = target.at(i)},
               static_cast<int>(doing.rank), -1);
    }
    mark(doing.rank, doing.block, doing.number);
    mark(peer, lane, doing.number);
  }

  /// A lane of the source sends, one beside the block receives: target = source, or with `own` of
  /// the rank their sum.
  void read(const Doing& doing,
            const PlanPlace& source,
            const PlanPlace& own,
            const PlanPlace& target) {
    const auto peer = static_cast<size_t>(source.rank);
    const size_t lane = lane_for(doing.rank, doing.self, doing.block, true);
    wait_for(doing.rank, lane, clocks_[doing.self]);
    const size_t sender = lane_for(peer, doing.self, doing.block, true);
    wait_for(peer, sender, clocks_[doing.self]);
    for (int i = 0; i < source.count; ++i) {
      add_step(peer, sender, {.source = source.buffer, .source_chunk = source.at(i)}, -1,
               static_cast<int>(doing.rank));
      add_step(doing.rank, lane,
               {.source = own.buffer,
                .target = target.buffer,
                .source_chunk = own.buffer == Buffer::kNone ? 0 : own.at(i),
                .target_chunk = target.at(i)},
               source.rank, -1);
    }
    mark(peer, sender, doing.number);
    mark(doing.rank, lane, doing.number);
  }

  /// All sources into the first target, and that to the others.
  void reduce(const Doing& doing, const PlanOperation& operation) {
    const PlanPlace& target = operation.targets.front();
    const auto is_target = [&](const PlanPlace& place) {
      return place.rank < 0 && place.buffer == target.buffer && place.first == target.first;
    };
    std::vector<PlanPlace> sources = operation.sources;
    // what is in the target already comes first, then the rank's own
    std::stable_sort(sources.begin(), sources.end(), [&](const auto& a, const auto& b) {
      return std::pair(!is_target(a), a.rank >= 0) < std::pair(!is_target(b), b.rank >= 0);
    });
    PlanPlace sum = sources.front();
    if (sum.rank >= 0) {
      read(doing, sum, {}, target);
      sum = target;
    }
    for (size_t i = 1; i < sources.size(); ++i) {
      if (sources[i].rank >= 0) {
        read(doing, sources[i], sum, target);
      } else {
        if (!is_target(sum)) {
          combine(doing, sum, target, false);
        }
        combine(doing, sources[i], target, true);
      }
      sum = target;
    }
    if (!is_target(sum)) {
      combine(doing, sum, target, false);
    }
    for (size_t i = 1; i < operation.targets.size(); ++i) {
      if (operation.targets[i].rank >= 0) {
        put(doing, target, operation.targets[i]);
      } else {
        combine(doing, target, operation.targets[i], false);
      }
    }
  }

  struct Barrier {
    int arrived = 0;
    std::map<int, PlanClock> rounds;  // what those of a round know together
  };

  const PlanFile& plan_;
  std::vector<Program> programs_;
  std::vector<std::vector<PlanLane>> lanes_;  // [rank]
  std::map<std::tuple<size_t, size_t, bool>, size_t> made_;
  std::vector<size_t> firsts_;  // [rank] its first block, of all ranks
  size_t blocks_ = 0;
  size_t blocks_most_ = 0;    // of a rank
  std::vector<size_t> next_;  // [block] operation
  std::vector<PlanClock> clocks_;
  std::map<SignalKey, std::deque<PlanClock>> signals_;          // given and not taken
  std::vector<std::vector<std::deque<PlanClock>>> semaphores_;  // [rank][semaphore]
  std::vector<std::map<int, PlanClock>> scratch_;  // [rank][chunk] packets: who wrote them
  std::map<std::pair<size_t, int>, Barrier> barriers_;
  std::map<size_t, int> at_barrier_;  // by block: its round
  std::string stuck_;
};

}  // namespace

Result<ProgramFile> programs_of(const PlanFile& plan) {
  constexpr int64_t kClocksMax = int64_t{1} << 26;
  int64_t blocks = 0;
  int64_t steps = 0;
  for (const auto& rank : plan.ranks) {
    blocks += static_cast<int64_t>(rank.size());
    for (const auto& block : rank) {
      for (const PlanOperation& operation : block) {
        const auto places =
            static_cast<int64_t>(operation.sources.size() + operation.targets.size());
        steps += 1 + static_cast<int64_t>(operation.channels.size() + operation.semaphores.size());
        steps += operation.sources.empty() ? 0 : places * operation.sources.front().count;
      }
    }
  }
  if (steps > kFileStepsMax || steps * blocks > kClocksMax) {
    return fail(Code::kInvalidArgument,
                "a plan of MSCCL++ whose {} steps in {} thread blocks are more than can be put in "
                "order",
                steps, blocks);
  }
  ProgramFile made = plan.use;
  PLEXUS_TRY(programs, PlanRun(plan).run());
  made.programs = std::move(programs);
  return resolve_programs(std::move(made), plan.chunks);
}

}  // namespace plexus
