// SPDX-License-Identifier: Apache-2.0
// net-ofi's links: connections of both directions on shared endpoints.
#include <array>
#include <filesystem>
#include <thread>

#include <gtest/gtest.h>

#include "tests/unit/plugins/net-ofi/net_ofi.hpp"

namespace plexus {
namespace {

using test::NetOfi;
using test::NetOfiShape;

size_t open_descriptors() {
  const auto files = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(files), end(files)));
}

/// A connection of each direction between two contexts.
struct Both {
  test::NetPair there;
  test::NetPair back;
};

/// Both at once, as two ranks do.
Both connect_both(const NetContext& one, const NetContext& two) {
  auto first = two.listen(0);
  auto second = one.listen(0);
  EXPECT_TRUE(first.has_value() && second.has_value());
  NetSend there = one.connect(0, first.value().handle());
  NetSend back = two.connect(0, second.value().handle());
  NetRecv arrives_there = first.value().accept();
  NetRecv arrives_back = second.value().accept();
  std::array<bool, 4> is_done{};
  EXPECT_TRUE(test::poll_until([&] {
    const auto advance = [](bool& done, const Result<NetProgress>& progress) {
      EXPECT_TRUE(progress.has_value()) << progress.error().message();
      done = progress.has_error() || progress.value() == NetProgress::kDone;
    };
    for (size_t i = 0; i < is_done.size(); ++i) {
      if (!is_done[i]) {
        advance(is_done[i], i == 0   ? there.try_connect()
                            : i == 1 ? back.try_connect()
                            : i == 2 ? arrives_there.try_accept()
                                     : arrives_back.try_accept());
      }
    }
    return is_done == std::array<bool, 4>{true, true, true, true};
  }));
  return {{std::move(first).value(), std::move(there), std::move(arrives_there)},
          {std::move(second).value(), std::move(back), std::move(arrives_back)}};
}

/// An exchange of small messages then needs no packets that only acknowledge.
TEST_F(NetOfi, TheConnectionsOfBothDirectionsShareTheirEndpoints) {
  const NetContext one = context();
  const NetContext two = context();
  const auto message = test::make_message(100, 1);
  // Without listeners, whose endpoints the connecting side has a socket to until it sees their end.
  const auto connect = [&](const NetContext& from, const NetContext& to) {
    test::NetPair pair = test::connect_pair(from, to);
    { const NetListen ended = std::move(pair.listen); }
    return pair;
  };
  const size_t with_none = open_descriptors();
  {
    test::NetPair there = connect(one, two);
    EXPECT_EQ(test::send_one(there, message, 100), message);
    const size_t with_one = open_descriptors();
    test::NetPair back = connect(two, one);
    EXPECT_TRUE(test::poll_until([&] {
      test::send_one(there, message, 100);
      return open_descriptors() <= with_one;
    })) << open_descriptors()
        << " descriptors, " << with_one << " before";
    EXPECT_EQ(test::send_one(back, message, 100), message);
    const Both both = connect_both(one, two);  // another link
  }
  EXPECT_LE(open_descriptors(), with_none);
}

TEST_P(NetOfiShape, BothDirectionsCarryMessagesAtOnceFromThreadsOfTheirOwn) {
  const NetContext one = context();
  const NetContext two = context();
  Both both = connect_both(one, two);
  const auto carry = [](test::NetPair& pair, unsigned seed) {
    for (unsigned round = 0; round < 60; ++round) {
      const auto message = test::make_message((round % 4) * 60'000 + seed, round + seed);
      EXPECT_TRUE(test::send_one(pair, message, message.size()) == message) << round;
    }
  };
  std::thread other([&] { carry(both.back, 7); });
  carry(both.there, 0);
  other.join();
}

/// The side that closes has a receive that no message has reached: it is withdrawn.
TEST_P(NetOfiShape, ClosingOneDirectionLeavesTheOther) {
  const NetContext one = context();
  const NetContext two = context();
  const auto message = test::make_message(300'000, 1);
  for (const bool is_sender_first : {true, false}) {
    Both both = connect_both(one, two);
    EXPECT_TRUE(test::send_one(both.back, message, message.size()) == message);
    std::vector<std::byte> untouched(100, std::byte{7});
    const NetBuffer buffer = test::buffer_of(untouched, 0);
    test::post_recv(both.back, {&buffer, 1});
    if (is_sender_first) {
      { const NetSend gone = std::move(both.back.send); }
      EXPECT_TRUE(test::send_one(both.there, message, message.size()) == message);
    }
    { const NetRecv gone = std::move(both.back.recv); }
    for (unsigned round = 0; round < 10; ++round) {
      EXPECT_TRUE(test::send_one(both.there, message, message.size()) == message);
    }
    EXPECT_EQ(untouched, std::vector<std::byte>(100, std::byte{7}));
    if (!is_sender_first) {
      { const NetSend gone = std::move(both.back.send); }
      EXPECT_TRUE(test::send_one(both.there, message, message.size()) == message);
    }
    test::NetPair again = test::connect_pair(two, one);
    EXPECT_TRUE(test::send_one(again, message, message.size()) == message);
    EXPECT_TRUE(test::send_one(both.there, message, message.size()) == message);
  }
}

/// libfabric cannot withdraw a message that has begun. Nothing of it is read after the close, so
/// that the other direction may end with an error.
TEST_P(NetOfiShape, ClosingOneDirectionInTheMiddleOfAMessageIsSafe) {
  if (is_shm()) {
    GTEST_SKIP()
        << "over shm each direction has its own endpoint, and the rest of a message may be "
           "read after the close (README.md of the plugin)";
  }
  constexpr size_t kSize = size_t{16} << 20;
  const NetContext one = context();
  const NetContext two = context();
  Both both = connect_both(one, two);
  const std::vector<std::byte> message(kSize);
  std::vector<std::byte> room(kSize);
  const NetBuffer buffer = test::buffer_of(room, 0);
  NetRequest* received = test::post_recv(both.back, {&buffer, 1});
  test::post_send(both.back, message, 0);
  std::vector<std::byte> small(8);
  const NetBuffer small_buffer = test::buffer_of(small, 0);
  NetRequest* other = test::post_recv(both.there, {&small_buffer, 1});
  { const NetSend gone = std::move(both.back.send); }
  NetStatus status = NetStatus::kAgain;
  NetStatus other_status = NetStatus::kAgain;
  ASSERT_TRUE(test::poll_until([&] {
    if (other_status == NetStatus::kAgain) {
      other_status = both.there.recv.test(other, nullptr);  // would drive the rest of the message
    }
    status = both.back.recv.test(received, nullptr);
    return status != NetStatus::kAgain;
  }));
  EXPECT_NE(status, NetStatus::kOk);
  NetRequest* sent = nullptr;
  ASSERT_TRUE(test::poll_until([&] {  // it arrives, or both ends fail
    if (sent == nullptr) {
      status = both.there.send.isend(small, 0, nullptr, &sent);
    }
    if (other_status == NetStatus::kAgain) {
      other_status = both.there.recv.test(other, nullptr);
    }
    return other_status != NetStatus::kAgain && (sent != nullptr || status != NetStatus::kAgain);
  }));
}

INSTANTIATE_TEST_SUITE_P(Providers, NetOfiShape, test::ofi_shapes(), test::name_of_shape);

}  // namespace
}  // namespace plexus
