// SPDX-License-Identifier: Apache-2.0
#include "core/control/control_link.hpp"

#include <chrono>
#include <sys/epoll.h>
#include <vector>

#include <gtest/gtest.h>

namespace plexus {
namespace {

using namespace std::chrono_literals;
using State = ControlLink::State;

constexpr security::Terms kTerms{.mode = security::Mode::kAuth, .key = {7}};

/// Both ends of a connection over the loopback, before the handshake.
class ControlLinkTest : public testing::Test {
 protected:
  ControlLinkTest() {
    auto listener = Socket::listen(SocketAddress::parse("127.0.0.1:0").value(), 0, 0);
    const SocketAddress address = listener.value().local_address().value();
    caller_ = {.state = State::kConnecting,
               .socket = Socket::start_connect(address).value(),
               .address = address,
               .key = kTerms.key,
               .deadline = Deadline::after(20s)};
    poll_until([&] {
      auto accepted = listener.value().try_accept().value();
      if (accepted.has_value()) {
        called_ = {.state = State::kProving, .socket = std::move(*accepted)};
      }
      return called_.socket.is_open();
    });
    called_.session = security::Session(called_.socket.fd(), security::Role::kListener, kTerms);
    called_.deadline = Deadline::after(10s);
    called_.is_pending = true;
  }

  template <class Step>
  static void poll_until(Step step) {
    const Deadline limit = Deadline::after(20s);
    while (!step()) {
      ASSERT_FALSE(limit.expired());
    }
  }
  void prove() {
    poll_until([&] { return caller_.start_proof(kTerms.mode).has_value(); });
    auto one = security::Session::State::kPending;
    auto other = one;
    poll_until([&] {
      one = one == security::Session::State::kPending ? caller_.session.advance() : one;
      other = other == security::Session::State::kPending ? called_.session.advance() : other;
      return one == security::Session::State::kProven && other == one;
    });
  }
  /// What the called end has received until the caller sends no more.
  size_t receive_all() {
    std::vector<char> bytes(size_t{1} << 20);
    size_t size = 0;
    poll_until([&] {
      caller_.flush();
      const ssize_t received = called_.session.receive(bytes.data(), bytes.size());
      size += received > 0 ? static_cast<size_t>(received) : 0;
      return received == 0;
    });
    return size;
  }

  ControlLink caller_{.state = State::kConnecting, .socket = {}};
  ControlLink called_{.state = State::kConnecting, .socket = {}};
};

TEST_F(ControlLinkTest, BytesGoWhenTheOtherSideHasProvedItself) {
  caller_.out = "hello";
  caller_.flush();
  EXPECT_EQ(caller_.out, "hello");
  EXPECT_EQ(caller_.awaited(), EPOLLIN | EPOLLOUT) << "the connect has to end";
  prove();
  caller_.flush();
  EXPECT_EQ(caller_.out, "hello");
  EXPECT_FALSE(caller_.is_open());
  caller_.open(10s);
  EXPECT_TRUE(caller_.is_open());
  EXPECT_EQ(caller_.awaited(), EPOLLIN | EPOLLOUT);
  caller_.flush();
  EXPECT_EQ(caller_.out, "");
  EXPECT_EQ(caller_.awaited(), uint32_t{EPOLLIN});
}

TEST_F(ControlLinkTest, OneThatFinishesEarlyStillSendsAllAndThenThatNothingFollows) {
  caller_.out = "hello";
  caller_.finish(10s);
  EXPECT_EQ(caller_.state, State::kConnecting);
  EXPECT_TRUE(caller_.is_delivered()) << "nothing is to end yet";
  prove();
  caller_.open(10s);
  EXPECT_EQ(caller_.state, State::kFinishing);
  EXPECT_FALSE(caller_.is_delivered());
  EXPECT_EQ(receive_all(), 5U);
  poll_until([&] { return caller_.is_delivered(); });
}

TEST_F(ControlLinkTest, MoreThanTheSocketTakesWaitsForRoom) {
  constexpr size_t kBytes = size_t{16} << 20;
  prove();
  caller_.open(10s);
  caller_.out = std::string(kBytes, 'x');
  caller_.flush();
  EXPECT_LT(caller_.out.size(), kBytes) << "what was sent is dropped in pieces";
  EXPECT_EQ(caller_.awaited(), EPOLLIN | EPOLLOUT);
  caller_.finish(10s);
  EXPECT_EQ(receive_all(), kBytes);
  EXPECT_EQ(caller_.sent_bytes, 0U);
}

TEST_F(ControlLinkTest, AProvenEndHasNoDeadlineAPendingPeerKeepsIts) {
  prove();
  caller_.open(10s);
  called_.open(10s);
  EXPECT_EQ(caller_.deadline.time(), Deadline::never().time());
  EXPECT_LT(called_.deadline.time(), Deadline::never().time());
}

TEST_F(ControlLinkTest, SaysWhereItConnectsThenWhoIsThere) {
  EXPECT_EQ(caller_.peer_name(), caller_.address.to_string());
  prove();
  EXPECT_EQ(caller_.peer_name(), caller_.socket.peer_name());
}

}  // namespace
}  // namespace plexus
