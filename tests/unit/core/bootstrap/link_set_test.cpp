// SPDX-License-Identifier: Apache-2.0
// Connections of agents: that both know the job's secret is not enough, since all processes of a
// job do. What else a LinkSet does is tested by rendezvous_test.cpp.
#include "core/bootstrap/link_set.hpp"

#include <chrono>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus {
namespace {

using namespace std::chrono_literals;
using State = security::Channel::State;

constexpr security::Terms kTerms{.mode = security::Mode::kTls, .key = {7}};

SocketAddress loopback() { return SocketAddress::parse("127.0.0.1:0").value(); }

struct Listening {
  explicit Listening(LinkSet::ListenerKey key) {
    auto listener = Socket::listen(loopback(), 0, 0);
    address = listener.value().local_address().value();
    auto made = LinkSet::make(kTerms, key, std::move(listener).value(), {},
                              {.take = [](LinkSet::Link, const Message&) {},
                               .end = [](LinkSet::Link, LinkSet::End, const std::string&) {}});
    links = std::move(made).value();
  }
  /// How a caller with `key` fares.
  [[nodiscard]] State call(const security::Key& key) const {
    const Patience patience{.deadline = Deadline::after(20s)};
    const auto socket = Socket::connect(address, patience);
    EXPECT_TRUE(socket.has_value());
    security::Channel caller(socket.value().fd(), security::Role::kCaller,
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

}  // namespace
}  // namespace plexus
