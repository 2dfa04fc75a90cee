// SPDX-License-Identifier: Apache-2.0
// Ranks agree from which collective on a link counts as lost. Simulated: messages between two ranks
// keep their order and else come in any, and ranks call whenever they like.
#include "core/comm/link_agreement.hpp"

#include <algorithm>
#include <deque>
#include <memory>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus {
namespace {

using Link = std::pair<uint32_t, uint32_t>;
constexpr Link kLink{0, 1};
constexpr uint32_t kWhole = 1000;

class World {
 public:
  World(int nranks, uint64_t seed, uint64_t spread)
      : nranks_(nranks), spread_(spread), random_(seed), ranks_(static_cast<size_t>(nranks)) {
    for (int rank = 0; rank < nranks; ++rank) {
      Rank& made = ranks_[static_cast<size_t>(rank)];
      made.agreement = std::make_unique<LinkAgreement>(LinkAgreement::Options{
          .rank = rank, .nranks = nranks, .datacenters = 3, .calls = [&made] {
            return made.calls;
          }});
    }
  }

  void report(int rank, Link link, uint32_t share) {
    send(rank, at(rank).agreement->report(link, share));
  }
  void leave(int rank) {
    at(rank).has_left = true;
    send(rank, at(rank).agreement->leave());
  }
  /// The rank calls its next collective, unless it has to wait. No rank is more than `spread` calls
  /// ahead of the slowest.
  bool call(int rank) {
    Rank& mine = at(rank);
    if (mine.has_left || mine.calls >= slowest() + spread_) {
      return false;
    }
    if (mine.calls >= mine.agreement->due().load()) {
      LinkAgreement::Admission admission = mine.agreement->admit(mine.calls);
      send(rank, std::move(admission.posts));
      if (!admission.may_begin) {
        ++waits;
        return false;
      }
      if (admission.shares.has_value()) {
        mine.shares = *admission.shares;
      }
    }
    if (mine.calls == chosen_.size()) {
      chosen_.push_back(mine.shares);
    }
    EXPECT_EQ(chosen_[mine.calls], mine.shares) << "collective " << mine.calls << ", rank " << rank;
    ++mine.calls;
    return true;
  }
  /// Some message that is under way. False: there is none.
  bool deliver() {
    std::vector<std::pair<int, int>> ways;
    for (const auto& [way, messages] : under_way_) {
      if (!messages.empty()) {
        ways.push_back(way);
      }
    }
    if (ways.empty()) {
      return false;
    }
    const auto way = ways[random_() % ways.size()];
    const std::string blob = std::move(under_way_[way].front());
    under_way_[way].pop_front();
    if (!at(way.second).has_left) {
      auto posts = at(way.second).agreement->take(way.first, blob);
      EXPECT_TRUE(posts.has_value());
      send(way.second, std::move(posts).value());
    }
    return true;
  }
  /// Until nothing is under way and every rank has made `calls` more.
  void settle(uint64_t calls = 0) {
    const uint64_t end = std::max_element(ranks_.begin(), ranks_.end(),
                                          [](auto& a, auto& b) { return a.calls < b.calls; })
                             ->calls +
                         calls;
    for (int idle = 0; idle < 2;) {
      bool moved = deliver();
      for (int rank = 0; rank < nranks_; ++rank) {
        moved = (at(rank).calls < end && call(rank)) || moved;
      }
      idle = moved ? 0 : idle + 1;
    }
    for (const Rank& rank : ranks_) {
      EXPECT_TRUE(rank.has_left || rank.calls == end) << "a rank waits for ever";
    }
  }
  [[nodiscard]] const LinkShares& shares(int rank) { return at(rank).shares; }
  [[nodiscard]] uint64_t calls(int rank) { return at(rank).calls; }
  [[nodiscard]] size_t choices() const {
    size_t count = 1;
    for (size_t call = 1; call < chosen_.size(); ++call) {
      count += chosen_[call] == chosen_[call - 1] ? 0 : 1;
    }
    return count;
  }
  uint64_t pick(uint64_t below) { return random_() % below; }
  int waits = 0;

 private:
  struct Rank {
    std::unique_ptr<LinkAgreement> agreement;
    uint64_t calls = 0;
    LinkShares shares;
    bool has_left = false;
  };
  Rank& at(int rank) { return ranks_[static_cast<size_t>(rank)]; }
  uint64_t slowest() {
    uint64_t least = ~uint64_t{0};
    for (const Rank& rank : ranks_) {
      least = std::min(least, rank.calls);
    }
    return least;
  }
  void send(int from, LinkAgreement::Posts posts) {
    for (Exchange::Posted& post : posts) {
      under_way_[{from, post.peer}].push_back(std::move(post.blob));
    }
  }

  int nranks_;
  uint64_t spread_;
  std::mt19937_64 random_;
  std::vector<Rank> ranks_;
  std::map<std::pair<int, int>, std::deque<std::string>> under_way_;
  std::vector<LinkShares> chosen_;  // by collective, as the first rank chose that called it
};

TEST(LinkAgreement, AllChangeBeforeTheSameCallAndBack) {
  World world(4, 1, 2);
  world.settle(10);
  world.report(2, kLink, 500);
  world.settle(50);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(world.shares(rank), (LinkShares{{kLink, 500}}));
  }
  world.report(2, kLink, kWhole);
  world.settle(50);
  EXPECT_EQ(world.shares(1), LinkShares{});
  EXPECT_EQ(world.choices(), 3U);
}

