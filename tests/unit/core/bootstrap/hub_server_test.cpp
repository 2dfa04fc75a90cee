// SPDX-License-Identifier: Apache-2.0
// The hub on TCP, ranks that join it, and strangers that connect to it.
#include "core/bootstrap/hub_server.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <poll.h>
#include <random>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/bootstrap/handshake.hpp"
#include "core/bootstrap/message.hpp"
#include "core/bootstrap/rendezvous.hpp"

namespace plexus {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

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

Result<std::unique_ptr<Exchange>> join_as(const UniqueId& id, int rank, int nranks) {
  return join(loopback_config(), std::span(&id, 1), rank, nranks, nullptr);
}

/// All ranks join and gather once.
void expect_job_runs(const UniqueId& id, int nranks) {
  std::vector<std::thread> threads;
  std::atomic<int> done{0};
  for (int rank = 0; rank < nranks; ++rank) {
    threads.emplace_back([&, rank] {
      auto exchange = join_as(id, rank, nranks);
      ASSERT_TRUE(exchange.has_value()) << exchange.error().message();
      const auto all = exchange.value()->all_gather(std::to_string(rank));
      ASSERT_TRUE(all.has_value()) << all.error().message();
      EXPECT_EQ(all.value().back(), std::to_string(nranks - 1));
      ++done;
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(done, nranks);
}

/// Whether the hub closed this connection in time; reads and ignores pending bytes.
bool is_closed_in_time(Socket& socket) {
  std::array<char, 256> bytes{};
  const Patience bound = patience();
  while (bound.wait(socket.fd(), POLLIN, "the hub closes").has_value()) {
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

/// Behaves like a member up to the proof.
Socket enter(const UniqueId& id) {
  Socket socket = knock(id);
  const Hello hello = make_hello().value();
  EXPECT_TRUE(socket.send_all({reinterpret_cast<const char*>(&hello), sizeof(hello)}, patience())
                  .has_value());
  Answer answer{};
  EXPECT_TRUE(socket.recv_all(&answer, sizeof(answer), patience()).has_value());
  const Proof proof = check_answer(id.secret, hello, answer).value();
  EXPECT_TRUE(
      socket.send_all({reinterpret_cast<const char*>(proof.data()), proof.size()}, patience())
          .has_value());
  return socket;
}

TEST(HubServer, BringsRanksTogether) { expect_job_runs(start(), 8); }

TEST(HubServer, IsNotDisturbedByAPortScan) {
  const UniqueId id = start();
  for (int i = 0; i < 300; ++i) {
    knock(id).close();
  }
  expect_job_runs(id, 2);
}

TEST(HubServer, IsNotBlockedByACrowdOfSilentConnections) {
  const UniqueId id = start();
  std::vector<Socket> crowd;
  for (int i = 0; i < 300; ++i) {
    crowd.push_back(knock(id));
  }
  expect_job_runs(id, 2);
}

TEST(HubServer, DropsGarbage) {
  const UniqueId id = start();
  std::mt19937 random(3);
  for (const size_t size_bytes : {1UL, 40UL, 4096UL, 100'000UL}) {
    Socket socket = knock(id);
    std::string bytes(size_bytes, '\0');
    for (char& byte : bytes) {
      byte = static_cast<char>(random());
    }
    (void)socket.send_all(bytes, patience());  // the hub may close before all is sent
    if (size_bytes >= sizeof(Hello)) {
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
  const Hello hello = make_hello().value();
  Answer answer{};
  const bool is_told =
      (::connect(socket.fd(), id.address.raw(), id.address.raw_size()) == 0 ||
       errno == EINPROGRESS) &&
      socket.send_all({reinterpret_cast<const char*>(&hello), sizeof(hello)}, patience())
          .has_value() &&
      socket.recv_all(&answer, sizeof(answer), patience()).has_value() &&
      read_refusal(answer) == tight.rlim_cur;
  std::_Exit(is_told ? 0 : 1);
}

TEST(HubServerDeathTest, TellsWhoCannotJoinForWantOfDescriptors) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(knock_without_descriptors(), testing::ExitedWithCode(0), "");
}

TEST(HubServer, WhoIsGoneIsMissedWithinSeconds) {
  UniqueId id = start();
  {
    auto listener = Socket::listen(SocketAddress::parse("127.0.0.1:0").value(), 0, 0);
    id.address = listener.value().local_address().value();
  }
  const auto began = std::chrono::steady_clock::now();
  const auto joined = join_as(id, 1, 2);
  ASSERT_TRUE(joined.has_error());
  EXPECT_LT(std::chrono::steady_clock::now() - began, 20s) << "the timeout is 30 s";
  EXPECT_EQ(joined.error().code(), Code::kRemoteError);
  EXPECT_THAT(joined.error().message(),
              AllOf(HasSubstr("ncclGetUniqueId"), HasSubstr(id.address.to_string())));
}

TEST(HubServer, AWrongInterfaceNamesItsSetting) {
  Config config = loopback_config();
  config.bootstrap_ifname = "=nosuch0";
  EXPECT_THAT(start_root(config).error().message(), HasSubstr("NCCL_OOB_NET_IFNAME==nosuch0"));
  config.bootstrap_ifname = "";
  config.socket_ifname = "=nosuch0";
  EXPECT_THAT(start_root(config).error().message(), HasSubstr("NCCL_SOCKET_IFNAME==nosuch0"));
}

TEST(HubServer, DropsAHalfOpenConnectionInTime) {
  auto listener = Socket::listen(SocketAddress::parse("127.0.0.1:0").value(), 0, 0);
  const UniqueId id = UniqueId::create(listener.value().local_address().value()).value();
  ASSERT_TRUE(
      start_hub_server(id, std::move(listener).value(), {.join_time = 30s, .handshake_time = 1s})
          .has_value());
  Socket silent = knock(id);
  Socket half = knock(id);
  const Hello hello = make_hello().value();
  ASSERT_TRUE(half.send_all({reinterpret_cast<const char*>(&hello), 20}, patience()).has_value());
  Socket mute = enter(id);  // proves membership and then never joins
  EXPECT_TRUE(is_closed_in_time(silent));
  EXPECT_TRUE(is_closed_in_time(half));
  EXPECT_TRUE(is_closed_in_time(mute));
  expect_job_runs(id, 2);
}

TEST(HubServer, RefusesAWrongSecretAndServesTheRight) {
  const UniqueId id = start();
  UniqueId wrong = id;
  wrong.secret[7] ^= 1;
  const auto refused = join_as(wrong, 0, 2);
  ASSERT_TRUE(refused.has_error());
  EXPECT_EQ(refused.error().code(), Code::kInvalidUsage);
  EXPECT_THAT(refused.error().message(), HasSubstr("secret"));
  expect_job_runs(id, 2);
}

TEST(HubServer, DropsAMemberThatSendsGarbageAndTellsTheOthers) {
  const UniqueId id = start();
  auto good = join_as(id, 0, 2);
  ASSERT_TRUE(good.has_value());
  Socket bad = enter(id);
  const std::string join_message = encode(
      Message{.type = MessageType::kJoin,
              .payload = encode(JoinInfo{
                  .rank = 1, .nranks = 2, .version = 1, .pid = 77, .process = 5, .host = "evil"})});
  ASSERT_TRUE(bad.send_all(join_message + std::string(64, 'x'), patience()).has_value());
  EXPECT_TRUE(is_closed_in_time(bad));
  const auto all = good.value()->all_gather("x");
  ASSERT_TRUE(all.has_error());
  EXPECT_EQ(all.error().code(), Code::kRemoteError);
  EXPECT_THAT(all.error().message(), HasSubstr("rank 1 (evil:77)"));
}

TEST(HubServer, RefusesASecondRankOfTheSameNumber) {
  const UniqueId id = start();
  auto first = join_as(id, 0, 2);
  auto second = join_as(id, 0, 2);
  ASSERT_TRUE(first.has_value() && second.has_value()) << "joining is answered by the first gather";
  const auto all = second.value()->all_gather("x");
  ASSERT_TRUE(all.has_error());
  EXPECT_THAT(all.error().message(), HasSubstr("both say they are rank 0"));
  EXPECT_TRUE(first.value()->all_gather("x").has_error());
}

TEST(HubServer, NamesRanksThatNeverCome) {
  Config config = loopback_config();
  config.bootstrap_timeout_s = 1;
  const UniqueId id = start_root(config).value();
  auto alone = join(config, std::span(&id, 1), 0, 3, nullptr);
  ASSERT_TRUE(alone.has_value());
  const auto all = alone.value()->all_gather("x");
  ASSERT_TRUE(all.has_error());
  EXPECT_EQ(all.error().code(), Code::kTimeout);
  EXPECT_THAT(all.error().message(),
              AllOf(HasSubstr("2 of 3 ranks did not come"), HasSubstr("rank 1, 2")));
}

TEST(HubServer, EndsAJoinThatIsStopped) {
  const UniqueId id = UniqueId::create(SocketAddress::parse("127.0.0.1:1").value()).value();
  std::atomic<bool> stop{true};
  const auto stopped = join(loopback_config(), std::span(&id, 1), 0, 2, &stop);
  ASSERT_TRUE(stopped.has_error());
  EXPECT_THAT(stopped.error().message(), AllOf(HasSubstr("127.0.0.1:1"), HasSubstr("aborted")));
}

TEST(HubServer, KeepsToThePortRange) {
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
