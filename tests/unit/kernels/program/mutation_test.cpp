// SPDX-License-Identifier: Apache-2.0
// Seeded mutations of recorded programs: the verifier must reject every one. Mutations that change
// nothing observable are not made: swapping steps that touch different peers only reorders messages
// that nobody compares, so only steps with a peer in common are swapped.
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <numeric>
#include <random>

#include "kernels/program/verify.hpp"

namespace plexus {
namespace {

constexpr unsigned kSeed = 20260101;
constexpr int kMutations = 400;

std::vector<Program> record_all(const Algorithm& algorithm, int nranks, int root) {
  std::vector<int> ring(static_cast<size_t>(nranks));
  std::iota(ring.begin(), ring.end(), 0);
  std::vector<Program> programs;
  for (const int rank : ring) {
    programs.push_back(algorithm.record({.rank = rank, .ring = ring, .root = root}));
  }
  return programs;
}

class Mutator {
 public:
  explicit Mutator(std::mt19937& random) : random_(random) {}

  /// Applies one mutation somewhere; its description, empty when it did not fit there.
  std::string mutate(std::vector<Program>& programs) {
    Program& program = programs[pick(programs.size())];
    Lane& lane = program.lanes[pick(program.lanes.size())];
    if (lane.steps.empty()) {
      return "";
    }
    const size_t at = pick(lane.steps.size());
    Step& step = lane.steps[at];
    const std::string where = fmt::format(" at rank {} step {}", program.rank, at);
    switch (pick(9)) {
      case 0:
        lane.steps.erase(lane.steps.begin() + static_cast<std::ptrdiff_t>(at));
        return "dropped a step" + where;
      case 1:
        lane.steps.insert(lane.steps.begin() + static_cast<std::ptrdiff_t>(at), Step(step));
        // A local copy made twice changes nothing.
        return step.sends + step.receives == 0 ? "" : "doubled a step" + where;
      case 2:
        return swap_steps(program, lane, at) ? "swapped two steps" + where : "";
      case 3:
        return change_peer(program, step) ? "changed a peer" + where : "";
      case 4:
        return change_chunk(program, step) ? "changed a chunk" + where : "";
      case 5:
        return change_target(step) ? "dropped the target" + where : "";
      case 6:
        return drop_source(step) ? "dropped the source" + where : "";
      case 7:
        return drop_completion(step) ? "dropped completion" + where : "";
      default:
        return drop_send(step) ? "dropped a send" + where : "";
    }
  }

 private:
  size_t pick(size_t count) { return std::uniform_int_distribution<size_t>(0, count - 1)(random_); }

  static bool share_a_peer(const Program& program, const Step& a, const Step& b) {
    const auto overlap = [](auto left, auto right) {
      return std::any_of(left.begin(), left.end(), [&](int peer) { return std::find(right.begin(), right.end(), peer) != right.end(); });
    };
    return overlap(program.send_peers(a), program.send_peers(b)) || overlap(program.recv_peers(a), program.recv_peers(b));
  }

  static bool swap_steps(const Program& program, Lane& lane, size_t at) {
    if (at + 1 >= lane.steps.size() || !share_a_peer(program, lane.steps[at], lane.steps[at + 1])) {
      return false;
    }
    std::swap(lane.steps[at], lane.steps[at + 1]);
    return true;
  }
  bool change_peer(Program& program, const Step& step) {
    if (step.receives + step.sends == 0 || program.nranks < 3) {
      return false;
    }
    const size_t index = static_cast<size_t>(step.peers_first) + pick(static_cast<size_t>(step.receives + step.sends));
    const int old = program.peers[index];
    program.peers[index] = (old + 1) % program.nranks == program.rank ? (old + 2) % program.nranks : (old + 1) % program.nranks;
    return program.peers[index] != old;
  }
  static bool change_chunk(const Program& program, Step& step) {
    if (program.chunks < 2) {
      return false;
    }
    int& chunk = step.target != Buffer::kNone ? step.target_chunk : step.source_chunk;
    chunk = (chunk + 1) % program.chunks;
    return true;
  }
  static bool change_target(Step& step) {
    const bool had = step.target != Buffer::kNone;
    step.target = Buffer::kNone;
    return had;
  }
  static bool drop_source(Step& step) {
    const bool had = step.source != Buffer::kNone;
    step.source = Buffer::kNone;
    return had;
  }
  static bool drop_completion(Step& step) { return std::exchange(step.completes, false); }
  static bool drop_send(Step& step) {
    if (step.sends == 0) {
      return false;
    }
    --step.sends;
    return true;
  }

  std::mt19937& random_;
};

/// Chunk indices that a collective ignores may be anything: one block of input or output.
bool ignores_chunks(Collective collective) {
  return collective == Collective::kAllGather || collective == Collective::kGather ||
         collective == Collective::kReduceScatter || collective == Collective::kScatter;
}

TEST(Mutations, AreAllRejected) {
  std::mt19937 random(kSeed);
  Mutator mutator(random);
  int made = 0;
  std::string survivors;
  while (made < kMutations) {
    const auto table = algorithms();
    const Algorithm& algorithm = table[std::uniform_int_distribution<size_t>(0, table.size() - 1)(random)];
    if (is_point_to_point(algorithm.collective)) {
      continue;
    }
    const int nranks = std::uniform_int_distribution<int>(2, 9)(random);
    const int root = is_rooted(algorithm.collective) ? static_cast<int>(random() % static_cast<unsigned>(nranks)) : 0;
    auto programs = record_all(algorithm, nranks, root);
    const std::string what = mutator.mutate(programs);
    if (what.empty() || (what.starts_with("changed a chunk") && ignores_chunks(algorithm.collective))) {
      continue;
    }
    ++made;
    const VerifyResult result = verify_programs(programs, algorithm.collective, root, false, kSlots);
    if (result.proved) {
      survivors += fmt::format("{} on {} ranks, root {}: {}\n", algorithm.name, nranks, root, what);
    }
  }
  EXPECT_EQ(survivors, "") << "seed " << kSeed;
}

}  // namespace
}  // namespace plexus