TEST(LinkAgreement, KeepsNoCallWhereMessagesAreFasterThanCalls) {
  World world(4, 1, 1);
  world.report(3, kLink, 500);
  while (world.deliver()) {
  }
  world.settle(20);
  EXPECT_EQ(world.waits, 0);
  EXPECT_EQ(world.shares(0), (LinkShares{{kLink, 500}}));
}

/// Its control plane answers, and its next call, whenever it comes, is as the others'.
TEST(LinkAgreement, ARankThatMakesNoCallsKeepsNobody) {
  World world(3, 1, 1000);
  world.report(0, kLink, 250);
  while (world.deliver()) {
  }
  for (int call = 0; call < 500; ++call) {
    ASSERT_TRUE(world.call(0));
    ASSERT_TRUE(world.call(1));
  }
  EXPECT_EQ(world.calls(2), 0U);
  world.settle(1);
  EXPECT_EQ(world.shares(2), (LinkShares{{kLink, 250}}));
}

TEST(LinkAgreement, ThatOfTheRankWithTheLeastCounts) {
  World world(3, 1, 2);
  world.report(1, kLink, 750);
  world.report(2, kLink, 500);
  world.report(2, {1, 2}, 900);
  world.settle(100);
  EXPECT_EQ(world.shares(0), (LinkShares{{kLink, 500}, {{1, 2}, 900}}));
  world.report(2, kLink, kWhole);
  world.settle(100);
  EXPECT_EQ(world.shares(0), (LinkShares{{kLink, 750}, {{1, 2}, 900}}));
}

/// Proposals are refused until one is far enough ahead.
TEST(LinkAgreement, ComesToAnEndWhereARankIsFarAhead) {
  World world(2, 1, 100'000);
  for (int call = 0; call < 10'000; ++call) {
    ASSERT_TRUE(world.call(1));
  }
  world.report(1, kLink, 500);
  world.settle(100);
  EXPECT_EQ(world.shares(0), (LinkShares{{kLink, 500}}));
}

/// Also rank 0, with a proposal under way.
TEST(LinkAgreement, KeepsNoCallWhenARankHasLeft) {
  for (const int leaves : {0, 2}) {
    World world(3, 1, 1000);
    world.report(1, kLink, 500);
    ASSERT_TRUE(world.deliver());  // rank 0 proposes
    world.leave(leaves);
    for (int call = 0; call < 100; ++call) {
      for (const int rank : {0, 1, 2}) {
        world.call(rank);
      }
      world.deliver();
    }
    world.settle(10);
  }
}

TEST(LinkAgreement, AgreesWhateverTheOrder) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    const uint64_t spreads[] = {1, 3, 50, 5000};
    const int nranks = 2 + static_cast<int>(seed % 6);
    World world(nranks, seed, spreads[seed % 4]);
    const uint64_t calls_in_all = 1 + world.pick(30);  // to one message
    for (int step = 0; step < 600; ++step) {
      const int rank = static_cast<int>(world.pick(static_cast<uint64_t>(nranks)));
      const uint64_t what = world.pick(40);
      if (what == 0) {
        const uint32_t shares[] = {250, 500, kWhole};
        world.report(rank, world.pick(2) == 0 ? kLink : Link{1, 2}, shares[world.pick(3)]);
      } else if (what <= calls_in_all) {
        world.call(rank);
      } else {
        world.deliver();
      }
    }
    for (int rank = 0; rank < nranks; ++rank) {
      world.report(rank, {1, 2}, kWhole);
      world.report(rank, kLink, 500);
    }
    const LinkShares last = {{kLink, 500}};
    const auto has_come = [&] {
      bool all = true;
      for (int rank = 0; rank < nranks; ++rank) {
        all = all && world.shares(rank) == last;
      }
      return all;
    };
    for (int times = 0; times < 100 && !has_come(); ++times) {
      world.settle(500);
    }
    EXPECT_TRUE(has_come());
    if (testing::Test::HasFailure()) {
      return;
    }
  }
}

TEST(LinkAgreement, RefusesMessagesThatMakeNoSense) {
  LinkAgreement leader({.rank = 0, .nranks = 2, .datacenters = 2, .calls = [] { return 0; }});
  LinkAgreement other({.rank = 1, .nranks = 2, .datacenters = 2, .calls = [] { return 0; }});
  const auto posts = leader.report(kLink, 500);
  ASSERT_EQ(posts.size(), 1U);
  const std::string proposal = posts.front().blob;
  EXPECT_TRUE(other.take(0, proposal).has_value());
  for (const std::string& wrong :
       {std::string(), std::string("x"), proposal.substr(1), proposal + "x"}) {
    const auto refused = other.take(0, wrong);
    ASSERT_TRUE(refused.has_error());
    EXPECT_THAT(refused.error().message(), testing::HasSubstr("rank 0 sent a malformed"));
  }
  EXPECT_TRUE(leader.take(1, proposal).has_error()) << "only rank 0 proposes";
  LinkAgreement smaller({.rank = 1, .nranks = 2, .datacenters = 1, .calls = [] { return 0; }});
  EXPECT_TRUE(smaller.take(0, proposal).has_error()) << "there is no such datacenter";
}

}  // namespace
}  // namespace plexus
