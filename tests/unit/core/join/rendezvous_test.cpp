// SPDX-License-Identifier: Apache-2.0
// Ranks over TCP. Processes are simulated: each rank has agents of its own.
#include "core/join/rendezvous.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <memory>
#include <netinet/in.h>
#include <numeric>
#include <poll.h>
#include <random>
#include <string>
#include <sys/resource.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/join/introducer_server.hpp"
#include "security/handshake.hpp"
#include "security/seal.hpp"

namespace plexus {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kGroup = 99;
constexpr uint64_t kTag = 7;

Patience patience() { return {.deadline = Deadline::after(30s)}; }

Config loopback_config() {
  Config config;
  config.bootstrap_ifname = "=lo";
  config.socket_family = "AF_INET";
  config.bootstrap_timeout_s = 30;
  return config;
}

UniqueId start() {
  auto id = start_root(loopback_config());
  EXPECT_TRUE(id.has_value()) << id.error().message();
  return id.value();
}

/// One process with one rank.
class Rank {
 public:
  Rank(const UniqueId& id, int rank, int nranks) : Rank(std::span(&id, 1), rank, nranks) {}
  Rank(std::span<const UniqueId> ids,
       int rank,
       int nranks,
       const Config& config = loopback_config())
      : agents_(5000 + static_cast<uint64_t>(rank)),
        exchange_(join(agents_, config, ids, rank, nranks, nullptr)) {}
  [[nodiscard]] const Result<std::unique_ptr<Exchange>>& joined() const { return exchange_; }
  Exchange* operator->() { return exchange_.value().get(); }
  Exchange& operator*() { return *exchange_.value(); }

