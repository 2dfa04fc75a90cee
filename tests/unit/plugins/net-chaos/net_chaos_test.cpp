// SPDX-License-Identifier: Apache-2.0
// Effects of a script on connections of net-socket, through the core's interface. Delays are lower
// bounds, because a loaded machine only makes them longer.
#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/net_pair.hpp"

namespace plexus {
namespace {

using namespace std::chrono_literals;
using test::ScopedEnv;
using testing::AllOf;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

std::shared_ptr<const NetPlugin> load() {
  return test::load_plugin(test::built_file("PLEXUS_TEST_LIB_DIR", "libplexus-net-chaos.so"));
}

/// Two contexts with a script, and a connection between them.
class Chaos {
 public:
  explicit Chaos(const char* script, const char* seed = "1")
      : interface_("NCCL_SOCKET_IFNAME", "lo"),
        script_("PLEXUS_CHAOS_SCRIPT", script),
        seed_("PLEXUS_CHAOS_SEED", seed),
        sender_(test::make_context(load())),
        receiver_(test::make_context(load())),
        pair(test::connect_pair(sender_, receiver_)) {}

  [[nodiscard]] const NetContext& context() const { return sender_; }
  [[nodiscard]] test::NetPair connect_another() { return test::connect_pair(sender_, receiver_); }
  /// Sends one message to a buffer of `capacity_bytes`; both posts may return kAgain.
  std::vector<std::byte> send(const std::vector<std::byte>& message,
                              size_t capacity_bytes,
                              int32_t tag) {
    std::vector<std::byte> arrived(capacity_bytes);
    const NetBuffer buffer = test::buffer_of(arrived, tag);
    NetRequest* received = post(buffer);
    uint64_t size = 0;
    test::finish(pair, test::post_send(pair, message, tag), received, &size);
    arrived.resize(size);
    return arrived;
  }
  NetRequest* post(const NetBuffer& buffer) {
    NetRequest* received = nullptr;
    EXPECT_TRUE(test::poll_until([&] {
      return pair.recv.irecv({&buffer, 1}, &received) != NetStatus::kAgain;
    }));
    return received;
  }

 private:
  ScopedEnv interface_;
  ScopedEnv script_;
  ScopedEnv seed_;
  NetContext sender_;
  NetContext receiver_;

