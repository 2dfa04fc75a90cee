// SPDX-License-Identifier: Apache-2.0
// Families of agents with random delays, groups, deaths and departures. Checked at the end of each
// run: every rank has come to its end; gathers of groups without dead members brought equal and
// right results; every process that stayed knows every death; whoever is named as dead is dead.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "core/base/hash.hpp"
#include "tests/unit/core/control/simulation.hpp"

namespace plexus {
namespace {

constexpr uint64_t kSecondUs = 1'000'000;

/// A rank gathers over all ranks, then goes through groups: opens one, gathers twice, leaves it; at
/// the end it leaves the family.
class Ranks {
 public:
  struct Plan {
    uint32_t groups = 3;
    uint32_t deaths = 0;
    uint32_t killed_within_us = 5000;
  };
  Ranks(const SimulatedJob& job, const Plan& plan)
      : plan_(plan),
        seed_(job.seed),
        simulation_(job, [this](uint32_t rank, const Message& message) { take(rank, message); }),
        ranks_(simulation_.ranks()) {}

  void run() {
    for (uint32_t i = 0; i < plan_.deaths; ++i) {
      const auto process = static_cast<uint32_t>(simulation_.random(simulation_.processes()));
      simulation_.at(simulation_.random(plan_.killed_within_us), [this, process] {
        if (simulation_.is_alive(process) && !simulation_.agent(process).is_over()) {
          killed_.push_back(process);
          simulation_.kill(process);
        }
      });
    }
    simulation_.start();
    for (uint32_t rank = 0; rank < simulation_.ranks(); ++rank) {
      simulation_.at(simulation_.random(1000), [this, rank] { gather(rank, Simulation::kWorld); });
    }
    const bool ended = simulation_.run(60 * kSecondUs, [this] { return all_ended(); });
    ASSERT_TRUE(ended) << who_waits();
    simulation_.run(simulation_.now_us() + kSecondUs, [] { return false; });
    check();
  }

  Simulation& simulation() { return simulation_; }

 private:
  struct Rank {
    uint32_t phase = 0;  // 0: all ranks; then the groups
    uint32_t gathers = 0;
    uint64_t group = Simulation::kWorld;
    bool world_failed = false;
    bool ended = false;
    std::string why;
  };

  [[nodiscard]] uint64_t color(uint32_t phase, uint32_t rank) const {
    Fnv1a hash;
    hash.mix(seed_);
    hash.mix(phase);
    hash.mix(rank);
    return hash.value() % 3;
  }
  [[nodiscard]] std::vector<uint32_t> members(uint32_t phase, uint64_t of) const {
    std::vector<uint32_t> found;
    for (uint32_t rank = static_cast<uint32_t>(ranks_.size()); rank-- > 0;) {  // not ascending
      if (phase == 0 || color(phase, rank) == of) {
        found.push_back(rank);
      }
    }
    return found;
  }
  [[nodiscard]] static std::string blob(uint32_t rank, uint64_t group, uint64_t number) {
    return fmt::format("{} {} {}", rank, group, number);
  }
  [[nodiscard]] bool is_alive(uint32_t rank) const {
    return simulation_.is_alive(simulation_.table().process_of(rank));
  }

  void say(uint32_t rank, const Message& message) {
    if (is_alive(rank)) {
      const auto taken = simulation_.agent_of(rank).take(rank, message);
      EXPECT_TRUE(taken.has_value())
          << taken.error().message() << " rank " << rank << " group " << message.group << " phase "
          << ranks_[rank].phase << " processes " << simulation_.processes();
    }
  }
  void gather(uint32_t rank, uint64_t group) {
    Rank& mine = ranks_[rank];
    if (mine.group == group && !mine.ended) {
      const uint64_t number = mine.gathers++;
      say(rank, {.type = MessageType::kGather,
                 .group = group,
                 .tag = number,
                 .payload = blob(rank, group, number)});
    }
  }
  /// Runs apart from the delivery, as a rank's thread does.
  void later(const std::function<void()>& action) {
    simulation_.at(simulation_.random(200), action);
  }

  void take(uint32_t rank, const Message& message) {
    Rank& mine = ranks_[rank];
    if (message.type == MessageType::kGathered && message.group == mine.group) {
      check_result(rank, message);
      later([this, rank, group = message.group] {
        if (ranks_[rank].group != group) {
          return;
        }
        if (ranks_[rank].phase > 0 && ranks_[rank].gathers < 2) {
          gather(rank, group);
        } else {
          go_on(rank);
        }
      });
    } else if (message.type == MessageType::kFail) {
      const Error error = decode_error(message.payload);
      errors_.push_back({rank, message.group, error.message()});
      mine.world_failed = mine.world_failed || message.group == Simulation::kWorld;
      if (message.group == mine.group) {
        mine.why = error.message();
        later([this, rank, group = message.group] {
          if (ranks_[rank].group == group) {
            go_on(rank);
          }
        });
      }
    }
  }
  void check_result(uint32_t rank, const Message& message) {
    const auto blobs = Gathered::decode(message.payload);
    ASSERT_TRUE(blobs.has_value());
    std::vector<uint32_t> expected = members(ranks_[rank].phase, color(ranks_[rank].phase, rank));
    if (ranks_[rank].phase == 0) {
      std::sort(expected.begin(), expected.end());
    }
    ASSERT_EQ(blobs.value().size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(std::string(blobs.value()[i]), blob(expected[i], message.group, message.tag));
    }
    ++results_;
  }
  /// From a group to the next one.
  void go_on(uint32_t rank) {
    Rank& mine = ranks_[rank];
    if (mine.ended || !is_alive(rank)) {
      return;
    }
    if (mine.phase > 0) {
      say(rank, {.type = MessageType::kLeaveGroup, .group = mine.group, .payload = "record"});
    }
    const bool has_table = simulation_.agent_of(rank).map() != nullptr;
    if (mine.phase == plan_.groups || !has_table) {
      mine.group = 0;
      mine.ended = true;
      say(rank,
          {.type = MessageType::kLeaveGroup, .group = Simulation::kWorld, .payload = "record"});
      say(rank, {.type = MessageType::kLeave});
      return;
    }
    ++mine.phase;
    mine.gathers = 0;
    mine.group = 100 * mine.phase + color(mine.phase, rank);
    say(rank, {.type = MessageType::kGroup,
               .group = mine.group,
               .payload = encode(members(mine.phase, color(mine.phase, rank)))});
    gather(rank, mine.group);
  }

