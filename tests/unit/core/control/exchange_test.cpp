// SPDX-License-Identifier: Apache-2.0
// The control plane as ranks see it; the ranks of these tests are in one process.
#include "core/control/exchange.hpp"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus {
namespace {

using ::testing::HasSubstr;

/// Calls `body(rank)` on a thread for each rank.
template <class Body>
void on_ranks(int nranks, const Body& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < nranks; ++rank) {
    threads.emplace_back([&body, rank] { body(rank); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(Exchange, GathersManyTimes) {
  const auto exchanges = make_local_exchanges(3);
  on_ranks(3, [&](int rank) {
    for (int i = 0; i < 100; ++i) {
      const auto all = exchanges[rank]->all_gather(std::to_string(rank * 1000 + i));
      ASSERT_TRUE(all.has_value());
      EXPECT_EQ(all.value()[2], std::to_string(2000 + i));
    }
  });
}

TEST(Exchange, AGatherInTwoHalvesWaitsForNobodyInTheFirst) {
  const auto exchanges = make_local_exchanges(3);
  // One thread: each begins two gathers before the next rank comes.
  std::vector<uint64_t> first;
  std::vector<uint64_t> second;
  for (int rank = 0; rank < 3; ++rank) {
    first.push_back(exchanges[rank]->begin_gather("a" + std::to_string(rank)).value());
    second.push_back(exchanges[rank]->begin_gather("b" + std::to_string(rank)).value());
    exchanges[rank]->drop_gather(rank == 0 ? first[0] : second[rank]);
  }
  EXPECT_EQ(exchanges[0]->end_gather(second[0], nullptr).value()[2], "b2");
  EXPECT_EQ(exchanges[1]->end_gather(first[1], nullptr).value()[0], "a0");
  EXPECT_EQ(exchanges[2]->end_gather(first[2], nullptr).value()[1], "a1");
  on_ranks(3, [&](int rank) {
    EXPECT_EQ(exchanges[rank]->all_gather(std::to_string(rank)).value()[1], "1") << "the next one";
  });
}

TEST(Exchange, WhoLeavesWaitsForGathersThatItHasDropped) {
  const auto exchanges = make_local_exchanges(3);
  exchanges[0]->drop_gather(exchanges[0]->begin_gather("a0").value());
  std::atomic<bool> is_over{false};
  std::thread leaving([&] {
    exchanges[0]->wait_dropped(nullptr);
    is_over = true;
  });
  EXPECT_FALSE(is_over);
  for (const size_t rank : {1, 2}) {
    exchanges[rank]->drop_gather(exchanges[rank]->begin_gather("a").value());
  }
  leaving.join();
  for (const size_t rank : {1, 2}) {
    exchanges[rank]->wait_dropped(nullptr);  // returns
  }
  exchanges[0]->drop_gather(exchanges[0]->begin_gather("b0").value());
  const std::atomic<bool> given_up{true};
  exchanges[0]->wait_dropped(&given_up);  // returns, though the others never come
}

TEST(Exchange, DeliversControlMessagesInOrderByTag) {
  const auto exchanges = make_local_exchanges(2);
  ASSERT_TRUE(exchanges[0]->post(1, 5, "first").has_value());
  ASSERT_TRUE(exchanges[0]->post(1, 6, "other").has_value());
  ASSERT_TRUE(exchanges[0]->post(1, 5, "second").has_value());
  EXPECT_EQ(exchanges[1]->try_take(0, 5), "first");
  EXPECT_EQ(exchanges[1]->try_take(0, 5), "second");
  EXPECT_EQ(exchanges[1]->try_take(0, 5), std::nullopt);
  EXPECT_EQ(exchanges[1]->try_take(0, 6), "other");
  EXPECT_EQ(exchanges[0]->try_take(1, 6), std::nullopt);
}

TEST(Exchange, HandsControlMessagesToAHandlerAndPostsItsAnswers) {
  const auto exchanges = make_local_exchanges(3);
  ASSERT_TRUE(exchanges[0]->post(1, 5, "early").has_value());
  ASSERT_TRUE(exchanges[0]->post(1, 6, "other").has_value());
  exchanges[1]->on_post(5, [](const Exchange::Posted& message) {
    EXPECT_EQ(message.peer, 0);
    return std::vector<Exchange::Posted>{{.peer = 2, .blob = message.blob + " for 2"},
                                         {.peer = 0, .blob = message.blob + " again"}};
  });
  ASSERT_TRUE(exchanges[0]->post(1, 5, "late").has_value());
  for (const char* const each : {"early", "late"}) {
    EXPECT_EQ(exchanges[2]->try_take(1, 5), std::string(each) + " for 2");
    EXPECT_EQ(exchanges[0]->try_take(1, 5), std::string(each) + " again");
  }
  EXPECT_EQ(exchanges[1]->try_take(0, 5), std::nullopt);
  EXPECT_EQ(exchanges[1]->try_take(0, 6), "other");
  exchanges[1]->leave();
  EXPECT_TRUE(exchanges[0]->post(1, 5, "to nobody").has_value());
  EXPECT_EQ(exchanges[2]->try_take(1, 5), std::nullopt);
}

/// Each answers the other, in one process, until the number is 0.
TEST(Exchange, LetsHandlersAnswerEachOther) {
  const auto exchanges = make_local_exchanges(2);
  int handled = 0;
  for (const auto& exchange : exchanges) {
    exchange->on_post(5, [&handled](const Exchange::Posted& message) {
      ++handled;
      const int left = std::stoi(message.blob);
      return left == 0 ? std::vector<Exchange::Posted>()
                       : std::vector<Exchange::Posted>{
                             {.peer = message.peer, .blob = std::to_string(left - 1)}};
    });
  }
  ASSERT_TRUE(exchanges[0]->post(1, 5, "1000").has_value());
  EXPECT_EQ(handled, 1001);
}

TEST(Exchange, MakesSubgroupsWithRanksOfTheirOwn) {
  const auto exchanges = make_local_exchanges(4);
  on_ranks(4, [&](int rank) {
    const bool even = rank % 2 == 0;
    const auto group = exchanges[rank]->subgroup(
        even ? std::vector<int>{2, 0} : std::vector<int>{1, 3}, even ? 10 : 11);
    ASSERT_TRUE(group.has_value());
    const auto all = group.value()->all_gather(std::to_string(rank));
    ASSERT_TRUE(all.has_value());
    ASSERT_EQ(all.value().size(), 2U);
    EXPECT_EQ(all.value()[0], even ? "2" : "1");
    EXPECT_EQ(all.value()[1], even ? "0" : "3");
    EXPECT_EQ(group.value()->rank(), even ? (rank == 2 ? 0 : 1) : rank / 2);
  });
}

TEST(Exchange, ASubgroupFailsWithARankThatCannotMakeIt) {
  for (const bool is_early : {true, false}) {
    const auto exchanges = make_local_exchanges(3);
    const auto fail_it = [&] {
      exchanges[2]->fail_subgroup(10, fail(Code::kRemoteError, "ncclCommSplit: no more"));
    };
    if (is_early) {
      fail_it();
    }
    const auto group = exchanges[0]->subgroup({0, 2}, 10);
    ASSERT_TRUE(group.has_value());
    std::thread late([&] {
      if (!is_early) {
        fail_it();
      }
    });
    const auto all = group.value()->all_gather("alone");
    late.join();
    ASSERT_TRUE(all.has_error());
    EXPECT_THAT(all.error().message(), HasSubstr("rank 2"));
    EXPECT_THAT(all.error().message(), HasSubstr("ncclCommSplit: no more"));
    std::thread other([&] {  // the groups beside it go on
      const auto pair = exchanges[1]->subgroup({0, 1}, 11);
      EXPECT_TRUE(pair.value()->all_gather("b").has_value());
    });
    const auto pair = exchanges[0]->subgroup({0, 1}, 11);
    EXPECT_TRUE(pair.value()->all_gather("a").has_value());
    other.join();
  }
}

TEST(Exchange, WakesABlockedGatherWhenStopped) {
  const auto exchanges = make_local_exchanges(2);
  std::thread stopper([&] { exchanges[0]->stop(); });
  const auto all = exchanges[0]->all_gather("alone");
  stopper.join();
  ASSERT_TRUE(all.has_error());
  EXPECT_THAT(all.error().message(), HasSubstr("aborted"));
}

TEST(Exchange, EndsAGatherThatIsGivenUp) {
  const auto exchanges = make_local_exchanges(2);
  std::atomic<bool> give_up{false};
  std::thread quitter([&] { give_up.store(true); });
  const auto all = exchanges[0]->all_gather("alone", &give_up);
  quitter.join();
  ASSERT_TRUE(all.has_error());
  EXPECT_THAT(all.error().message(), HasSubstr("aborted"));
}

TEST(Exchange, TellsTheOthersOfAFailureOnceAndEndsTheirGathers) {
  const auto exchanges = make_local_exchanges(2);
  int calls = 0;
  std::string heard;
  exchanges[1]->on_failure([&](const Error& error, FailureCause) {
    ++calls;
    heard = error.message();
  });
  exchanges[0]->announce_failure(fail(Code::kSystemError, "out of memory"));
  exchanges[0]->announce_failure(fail(Code::kSystemError, "again"));
  EXPECT_EQ(calls, 1);
  EXPECT_THAT(heard, HasSubstr("out of memory"));
  const auto all = exchanges[1]->all_gather("x");
  ASSERT_TRUE(all.has_error());
  EXPECT_EQ(all.error().code(), Code::kRemoteError);
}

TEST(Exchange, TellsALateListenerAtOnce) {
  const auto exchanges = make_local_exchanges(2);
  exchanges[0]->announce_failure(fail(Code::kSystemError, "early"));
  std::string heard;
  exchanges[1]->on_failure([&](const Error& error, FailureCause) { heard = error.message(); });
  EXPECT_THAT(heard, HasSubstr("early"));
}

TEST(Exchange, MayLeaveWhileOthersStay) {
  auto exchanges = make_local_exchanges(2);
  int calls = 0;
  exchanges[1]->on_failure([&](const Error&, FailureCause) { ++calls; });
  exchanges[0].reset();
  EXPECT_EQ(calls, 0);
}

}  // namespace
}  // namespace plexus
