// SPDX-License-Identifier: Apache-2.0
// Seeded mutations of recorded programs: the verifier must reject every one. A mutation is rejected
// if the proof fails out of place or in place, or if the program's cost changes.
//
// Not made, because they change nothing that a user could see (the whole list):
//   1. the order of two steps that share no connection end and no memory, and of which not one
//      receives and the other sends (is_independent);
//   2. the chunk index of a buffer that is one block, whatever the index
//   (CollectiveDefinition::is_one_block);
//   3. the order of operands in a value that one rank alone computes for all;
//   4. `by_address` taken away, which costs a copy (given where it is missing, it is a mutation);
//   5. where two passes round a ring meet, the order of steps that share no connection end and no
//   memory (has_two_passes).
#include <algorithm>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "kernels/program/definition.hpp"
#include "kernels/program/in_place.hpp"
#include "kernels/program/network_peer.hpp"
#include "kernels/program/record.hpp"
#include "kernels/program/verify.hpp"

namespace plexus {
namespace {

constexpr unsigned kSeed = 20260101;
constexpr int kMutationsPerKind = 150;
constexpr int kTriesMax = 100000;
constexpr int kRanksMax = 9;

using Programs = std::vector<Program>;

/// A reduce lane along the chain to rank 0 and a broadcast lane back, like a tree.
Programs record_two_lanes(int nranks) {
  Programs programs;
  for (int rank = 0; rank < nranks; ++rank) {
    const bool is_last = rank == nranks - 1;
    RecordingPrims prims(rank, nranks, 1);
    prims.lane(0);
    if (rank == 0) {
      prims.recv_reduce_copy(1, Buffer::kInput, Buffer::kOutput, 0, Complete::kYes);
    } else if (is_last) {
      prims.send(Buffer::kInput, 0, rank - 1);
    } else {
      prims.recv_reduce_send(rank + 1, Buffer::kInput, 0, rank - 1);
    }
    prims.lane(1);
    if (rank == 0) {
      prims.send(Buffer::kOutput, 0, 1);
    } else if (is_last) {
      prims.recv(rank - 1, Buffer::kOutput, 0);
    } else {
      prims.recv_copy_send(rank - 1, Buffer::kOutput, 0, rank + 1);
    }
    programs.push_back(std::move(prims).take());
  }
  programs[0].lanes[1].steps[0].after = {.lane = 0, .step = 0};
  return programs;
}

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  /// 0..count-1.
  size_t below(size_t count) {
    return std::uniform_int_distribution<size_t>(0, count - 1)(engine_);
  }
  int between(int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(engine_);
  }
  template <class List>
  void shuffle(List& list) {
    std::shuffle(list.begin(), list.end(), engine_);
  }

 private:
  std::mt19937 engine_;
};

/// The programs of a collective, and what they cost.
struct Subject {
  std::string name;
  Collective collective;
  int root;
  Programs programs;
  int networks = 0;