  [[nodiscard]] bool all_ended() const {
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      if (!ranks_[rank].ended && is_alive(rank)) {
        return false;
      }
    }
    return true;
  }
  [[nodiscard]] std::string who_waits() const {
    std::string text = fmt::format("killed: {}\n", fmt::join(killed_, " "));
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      if (!ranks_[rank].ended && is_alive(rank)) {
        const uint32_t process = simulation_.table().process_of(rank);
        text +=
            fmt::format("rank {} of process {} in phase {}, group {}, gather {}; knows of", rank,
                        process, ranks_[rank].phase, ranks_[rank].group, ranks_[rank].gathers);
        for (const uint32_t dead : killed_) {
          text += simulation_.agent(process).knows_death_of(dead) ? fmt::format(" {}", dead) : "";
        }
        text += fmt::format("; parent {}\n",
                            simulation_.agent(process).parent().has_value()
                                ? static_cast<int>(*simulation_.agent(process).parent())
                                : -1);
      }
    }
    return text;
  }
  [[nodiscard]] bool is_killed(uint32_t rank) const {
    return std::find(killed_.begin(), killed_.end(), simulation_.table().process_of(rank)) !=
           killed_.end();
  }

  void check() {
    EXPECT_TRUE(simulation_.errors.empty()) << simulation_.errors.front();
    for (const Heard& heard : errors_) {
      const auto rank = static_cast<uint32_t>(std::atoi(heard.text.c_str() + 5));
      EXPECT_EQ(heard.text.substr(0, 5), "rank ") << heard.text;
      // A rank that heard of a death leaves its process, which others may see first.
      const bool left = heard.text.find("has left or died") != std::string::npos;
      EXPECT_TRUE(is_killed(rank) || (left && !killed_.empty())) << heard.text;
    }
    if (killed_.empty()) {
      EXPECT_TRUE(errors_.empty());
      EXPECT_EQ(results_, ranks_.size() * (1 + 2 * plan_.groups));
    }
  }

  struct Heard {
    uint32_t rank;
    uint64_t group;
    std::string text;
  };
  Plan plan_;
  uint64_t seed_;
  Simulation simulation_;
  std::vector<Rank> ranks_;
  std::vector<uint32_t> killed_;
  std::vector<Heard> errors_;
  size_t results_ = 0;
};

/// PLEXUS_SIMULATION_SEEDS=FIRST..LAST in place of the default seeds, PLEXUS_SIMULATION_PROCESSES=N
/// in place of up to 300 processes.
std::pair<uint64_t, uint64_t> seeds() {
  const char* const text = std::getenv("PLEXUS_SIMULATION_SEEDS");
  uint64_t first = 1;
  uint64_t last = 300;
  if (text != nullptr) {
    char* end = nullptr;
    first = std::strtoull(text, &end, 10);
    last = std::strtoull(end + 2, nullptr, 10);
  }
  return {first, last};
}

SimulatedJob job_of(uint64_t seed) {
  std::mt19937_64 random(seed);
  const char* const processes = std::getenv("PLEXUS_SIMULATION_PROCESSES");
  const uint64_t most = seed % 10 == 0 ? 300 : 24;
  return {.seed = seed,
          .processes = processes != nullptr
                           ? static_cast<uint32_t>(std::strtoul(processes, nullptr, 10))
                           : 1 + static_cast<uint32_t>(random() % most),
          .ranks_per_process = 1 + static_cast<uint32_t>(random() % 3),
          .processes_per_host = 1 + static_cast<uint32_t>(random() % 20)};
}

TEST(AgentSimulation, EndsWithoutFailure) {
  const auto [first, last] = seeds();
  for (uint64_t seed = first; seed <= last; ++seed) {
    SCOPED_TRACE(fmt::format("PLEXUS_SIMULATION_SEEDS={}..{}", seed, seed));
    Ranks(job_of(seed), {}).run();
    if (HasFatalFailure() || HasNonfatalFailure()) {
      return;
    }
  }
}

TEST(AgentSimulation, EndsWithDeaths) {
  const auto [first, last] = seeds();
  for (uint64_t seed = first; seed <= last; ++seed) {
    SCOPED_TRACE(fmt::format("PLEXUS_SIMULATION_SEEDS={}..{}", seed, seed));
    Ranks(job_of(seed), {.deaths = 1 + static_cast<uint32_t>(seed % 3)}).run();
    if (HasFatalFailure() || HasNonfatalFailure()) {
      return;
    }
  }
}

// Processes 13, 16 and 5 die; 8, a child of 5, leaves in order, and then refuses its new parent.
TEST(AgentSimulation, AChildThatRefusesItsParentMayHaveLeft) {
  Ranks(job_of(1795583114), {.deaths = 3}).run();
}

}  // namespace
}  // namespace plexus
