// SPDX-License-Identifier: Apache-2.0
#include "security/handshake.hpp"

#include <cstring>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus::security {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Terms terms_of(Mode mode, uint8_t byte = 1) {
  Terms terms{.mode = mode};
  terms.key.fill(byte);
  return terms;
}

/// Takes what `from` has to say, and gives it to `to`.
std::vector<std::byte> carry(Handshake& from, Handshake& to) {
  const std::vector<std::byte> sent(from.output().begin(), from.output().end());
  from.sent(sent.size());
  for (size_t at = 0; at < sent.size() && !to.room().empty();) {
    const size_t part = std::min(to.room().size(), sent.size() - at);
    std::memcpy(to.room().data(), sent.data() + at, part);
    to.take(part);
    at += part;
  }
  return sent;
}

struct Pair {
  Pair(const Terms& of_caller, const Terms& of_listener)
      : caller(of_caller, Role::kCaller), listener(of_listener, Role::kListener) {}
  void run() {
    carry(caller, listener);
    carry(listener, caller);
    carry(caller, listener);
  }
  Handshake caller;
  Handshake listener;
};

TEST(Handshake, ConvincesBothSidesThatShareASecretInEveryMode) {
  for (const Mode mode : {Mode::kOff, Mode::kAuth, Mode::kTls}) {
    Pair pair(terms_of(mode), terms_of(mode));
    EXPECT_FALSE(pair.caller.is_over());
    EXPECT_FALSE(pair.listener.is_over());
    pair.run();
    EXPECT_TRUE(pair.caller.is_over() && pair.caller.error().empty()) << pair.caller.error();
    EXPECT_TRUE(pair.listener.is_over() && pair.listener.error().empty()) << pair.listener.error();
  }
}

TEST(Handshake, AnotherSecretIsAnErrorOnBothSidesInEveryMode) {
  for (const Mode mode : {Mode::kOff, Mode::kAuth, Mode::kTls}) {
    Pair pair(terms_of(mode, 1), terms_of(mode, 2));
    pair.run();
    EXPECT_THAT(pair.caller.error(), HasSubstr("another secret"));
    EXPECT_THAT(pair.listener.error(), HasSubstr("does not know the secret"));
  }
}

TEST(Handshake, ModesThatDifferAreNamedOnBothSides) {
  for (const Mode caller : {Mode::kOff, Mode::kAuth, Mode::kTls}) {
    for (const Mode listener : {Mode::kOff, Mode::kAuth, Mode::kTls}) {
      if (caller == listener) {
        continue;
      }
      Pair pair(terms_of(caller), terms_of(listener));
      pair.run();
      EXPECT_TRUE(pair.listener.is_member_of_other_mode());
      Pair unequal(terms_of(caller, 1), terms_of(listener, 2));
      unequal.run();
      EXPECT_FALSE(unequal.listener.is_member_of_other_mode());
      for (const Handshake* each : {&pair.caller, &pair.listener}) {
        EXPECT_THAT(each->error(), AllOf(HasSubstr("PLEXUS_NET_SECURITY"),
                                         HasSubstr(name_of(caller)), HasSubstr(name_of(listener))));
      }
    }
  }
}

TEST(Handshake, AReplayedCallerIsNotBelieved) {
  Pair first(terms_of(Mode::kAuth), terms_of(Mode::kAuth));
  const auto hello = carry(first.caller, first.listener);
  carry(first.listener, first.caller);
  const auto proof = carry(first.caller, first.listener);
  Handshake second(terms_of(Mode::kAuth), Role::kListener);
  for (const auto& replayed : {hello, proof}) {
    ASSERT_EQ(second.room().size(), replayed.size());
    std::memcpy(second.room().data(), replayed.data(), replayed.size());
    second.take(replayed.size());
  }
  EXPECT_THAT(second.error(), HasSubstr("does not know the secret"));
}

TEST(Handshake, AReplayedListenerIsNotBelieved) {
  for (const Mode mode : {Mode::kOff, Mode::kAuth, Mode::kTls}) {
    Pair first(terms_of(mode), terms_of(mode));
    carry(first.caller, first.listener);
    const auto answer = carry(first.listener, first.caller);
    Handshake second(terms_of(mode), Role::kCaller);
    std::memcpy(second.room().data(), answer.data(), answer.size());
    second.take(answer.size());
    EXPECT_THAT(second.error(), HasSubstr("does not know the secret"));
  }
}

TEST(Handshake, AListenerThatSendsTheHelloBackIsNotBelieved) {
  Handshake caller(terms_of(Mode::kAuth), Role::kCaller);
  std::vector<std::byte> echo(caller.output().begin(), caller.output().end());
  std::memcpy(caller.room().data(), echo.data(), echo.size());
  caller.take(echo.size());
  EXPECT_FALSE(caller.error().empty());
}

TEST(Handshake, EveryBitOfEveryMessageMatters) {
  for (int message = 0; message < 3; ++message) {
    const size_t size_bytes = message == 2 ? sizeof(Mac) : sizeof(Hello);
    for (size_t at = 0; at < size_bytes; ++at) {
      Pair pair(terms_of(Mode::kAuth), terms_of(Mode::kAuth));
      const auto spoil = [&](Handshake& from, Handshake& to, bool spoils) {
        std::vector<std::byte> sent(from.output().begin(), from.output().end());
        from.sent(sent.size());
        if (spoils) {
          sent[at] ^= std::byte{4};
        }
        if (!to.room().empty() && !sent.empty()) {
          std::memcpy(to.room().data(), sent.data(), sent.size());
          to.take(sent.size());
        }
      };
      spoil(pair.caller, pair.listener, message == 0);
      spoil(pair.listener, pair.caller, message == 1);
      spoil(pair.caller, pair.listener, message == 2);
      const bool is_reserved =
          (message == 0 && at >= 9 && at < 16) || (message == 1 && at >= 10 && at < 12);
      const bool is_believed = pair.caller.is_over() && pair.caller.error().empty() &&
                               pair.listener.is_over() && pair.listener.error().empty();
      EXPECT_EQ(is_believed, is_reserved) << "byte " << at << " of message " << message;
    }
  }
}

TEST(Handshake, ADescriptorLimitIsTold) {
  Handshake caller(terms_of(Mode::kTls), Role::kCaller);
  const Answer refusal = refuse_for_descriptors(1024);
  std::memcpy(caller.room().data(), &refusal, sizeof refusal);
  caller.take(sizeof refusal);
  EXPECT_THAT(caller.error(), HasSubstr("ulimit -n is 1024"));
}

TEST(Handshake, GarbageOfAnySizeIsRefusedWithoutAnAnswer) {
  std::mt19937 random(5);
  for (int i = 0; i < 1000; ++i) {
    for (const Role role : {Role::kCaller, Role::kListener}) {
      Handshake side(terms_of(Mode::kAuth), role);
      side.sent(side.output().size());
      while (!side.room().empty()) {
        const size_t part = 1 + random() % side.room().size();
        for (std::byte& each : side.room().first(part)) {
          each = static_cast<std::byte>(random());
        }
        side.take(part);
      }
      EXPECT_THAT(side.error(), HasSubstr("does not speak our protocol"));
      EXPECT_TRUE(side.output().empty());
    }
  }
}

}  // namespace
}  // namespace plexus::security