 private:
  Agents agents_;
  Result<std::unique_ptr<Exchange>> exchange_;
};

using Ranks = std::vector<std::unique_ptr<Rank>>;

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

Ranks join_all(std::span<const UniqueId> ids, int nranks) {
  Ranks ranks(static_cast<size_t>(nranks));
  on_ranks(0, nranks, [&](int rank) {
    auto made = std::make_unique<Rank>(ids, rank, nranks);
    ASSERT_TRUE(made->joined().has_value()) << made->joined().error().message();
    const auto all = (*made)->all_gather(std::to_string(rank));
    ASSERT_TRUE(all.has_value()) << all.error().message();
    EXPECT_EQ(all.value().back(), std::to_string(nranks - 1));
    ranks[static_cast<size_t>(rank)] = std::move(made);
  });
  return ranks;
}

Ranks join_all(const UniqueId& id, int nranks) { return join_all(std::span(&id, 1), nranks); }

void expect_job_runs(const UniqueId& id, int nranks) { join_all(id, nranks); }

std::vector<std::unique_ptr<Exchange>> make_group(Ranks& ranks, int first) {
  std::vector<int> members(ranks.size() - static_cast<size_t>(first));
  std::iota(members.begin(), members.end(), first);
  std::vector<std::unique_ptr<Exchange>> groups(ranks.size());
  for (const int rank : members) {
    groups[static_cast<size_t>(rank)] =
        (*ranks[static_cast<size_t>(rank)])->subgroup(members, kGroup).value();
  }
  return groups;
}

void expect_gather(const std::vector<std::unique_ptr<Exchange>>& groups, int first) {
  on_ranks(first, static_cast<int>(groups.size()), [&](int rank) {
    const auto all = groups[static_cast<size_t>(rank)]->all_gather(std::to_string(rank));
    ASSERT_TRUE(all.has_value()) << all.error().message();
    EXPECT_EQ(all.value().front(), std::to_string(first));
  });
}

/// Blocks until the group has failed, and returns the error.
std::string failure_of(Exchange& exchange) {
  auto text = std::make_shared<std::promise<std::string>>();
  exchange.on_failure(
      [text](const Error& error, FailureCause) { text->set_value(error.message()); });
  auto future = text->get_future();
  return future.wait_for(30s) == std::future_status::ready ? future.get() : "no failure";
}

/// Whether the connection was closed in time; reads and ignores pending bytes.
bool is_closed_in_time(Socket& socket) {
  std::array<char, 256> bytes{};
  const Patience bound = patience();
  while (bound.wait(socket.fd(), POLLIN, "the other side closes").has_value()) {
    if (socket.try_recv(bytes.data(), bytes.size()).has_error()) {
      return true;
    }
  }
  return false;
}

Socket knock(const UniqueId& id) {
  auto socket = Socket::connect(id.address, patience());
  EXPECT_TRUE(socket.has_value()) << socket.error().message();
  return std::move(socket).value();
}

/// Sends what one side of a handshake has to say, and receives what it wants, until it is over.
void run_handshake(Socket& socket, security::Handshake& side) {
  while (!side.is_over()) {
    if (const auto output = side.output(); !output.empty()) {
      ASSERT_TRUE(
          socket.send_all({reinterpret_cast<const char*>(output.data()), output.size()}, patience())
              .has_value());
      side.sent(output.size());
      continue;
    }
    const auto room = side.room();
    ASSERT_TRUE(socket.recv_all(room.data(), room.size(), patience()).has_value());
    side.take(room.size());
  }
}

/// Behaves like a process up to the proof.
Socket enter(const UniqueId& id) {
  Socket socket = knock(id);
  security::Handshake side({.key = id.secret}, security::Role::kCaller);
  run_handshake(socket, side);
  EXPECT_EQ(side.error(), "");
  return socket;
}

/// A process that registers a rank, and whose fate is the test's.
Socket register_rank(const UniqueId& id, uint32_t rank, uint32_t nranks) {
  Socket socket = enter(id);
  JoinInfo info{.rank = rank,
                .nranks = nranks,
                .version = 2,
                .process = {.process = 77 + rank, .pid = 77, .host = "evil"}};
  SocketAddress::parse("127.0.0.1:1").value().pack(info.process.address.data());
  EXPECT_TRUE(socket
                  .send_all(encode(Message{.type = MessageType::kJoin, .payload = encode(info)}),
                            patience())
                  .has_value());
  return socket;
}

TEST(Rendezvous, BringsRanksTogether) { expect_job_runs(start(), 8); }

TEST(Rendezvous, BringsRanksOfOneProcessTogether) {
  const UniqueId id = start();
  Agents agents;
  on_ranks(0, 5, [&](int rank) {
    auto exchange = join(agents, loopback_config(), std::span(&id, 1), rank, 5, nullptr);
    ASSERT_TRUE(exchange.has_value()) << exchange.error().message();
    EXPECT_EQ(exchange.value()->all_gather(std::to_string(rank)).value()[4], "4");
  });
}

TEST(Rendezvous, NeedsTheMakerOfTheIdNoMoreOnceAllHaveJoined) {
  const UniqueId id = start();
  auto ranks = join_all(id, 3);
  const Deadline deadline = Deadline::after(30s);
  while (Socket::connect(id.address, patience()).has_value() && !deadline.expired()) {
  }
  EXPECT_FALSE(deadline.expired());
  expect_gather(make_group(ranks, 0), 0);
}

TEST(Rendezvous, LivesOnWhoeverLeaves) {
  auto ranks = join_all(start(), 6);
  for (int first = 1; first < 5; ++first) {
    std::vector<int> members(ranks.size() - static_cast<size_t>(first));
    std::iota(members.begin(), members.end(), first);
    std::vector<std::unique_ptr<Exchange>> groups(ranks.size());
    for (const int rank : members) {
      groups[static_cast<size_t>(rank)] =
          (*ranks[static_cast<size_t>(rank)])
              ->subgroup(members, kGroup + static_cast<uint64_t>(first))
              .value();
    }
    ranks[static_cast<size_t>(first) - 1].reset();
    expect_gather(groups, first);
  }
}

TEST(Rendezvous, DeliversInOrderBetweenAnyTwo) {
  constexpr int kMessages = 500;
  auto ranks = join_all(start(), 3);
  on_ranks(0, 3, [&](int rank) {
    Exchange& mine = **ranks[static_cast<size_t>(rank)];
    const Deadline deadline = Deadline::after(60s);
    for (int i = 0; i < kMessages; ++i) {
      for (int peer = 0; peer < 3; ++peer) {
        ASSERT_TRUE(mine.post(peer, 1, std::to_string(i)).has_value());
      }
    }
    std::vector<int> next(3, 0);
    while (next != std::vector<int>(3, kMessages) && !deadline.expired()) {
      for (int peer = 0; peer < 3; ++peer) {
        while (auto message = mine.try_take(peer, 1)) {
          EXPECT_EQ(*message, std::to_string(next[static_cast<size_t>(peer)]++));
        }
      }
      std::this_thread::yield();
    }
    EXPECT_EQ(next, std::vector<int>(3, kMessages));
  });
}

TEST(Rendezvous, AProbeOfARankThatLeftBringsItsLeaveRecord) {
  auto ranks = join_all(start(), 3);
  std::promise<std::string> heard;
  std::atomic<bool> is_heard{false};
  (*ranks[1])->on_probe([&](int peer, bool left, const std::string& payload) {
    if (peer == 2 && left && !is_heard.exchange(true)) {
      heard.set_value(payload);
    }
  });
  (*ranks[2])->leave("last words");
  ranks[2].reset();  // its process ends: who is above it has its record
  const Deadline deadline = Deadline::after(30s);
  auto future = heard.get_future();
  do {
    (*ranks[1])->probe(2, "are you there");
  } while (future.wait_for(20ms) != std::future_status::ready && !deadline.expired());
  EXPECT_EQ(future.get(), "last words");
}

TEST(Rendezvous, TheRecordOfRankZeroOutlivesItsProcess) {
  auto ranks = join_all(start(), 3);
  std::promise<std::string> heard;
  std::atomic<bool> is_heard{false};
  (*ranks[2])->on_probe([&](int peer, bool left, const std::string& payload) {
    if (peer == 0 && left && !is_heard.exchange(true)) {
      heard.set_value(payload);
    }
  });
  (*ranks[0])->leave("zero");
  ranks[0].reset();
  const Deadline deadline = Deadline::after(30s);
  auto future = heard.get_future();
  do {
    (*ranks[2])->probe(0, "are you there");
  } while (future.wait_for(20ms) != std::future_status::ready && !deadline.expired());
  EXPECT_EQ(future.get(), "zero");
}

TEST(Rendezvous, NamesWhoDiedBeforeAllHadJoined) {
  const UniqueId id = start();
  Rank zero(id, 0, 3);
  Socket one = register_rank(id, 1, 3);
  one.close();
  EXPECT_THAT(failure_of(*zero), HasSubstr("rank 1 (evil:77) died"));
}

TEST(Rendezvous, NamesWhoDiedWhileTheTableWasPassedOn) {
  const UniqueId id = start();
  Rank zero(id, 0, 2);
  Socket one = register_rank(id, 1, 2);  // nothing listens at the address that it gave
  EXPECT_THAT(failure_of(*zero),
              HasSubstr("rank 1 (evil:77) has left or died, or cannot be reached"));
}

TEST(Rendezvous, IsNotDisturbedByAPortScan) {
  const UniqueId id = start();
  for (int i = 0; i < 300; ++i) {
    knock(id).close();
  }
  expect_job_runs(id, 2);
}

TEST(Rendezvous, IsNotBlockedByACrowdOfSilentConnections) {
  const UniqueId id = start();
  std::vector<Socket> crowd;
  for (int i = 0; i < 300; ++i) {
    crowd.push_back(knock(id));
  }
  expect_job_runs(id, 2);
}

TEST(Rendezvous, DropsGarbage) {
  const UniqueId id = start();
  std::mt19937 random(3);
  for (const size_t size_bytes : {1UL, 40UL, 4096UL, 100'000UL}) {
    Socket socket = knock(id);
    std::string bytes(size_bytes, '\0');
    for (char& byte : bytes) {
      byte = static_cast<char>(random());
    }
    (void)socket.send_all(bytes, patience());  // the other side may close before all is sent
    if (size_bytes >= sizeof(security::Hello)) {
      EXPECT_TRUE(is_closed_in_time(socket));
    }
  }
  expect_job_runs(id, 2);
}

/// In a separate process: uses up all descriptors, then connects.
[[noreturn]] void knock_without_descriptors() {
  const UniqueId id = start();
  Socket socket = Socket::reserve();
  const rlimit tight{64, 64};
  setrlimit(RLIMIT_NOFILE, &tight);
  while (dup(socket.fd()) >= 0) {
  }
  security::Handshake side({.key = id.secret}, security::Role::kCaller);
  const bool is_connecting =
      ::connect(socket.fd(), id.address.raw(), id.address.raw_size()) == 0 || errno == EINPROGRESS;
  run_handshake(socket, side);
  const bool is_reported =
      is_connecting && side.error().find("ulimit -n is 64") != std::string::npos;
  std::_Exit(is_reported ? 0 : 1);
}

TEST(RendezvousDeathTest, TellsWhoCannotJoinForWantOfDescriptors) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(knock_without_descriptors(), testing::ExitedWithCode(0), "");
}

TEST(Rendezvous, WhoIsGoneIsMissedWithinSeconds) {
  UniqueId id = start();
  // Bound, but not listening: it refuses, and no other process of this machine gets the port.
  const int bound = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const SocketAddress loopback = SocketAddress::parse("127.0.0.1:0").value();
  ASSERT_EQ(::bind(bound, loopback.raw(), loopback.raw_size()), 0);
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  ASSERT_EQ(::getsockname(bound, reinterpret_cast<sockaddr*>(&address), &size), 0);
  id.address = SocketAddress::parse(fmt::format("127.0.0.1:{}", ntohs(address.sin_port))).value();
  const auto began = std::chrono::steady_clock::now();
  const Rank one(id, 1, 2);
  ASSERT_TRUE(one.joined().has_error());
  EXPECT_LT(std::chrono::steady_clock::now() - began, 20s) << "the timeout is 30 s";
  EXPECT_EQ(one.joined().error().code(), Code::kRemoteError);
  EXPECT_THAT(one.joined().error().message(),
              AllOf(HasSubstr("ncclGetUniqueId"), HasSubstr(id.address.to_string())));
  ::close(bound);
}

TEST(Rendezvous, SeveralIdsShareTheRanks) {
  const std::vector<UniqueId> ids = {start(), start(), start()};
  join_all(ids, 7);
}

TEST(Rendezvous, SeveralIdsMayBeOne) {
  const UniqueId id = start();
  join_all(std::vector{id, id}, 3);
}

TEST(Rendezvous, WhoRegisteredWithAFurtherIdAndDiedIsNamed) {
  const std::vector<UniqueId> ids = {start(), start()};
  Rank zero(ids, 0, 4);
  ASSERT_TRUE(zero.joined().has_value());
  Socket process = enter(ids[1]);  // has ranks 2 and 3
  const auto send = [&](const Message& message) {
    EXPECT_TRUE(process.send_all(encode(message), patience()).has_value());
  };
  send({.type = MessageType::kFirstId,
        .payload = security::seal(ids[1].secret, kFirstIdPurpose, ids[0].to_bytes())});
  for (const uint32_t rank : {2U, 3U}) {
    send({.type = MessageType::kJoin,
          .payload = encode(JoinInfo{.rank = rank,
                                     .nranks = 4,
                                     .version = 2,
                                     .process = {.process = 5, .pid = 77, .host = "far"}})});
  }
  process.close();
  EXPECT_THAT(failure_of(*zero), HasSubstr("rank 2 (far:77) died"));
}

TEST(Rendezvous, AFurtherIdWhoseMakerIsGoneIsNamed) {
  std::vector<UniqueId> ids = {start(), start()};
  {
    auto listener = Socket::listen(SocketAddress::parse("127.0.0.1:0").value(), 0, 0);
    ids[1].address = listener.value().local_address().value();
  }
  const Rank one(ids, 1, 2);
  ASSERT_TRUE(one.joined().has_error());
  EXPECT_THAT(one.joined().error().message(), HasSubstr(ids[1].address.to_string()));
}

TEST(Rendezvous, AFirstIdWhoseMakerIsGoneIsSaidToThoseOfFurtherOnes) {
  std::vector<UniqueId> ids = {start(), start()};
  {
    auto listener = Socket::listen(SocketAddress::parse("127.0.0.1:0").value(), 0, 0);
    ids[0].address = listener.value().local_address().value();
  }
  Rank one(ids, 1, 2);
  ASSERT_TRUE(one.joined().has_value());
  EXPECT_THAT(failure_of(*one), HasSubstr("the process that made the first unique id"));
}

TEST(Rendezvous, ListsOfIdsThatDifferAreAnErrorOfBoth) {
  const std::vector<UniqueId> ids = {start(), start(), start()};
  const std::vector<UniqueId> others = {ids[2], ids[1]};
  const std::vector<UniqueId> some = {ids[0], ids[1]};
  Rank one(some, 1, 2);
  ASSERT_TRUE(one.joined().has_value());
  Rank other(others, 1, 2);
  EXPECT_THAT(failure_of(*one), HasSubstr("the same ids in the same order"));
  EXPECT_THAT(failure_of(*other), HasSubstr("the same ids in the same order"));
}

int count_sockets() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const auto target = std::filesystem::read_symlink(entry.path(), error);
    count += !error && target.string().rfind("socket:", 0) == 0 ? 1 : 0;
  }
  return count;
}