 public:
  test::NetPair pair;
};

TEST(NetChaos, WithoutAScriptIsTheWrappedPlugin) {
  Chaos chaos("");
  EXPECT_EQ(chaos.context().plugin().descriptor().name, "Chaos");
  EXPECT_EQ(chaos.context().properties(0).name, "lo");
  EXPECT_EQ(chaos.context().properties(0).recvs_max, PLEXUS_NET_RECVS_MAX);
  for (const size_t size : {0u, 1u, 100000u}) {
    const auto message = test::make_message(size, 1);
    EXPECT_EQ(chaos.send(message, 100000, 5), message);
  }
}

TEST(NetChaos, DelayHoldsAMessageBack) {
  Chaos chaos("send: delay=40ms");
  const auto start = Clock::now();
  const auto message = test::make_message(100, 2);
  EXPECT_EQ(chaos.send(message, 100, 0), message);
  EXPECT_GE(Clock::now() - start, 40ms);
}

TEST(NetChaos, RateAndStallSlowTheBytes) {
  const auto time = [](const char* script) {
    Chaos chaos(script);
    const auto message = test::make_message(100000, 3);
    const auto start = Clock::now();
    EXPECT_EQ(chaos.send(message, 100000, 0), message);
    return Clock::now() - start;
  };
  EXPECT_GE(time("*: rate=20Mbit/s"), 40ms);  // 800000 bit
  EXPECT_GE(time("*: stall=50KiB/30ms"), 30ms);
}

TEST(NetChaos, JitterKeepsTheOrderOfMessages) {
  Chaos chaos("send: jitter=3ms again=30%");
  for (unsigned i = 0; i < 8; ++i) {
    const auto message = test::make_message(64 + i, i);
    EXPECT_EQ(chaos.send(message, 128, 0), message);
  }
}

TEST(NetChaos, CallAgainIsNoLoss) {
  Chaos chaos("*: again=90%");
  std::vector<std::byte> target(8);
  const NetBuffer buffer = test::buffer_of(target, 0);
  NetRequest* request = nullptr;
  unsigned refused = 0;
  while (chaos.pair.recv.irecv({&buffer, 1}, &request) == NetStatus::kAgain) {
    ++refused;
  }
  EXPECT_GT(refused, 0u);  // with this seed; the choices are repeatable
  const auto message = test::make_message(8, 4);
  uint64_t size = 0;
  test::finish(chaos.pair, test::post_send(chaos.pair, message, 0), request, &size);
  EXPECT_EQ(target, message);
}

TEST(NetChaos, PiecesArePutTogether) {
  Chaos chaos("*: piece=1000 again=20%");
  EXPECT_EQ(chaos.context().properties(0).recvs_max, 1u);
  for (const size_t size : {0u, 1u, 999u, 1000u, 1001u, 2000u, 12345u}) {
    const auto message = test::make_message(size, static_cast<unsigned>(size));
    EXPECT_EQ(chaos.send(message, size, 1), message) << size;
    EXPECT_EQ(chaos.send(message, 20000, 1), message) << size;
  }
}

TEST(NetChaos, PiecesOfSeveralTagsDoNotMix) {
  Chaos chaos("*: piece=100");
  std::vector<std::vector<std::byte>> targets(4, std::vector<std::byte>(1000));
  std::vector<NetRequest*> received;
  for (size_t i = 0; i < targets.size(); ++i) {  // tags 0 1 0 1
    received.push_back(chaos.post(test::buffer_of(targets[i], static_cast<int32_t>(i % 2))));
  }
  std::vector<std::vector<std::byte>> messages;
  std::vector<NetRequest*> sent;
  for (unsigned i = 0; i < targets.size(); ++i) {  // tags 1 0 1 0
    messages.push_back(test::make_message(500 + i, i));
    sent.push_back(test::post_send(chaos.pair, messages.back(), static_cast<int32_t>((i + 1) % 2)));
  }
  for (size_t i = 0; i < targets.size(); ++i) {
    uint64_t size = 0;
    test::finish(chaos.pair, sent[i], received[i], &size);
    targets[i].resize(size);
  }
  EXPECT_EQ(targets[0], messages[1]);
  EXPECT_EQ(targets[1], messages[0]);
  EXPECT_EQ(targets[2], messages[3]);
  EXPECT_EQ(targets[3], messages[2]);
}

/// The order in which eight small messages are reported.
std::vector<size_t> order_of_completions(const char* script, const char* seed) {
  Chaos chaos(script, seed);
  std::vector<std::vector<std::byte>> targets(8, std::vector<std::byte>(16));
  std::vector<NetRequest*> received;
  received.reserve(targets.size());
  for (auto& target : targets) {
    received.push_back(chaos.post(test::buffer_of(target, 0)));
  }
  for (unsigned i = 0; i < targets.size(); ++i) {
    const auto message = test::make_message(16, i);
    NetRequest* request = test::post_send(chaos.pair, message, 0);
    EXPECT_TRUE(
        test::poll_until([&] { return chaos.pair.send.test(request, nullptr) == NetStatus::kOk; }));
  }
  std::vector<size_t> order;
  EXPECT_TRUE(test::poll_until([&] {
    for (size_t i = 0; i < received.size(); ++i) {
      if (received[i] != nullptr && chaos.pair.recv.test(received[i], nullptr) == NetStatus::kOk) {
        received[i] = nullptr;
        order.push_back(i);
      }
    }
    return order.size() == targets.size();
  }));
  for (unsigned i = 0; i < targets.size(); ++i) {
    EXPECT_EQ(targets[i], test::make_message(16, i));  // only the reports are reordered
  }
  return order;
}

TEST(NetChaos, ReorderTellsCompletionsInAnotherOrder) {
  const auto plain = order_of_completions("", "7");
  EXPECT_TRUE(std::is_sorted(plain.begin(), plain.end()));
  const auto mixed = order_of_completions("recv: reorder=1000", "7");
  EXPECT_FALSE(std::is_sorted(mixed.begin(), mixed.end()));
}

TEST(NetChaos, LateReportsACompletionLater) {
  Chaos chaos("recv: late=40ms");
  const auto start = Clock::now();
  const auto message = test::make_message(100, 2);
  EXPECT_EQ(chaos.send(message, 100, 0), message);
  EXPECT_GE(Clock::now() - start, 40ms);
}

/// A posted receive on each of two connections, the first of which has got its message.
class TwoConnections {
 public:
  explicit TwoConnections(const char* script)
      : chaos_(script), other_(chaos_.connect_another()), targets_{make_target(), make_target()} {
    const NetBuffer first = test::buffer_of(targets_[0], 0);
    const NetBuffer second = test::buffer_of(targets_[1], 0);
    EXPECT_EQ(chaos_.pair.recv.irecv({&first, 1}, &first_), NetStatus::kOk);
    EXPECT_EQ(other_.recv.irecv({&second, 1}, &second_), NetStatus::kOk);
    send(chaos_.pair);
  }
  static std::vector<std::byte> make_target() { return std::vector<std::byte>(16); }
  static void send(test::NetPair& pair) {
    static const auto kMessage = test::make_message(16, 1);
    NetRequest* const sent = test::post_send(pair, kMessage, 0);
    EXPECT_TRUE(test::poll_until([&] { return pair.send.test(sent, nullptr) == NetStatus::kOk; }));
  }
  void send_second() { send(other_); }
  NetStatus test_first() { return chaos_.pair.recv.test(first_, nullptr); }
  NetStatus test_second() { return other_.recv.test(second_, nullptr); }

