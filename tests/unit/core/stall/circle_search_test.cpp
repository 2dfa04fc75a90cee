// SPDX-License-Identifier: Apache-2.0
// Processes of one rank each, whose probes the test carries: which waits are found to be endless.
#include "core/stall/circle_search.hpp"

#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kGroup = 7;
const Clock::time_point kStart{std::chrono::hours(1)};

CallRecord call_of(Collective collective, uint64_t sequence, uint32_t hash = 1) {
  CallRecord call{};
  call.collective = static_cast<uint8_t>(collective);
  call.sequence = sequence;
  call.hash = hash;
  return call;
}

/// A rank with its process.
struct Process {
  explicit Process(int nranks) : calls(nranks) {}
  CallLog calls;
  CallingThread thread;
  StallEntries entries;
  StallOutbox out;
  CircleSearch search{entries, out};
};

class World {
 public:
  explicit World(int nranks) {
    for (int rank = 0; rank < nranks; ++rank) {
      Process& made = *processes_.emplace_back(std::make_unique<Process>(nranks));
      StallEntry& entry = made.entries[{kGroup, rank}];
      entry.member.group = kGroup;
      entry.member.rank = rank;
      entry.member.nranks = nranks;
      entry.member.calls = &made.calls;
      entry.member.thread = &made.thread;
    }
  }
  Process& process(int rank) { return *processes_[static_cast<size_t>(rank)]; }
  StallEntry& entry(int rank) { return process(rank).entries.at({kGroup, rank}); }

  /// The rank receives from `peer`, its first message, and has not moved since.
  void stalls_in_recv(int rank, int peer) {
    CallRecord call = call_of(Collective::kRecv, 0);
    call.root = peer;
    process(rank).calls.note_message({.peer = peer, .sends = false}, call);
    stall(rank, {.call = call, .peer = peer, .certain = true});
  }
  void stall(int rank, const Wait& wait) {
    Stall stall;
    stall.epoch = ++epochs_;
    stall.standstill.waits = {wait};
    stall.since = kStart;
    stall.checked = kStart + std::chrono::hours(1);  // after every arrival
    entry(rank).stall = stall;
  }
  /// All stalled ranks begin to search; carries probes until there are none, at most `rounds`.
  void search(int rounds = 20) {
    for (size_t rank = 0; rank < processes_.size(); ++rank) {
      const StallKey key{kGroup, static_cast<int>(rank)};
      if (entry(key.second).stall.has_value()) {
        processes_[rank]->search.initiate(key, entry(key.second));
      }
    }
    for (int round = 0; round < rounds && carry(); ++round) {
    }
  }
  /// False: nothing was under way.
  bool carry() {
    std::vector<StallOutbox::Outgoing> all;
    for (const auto& process : processes_) {
      std::move(process->out.messages.begin(), process->out.messages.end(),
                std::back_inserter(all));
      process->out.messages.clear();
    }
    for (const auto& message : all) {
      const StallArrival arrival{.to = {message.from.first, message.peer},
                                 .from = message.from.second,
                                 .payload = message.payload,
                                 .at = kStart};
      kept_ += process(message.peer).search.take(arrival, entry(message.peer)) ? 0 : 1;
    }
    return !all.empty();
  }
  /// The sentences of calls that can never end, of all ranks.
  std::vector<std::string> failures() {
    std::vector<std::string> all;
    for (const auto& process : processes_) {
      for (const StallOutbox::Failure& failure : process->out.failures) {
        all.push_back(failure.error.message());
      }
    }
    return all;
  }
  [[nodiscard]] int kept() const { return kept_; }

 private:
  std::vector<std::unique_ptr<Process>> processes_;
  uint64_t epochs_ = 0;
  int kept_ = 0;
};

