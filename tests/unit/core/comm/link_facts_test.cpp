// SPDX-License-Identifier: Apache-2.0
// A communicator's part in the agreement on links, over the control plane of one process.
#include "core/comm/link_facts.hpp"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/clock.hpp"
#include "core/control/control_tag.hpp"

namespace plexus {
namespace {

constexpr uint64_t kTag = tag_of(ControlTag::kLinkFacts, 0);

struct Ranks {
  explicit Ranks(int nranks) : exchanges(make_local_exchanges(nranks)) {
    for (int rank = 0; rank < nranks; ++rank) {
      logs.push_back(std::make_unique<CallLog>(nranks));
    }
    facts.resize(exchanges.size());
  }
  void open(size_t rank) {
    facts[rank] = std::make_unique<LinkFacts>(
        LinkFacts::Options{.exchange = exchanges[rank].get(),
                           .calls = logs[rank].get(),
                           .datacenter = static_cast<uint32_t>(rank % 2),
                           .datacenters = 2,
                           .gives_up = [&] { return stop.load(); }});
  }
  /// Posts what rank 0 would propose.
  void propose_from_0() {
    LinkAgreement leader(
        {.rank = 0, .nranks = static_cast<int>(exchanges.size()), .datacenters = 2, .calls = [] {
           return 0;
         }});
    for (Exchange::Posted& each : leader.report({0, 1}, 500)) {
      ASSERT_TRUE(exchanges[0]->post(each.peer, kTag, std::move(each.blob)).has_value());
    }
  }
  std::vector<std::unique_ptr<Exchange>> exchanges;
  std::vector<std::unique_ptr<CallLog>> logs;
  std::vector<std::unique_ptr<LinkFacts>> facts;
  std::atomic<bool> stop{false};
};

TEST(LinkFacts, AreTheSameForAllRanksFromOneCallOn) {
  Ranks ranks(3);
  for (size_t rank = 0; rank < 3; ++rank) {
    ranks.open(rank);
  }
  ranks.facts[1]->report(0, 250);
  const uint64_t due = ranks.facts[0]->due();
  for (const auto& facts : ranks.facts) {
    EXPECT_EQ(facts->due(), due);
    EXPECT_EQ(facts->admit(due - 1).value(), std::nullopt);
    EXPECT_EQ(facts->admit(due).value(), (LinkShares{{{0, 1}, 250}}));
    EXPECT_EQ(facts->admit(due + 1).value(), std::nullopt);
  }
}

/// Its communicator is still being made: messages wait for it.
TEST(LinkFacts, WaitForARankThatIsNotThereYet) {
  Ranks ranks(3);
  ranks.open(0);
  ranks.open(1);
  ranks.facts[1]->report(0, 250);
  const uint64_t due = ranks.facts[1]->due();
  EXPECT_EQ(ranks.facts[1]->admit(due).value(), std::nullopt)
      << "cancelled: it had come to that call";
  const uint64_t next = ranks.facts[1]->due();
  EXPECT_GT(next, due);
  ranks.open(2);
  for (const auto& facts : ranks.facts) {
    EXPECT_EQ(facts->admit(next).value(), (LinkShares{{{0, 1}, 250}}));
  }
}

TEST(LinkFacts, WaitNoLongerWhenTheRankIsStopped) {
  Ranks ranks(2);
  ranks.open(1);
  ranks.propose_from_0();  // and says nothing more
  const uint64_t due = ranks.facts[1]->due();
  std::atomic<bool> is_over{false};
  std::thread caller([&] {
    EXPECT_EQ(ranks.facts[1]->admit(due).value(), std::nullopt);
    is_over = true;
  });
  // It waits from the moment on in which it asks rank 0.
  int asked = 0;
  const Deadline end = Deadline::after(std::chrono::seconds(10));
  while (asked < 2 && !end.expired()) {  // its acceptance, its question
    asked += ranks.exchanges[0]->try_take(1, kTag).has_value() ? 1 : 0;
    std::this_thread::yield();
  }
  EXPECT_EQ(asked, 2);
  EXPECT_FALSE(is_over);
  ranks.stop = true;
  caller.join();
}

TEST(LinkFacts, SayWhatAMessageBroke) {
  Ranks ranks(2);
  ranks.open(1);
  ranks.propose_from_0();
  ASSERT_TRUE(ranks.exchanges[0]->post(1, kTag, "nonsense").has_value());
  const auto passed = ranks.facts[1]->admit(ranks.facts[1]->due());
  ASSERT_TRUE(passed.has_error());
  EXPECT_THAT(passed.error().message(), testing::HasSubstr("rank 0 sent a malformed"));
}

TEST(LinkFacts, KeepNobodyWhenARankHasLeft) {
  Ranks ranks(3);
  for (size_t rank = 0; rank < 3; ++rank) {
    ranks.open(rank);
  }
  ranks.facts[2]->leave();
  ranks.exchanges[2]->leave();
  ranks.facts[1]->report(0, 250);
  for (const size_t rank : {1U, 0U, 1U}) {
    const uint64_t due = ranks.facts[rank]->due();
    EXPECT_EQ(ranks.facts[rank]->admit(due).value(), std::nullopt);
    EXPECT_GT(ranks.facts[rank]->due(), due);
  }
  ranks.facts[0]->leave();
  EXPECT_EQ(ranks.facts[1]->due(), ~uint64_t{0});
}

}  // namespace
}  // namespace plexus