/// "": nothing came in time.
std::string take(Exchange& exchange, int peer) {
  const auto until = std::chrono::steady_clock::now() + 30s;
  while (std::chrono::steady_clock::now() < until) {
    if (auto message = exchange.try_take(peer, kTag); message.has_value()) {
      return *message;
    }
    std::this_thread::yield();
  }
  return "";
}

/// Every rank sends every other one `rounds` messages and receives those sent to it, in order.
void expect_messages_in_order(Ranks& ranks, int rounds) {
  const int nranks = static_cast<int>(ranks.size());
  on_ranks(0, nranks, [&](int rank) {
    Exchange& mine = **ranks[static_cast<size_t>(rank)];
    for (int round = 0; round < rounds; ++round) {
      for (int i = 1; i < nranks; ++i) {
        ASSERT_TRUE(mine.post((rank + i) % nranks, kTag, std::to_string(round)).has_value());
      }
    }
    for (int i = 1; i < nranks; ++i) {
      const int peer = (rank + i) % nranks;
      for (int round = 0; round < rounds; ++round) {
        const auto got = take(mine, peer);
        ASSERT_EQ(got, std::to_string(round)) << "from rank " << peer;
      }
    }
  });
}

TEST(Rendezvous, ConnectionsThatAreNotUsedAreClosed) {
  constexpr int kRanks = 12;
  const UniqueId id = start();
  Config config = loopback_config();
  config.control_connections = 2;
  Ranks ranks(kRanks);
  on_ranks(0, kRanks, [&](int rank) {
    ranks[static_cast<size_t>(rank)] =
        std::make_unique<Rank>(std::span(&id, 1), rank, kRanks, config);
    ASSERT_TRUE((*ranks[static_cast<size_t>(rank)])->all_gather("x").has_value());
  });
  const int before = count_sockets();
  expect_messages_in_order(ranks, 30);
  // Besides the tree's, which has all processes below the first: two of each of the others. Both
  // ends are here. Connections that are being closed are so within a moment.
  const int most = before + 2 * (kRanks - 1);
  const auto until = std::chrono::steady_clock::now() + 30s;
  while (count_sockets() > most && std::chrono::steady_clock::now() < until) {
    std::this_thread::yield();
  }
  EXPECT_LE(count_sockets(), most) << "all pairs would have 110 more";
  expect_messages_in_order(ranks, 1);
}