  [[nodiscard]] VerifyResult verify(const Programs& changed, bool in_place) const {
    return verify_programs(changed, collective, root, in_place, kSlots, networks);
  }
  /// In place an all-to-all is proved as a program made of this one, which some mutations suit.
  [[nodiscard]] bool has_both_forms() const {
    return has_in_place(collective) && !stages_input(collective);
  }
  [[nodiscard]] CollectiveDefinition definition(bool in_place) const {
    return {.collective = collective,
            .nranks = static_cast<int>(programs.size()),
            .root = root,
            .in_place = in_place && has_both_forms(),
            .chunks = programs[0].chunks,
            .scratch_chunks = programs[0].scratch_chunks,
            .networks = networks};
  }
  /// Whether more than one rank computes the values that a step computes.
  [[nodiscard]] bool computes_everywhere() const {
    return name == "all_pairs_all_reduce" || name == "dc_pairs_all_reduce" ||
           name == "recursive_quadrupling_all_reduce";
  }
  /// With two passes round one ring, the last steps of the first pass may follow the first steps of
  /// the second.
  [[nodiscard]] bool has_two_passes() const { return name == "hierarchical_reduce_scatter"; }
};

Subject make_subject(Random& random) {
  const auto table = algorithms();
  const size_t row = random.below(table.size() + 1);
  const int nranks = random.between(2, kRanksMax);
  if (row == table.size()) {
    return {"two_lanes", Collective::kAllReduce, 0, record_two_lanes(nranks)};
  }
  const Algorithm& algorithm = table[row];
  if (is_point_to_point(algorithm.collective)) {
    const std::vector<int> pair = {0, 1};
    return {algorithm.name,
            algorithm.collective,
            0,
            {find_algorithm("send")->record({.rank = 0, .ring = pair, .root = 1}),
             find_algorithm("recv")->record({.rank = 1, .ring = pair, .root = 0})}};
  }
  std::vector<int> ring(static_cast<size_t>(nranks));
  std::iota(ring.begin(), ring.end(), 0);
  random.shuffle(ring);
  const int root = is_rooted(algorithm.collective) ? random.between(0, nranks - 1) : 0;
  Subject subject = {algorithm.name, algorithm.collective, root, {}};
  std::vector<int> nodes = {0};
  if (algorithm.network_cost != nullptr) {
    nodes.push_back(random.between(1, nranks - 1));
  }
  const int heads_most = std::min(nodes.back(), nranks - nodes.back());
  const bool joins = algorithm.joined.rounds != nullptr && random.below(2) == 0;
  subject.name += joins ? ", joined" : "";
  for (int rank = 0; rank < nranks; ++rank) {
    subject.programs.push_back(algorithm.record({.rank = rank,
                                                 .ring = ring,
                                                 .root = root,
                                                 .nodes = nodes,
                                                 .heads = std::min(2, std::max(heads_most, 1)),
                                                 .joins = joins}));
  }
  subject.networks = algorithm.network_cost != nullptr ? count_networks(subject.programs) : 0;
  return subject;
}

/// The position of a mutation.
struct Place {
  const Subject* subject;
  Program* program;
  Lane* lane;
  size_t at;
  Random* random;

