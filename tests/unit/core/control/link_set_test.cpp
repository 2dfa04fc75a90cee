// SPDX-License-Identifier: Apache-2.0
// Connections of agents: that both know the job's secret is not enough, since all processes of a
// job do. What else a LinkSet does is tested by rendezvous_test.cpp.
#include "core/control/link_set.hpp"

#include <array>
#include <chrono>
#include <optional>
#include <sys/socket.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus {
namespace {

using namespace std::chrono_literals;
using State = security::Session::State;

constexpr security::Terms kTerms{.mode = security::Mode::kTls, .key = {7}};

SocketAddress loopback() { return SocketAddress::parse("127.0.0.1:0").value(); }

struct Listening {
  explicit Listening(LinkSet::ListenerKey key, const LinkSet::Times& times = {}) {
    auto listener = Socket::listen(loopback(), 0, 0);
    address = listener.value().local_address().value();
    auto made = LinkSet::make(
        kTerms, key, std::move(listener).value(), times,
        {.take = [](LinkSet::Link, const Message&) {},
         .end = [this](LinkSet::Link, LinkSet::End, const std::string& why) { ended = why; }});
    links = std::move(made).value();
  }
  /// How a caller with `key` fares.
  [[nodiscard]] State call(const security::Key& key) const {
    const Patience patience{.deadline = Deadline::after(20s)};
    const auto socket = Socket::connect(address, patience);
    EXPECT_TRUE(socket.has_value());
    security::Session caller(socket.value().fd(), security::Role::kCaller,
                             {.mode = kTerms.mode, .key = key});
    while (!patience.deadline.expired()) {
      links->progress();
      if (const State state = caller.advance(); state != State::kPending) {
        return state;
      }
    }
    return State::kPending;
  }
  SocketAddress address;
  std::unique_ptr<LinkSet> links;
  std::string ended;  // why the last connection did
};

TEST(LinkSet, AConnectionCannotBeLedToAnotherProcessOfTheJob) {
  const Listening one(LinkSet::ListenerKey::kOfAddress);
  const Listening other(LinkSet::ListenerKey::kOfAddress);
  EXPECT_EQ(one.call(LinkSet::key_of(kTerms.key, one.address)), State::kProven);
  EXPECT_EQ(one.call(LinkSet::key_of(kTerms.key, other.address)), State::kFailed);
  EXPECT_EQ(one.call(kTerms.key), State::kFailed);
}

TEST(LinkSet, TheIntroducersKeyIsThatOfTheUniqueId) {
  const Listening introducer(LinkSet::ListenerKey::kOfJob);
  EXPECT_EQ(introducer.call(kTerms.key), State::kProven);
  EXPECT_EQ(introducer.call(LinkSet::key_of(kTerms.key, introducer.address)), State::kFailed);
}

TEST(LinkSet, KnowsWhenTheLastMessageHasArrived) {
  const Listening receiver(LinkSet::ListenerKey::kOfAddress);
  const Listening sender(LinkSet::ListenerKey::kOfAddress);
  LinkSet& links = *sender.links;
  const auto link = links.connect(receiver.address);
  ASSERT_TRUE(link.has_value());
  const Message large{.type = MessageType::kFailureNotice,
                      .payload = std::string(kPayloadBytesMax, 'x')};
  links.send(link.value(), large);  // more than fits in the sockets
  EXPECT_TRUE(links.is_delivered()) << "nothing is to end yet";
  links.finish(link.value());
  const Deadline deadline = Deadline::after(20s);
  bool was_under_way = false;
  while (!links.is_empty() && !deadline.expired()) {
    links.progress();
    was_under_way = was_under_way || !links.is_delivered();
    receiver.links->progress();
  }
  EXPECT_TRUE(was_under_way);
  EXPECT_TRUE(links.is_empty());
  EXPECT_TRUE(links.is_delivered());
}

// As a stopped process: its kernel takes what fits, and answers that it can take no more.
TEST(LinkSet, AnEndThatReadsNothingIsNotTakenForDead) {
  constexpr auto kSilence = 2s;
  const LinkSet::Times times{.silence = kSilence};
  const Listening stopped(LinkSet::ListenerKey::kOfAddress, times);
  const Listening sender(LinkSet::ListenerKey::kOfAddress, times);
  LinkSet& links = *sender.links;
  const auto link = links.connect(stopped.address);
  ASSERT_TRUE(link.has_value());
  links.send(link.value(), {.type = MessageType::kFailureNotice});
  const Deadline deadline = Deadline::after(20s);
  while (links.is_busy() && !deadline.expired()) {
    links.progress();
    stopped.links->progress();
  }
  for (int message = 0; message < 10; ++message) {
    links.send(link.value(),
               {.type = MessageType::kFailureNotice, .payload = std::string(1 << 20, 'x')});
  }
  const Deadline silent = Deadline::after(2 * kSilence + 1s);  // what must not count
  while (!silent.expired()) {
    links.wait(20ms);
    links.progress();
  }
  EXPECT_EQ(sender.ended, "");
  links.finish(link.value());
  EXPECT_FALSE(links.is_delivered()) << "the window was to be closed";
  while (!links.is_empty() && !deadline.expired()) {
    links.progress();
    stopped.links->progress();
  }
  EXPECT_TRUE(links.is_empty());
}

/// Between a caller and a listener.
class Proxy {
 public:
  explicit Proxy(const SocketAddress& target)
      : far_(Socket::connect(target, {.deadline = Deadline::after(20s)}).value()) {
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds_.data()), 0);
  }
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;
  ~Proxy() {
    ::close(fds_[0]);
    ::close(fds_[1]);
  }
  [[nodiscard]] int callers() const { return fds_[0]; }
  void pass(bool spoils) const {
    std::array<char, 4096> bytes{};
    const ssize_t out = ::recv(fds_[1], bytes.data(), bytes.size(), 0);
    if (out > 0) {
      bytes[static_cast<size_t>(out) - 1] ^= spoils ? 1 : 0;
      EXPECT_EQ(::send(far_.fd(), bytes.data(), static_cast<size_t>(out), MSG_NOSIGNAL), out);
    }
    const ssize_t back = ::recv(far_.fd(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (back > 0) {
      EXPECT_EQ(::send(fds_[1], bytes.data(), static_cast<size_t>(back), MSG_NOSIGNAL), back);
    }
  }

 private:
  std::array<int, 2> fds_{-1, -1};
  Socket far_;
};

TEST(LinkSet, AManInTheMiddleThatFlipsABitEndsATlsConnection) {
  int messages = 0;
  std::optional<std::string> ended;
  auto listener = Socket::listen(loopback(), 0, 0);
  const SocketAddress address = listener.value().local_address().value();
  auto made = LinkSet::make(kTerms, LinkSet::ListenerKey::kOfJob, std::move(listener).value(), {},
                            {.take = [&](LinkSet::Link, const Message&) { ++messages; },
                             .end =
                                 [&](LinkSet::Link, LinkSet::End end, const std::string& why) {
                                   EXPECT_EQ(end, LinkSet::End::kBroken);
                                   ended = why;
                                 }});
  LinkSet& links = *made.value();
  const Proxy proxy(address);
  security::Session caller(proxy.callers(), security::Role::kCaller, kTerms);
  const std::string message = encode(Message{.type = MessageType::kJoin, .payload = "hello"});
  const Deadline deadline = Deadline::after(20s);
  const auto run_until = [&](bool spoils, const auto& condition) {
    while (!condition() && !deadline.expired()) {
      proxy.pass(spoils);
      links.progress();
    }
    return condition();
  };
  ASSERT_TRUE(run_until(false, [&] { return caller.advance() == State::kProven; }));
  ASSERT_GT(caller.send(message.data(), message.size()), 0);
  ASSERT_TRUE(run_until(false, [&] { return messages == 1; }));
  ASSERT_GT(caller.send(message.data(), message.size()), 0);
  ASSERT_TRUE(run_until(true, [&] { return ended.has_value(); }));
  EXPECT_EQ(messages, 1);
  EXPECT_THAT(*ended, testing::HasSubstr("bad record mac"));
}

}  // namespace
}  // namespace plexus