TEST(Rendezvous, AWrongInterfaceNamesItsSetting) {
  Config config = loopback_config();
  config.bootstrap_ifname = "=nosuch0";
  EXPECT_THAT(start_root(config).error().message(), HasSubstr("NCCL_OOB_NET_IFNAME==nosuch0"));
  config.bootstrap_ifname = "";
  config.socket_ifname = "=nosuch0";
  EXPECT_THAT(start_root(config).error().message(), HasSubstr("NCCL_SOCKET_IFNAME==nosuch0"));
}

TEST(Rendezvous, DropsAHalfOpenConnectionInTime) {
  auto listener = Socket::listen(SocketAddress::parse("127.0.0.1:0").value(), 0, 0);
  const UniqueId id = UniqueId::create(listener.value().local_address().value()).value();
  ASSERT_TRUE(start_introducer(id, std::move(listener).value(),
                               {.join_time = 30s, .times = {.handshake = 1s}})
                  .has_value());
  Socket silent = knock(id);
  Socket half = knock(id);
  const security::Handshake hello({.key = id.secret}, security::Role::kCaller);
  ASSERT_TRUE(half.send_all({reinterpret_cast<const char*>(hello.output().data()), 20}, patience())
                  .has_value());
  Socket mute = enter(id);  // proves membership and then never joins
  EXPECT_TRUE(is_closed_in_time(silent));
  EXPECT_TRUE(is_closed_in_time(half));
  EXPECT_TRUE(is_closed_in_time(mute));
  expect_job_runs(id, 2);
}

