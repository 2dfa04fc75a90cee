// SPDX-License-Identifier: Apache-2.0
// Running calls with one rank, without peers or a communicator.
#include "core/launch/call_runner.hpp"

#include <numeric>
#include <optional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/transport/memory/direct.hpp"

namespace plexus {
namespace {

class Alone final : public RankState {
 public:
  [[nodiscard]] Error stop_reason() const override {
    return plexus::fail(Code::kInternalError, "stopped");
  }
  void fail(const Error& /*error*/) override { ++failures; }
  void fail_for_memory() noexcept override { ++failures; }
  void on_stalled(Standstill /*standstill*/) override {}
  void on_moved() override {}
  int failures = 0;
};

class CallRunnerTest : public testing::Test {
 protected:
  CallRunnerTest()
      : connections_({.rank = 0, .infos = &infos_, .group = 1, .rendezvous = &rendezvous_}) {
    auto filter = AlgorithmFilter::parse("", "");
    filter_ = std::move(filter).value();
    runner_.emplace(LaunchContext{.plans = {.state = &state_,
                                            .rank = 0,
                                            .nranks = 1,
                                            .orders = orders_,
                                            .costs = nullptr,
                                            .connections = &connections_,
                                            .filter = &filter_,
                                            .tuner = nullptr,
                                            .collnet = &collnet_,
                                            .deterministic = false,
                                            .shares_memory = true,
                                            .channels_min = 1,
                                            .channels_max = 4,
                                            .slot_bytes = 4096,
                                            .copy_methods = &copy_methods_,
                                            .device = nullptr},
                                  .memory = &memory_,
                                  .infos = infos_,
                                  .log = &log_,
                                  .profile = nullptr,
                                  .async = nullptr,
                                  .launches = nullptr,
                                  .peer_mapped = nullptr,
                                  .registers_graphs = false,
                                  .orders_graphs = false});
  }

  Task all_reduce(uint64_t count) {
    Task task;
    task.shape = shape_of_count(count);
    task.op = ReduceOp::plain(ReduceKind::kSum);
    task.send = input_.data();
    task.recv = output_.data();
    return task;
  }
  /// A send to itself without a matching receive: no plan is possible.
  Task unmatched_send() {
    Task task = all_reduce(1);
    task.shape.collective = Collective::kSend;
    return task;
  }
  static CallShape shape_of_count(uint64_t count) {
    return {.type = 2, .op = 0, .count = count, .has_send = true, .has_recv = true};
  }
  bool call(uint64_t count) {
    const Task task = all_reduce(count);
    std::fill(output_.begin(), output_.end(), -1);
    const bool ran = runner_->run_inline({&task, 1}).has_value();
    return ran && is_copied(count);
  }
  [[nodiscard]] bool is_copied(uint64_t count) const {
    return std::equal(input_.begin(), input_.begin() + static_cast<std::ptrdiff_t>(count),
                      output_.begin());
  }

  bool repeat(uint64_t count, std::vector<int32_t>* output) {
    const auto repeated = runner_->repeat(shape_of_count(count), input_.data(), output->data());
    return repeated.has_value() && repeated.value();
  }

  static constexpr size_t kElements = 256;
  std::vector<int32_t> input_ = [] {
    std::vector<int32_t> values(kElements);
    std::iota(values.begin(), values.end(), 1);
    return values;
  }();
  std::vector<int32_t> output_ = std::vector<int32_t>(kElements);
  Alone state_;
  std::vector<PeerInfo> infos_ = std::vector<PeerInfo>(1);
  std::vector<ChannelOrder> orders_ = {{.ring = {0}, .nodes = {0}, .datacenters = {}}};
  LocalRendezvous rendezvous_;
  ConnectionSet connections_;
  UserMemory memory_;
  AlgorithmFilter filter_;
  CollnetAbility collnet_{.missing = "none"};
  HostCopyMethods copy_methods_;
  CallLog log_{1};
  std::optional<CallRunner> runner_;
};

TEST_F(CallRunnerTest, RepeatsCallsWithOtherAddresses) {
  ASSERT_TRUE(call(100));
  ASSERT_TRUE(call(50));
  for (const uint64_t count : {100, 50}) {  // not only the last one
    std::vector<int32_t> elsewhere(kElements, -1);
    ASSERT_TRUE(repeat(count, &elsewhere));
    EXPECT_EQ(elsewhere[count - 1], static_cast<int32_t>(count));
    EXPECT_EQ(elsewhere[count], -1);
  }
  EXPECT_EQ(log_.collectives(), 4U);
}

TEST_F(CallRunnerTest, RepeatsNoCallThatWasNotMade) {
  EXPECT_FALSE(repeat(100, &output_));
  ASSERT_TRUE(call(100));
  EXPECT_FALSE(repeat(101, &output_));
  const std::vector<Task> pair = {all_reduce(7), all_reduce(7)};
  ASSERT_TRUE(runner_->run_inline(pair).has_value());
  EXPECT_FALSE(repeat(7, &output_)) << "the plan is of a group";
  EXPECT_EQ(log_.collectives(), 3U);
}

TEST_F(CallRunnerTest, RepeatsNoReductionThatAUserDefined) {
  Task task = all_reduce(9);
  task.shape.op = kFirstUserOp;
  ASSERT_TRUE(runner_->run_inline({&task, 1}).has_value());
  const auto repeated = runner_->repeat(task.shape, task.send, task.recv);
  ASSERT_TRUE(repeated.has_value());
  EXPECT_FALSE(repeated.value());
}

TEST_F(CallRunnerTest, ACallWhosePlanTheCacheDroppedIsNotRepeated) {
  ASSERT_TRUE(call(1));
  for (uint64_t count = 2; count <= 200; ++count) {  // more shapes than the cache holds
    const std::vector<Task> tasks = {all_reduce(count), all_reduce(count)};
    ASSERT_TRUE(runner_->run_inline(tasks).has_value());
  }
  EXPECT_FALSE(repeat(1, &output_));
  EXPECT_TRUE(call(1));
  EXPECT_TRUE(repeat(1, &output_));
}

TEST_F(CallRunnerTest, AGroupThatCannotBePlannedLeavesNothingBehind) {
  ASSERT_TRUE(call(3));
  const std::vector<Task> tasks = {all_reduce(7), unmatched_send()};
  const auto refused = runner_->run_inline(tasks);
  ASSERT_TRUE(refused.has_error());
  EXPECT_EQ(log_.collectives(), 1U) << "no call was made";
  EXPECT_TRUE(repeat(3, &output_));
  EXPECT_EQ(state_.failures, 0);
  EXPECT_TRUE(call(7));
}

TEST_F(CallRunnerTest, TellsWhatTheLastCallUsed) {
  EXPECT_EQ(std::string_view(runner_->last_choice().algorithm), "");
  ASSERT_TRUE(call(5));
  EXPECT_EQ(runner_->last_choice().channels, 1);
}

}  // namespace
}  // namespace plexus