 private:
  Chaos chaos_;
  test::NetPair other_;
  std::array<std::vector<std::byte>, 2> targets_;
  NetRequest* first_ = nullptr;
  NetRequest* second_ = nullptr;
};

TEST(NetChaos, ElsewhereCompletesARequestInTestsOfOtherConnections) {
  TwoConnections two("recv connection=0: elsewhere=60s");
  constexpr int kTests = 10000;
  for (int i = 0; i < kTests; ++i) {
    ASSERT_EQ(two.test_first(), NetStatus::kAgain);
  }
  EXPECT_TRUE(test::poll_until([&] {
    EXPECT_EQ(two.test_second(), NetStatus::kAgain);  // its own message was not sent
    return two.test_first() == NetStatus::kOk;
  }));
}

TEST(NetChaos, ElsewhereEndsWhenNobodyElseIsTested) {
  TwoConnections two("recv connection=0: elsewhere=20ms");
  EXPECT_TRUE(test::poll_until([&] { return two.test_first() == NetStatus::kOk; }));
}

TEST(NetChaos, OvertakeReportsALaterCompletionOfAnotherConnectionFirst) {
  TwoConnections two("recv connection=0: overtake=60s");
  constexpr int kTests = 10000;
  for (int i = 0; i < kTests; ++i) {
    ASSERT_EQ(two.test_first(), NetStatus::kAgain);
  }
  two.send_second();
  ASSERT_TRUE(test::poll_until([&] { return two.test_second() == NetStatus::kOk; }));
  EXPECT_EQ(two.test_first(), NetStatus::kOk);
}

TEST(NetChaos, CutLosesTheConnectionAtBothEnds) {
  Chaos chaos("send: cut=1000");
  const auto message = test::make_message(400, 5);
  EXPECT_EQ(chaos.send(message, 400, 0), message);
  EXPECT_EQ(chaos.send(message, 400, 0), message);
  std::vector<std::byte> target(400);
  NetRequest* received = chaos.post(test::buffer_of(target, 0));
  NetRequest* request = nullptr;
  NetStatus status = chaos.pair.send.isend(message, 0, nullptr, &request);  // byte 1000 is in it
  EXPECT_THAT(chaos.pair.send.explain("isend", status).message(),
              AllOf(HasSubstr("net-chaos"), HasSubstr("at byte 1000")));
  EXPECT_EQ(chaos.pair.send.isend(message, 0, nullptr, &request), NetStatus{PLEXUS_REMOTE_ERROR});
  ASSERT_TRUE(test::poll_until(
      [&] { return (status = chaos.pair.recv.test(received, nullptr)) != NetStatus::kAgain; }));
  EXPECT_EQ(chaos.pair.recv.explain("test", status).code(), Code::kRemoteError);
}

TEST(NetChaos, ScriptMayBeAFile) {
  const std::string file = testing::TempDir() + "/net_chaos_script";
  std::ofstream(file) << "# two lines\nsend: cut=0\n";
  Chaos chaos(("@" + file).c_str());
  NetRequest* request = nullptr;
  const auto message = test::make_message(1, 6);
  EXPECT_EQ(chaos.pair.send.isend(message, 0, nullptr, &request), NetStatus{PLEXUS_REMOTE_ERROR});
}

TEST(NetChaos, BadSettingsAreNamed) {
  const struct {
    const char* name;
    const char* value;
    const char* says;
  } rows[] = {{"PLEXUS_CHAOS_SCRIPT", "*: delay=soon", "'soon'"},
              {"PLEXUS_CHAOS_SCRIPT", "@/nonexistent/script", "cannot be read"},
              {"PLEXUS_CHAOS_SEED", "dice", "PLEXUS_CHAOS_SEED=dice"},
              {"PLEXUS_CHAOS_NET", "absent", "PLEXUS_CHAOS_NET=absent"},
              {"PLEXUS_CHAOS_NET", "chaos", "not another plugin of Plexus's interface"}};
  for (const auto& row : rows) {
    const ScopedEnv env(row.name, row.value);
    const auto context = NetContext::create(load(), {});
    ASSERT_TRUE(context.has_error()) << row.value;
    EXPECT_THAT(context.error().message(), HasSubstr(row.says));
  }
}

}  // namespace
}  // namespace plexus
