// SPDX-License-Identifier: Apache-2.0
// Members over TCP whose hub moves from process to process. The processes are simulated: each
// member reports a different process id.
#include "core/bootstrap/tcp_family.hpp"

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <numeric>
#include <poll.h>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/bootstrap/exchange.hpp"
#include "core/bootstrap/handshake.hpp"
#include "core/bootstrap/hub_server.hpp"

namespace plexus {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr uint64_t kProcess = 7000;  // rank 0's process id
constexpr uint64_t kGroup = 99;

Patience patience() { return {.deadline = Deadline::after(60s)}; }

Config loopback_config() {
  Config config;
  config.bootstrap_ifname = "=lo";
  config.socket_family = "AF_INET";
  config.bootstrap_timeout_s = 60;
  return config;
}

JoinInfo info_of(int rank, int nranks) {
  return {.rank = static_cast<uint32_t>(rank),
          .nranks = static_cast<uint32_t>(nranks),
          .version = 1,
          .pid = 100 + rank,
          .process = kProcess + static_cast<uint64_t>(rank),
          .host = "node"};
}

UniqueId start(HubServerOptions options = {}) {
  options.host_process = options.host_process == process_id() ? kProcess : options.host_process;
  auto listener = listen_for_members(loopback_config());
  const UniqueId id = UniqueId::create(listener.value().local_address().value()).value();
  EXPECT_TRUE(start_hub_server(id, std::move(listener).value(), options).has_value());
  return id;
}

std::unique_ptr<Exchange> join_as(const UniqueId& id, int rank, int nranks) {
  auto family = TcpFamily::make(loopback_config(), id, info_of(rank, nranks), patience());
  EXPECT_TRUE(family.has_value()) << family.error().message();
  std::vector<uint32_t> members(static_cast<size_t>(nranks));
  std::iota(members.begin(), members.end(), 0U);
  return std::make_unique<Exchange>(std::move(family).value(), id.job, std::move(members), rank);
}

/// Calls `body(rank)` on a thread for each rank of [first, end).
template <class Body>
void on_ranks(int first, int end, const Body& body) {
  std::vector<std::thread> threads;
  for (int rank = first; rank < end; ++rank) {
    threads.emplace_back([&body, rank] { body(rank); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

using Exchanges = std::vector<std::unique_ptr<Exchange>>;

void expect_gather(const Exchanges& groups, int first) {
  on_ranks(first, static_cast<int>(groups.size()), [&](int rank) {
    const auto all = groups[static_cast<size_t>(rank)]->all_gather(std::to_string(rank));
    ASSERT_TRUE(all.has_value()) << all.error().message();
    EXPECT_EQ(all.value().front(), std::to_string(first));
    EXPECT_EQ(all.value().back(), std::to_string(groups.size() - 1));
  });
}

Exchanges join_all(const UniqueId& id, int nranks) {
  Exchanges worlds;
  for (int rank = 0; rank < nranks; ++rank) {
    worlds.push_back(join_as(id, rank, nranks));
  }
  expect_gather(worlds, 0);  // the hub has seen all of them
  return worlds;
}

/// Makes one group of the world's ranks [first, end); the result is indexed by rank in the world.
Exchanges make_group(const Exchanges& worlds, int first, uint64_t group = kGroup) {
  std::vector<int> members(worlds.size() - static_cast<size_t>(first));
  std::iota(members.begin(), members.end(), first);
  Exchanges groups(worlds.size());
  for (const int rank : members) {
    groups[static_cast<size_t>(rank)] =
        worlds[static_cast<size_t>(rank)]->subgroup(members, group).value();
  }
  return groups;
}

/// Blocks until the group has failed, and returns the error.
std::string failure_of(Exchange& exchange) {
  std::promise<std::string> text;
  exchange.on_failure([&](const Error& error) { text.set_value(std::string(error.message())); });
  return text.get_future().get();
}

/// Whether nothing listens at the id's address any more.
bool is_gone(const UniqueId& id) { return Socket::connect(id.address, patience()).has_error(); }

/// A member whose messages the test controls.
class RawMember {
 public:
  RawMember(const UniqueId& id, int rank, int nranks) : id_(id), info_(info_of(rank, nranks)) {
    enter(id.address);
  }
  void enter(const SocketAddress& address) {
    auto socket = Socket::connect(address, patience());
    ASSERT_TRUE(socket.has_value()) << socket.error().message();
    socket_ = std::move(socket).value();
    reader_ = {};
    const Hello hello = make_hello().value();
    send({reinterpret_cast<const char*>(&hello), sizeof(hello)});
    Answer answer{};
    ASSERT_TRUE(socket_.recv_all(&answer, sizeof(answer), patience()).has_value());
    const Proof proof = check_answer(id_.secret, hello, answer).value();
    send({reinterpret_cast<const char*>(proof.data()), proof.size()});
    send(encode(Message{.type = MessageType::kJoin, .payload = encode(info_)}));
  }
  void send(std::string_view bytes) {
    EXPECT_TRUE(socket_.send_all(bytes, patience()).has_value());
  }
  void send(const Message& message) { send(encode(message)); }
  /// Reads the next message of this type; ignores others.
  Message wait_for(MessageType type) {
    std::array<char, 4096> bytes{};
    for (;;) {
      auto message = reader_.next().value();
      if (message.has_value() && message->type == type) {
        return std::move(*message);
      }
      if (message.has_value()) {
        continue;
      }
      const bool there = patience().wait(socket_.fd(), POLLIN, "a message").has_value();
      auto received = socket_.try_recv(bytes.data(), bytes.size());
      if (!there || received.has_error()) {
        ADD_FAILURE() << "no message " << static_cast<int>(type);
        return {};
      }
      reader_.append(bytes.data(), received.value());
    }
  }
  void die() { socket_.close(); }

 private:
  UniqueId id_;
  JoinInfo info_;
  Socket socket_;
  MessageReader reader_;
};

TEST(TcpFamily, LivesOnWhenTheRankBesideTheHubLeaves) {
  const UniqueId id = start();
  auto worlds = join_all(id, 3);
  expect_gather(worlds, 0);
  const auto groups = make_group(worlds, 1);
  const auto begin = Clock::now();
  worlds[0].reset();
  const auto left = Clock::now();
  EXPECT_TRUE(is_gone(id)) << "leaving ends when the hub has moved";
  expect_gather(groups, 1);
  const auto after = make_group(worlds, 1, kGroup + 1);
  expect_gather(after, 1);
  RecordProperty("leave_us", static_cast<int>((left - begin) / 1us));
}

TEST(TcpFamily, LivesOnWhenTheHubMovesAgainAndAgain) {
  const UniqueId id = start();
  auto worlds = join_all(id, 5);
  for (int first = 1; first < 4; ++first) {
    const auto groups = make_group(worlds, first, kGroup + static_cast<uint64_t>(first));
    worlds[static_cast<size_t>(first) - 1].reset();
    expect_gather(groups, first);
  }
}

TEST(TcpFamily, TakesTheHubAlongWithManyMembers) {
  constexpr int kRanks = 32;
  const UniqueId id = start();
  auto worlds = join_all(id, kRanks);
  expect_gather(worlds, 0);
  const auto groups = make_group(worlds, 1);
  const auto begin = Clock::now();
  worlds[0].reset();
  RecordProperty("leave_us", static_cast<int>((Clock::now() - begin) / 1us));
  expect_gather(groups, 1);
  on_ranks(1, kRanks, [&](int rank) {
    groups[static_cast<size_t>(rank)]->leave();
    worlds[static_cast<size_t>(rank)].reset();
  });
}

/// A launcher made the id: the hub moves to a rank before any rank's init returns.
TEST(TcpFamily, LeavesALauncherWhenAllHaveJoined) {
  const UniqueId id = start({.host_process = 1});
  auto worlds = join_all(id, 3);
  expect_gather(worlds, 0);
  expect_gather(worlds, 0);
  while (!is_gone(id)) {  // its thread ends by itself
  }
  worlds[1].reset();
  const auto groups = make_group(worlds, 2);
  expect_gather(groups, 2);
}

TEST(TcpFamily, LosesReordersAndDoublesNothingWhileTheHubMoves) {
  static constexpr int kMessages = 3000;
  const UniqueId id = start();
  auto worlds = join_all(id, 4);
  const auto groups = make_group(worlds, 1);
  std::atomic<int> sent{0};
  std::thread leaver([&] {
    while (sent.load() < kMessages / 10) {
      std::this_thread::yield();
    }
    worlds[0].reset();
    worlds[1]->announce_failure(fail(Code::kInvalidUsage, "the last word"));
  });
  on_ranks(1, 4, [&](int rank) {
    Exchange& mine = *groups[static_cast<size_t>(rank)];
    const Deadline deadline = Deadline::after(60s);
    std::vector<int> next(3, 0);
    const auto take = [&] {
      for (int peer = 0; peer < 3; ++peer) {
        while (auto message = mine.try_take(peer, 1)) {
          EXPECT_EQ(*message, std::to_string(next[static_cast<size_t>(peer)]));
          next[static_cast<size_t>(peer)] = std::stoi(*message) + 1;
        }
      }
    };
    for (int i = 0; i < kMessages; ++i) {
      for (int peer = 0; peer < 3; ++peer) {
        ASSERT_TRUE(mine.post(peer, 1, std::to_string(i)).has_value());
      }
      ++sent;
      take();
      if (i % (kMessages / 30) == 0) {
        ASSERT_TRUE(mine.all_gather(std::to_string(i)).has_value());
      }
    }
    while (std::any_of(next.begin(), next.end(), [](int n) { return n < kMessages; }) &&
           !deadline.expired()) {
      take();
      std::this_thread::yield();
    }
    EXPECT_THAT(next, ::testing::Each(kMessages));
  });
  leaver.join();
  EXPECT_THAT(failure_of(*worlds[2]), HasSubstr("the last word"));
}

TEST(TcpFamily, EndsAGatherThatBeganBeforeTheMove) {
  const UniqueId id = start();
  auto worlds = join_all(id, 3);
  auto groups = make_group(worlds, 1);
  std::thread early([&] {
    const auto all = groups[1]->all_gather("early");
    ASSERT_TRUE(all.has_value()) << all.error().message();
    EXPECT_EQ(all.value(), (std::vector<std::string>{"early", "late"}));
  });
  worlds[0].reset();
  const auto all = groups[2]->all_gather("late");
  ASSERT_TRUE(all.has_value()) << all.error().message();
  early.join();
}

TEST(TcpFamily, HearsOfADeathAfterTheMove) {
  const UniqueId id = start();
  auto zero = join_as(id, 0, 3);
  auto one = join_as(id, 1, 3);
  RawMember two(id, 2, 3);
  std::thread leaver([&] { zero.reset(); });
  two.wait_for(MessageType::kPause);
  two.send(Message{.type = MessageType::kPause});
  const auto to = decode_hub_address(two.wait_for(MessageType::kMove).payload).value();
  EXPECT_EQ(to.name, "rank 1 (node:101)");
  two.enter(SocketAddress::unpack(to.address.data()).value());
  EXPECT_EQ(two.wait_for(MessageType::kJoin).payload, "rank 1 (node:101)");
  leaver.join();
  two.die();
  EXPECT_THAT(failure_of(*one), HasSubstr("rank 2 (node:102) died"));
}

TEST(TcpFamily, HearsOfADeathDuringTheMove) {
  const UniqueId id = start();
  auto zero = join_as(id, 0, 4);
  auto one = join_as(id, 1, 4);
  RawMember two(id, 2, 4);
  auto three = join_as(id, 3, 4);
  std::thread leaver([&] { zero.reset(); });
  two.wait_for(MessageType::kPause);
  two.die();
  EXPECT_THAT(failure_of(*one), HasSubstr("rank 2 (node:102) died"));
  EXPECT_THAT(failure_of(*three), HasSubstr("rank 2 (node:102) died"));
  leaver.join();
  EXPECT_TRUE(one->subgroup({1, 3}, kGroup).has_value()) << "the others have a hub";
}

TEST(TcpFamily, NamesAMemberThatIsSilentDuringTheMove) {
  const UniqueId id = start({.hand_over = {.pause = 200ms}});
  auto zero = join_as(id, 0, 3);
  auto one = join_as(id, 1, 3);
  RawMember two(id, 2, 3);
  zero.reset();
  EXPECT_THAT(failure_of(*one), HasSubstr("rank 2 (node:102) died"));
}

TEST(TcpFamily, SurvivesTheDeathOfTheHeir) {
  const UniqueId id = start();
  auto zero = join_as(id, 0, 4);
  RawMember one(id, 1, 4);
  auto two = join_as(id, 2, 4);
  auto three = join_as(id, 3, 4);
  std::thread leaver([&] { zero.reset(); });
  one.wait_for(MessageType::kPause);
  one.send(Message{.type = MessageType::kPause});
  one.wait_for(MessageType::kHost);
  one.die();
  leaver.join();
  EXPECT_THAT(failure_of(*two), HasSubstr("rank 1 (node:101) died"));
  EXPECT_THAT(failure_of(*three), HasSubstr("rank 1 (node:101) died"));
  auto left = two->subgroup({2, 3}, kGroup);
  auto right = three->subgroup({2, 3}, kGroup);
  std::thread peer([&] { EXPECT_TRUE(right.value()->all_gather("3").has_value()); });
  EXPECT_TRUE(left.value()->all_gather("2").has_value());
  peer.join();
}

TEST(TcpFamily, StaysWithTheOldHubWhenNobodyTakesOver) {
  const UniqueId id = start();
  auto zero = join_as(id, 0, 3);
  RawMember one(id, 1, 3);
  RawMember two(id, 2, 3);
  std::thread leaver([&] { zero.reset(); });
  for (RawMember* const member : {&one, &two}) {
    member->wait_for(MessageType::kPause);
    member->send(Message{.type = MessageType::kPause});
  }
  for (RawMember* const member : {&one, &two}) {
    member->wait_for(MessageType::kHost);
    member->send(Message{.type = MessageType::kHost});  // a refusal
  }
  for (RawMember* const member : {&one, &two}) {
    member->wait_for(MessageType::kLeave);
    EXPECT_TRUE(member->wait_for(MessageType::kMove).payload.empty());
  }
  one.send(Message{
      .type = MessageType::kPost, .peer = 2, .group = id.job, .tag = 3, .payload = "still here"});
  EXPECT_EQ(two.wait_for(MessageType::kPost).payload, "still here");
  one.send(Message{.type = MessageType::kLeave});
  two.send(Message{.type = MessageType::kLeave});
  leaver.join();
}

TEST(TcpFamily, EndsQuicklyWhenAllLeaveAtOnce) {
  const UniqueId id = start();
  auto worlds = join_all(id, 8);
  expect_gather(worlds, 0);
  on_ranks(0, 8, [&](int rank) { worlds[static_cast<size_t>(rank)].reset(); });
  EXPECT_TRUE(worlds.front() == nullptr);
}

/// A partial hub that brings a member to a certain state and then dies.
TEST(TcpFamily, HearsThatTheHubDiedInTheMiddleOfItsMove) {
  auto listener = listen_for_members(loopback_config()).value();
  const UniqueId id = UniqueId::create(listener.local_address().value()).value();
  std::thread hub([&] {
    ASSERT_TRUE(patience().wait(listener.fd(), POLLIN, "a member").has_value());
    Socket member = std::move(*listener.try_accept().value());
    Hello hello{};
    ASSERT_TRUE(member.recv_all(&hello, sizeof(hello), patience()).has_value());
    const Answer answer = make_answer(id.secret, hello).value();
    ASSERT_TRUE(
        member.send_all({reinterpret_cast<const char*>(&answer), sizeof(answer)}, patience())
            .has_value());
    const std::string words =
        encode(Message{.type = MessageType::kJoin, .payload = "rank 0 (node:100)"}) +
        encode(Message{.type = MessageType::kPause});
    ASSERT_TRUE(member.send_all(words, patience()).has_value());
    std::string bytes(sizeof(Proof) + kHeaderBytes + encode(info_of(1, 2)).size() + kHeaderBytes,
                      '\0');
    ASSERT_TRUE(member.recv_all(bytes.data(), bytes.size(), patience()).has_value());
  });
  auto one = join_as(id, 1, 2);
  hub.join();
  EXPECT_THAT(failure_of(*one), HasSubstr("rank 0 (node:100) died"));
  EXPECT_TRUE(one->all_gather("x").has_error());
  while (one->post(0, 1, "nobody reads it").has_value()) {
  }
}

TEST(TcpFamily, NamesWhoDoesNotFollowTheHub) {
  // A hub whose state has moved here from rank 0's process.
  Hub old(5, kProcess, [](uint32_t, const Message&) {});
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(old.join(info_of(rank, 3)).has_value());
  }
  ASSERT_TRUE(old.take(0, {.type = MessageType::kLeave}).has_value());
  auto listener = listen_for_members(loopback_config()).value();
  UniqueId id = UniqueId::create(listener.local_address().value()).value();
  id.job = 5;
  ASSERT_TRUE(
      start_heir_server(id, std::move(listener), old.to_bytes(),
                        {.hand_over = {.come = 300ms}, .host_process = info_of(1, 3).process})
          .has_value());
  auto one = join_as(id, 1, 3);
  EXPECT_THAT(failure_of(*one), HasSubstr("rank 2 (node:102) died or lost its connection while"));
}

TEST(TcpFamily, RefusesAStateThatIsNone) {
  const UniqueId id = start();
  auto listener = listen_for_members(loopback_config()).value();
  EXPECT_TRUE(start_heir_server(id, std::move(listener), "junk", {}).has_error());
}

TEST(TcpFamily, ListensInThePortRangeWhenTheHubComesToIt) {
  Config config = loopback_config();
  config.port_range = "35000-35999";
  const UniqueId id = start();
  auto zero = join_as(id, 0, 3);
  auto one = TcpFamily::make(config, id, info_of(1, 3), patience()).value();
  RawMember two(id, 2, 3);
  std::thread leaver([&] { zero.reset(); });
  two.wait_for(MessageType::kPause);
  two.send(Message{.type = MessageType::kPause});
  const auto to = decode_hub_address(two.wait_for(MessageType::kMove).payload).value();
  const auto port = SocketAddress::unpack(to.address.data()).value().port();
  EXPECT_TRUE(port >= 35000 && port <= 35999) << port;
  two.die();
  leaver.join();
}

}  // namespace
}  // namespace plexus
