// SPDX-License-Identifier: Apache-2.0
// Plans through their public functions: two ranks of this process, whose plans one engine runs.
#include "core/schedule/plan.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/engine/engine.hpp"
#include "core/transport/connections.hpp"
#include "core/transport/memory/direct.hpp"

namespace plexus {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr int kRanks = 2;
constexpr size_t kElements = 3000;  // more than one slot
constexpr uint32_t kSlotBytes = 8192;

class State final : public RankState {
 public:
  [[nodiscard]] Error stop_reason() const override {
    return plexus::fail(Code::kInternalError, "stopped");
  }
  void fail(const Error& /*error*/) override { stop = true; }
  void fail_for_memory() noexcept override { stop = true; }
  void on_stalled(Standstill /*standstill*/) override {}
  void on_moved() override {}
};

/// What the planning of one rank needs, and its buffers.
class Rank {
 public:
  Rank(int rank, const std::vector<PeerInfo>& infos, LocalRendezvous& rendezvous)
      : rank_(rank),
        connections_({.rank = rank,
                      .infos = &infos,
                      .group = 1,
                      .rendezvous = &rendezvous,
                      .slot_bytes = kSlotBytes}),
        filter_(AlgorithmFilter::parse("", "").value()) {
    input.assign(kElements, rank + 1);
    output.assign(kElements * kRanks, -1);
  }

  [[nodiscard]] PlanContext context() {
    return {.state = &state_,
            .rank = rank_,
            .nranks = kRanks,
            .orders = orders_,
            .costs = nullptr,
            .connections = &connections_,
            .filter = &filter_,
            .tuner = nullptr,
            .collnet = &collnet_,
            .deterministic = false,
            .shares_memory = true,
            .channels_min = 1,
            .channels_max = 1,
            .slot_bytes = kSlotBytes,
            .copy_methods = &copy_methods_,
            .device = nullptr};
  }
  void share_core() { state_.ranks_per_core = 2; }
  void force(std::string_view algorithms) {
    filter_ = AlgorithmFilter::parse(algorithms, "").value();
  }
  Task task(Collective collective, uint64_t count, int root = 0) {
    Task task;
    task.shape = {.collective = collective,
                  .type = 2,  // ncclInt32
                  .op = 0,    // ncclSum
                  .root = root,
                  .count = count,
                  .has_send = true,
                  .has_recv = true};
    task.op = ReduceOp::plain(ReduceKind::kSum);
    task.send = input.data();
    task.recv = output.data();
    return task;
  }
  std::unique_ptr<Plan> build(const std::vector<Task>& tasks) {
    auto plan = Plan::build(context(), tasks);
    EXPECT_TRUE(plan.has_value()) << plan.error().message();
    return std::move(plan).value();
  }
  void prepare(Plan& plan, const std::vector<Task>& tasks) { plan.prepare(tasks, log, places_); }
  void prepare_again(Plan& plan, const void* send, void* recv) {
    plan.prepare_again(send, recv, log, places_);
  }

  std::vector<int32_t> input;
  std::vector<int32_t> output;
  CallLog log{kRanks};

 private:
  int rank_;
  State state_;
  std::vector<ChannelOrder> orders_ = {{.ring = {0, 1}, .nodes = {0}, .datacenters = {}}};
  ConnectionSet connections_;
  UserMemory memory_;
  KnownPlaces places_{&memory_};
  AlgorithmFilter filter_;
  CollnetAbility collnet_{.missing = "none"};
  HostCopyMethods copy_methods_;
};

class PlanTest : public testing::Test {
 protected:
  PlanTest() : ranks_{Rank(0, infos_, rendezvous_), Rank(1, infos_, rendezvous_)} {}