TEST(Rendezvous, RefusesAWrongSecretAndServesTheRight) {
  const UniqueId id = start();
  UniqueId wrong = id;
  wrong.secret[7] ^= 1;
  const Rank refused(wrong, 0, 2);
  ASSERT_TRUE(refused.joined().has_error());
  EXPECT_EQ(refused.joined().error().code(), Code::kInvalidUsage);
  EXPECT_THAT(refused.joined().error().message(), HasSubstr("secret"));
  expect_job_runs(id, 2);
}

TEST(Rendezvous, DropsAProcessThatSendsGarbageAndTellsTheOthers) {
  const UniqueId id = start();
  Rank good(id, 0, 2);
  ASSERT_TRUE(good.joined().has_value());
  Socket bad = enter(id);
  const std::string join_message = encode(
      Message{.type = MessageType::kJoin,
              .payload = encode(JoinInfo{.rank = 1,
                                         .nranks = 3,
                                         .version = 2,
                                         .process = {.process = 5, .pid = 77, .host = "evil"}})});
  ASSERT_TRUE(bad.send_all(join_message + std::string(64, 'x'), patience()).has_value());
  EXPECT_TRUE(is_closed_in_time(bad));
  EXPECT_THAT(failure_of(*good), HasSubstr("rank 1 (evil:77)"));
}