TEST(CircleSearch, FindsRanksThatReceiveFromEachOther) {
  for (const int nranks : {2, 3, 5}) {
    World world(nranks);
    for (int rank = 0; rank < nranks; ++rank) {
      world.stalls_in_recv(rank, (rank + 1) % nranks);
    }
    world.search();
    ASSERT_FALSE(world.failures().empty()) << nranks;
    EXPECT_THAT(world.failures().front(), AllOf(HasSubstr("rank 0"), HasSubstr("rank 1")));
  }
}

TEST(CircleSearch, SaysNothingOfAChainWhoseEndIsOnlyLate) {
  World world(3);
  world.stalls_in_recv(0, 1);
  world.stalls_in_recv(1, 2);  // and rank 2 computes
  world.search();
  EXPECT_TRUE(world.failures().empty());
  EXPECT_EQ(world.entry(2).awaited, kStart);
}

TEST(CircleSearch, SaysNothingWhenARankMovedBeforeTheSecondRound) {
  World world(2);
  world.stalls_in_recv(0, 1);
  world.stalls_in_recv(1, 0);
  world.search(1);  // the first probes are on their way back
  world.entry(1).stall.reset();
  for (int round = 0; round < 20 && world.carry(); ++round) {
  }
  EXPECT_TRUE(world.failures().empty());
}

TEST(CircleSearch, KeepsAProbeUntilTheEngineHasLookedAgain) {
  World world(2);
  world.stalls_in_recv(0, 1);
  world.stalls_in_recv(1, 0);
  world.entry(0).stall->checked = kStart;
  world.entry(1).stall->checked = kStart;
  world.search();
  EXPECT_TRUE(world.failures().empty());
  EXPECT_EQ(world.kept(), 2);
}

TEST(CircleSearch, NamesBothCallsWhereTheyDiffer) {
  World world(2);
  const CallRecord sum = call_of(Collective::kAllReduce, 0, 1);
  const CallRecord gather = call_of(Collective::kAllGather, 0, 2);
  world.process(0).calls.note_collective(sum);
  world.process(1).calls.note_collective(gather);
  world.stall(0, {.call = sum, .peer = 1, .certain = true});
  world.search();
  ASSERT_EQ(world.failures().size(), 1U);
  EXPECT_THAT(world.failures().front(), AllOf(HasSubstr("all_reduce"), HasSubstr("all_gather")));
}

TEST(CircleSearch, FailsAWaitForARankThatHasLeftWithoutTheCall) {
  World world(2);
  world.stalls_in_recv(0, 1);
  const auto leave = [&](uint64_t sends) {
    LeaveRecord record;
    record.messages.push_back({.peer = 0, .sends = sends, .recvs = 0, .of_vector = 0});
    return world.process(0).search.take(
        {.to = {kGroup, 0}, .from = 1, .left = true, .payload = encode(record), .at = kStart},
        world.entry(0));
  };
  EXPECT_TRUE(leave(1));
  EXPECT_TRUE(world.failures().empty()) << "it has sent that message before it left";
  EXPECT_TRUE(leave(0));
  ASSERT_EQ(world.failures().size(), 1U);
  EXPECT_THAT(world.failures().front(), HasSubstr("rank 1"));
}

TEST(CircleSearch, BelievesNoProbeOfARankThatDidNotSendIt) {
  World world(3);
  world.stalls_in_recv(0, 1);
  world.process(0).search.initiate({kGroup, 0}, world.entry(0));
  const std::string payload = world.process(0).out.messages.front().payload;
  EXPECT_TRUE(world.process(1).search.take(
      {.to = {kGroup, 1}, .from = 2, .payload = payload, .at = kStart}, world.entry(1)));
  EXPECT_EQ(world.entry(1).awaited, Clock::time_point());
  EXPECT_TRUE(world.process(1).search.take(
      {.to = {kGroup, 1}, .from = 0, .payload = payload, .at = kStart}, world.entry(1)));
  EXPECT_EQ(world.entry(1).awaited, kStart);
}

}  // namespace
}  // namespace plexus