  /// Runs one plan of each rank to its end.
  static void run(const std::array<Plan*, kRanks>& plans) {
    std::array<Execution*, kRanks> executions{};
    for (size_t rank = 0; rank < kRanks; ++rank) {
      executions[rank] = &plans[rank]->execution();
    }
    Engine().run(executions);
    for (const Execution* const execution : executions) {
      EXPECT_TRUE(execution->finished);
      EXPECT_FALSE(execution->error.has_value());
    }
  }
  /// Plans the same call on both ranks, and runs it.
  void run_call(Collective collective, uint64_t count) {
    std::array<std::unique_ptr<Plan>, kRanks> plans;
    for (size_t rank = 0; rank < kRanks; ++rank) {
      const std::vector<Task> tasks = {ranks_[rank].task(collective, count)};
      plans[rank] = ranks_[rank].build(tasks);
      ranks_[rank].prepare(*plans[rank], tasks);
    }
    run({plans[0].get(), plans[1].get()});
  }

  LocalRendezvous rendezvous_;
  std::vector<PeerInfo> infos_ = std::vector<PeerInfo>(kRanks);
  std::array<Rank, kRanks> ranks_;
};

TEST_F(PlanTest, AnAllReduceSumsOverBothRanks) {
  run_call(Collective::kAllReduce, kElements);
  for (Rank& rank : ranks_) {
    rank.output.resize(kElements);
    EXPECT_THAT(rank.output, Each(1 + 2));
    EXPECT_EQ(rank.log.collectives(), 1U);
  }
}

TEST_F(PlanTest, OnlyAnAllReduceOutOfPlaceLetsPeersReadItsInputThroughout) {
  const auto keeps_input = [&](Task task, bool in_place) {
    task.shape.in_place = in_place;
    return ranks_[0].build({task})->items().front().item->work.keeps_input;
  };
  EXPECT_TRUE(keeps_input(ranks_[0].task(Collective::kAllReduce, kElements), false));
  EXPECT_FALSE(keeps_input(ranks_[0].task(Collective::kAllReduce, kElements), true));
  // in place with a receive buffer that begins elsewhere
  EXPECT_FALSE(keeps_input(ranks_[0].task(Collective::kReduceScatter, kElements), false));
  EXPECT_FALSE(keeps_input(ranks_[0].task(Collective::kAllGather, kElements), false));
}

/// Messages that are sent by address save a copy, and let the sender wait for the reader.
TEST_F(PlanTest, MessagesAreSentByAddressWhereThatIsFaster) {
  constexpr uint32_t kNever = std::numeric_limits<uint32_t>::max();
  const auto borrow_bytes_min = [&](Collective collective, uint64_t bytes) {
    const std::vector<Task> tasks = {ranks_[0].task(collective, bytes / sizeof(int32_t), 1)};
    return ranks_[0].build(tasks)->items().front().item->work.borrow_bytes_min;
  };
  EXPECT_EQ(borrow_bytes_min(Collective::kReduceScatter, 4096), 4096U);  // to each rank
  EXPECT_EQ(borrow_bytes_min(Collective::kReduceScatter, 2048), kNever);
  EXPECT_EQ(borrow_bytes_min(Collective::kSend, 8192), 8192U);
  EXPECT_EQ(borrow_bytes_min(Collective::kBroadcast, 4096), kNever);
  EXPECT_EQ(borrow_bytes_min(Collective::kBroadcast, 1 << 20), kSlotBytes);
  ranks_[0].share_core();
  EXPECT_EQ(borrow_bytes_min(Collective::kReduceScatter, 16384), kNever);
  EXPECT_EQ(borrow_bytes_min(Collective::kReduceScatter, 16384 + 4), 4096U);
  EXPECT_EQ(borrow_bytes_min(Collective::kBroadcast, 65536), kNever);
}

/// Whether one of the messages that `recv` has taken lies in [begin, begin + size_bytes).
bool has_message_in(RecvConnection& recv, const void* begin, size_t size_bytes) {
  const auto* const first = static_cast<const std::byte*>(begin);
  return std::any_of(std::begin(recv.fifo().headers), std::end(recv.fifo().headers),
                     [&](const SlotHeader& header) {
                       return header.kind == SlotKind::kPointer &&
                              header.payload.pointer >= first &&
                              header.payload.pointer < first + size_bytes;
                     });
}

TEST_F(PlanTest, ARingWritesItsResultsToTheOutputsOfThePeers) {
  constexpr size_t kCount = 12 * kElements;  // each part has slices that are not copied (8 KiB)
  std::array<std::unique_ptr<Plan>, kRanks> plans;
  for (size_t rank = 0; rank < kRanks; ++rank) {
    ranks_[rank].force("allreduce:ring");
    ranks_[rank].input.assign(kCount, static_cast<int32_t>(rank) + 1);
    ranks_[rank].output.assign(kCount, -1);
    const std::vector<Task> tasks = {ranks_[rank].task(Collective::kAllReduce, kCount)};
    plans[rank] = ranks_[rank].build(tasks);
    ranks_[rank].prepare(*plans[rank], tasks);
  }
  run({plans[0].get(), plans[1].get()});
  for (size_t rank = 0; rank < kRanks; ++rank) {
    const Work& work = plans[rank]->items().front().item->work;
    const auto& output = ranks_[rank].output;
    EXPECT_THAT(output, Each(1 + 2));
    EXPECT_TRUE(std::any_of(work.recvs.begin(), work.recvs.end(), [&](RecvConnection* recv) {
      return recv != nullptr && has_message_in(*recv, output.data(), kCount * sizeof(int32_t));
    }));
  }
}

TEST_F(PlanTest, AnAllGatherFillsABlockPerRank) {
  run_call(Collective::kAllGather, kElements);
  for (const Rank& rank : ranks_) {
    EXPECT_EQ(rank.output.front(), 1);
    EXPECT_EQ(rank.output[kElements - 1], 1);
    EXPECT_EQ(rank.output[kElements], 2);
    EXPECT_EQ(rank.output.back(), 2);
  }
}

TEST_F(PlanTest, AnEmptyCallUsesNoConnectionAndStillHasANumber) {
  const std::vector<Task> tasks = {ranks_[0].task(Collective::kAllReduce, 0)};
  const auto plan = ranks_[0].build(tasks);
  EXPECT_TRUE(plan->execution().ends.empty()) << "rank 1 may have left";
  ranks_[0].prepare(*plan, tasks);
  EXPECT_EQ(ranks_[0].log.collectives(), 1U);
}

TEST_F(PlanTest, ARepeatedCallUsesOtherBuffersAndTheNextNumber) {
  std::array<std::unique_ptr<Plan>, kRanks> plans;
  std::array<std::vector<int32_t>, kRanks> elsewhere;
  for (size_t i = 0; i < kRanks; ++i) {
    const std::vector<Task> tasks = {ranks_[i].task(Collective::kAllReduce, 10)};
    plans[i] = ranks_[i].build(tasks);
    EXPECT_TRUE(plans[i]->fits(tasks[0].shape));
    ranks_[i].prepare(*plans[i], tasks);
  }
  run({plans[0].get(), plans[1].get()});
  const uint32_t first_hash = plans[0]->items().front().item->work.call.hash;
  for (size_t i = 0; i < kRanks; ++i) {
    elsewhere[i].assign(11, -1);
    ranks_[i].output.assign(10, -1);
    ranks_[i].prepare_again(*plans[i], ranks_[i].input.data(), elsewhere[i].data());
  }
  run({plans[0].get(), plans[1].get()});
  for (size_t i = 0; i < kRanks; ++i) {
    EXPECT_EQ(elsewhere[i][9], 3);
    EXPECT_EQ(elsewhere[i][10], -1);
    EXPECT_THAT(ranks_[i].output, Each(-1)) << "the first call's buffer is unchanged";
    EXPECT_EQ(ranks_[i].log.collectives(), 2U);
  }
  const CallRecord& call = plans[0]->items().front().item->work.call;
  EXPECT_EQ(call.sequence, 1U);
  EXPECT_NE(call.hash, first_hash) << "messages of consecutive calls are told apart";
}

TEST_F(PlanTest, FitsCallsThatDifferInAddressesOnly) {
  Rank& rank = ranks_[0];
  const std::vector<Task> tasks = {rank.task(Collective::kAllReduce, 10)};
  const auto plan = rank.build(tasks);
  std::vector<Task> other = tasks;
  other[0].send = rank.input.data() + 1;
  EXPECT_TRUE(plan->fits(other));
  other[0].shape.count = 11;
  EXPECT_FALSE(plan->fits(other)) << "another count";
  other = tasks;
  other[0].shape.type = 7;  // ncclFloat32
  EXPECT_FALSE(plan->fits(other)) << "another type";
  other = tasks;
  other[0].shape.op = 2;  // ncclMax
  EXPECT_FALSE(plan->fits(other)) << "another reduction";
  other = tasks;
  other[0].shape.in_place = true;
  EXPECT_FALSE(plan->fits(other)) << "in place";
  other = {tasks[0], tasks[0]};
  EXPECT_FALSE(plan->fits(other)) << "two calls";
}

TEST_F(PlanTest, MessagesOfAGroupHaveAQueuePerPeerAndDirection) {
  Rank& rank = ranks_[0];
  const std::vector<Task> tasks = {rank.task(Collective::kSend, 5, 1),
                                   rank.task(Collective::kRecv, 5, 1),
                                   rank.task(Collective::kSend, 6, 1)};
  const auto plan = rank.build(tasks);
  ASSERT_EQ(plan->execution().queues.size(), 2U);
  EXPECT_EQ(plan->execution().queues[0].items.size(), 2U) << "both sends, in order";
  EXPECT_EQ(plan->execution().queues[1].items.size(), 1U);
  for (const WorkQueue::Item& item : plan->execution().queues[0].items) {
    EXPECT_EQ(item.work.call.collective, static_cast<uint8_t>(Collective::kSend));
  }
  EXPECT_EQ(plan->execution().ends.size(), 2U) << "one connection in each direction";
  EXPECT_FALSE(plan->fits(tasks[0].shape)) << "a group";
  rank.prepare(*plan, tasks);
  EXPECT_EQ(rank.log.messages({.peer = 1, .sends = true}), 2U);
  EXPECT_EQ(rank.log.messages({.peer = 1, .sends = false}), 1U);
}

TEST_F(PlanTest, AMessageToItselfIsCopiedWithoutAConnection) {
  Rank& rank = ranks_[1];
  Task send = rank.task(Collective::kSend, 7, 1);
  send.recv = nullptr;
  Task recv = rank.task(Collective::kRecv, 7, 1);
  recv.send = nullptr;
  const std::vector<Task> tasks = {recv, send};
  const auto plan = rank.build(tasks);
  EXPECT_TRUE(plan->execution().ends.empty());
  EXPECT_FALSE(plan->fits(tasks[0].shape)) << "a group";
  rank.prepare(*plan, tasks);
  Execution* const execution = &plan->execution();
  Engine().run({&execution, 1});
  EXPECT_FALSE(execution->error.has_value());
  EXPECT_EQ(rank.output[6], 2);
  EXPECT_EQ(rank.output[7], -1);
}

TEST_F(PlanTest, MessagesToItselfMustMatch) {
  Rank& rank = ranks_[1];
  const std::vector<Task> alone = {rank.task(Collective::kSend, 7, 1)};
  const auto unmatched = Plan::build(rank.context(), alone);
  ASSERT_TRUE(unmatched.has_error());
  EXPECT_EQ(unmatched.error().code(), Code::kInvalidUsage);
  EXPECT_THAT(unmatched.error().message(), HasSubstr("1 sends to itself and 0 receives"));

  const std::vector<Task> unequal = {rank.task(Collective::kSend, 7, 1),
                                     rank.task(Collective::kRecv, 8, 1)};
  const auto refused = Plan::build(rank.context(), unequal);
  ASSERT_TRUE(refused.has_error());
  EXPECT_THAT(refused.error().message(), HasSubstr("sends 28 bytes to itself and receives 32"));
}

Plan* find_or_build(PlanCache& cache, const PlanContext& context, const std::vector<Task>& tasks) {
  Plan* const found = cache.find(tasks);
  return found != nullptr ? found : cache.build(context, tasks, nullptr).value();
}

TEST_F(PlanTest, TheCacheReturnsAPlanThatFitsAndIsNotBusy) {
  Rank& rank = ranks_[0];
  PlanCache cache;
  const std::vector<Task> tasks = {rank.task(Collective::kAllReduce, 10)};
  const auto first = find_or_build(cache, rank.context(), tasks);
  EXPECT_EQ(find_or_build(cache, rank.context(), tasks), first);
  first->busy = true;
  const auto second = find_or_build(cache, rank.context(), tasks);
  EXPECT_NE(second, first);
  first->busy = false;
  const std::vector<Task> other = {rank.task(Collective::kAllReduce, 11)};
  EXPECT_NE(find_or_build(cache, rank.context(), other), first);
}

TEST_F(PlanTest, APlanOfATrialFitsItsTrialOnly) {
  Rank& rank = ranks_[0];
  PlanCache cache;
  const std::vector<Task> tasks = {rank.task(Collective::kAllReduce, 10)};
  const MadeChoice made = {.choice = find_or_build(cache, rank.context(), tasks)->choice(),
                           .trial = 7};
  PlanCache trials;
  Plan* const trial = trials.build(rank.context(), tasks, &made).value();
  EXPECT_TRUE(trial->is_trial());
  EXPECT_EQ(trials.find(tasks, 7), trial);
  EXPECT_EQ(trials.find(tasks, 8), nullptr);
  EXPECT_EQ(trials.find(tasks), nullptr);
  EXPECT_EQ(trials.find(tasks.front().shape), nullptr);
}

TEST_F(PlanTest, TheCacheDropsTheLeastRecentlyUsedPlanThatIsNotInUse) {
  Rank& rank = ranks_[0];
  PlanCache cache;
  const auto find = [&](uint64_t count) {
    const std::vector<Task> tasks = {rank.task(Collective::kAllReduce, count)};
    return find_or_build(cache, rank.context(), tasks);
  };
  const auto is_kept = [&](uint64_t count) {
    return cache.find(rank.task(Collective::kAllReduce, count).shape) != nullptr;
  };
  Plan* const launched = find(1);
  launched->launches = 1;
  find(2);
  for (uint64_t count = 3; count <= 64; ++count) {
    find(count);
  }
  EXPECT_TRUE(is_kept(3)) << "64 plans fit";
  find(65);
  EXPECT_FALSE(is_kept(2)) << "the one that was not used for longest";
  EXPECT_TRUE(is_kept(3)) << "used in between";
  EXPECT_TRUE(is_kept(1)) << "in flight";
  EXPECT_EQ(cache.newest(), launched) << "the one found last";
}

TEST_F(PlanTest, TheCacheDropsNoPlanThatIsUnderWay) {
  Rank& rank = ranks_[0];
  PlanCache cache;
  const auto find = [&](uint64_t count) {
    const std::vector<Task> tasks = {rank.task(Collective::kAllReduce, count)};
    return find_or_build(cache, rank.context(), tasks);
  };
  Plan* const running = find(1);
  running->busy = true;
  for (uint64_t count = 2; count <= 66; ++count) {
    find(count);
  }
  running->busy = false;
  EXPECT_EQ(cache.find(rank.task(Collective::kAllReduce, 1).shape), running);
}

TEST_F(PlanTest, TheRecordOfACallSaysWhatItIs) {
  const auto record_of = [&](const Task& task) {
    return ranks_[0].build({task})->items().front().item->work.call;
  };
  Task task = ranks_[0].task(Collective::kReduce, 100, 1);
  task.op = ReduceOp::plain(ReduceKind::kMax);
  CallRecord record = record_of(task);
  EXPECT_EQ(record.count, 100U);
  EXPECT_EQ(record.root, 1);
  EXPECT_EQ(record.collective, static_cast<uint8_t>(Collective::kReduce));
  EXPECT_EQ(record.type, 2);
  EXPECT_EQ(record.op, static_cast<uint8_t>(ReduceKind::kMax));
  EXPECT_EQ(record.of_vector, 0);
  EXPECT_EQ(record.has_checksum, 0);
  ASSERT_GE(record.algorithm, 1);
  EXPECT_EQ(algorithms()[record.algorithm - 1U].collective, Collective::kReduce);
  task.shape.settings.has_checksum = true;
  EXPECT_EQ(record_of(task).has_checksum, 1);
  task = ranks_[0].task(Collective::kSend, 100, 1);
  task.shape.of_vector = true;
  record = record_of(task);
  EXPECT_EQ(record.of_vector, 1);
  EXPECT_EQ(record.algorithm, 0) << "messages have none";
}

TEST_F(PlanTest, TheHashOfACallIsOfAllThatRanksMustAgreeOn) {
  const auto hash_of = [&](const Task& task) {
    return ranks_[0].build({task})->items().front().shape_hash;
  };
  const Task task = ranks_[0].task(Collective::kReduce, 100, 1);
  EXPECT_EQ(hash_of(task), hash_of(task));
  Task other = task;
  other.shape.count = 101;
  EXPECT_NE(hash_of(other), hash_of(task));
  other = task;
  other.shape.root = 0;
  EXPECT_NE(hash_of(other), hash_of(task));
  other = task;
  other.shape.type = 7;  // ncclFloat32
  EXPECT_NE(hash_of(other), hash_of(task));
  other = task;
  other.op = ReduceOp::plain(ReduceKind::kMax);
  EXPECT_NE(hash_of(other), hash_of(task));
  ranks_[0].force("allpairs");
  const uint32_t all_pairs = hash_of(task);
  ranks_[0].force("binomial");
  EXPECT_NE(hash_of(task), all_pairs) << "another algorithm";
  ranks_[0].force("");
  EXPECT_EQ(hash_of(ranks_[0].task(Collective::kAllReduce, 8, 0)),
            hash_of(ranks_[0].task(Collective::kAllReduce, 8, 1)))
      << "it has no root";
  Task bytes = ranks_[0].task(Collective::kSend, 400, 1);
  bytes.shape.type = 0;  // ncclInt8
  EXPECT_EQ(hash_of(bytes), hash_of(ranks_[0].task(Collective::kSend, 100, 1)))
      << "the ends of a message may differ in its type";
  EXPECT_NE(hash_of(bytes), hash_of(ranks_[0].task(Collective::kSend, 101, 1)));
}

TEST_F(PlanTest, OutputsThatNoCacheHoldsAreWrittenPastIt) {
  const auto streams = [&](Collective collective, uint64_t count) {
    return ranks_[0]
        .build({ranks_[0].task(collective, count)})
        ->items()
        .front()
        .item->work.streaming;
  };
  constexpr uint64_t kElementsOf16MiB = 4U << 20;
  EXPECT_FALSE(streams(Collective::kAllReduce, kElementsOf16MiB - 1));
  EXPECT_TRUE(streams(Collective::kAllReduce, kElementsOf16MiB));
  EXPECT_FALSE(streams(Collective::kAllGather, kElementsOf16MiB / 2 - 1));
  EXPECT_TRUE(streams(Collective::kAllGather, kElementsOf16MiB / 2)) << "of both ranks";
  EXPECT_TRUE(streams(Collective::kReduceScatter, kElementsOf16MiB));
  EXPECT_FALSE(streams(Collective::kReduceScatter, kElementsOf16MiB - 1)) << "one part";
}

}  // namespace
}  // namespace plexus