TEST(Rendezvous, RefusesASecondRankOfTheSameNumber) {
  const UniqueId id = start();
  Rank first(id, 0, 2);
  Agents others(1);
  auto second = join(others, loopback_config(), std::span(&id, 1), 0, 2, nullptr);
  ASSERT_TRUE(first.joined().has_value() && second.has_value())
      << "joining is answered by the first gather";
  const auto all = second.value()->all_gather("x");
  ASSERT_TRUE(all.has_error());
  EXPECT_THAT(all.error().message(), HasSubstr("both say they are rank 0"));
  EXPECT_TRUE(first->all_gather("x").has_error());
}

TEST(Rendezvous, RefusesASecondRankOfTheSameNumberInAProcess) {
  const UniqueId id = start();
  Agents agents;
  auto first = join(agents, loopback_config(), std::span(&id, 1), 0, 2, nullptr);
  auto second = join(agents, loopback_config(), std::span(&id, 1), 0, 2, nullptr);
  ASSERT_TRUE(first.has_value());
  ASSERT_TRUE(second.has_error());
  EXPECT_THAT(second.error().message(), HasSubstr("both say they are rank 0"));
  EXPECT_THAT(first.value()->all_gather("x").error().message(), HasSubstr("both say they are"));
}

TEST(Rendezvous, NamesRanksThatNeverCome) {
  Config config = loopback_config();
  config.bootstrap_timeout_s = 1;
  const UniqueId id = start_root(config).value();
  Agents agents;
  auto alone = join(agents, config, std::span(&id, 1), 0, 3, nullptr);
  ASSERT_TRUE(alone.has_value());
  const auto all = alone.value()->all_gather("x");
  ASSERT_TRUE(all.has_error());
  EXPECT_EQ(all.error().code(), Code::kTimeout);
  EXPECT_THAT(all.error().message(),
              AllOf(HasSubstr("2 of 3 ranks did not come"), HasSubstr("rank 1, 2")));
}

TEST(Rendezvous, EndsAJoinThatIsStopped) {
  const UniqueId id = UniqueId::create(SocketAddress::parse("127.0.0.1:1").value()).value();
  std::atomic<bool> stop{true};
  Agents agents;
  const auto stopped = join(agents, loopback_config(), std::span(&id, 1), 0, 2, &stop);
  ASSERT_TRUE(stopped.has_error());
  EXPECT_THAT(stopped.error().message(), AllOf(HasSubstr("127.0.0.1:1"), HasSubstr("aborted")));
}