  [[nodiscard]] Step& step() const { return lane->steps[at]; }
};

bool overlaps(std::span<const int> a, std::span<const int> b) {
  return std::any_of(a.begin(), a.end(),
                     [&](int peer) { return std::find(b.begin(), b.end(), peer) != b.end(); });
}

bool shares_memory(const Place& place, const Step& a, const Step& b) {
  for (const bool in_place : {false, true}) {
    const CollectiveDefinition definition = place.subject->definition(in_place);
    const auto cell = [&](Buffer buffer, int chunk) {
      return buffer == Buffer::kNone ? -1 : definition.cell(place.program->rank, buffer, chunk);
    };
    const int writes_a = cell(a.target, a.target_chunk);
    const int writes_b = cell(b.target, b.target_chunk);
    const bool meets_a =
        writes_a >= 0 && (writes_a == writes_b || writes_a == cell(b.source, b.source_chunk));
    const bool meets_b = writes_b >= 0 && writes_b == cell(a.source, a.source_chunk);
    if (meets_a || meets_b) {
      return true;
    }
  }
  return false;
}

bool is_independent(const Place& place, const Step& a, const Step& b) {
  const Program& program = *place.program;
  return !overlaps(program.recv_peers(a), program.recv_peers(b)) &&
         !overlaps(program.send_peers(a), program.send_peers(b)) && !shares_memory(place, a, b) &&
         (place.subject->has_two_passes() || a.receives + b.sends == 0 ||
          b.receives + a.sends == 0 || a.receives + b.receives == 0 || a.sends + b.sends == 0);
}

// Each mutation returns false if it does not apply.
bool drop_step(const Place& place) {
  place.lane->steps.erase(place.lane->steps.begin() + static_cast<std::ptrdiff_t>(place.at));
  return true;
}
bool double_step(const Place& place) {
  const Step copy = place.step();
  place.lane->steps.insert(place.lane->steps.begin() + static_cast<std::ptrdiff_t>(place.at), copy);
  return true;
}
bool swap_steps(const Place& place) {
  if (place.at + 1 >= place.lane->steps.size()) {
    return false;
  }
  Step& next = place.lane->steps[place.at + 1];
  const Program& program = *place.program;
  Step same = next;  // with peers of its own in the list, which may be the same ones
  same.peers_first = place.step().peers_first;
  const bool is_same =
      same == place.step() &&
      std::ranges::equal(program.recv_peers(next), program.recv_peers(place.step())) &&
      std::ranges::equal(program.send_peers(next), program.send_peers(place.step()));
  if (is_same || is_independent(place, place.step(), next)) {
    return false;
  }
  std::swap(place.step(), next);
  return true;
}
bool change_peer(const Place& place) {
  const Step& step = place.step();
  if (step.receives + step.sends == 0) {
    return false;
  }
  const auto index =
      static_cast<size_t>(step.peers_first) +
      place.random->below(static_cast<size_t>(step.receives) + static_cast<size_t>(step.sends));
  const int old = place.program->peers[index];
  place.program->peers[index] = place.random->between(-1, place.program->nranks);
  return place.program->peers[index] != old;
}
bool change_chunk(Random& random, const Place& place, Buffer buffer, int& chunk) {
  if (buffer == Buffer::kNone) {
    return false;
  }
  const int old = chunk;
  const int chunks = place.program->chunks;
  // Out of range is always wrong; in a buffer of one block, any index in range is right.
  const bool any = place.subject->definition(false).is_one_block(buffer);
  chunk = any ? chunks : random.between(-1, chunks);
  return chunk != old;
}
bool change_source_chunk(const Place& place) {
  return change_chunk(*place.random, place, place.step().source, place.step().source_chunk);
}
bool change_target_chunk(const Place& place) {
  return change_chunk(*place.random, place, place.step().target, place.step().target_chunk);
}
bool change_both_chunks(const Place& place) {
  Step& step = place.step();
  const CollectiveDefinition definition = place.subject->definition(false);
  if (step.source == Buffer::kNone || step.target == Buffer::kNone ||
      (definition.is_one_block(step.source) && definition.is_one_block(step.target))) {
    return false;
  }
  const int old = definition.is_one_block(step.source) ? step.target_chunk : step.source_chunk;
  step.source_chunk = step.target_chunk = place.random->between(0, place.program->chunks - 1);
  return step.source_chunk != old;
}
bool change_buffer(const Place& place, Buffer& buffer) {
  const Buffer old = buffer;
  buffer = static_cast<Buffer>(place.random->between(0, 3));
  return buffer != old;
}
bool change_source(const Place& place) {
  const Buffer old = place.step().source;
  if (!change_buffer(place, place.step().source)) {
    return false;
  }
  // After the copy, both buffers contain the own block of an all-gather.
  const bool is_own = place.subject->collective == Collective::kAllGather &&
                      place.step().source_chunk == place.program->rank;
  return !is_own || old == Buffer::kNone || place.step().source == Buffer::kNone ||
         place.step().source == Buffer::kScratch;
}
bool change_target(const Place& place) { return change_buffer(place, place.step().target); }
bool change_receives(const Place& place) {
  place.step().receives += place.random->below(2) == 0 ? 1 : -1;
  return true;
}
bool change_sends(const Place& place) {
  place.step().sends += place.random->below(2) == 0 ? 1 : -1;
  return true;
}
bool move_peer_between_lists(const Place& place) {
  Step& step = place.step();
  const int by = place.random->below(2) == 0 ? 1 : -1;
  step.receives += by;
  step.sends -= by;
  return true;
}
bool flip_completes(const Place& place) {
  place.step().completes = !place.step().completes;
  return true;
}
bool change_own_position(const Place& place) {
  Step& step = place.step();
  const int old = step.own_position;
  const bool in_range = place.subject->computes_everywhere() && step.receives > 0;
  step.own_position = in_range ? place.random->between(-1, step.receives + 1) : step.receives + 1;
  return step.own_position != old;
}
bool drop_after(const Place& place) {
  const bool had = place.step().after.lane >= 0;
  place.step().after = {};
  return had;
}
bool change_after(const Place& place) {
  After& after = place.step().after;
  const bool had = after.lane >= 0;
  // Other existing steps of the lane may be right as well; one that does not exist is wrong.
  if (place.random->below(2) == 0) {
    after.lane += 1;
  } else {
    after.step = 1 << 20;
  }
  return had;
}
bool change_message(const Place& place) {
  place.step().with_next = !place.step().with_next;
  return true;
}
bool peer_mapped_more(const Place& place) { return !std::exchange(place.step().by_address, true); }
struct Kind {
  const char* name;
  bool (*apply)(const Place& place);
};
constexpr Kind kKinds[] = {{"drop a step", drop_step},
                           {"do a step twice", double_step},
                           {"swap neighbours", swap_steps},
                           {"change a peer", change_peer},
                           {"change the source chunk", change_source_chunk},
                           {"change the target chunk", change_target_chunk},
                           {"change both chunks", change_both_chunks},
                           {"change the source", change_source},
                           {"change the target", change_target},
                           {"change receives", change_receives},
                           {"change sends", change_sends},
                           {"send instead of receive", move_peer_between_lists},
                           {"flip completes", flip_completes},
                           {"change own_position", change_own_position},
                           {"drop after", drop_after},
                           {"change after", change_after},
                           {"change a message", change_message},
                           {"by_address", peer_mapped_more}};

/// Empty: rejected, or the kind does not apply here; else a description of the surviving mutation.
std::string find_survivor(const Subject& subject, const Kind& kind, Random& random, int* made) {
  Programs changed = subject.programs;
  Program& program = changed[random.below(changed.size())];
  const size_t lane = random.below(program.lanes.size());
  if (program.lanes[lane].steps.empty()) {
    return {};
  }
  const size_t at = random.below(program.lanes[lane].steps.size());
  if (!kind.apply({&subject, &program, &program.lanes[lane], at, &random})) {
    return {};
  }
  ++*made;
  for (const bool in_place : {false, subject.has_both_forms()}) {
    const VerifyResult before = subject.verify(subject.programs, in_place);
    EXPECT_EQ(before.reason, "") << subject.name;
    const VerifyResult after = subject.verify(changed, in_place);
    if (!after.proved || after.rounds != before.rounds ||
        after.chunks_moved != before.chunks_moved) {
      return {};
    }
  }
  return fmt::format("{} of {} ranks, root {}: {} at rank {}, lane {}, step {}\n", subject.name,
                     changed.size(), subject.root, kind.name, program.rank, lane, at);
}

TEST(Mutations, AreAllRejected) {
  Random random(kSeed);
  std::string survivors;
  int made = 0;
  for (const Kind& kind : kKinds) {
    int made_of_kind = 0;
    for (int tries = 0; tries < kTriesMax && made_of_kind < kMutationsPerKind; ++tries) {
      survivors += find_survivor(make_subject(random), kind, random, &made_of_kind);
    }
    EXPECT_EQ(made_of_kind, kMutationsPerKind) << kind.name;
    made += made_of_kind;
  }
  fmt::print("seed {}: {} mutations, {} survivors\n", kSeed, made,
             std::count(survivors.begin(), survivors.end(), '\n'));
  EXPECT_EQ(survivors, "");
}

}  // namespace
}  // namespace plexus