TEST(Rendezvous, ConnectsAgainWhenTheNetworkCutsAHandshake) {
  Socket listener = Socket::listen(SocketAddress::parse("127.0.0.1:0").value(), 0, 0).value();
  const SocketAddress address = listener.local_address().value();
  const UniqueId id = UniqueId::create(address).value();
  std::thread network([&] {
    ASSERT_TRUE(patience().wait(listener.fd(), POLLIN, "a rank connects").has_value());
    auto cut = listener.try_accept();
    ASSERT_TRUE(cut.has_value() && cut.value().has_value());
    const linger at_once{.l_onoff = 1, .l_linger = 0};  // closing sends a reset
    setsockopt(cut.value()->fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    // The introducer listens before the first connection ends, so the next one finds it.
    ASSERT_TRUE(start_introducer(id, std::move(listener), {.join_time = 30s}).has_value());
    cut.value()->close();
  });
  expect_job_runs(id, 1);
  network.join();
}

/// Ranks of 2 processes; each has a mode of its own.
std::array<std::string, 2> failures_of(const char* const (&modes)[2]) {
  std::array<std::string, 2> failures;
  Config config = loopback_config();
  config.net_security = modes[0];
  const UniqueId id = start_root(config).value();
  on_ranks(0, 2, [&](int rank) {
    Config own = loopback_config();
    own.net_security = modes[rank];
    Agents agents(5000 + static_cast<uint64_t>(rank));
    auto joined = join(agents, own, std::span(&id, 1), rank, 2, nullptr);
    const auto all = joined.has_value() ? joined.value()->all_gather("x")
                                        : Result<Gathered>(std::move(joined).error());
    failures[static_cast<size_t>(rank)] = all.has_error() ? all.error().message() : "";
  });
  return failures;
}

TEST(Rendezvous, BringsRanksTogetherInEveryMode) {
  for (const char* const mode : {"off", "auth", "tls"}) {
    EXPECT_THAT(failures_of({mode, mode}), testing::Each(""));
  }
}

TEST(Rendezvous, ModesThatDifferAreAnErrorOnBothSidesAtOnceThatNamesThem) {
  for (const auto& modes : {std::array{"auth", "tls"}, std::array{"tls", "off"}}) {
    const auto began = std::chrono::steady_clock::now();
    EXPECT_THAT(failures_of({modes[0], modes[1]}),
                testing::Each(AllOf(HasSubstr("PLEXUS_NET_SECURITY is "), HasSubstr(modes[0]),
                                    HasSubstr(modes[1]))));
    EXPECT_LT(std::chrono::steady_clock::now() - began, 20s) << "the timeout is 30 s";
  }
}

TEST(Rendezvous, CarriesLargeGathersByTls) {
  Config config = loopback_config();
  config.net_security = "tls";
  const UniqueId id = start_root(config).value();
  on_ranks(0, 3, [&](int rank) {
    Agents agents(5000 + static_cast<uint64_t>(rank));
    auto joined = join(agents, config, std::span(&id, 1), rank, 3, nullptr);
    ASSERT_TRUE(joined.has_value()) << joined.error().message();
    const std::string blob(size_t{1} << 19, static_cast<char>('a' + rank));
    const auto all = joined.value()->all_gather(blob);
    ASSERT_TRUE(all.has_value()) << all.error().message();
    EXPECT_EQ(all.value()[2], std::string(size_t{1} << 19, 'c'));
  });
}

TEST(Rendezvous, KeepsToThePortRange) {
  Config config = loopback_config();
  config.port_range = "34000-34999";
  const auto id = start_root(config);
  ASSERT_TRUE(id.has_value()) << id.error().message();
  EXPECT_GE(id.value().address.port(), 34000);
  EXPECT_LE(id.value().address.port(), 34999);
  expect_job_runs(id.value(), 2);
  for (const char* const wrong : {"1", "5-", "9-8", "0-1", "1-65536", "a-b", "1-2x"}) {
    config.port_range = wrong;
    EXPECT_TRUE(start_root(config).has_error()) << wrong;
  }
}

}  // namespace
}  // namespace plexus
