// SPDX-License-Identifier: Apache-2.0
// Sessions over pairs of connected sockets, without threads: whoever cannot go on lets the other go
// on. A proxy between two pairs changes what passes.
#include "security/session.hpp"

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <functional>
#include <numeric>
#include <openssl/crypto.h>
#include <random>
#include <sys/socket.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "security/tls.hpp"

namespace plexus::security {
namespace {

using testing::HasSubstr;
using State = Session::State;

Terms terms_of(Mode mode, uint8_t byte = 1) {
  Terms terms{.mode = mode};
  terms.key.fill(byte);
  return terms;
}

struct Sockets {
  Sockets() {
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds.data()), 0);
  }
  Sockets(const Sockets&) = delete;
  Sockets& operator=(const Sockets&) = delete;
  ~Sockets() {
    close(0);
    close(1);
  }
  void close(size_t side) {
    if (fds[side] >= 0) {
      ::close(fds[side]);
      fds[side] = -1;
    }
  }
  std::array<int, 2> fds{-1, -1};
};

/// Advances both until neither is pending, or for a bounded number of rounds.
bool meet(Session& caller, Session& listener, const std::function<void()>& between = {}) {
  constexpr int kRounds = 1000;
  for (int round = 0; round < kRounds; ++round) {
    const State a = caller.advance();
    if (between) {
      between();
    }
    const State b = listener.advance();
    if (between) {
      between();
    }
    if (a != State::kPending && b != State::kPending) {
      return true;
    }
  }
  return false;
}

std::vector<std::byte> pattern(size_t size_bytes) {
  std::vector<std::byte> bytes(size_bytes);
  std::mt19937 random(static_cast<unsigned>(size_bytes));
  for (std::byte& each : bytes) {
    each = static_cast<std::byte>(random());
  }
  return bytes;
}

/// Sends header and payload as pieces, and receives them. Both sides take turns.
void expect_carried(Session& from, Session& to, size_t size_bytes) {
  const std::vector<std::byte> sent = pattern(size_bytes);
  std::vector<std::byte> received(size_bytes);
  size_t sent_bytes = 0;
  size_t received_bytes = 0;
  for (int idle = 0; received_bytes < size_bytes; ++idle) {
    ASSERT_LT(idle, 100'000) << received_bytes << " of " << size_bytes;
    const size_t cut = std::min<size_t>(16, size_bytes);
    std::vector<iovec> pieces;
    if (sent_bytes < cut) {
      pieces.push_back({const_cast<std::byte*>(sent.data()) + sent_bytes, cut - sent_bytes});
    }
    const size_t behind = std::max(cut, sent_bytes);
    if (behind < size_bytes) {
      pieces.push_back({const_cast<std::byte*>(sent.data()) + behind, size_bytes - behind});
    }
    if (!pieces.empty()) {
      const ssize_t n = from.send(pieces);
      ASSERT_TRUE(n > 0 || (n < 0 && errno == EAGAIN)) << from.error();
      sent_bytes += n > 0 ? static_cast<size_t>(n) : 0;
    }
    const size_t half = received_bytes + (size_bytes - received_bytes) / 2;
    const std::array<iovec, 2> room = {
        iovec{received.data() + received_bytes, half - received_bytes},
        iovec{received.data() + half, size_bytes - half}};
    const ssize_t n = to.receive(room);
    ASSERT_TRUE(n > 0 || (n < 0 && errno == EAGAIN)) << to.error();
    received_bytes += n > 0 ? static_cast<size_t>(n) : 0;
  }
  EXPECT_EQ(sent, received);
}

class EveryMode : public testing::TestWithParam<Mode> {};

TEST_P(EveryMode, CarriesMessagesOfEverySizeInBothDirections) {
  const Sockets sockets;
  Session caller(sockets.fds[0], Role::kCaller, terms_of(GetParam()));
  Session listener(sockets.fds[1], Role::kListener, terms_of(GetParam()));
  ASSERT_TRUE(meet(caller, listener));
  ASSERT_EQ(caller.advance(), State::kProven) << caller.error();
  ASSERT_EQ(listener.advance(), State::kProven) << listener.error();
  for (const size_t size_bytes : {1, 15, 17, 16 * 1024, 16 * 1024 + 1, 100'003, 3'000'000}) {
    expect_carried(caller, listener, size_bytes);
    expect_carried(listener, caller, size_bytes);
  }
}

TEST_P(EveryMode, RefusesAnotherSecret) {
  const Sockets sockets;
  Session caller(sockets.fds[0], Role::kCaller, terms_of(GetParam(), 1));
  Session listener(sockets.fds[1], Role::kListener, terms_of(GetParam(), 2));
  ASSERT_TRUE(meet(caller, listener));
  EXPECT_EQ(caller.advance(), State::kFailed);
  EXPECT_EQ(listener.advance(), State::kFailed);
  EXPECT_THAT(caller.error(), HasSubstr("secret"));
  EXPECT_THAT(listener.error(), HasSubstr("secret"));
}

TEST_P(EveryMode, AnEndBeforeAndAfterTheProofIsSeenAndRaisesNoSignal) {
  ASSERT_EQ(std::signal(SIGPIPE, SIG_DFL), SIG_DFL);
  for (const bool is_proven : {false, true}) {
    Sockets sockets;
    Session caller(sockets.fds[0], Role::kCaller, terms_of(GetParam()));
    Session listener(sockets.fds[1], Role::kListener, terms_of(GetParam()));
    if (is_proven) {
      ASSERT_TRUE(meet(caller, listener));
    }
    sockets.close(1);
    if (!is_proven) {
      EXPECT_EQ(caller.advance(), State::kFailed);
      continue;
    }
    char byte = 0;
    EXPECT_EQ(caller.receive(&byte, 1), 0);
    EXPECT_EQ(caller.send(&byte, 1), -1);
    EXPECT_EQ(errno, EPIPE);
  }
}

INSTANTIATE_TEST_SUITE_P(Modes,
                         EveryMode,
                         testing::Values(Mode::kOff, Mode::kAuth, Mode::kTls),
                         [](const auto& mode) { return std::string(name_of(mode.param)); });

TEST(Session, ModesThatDifferAreToldToBoth) {
  const Sockets sockets;
  Session caller(sockets.fds[0], Role::kCaller, terms_of(Mode::kTls));
  Session listener(sockets.fds[1], Role::kListener, terms_of(Mode::kAuth));
  ASSERT_TRUE(meet(caller, listener));
  EXPECT_THAT(caller.error(), HasSubstr("is tls here and auth at its end"));
  EXPECT_THAT(listener.error(), HasSubstr("is auth here and tls at its end"));
}

/// Between a caller and a listener. Keeps a copy of what passes, and may change it.
class Proxy {
 public:
  void pass(size_t from, const std::function<void(std::string&)>& change = {}) {
    std::string bytes(1 << 16, '\0');
    const int source = from == 0 ? left.fds[1] : right.fds[0];
    const int target = from == 0 ? right.fds[0] : left.fds[1];
    const ssize_t got = ::recv(source, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got <= 0) {
      return;
    }
    bytes.resize(static_cast<size_t>(got));
    if (change) {
      change(bytes);
    }
    seen += bytes;
    EXPECT_EQ(::send(target, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  void pass_both() {
    pass(0);
    pass(1);
  }
  Sockets left;   // fds[0]: the caller's
  Sockets right;  // fds[1]: the listener's
  std::string seen;
};

constexpr std::string_view kText = "who reads this can read everything";

/// What the listener gets of kText, with one byte of it changed on the way, at `at` from the end.
std::string deliver_spoiled(Mode mode, size_t at, std::string& error) {
  Proxy proxy;
  Session caller(proxy.left.fds[0], Role::kCaller, terms_of(mode));
  Session listener(proxy.right.fds[1], Role::kListener, terms_of(mode));
  EXPECT_TRUE(meet(caller, listener, [&] { proxy.pass_both(); }));
  EXPECT_EQ(listener.advance(), State::kProven) << listener.error();
  EXPECT_EQ(caller.send(kText.data(), kText.size()), static_cast<ssize_t>(kText.size()));
  proxy.pass(0, [at](std::string& bytes) { bytes[bytes.size() - 1 - at] ^= 1; });
  std::string received(kText.size(), '\0');
  const ssize_t got = listener.receive(received.data(), received.size());
  EXPECT_TRUE(got > 0 || errno == EBADMSG) << got << " " << errno;
  error = listener.error();
  received.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return received;
}

TEST(Session, AManInTheMiddleThatChangesAByteIsFoundByTlsAlone) {
  std::string error;
  for (const size_t at : {size_t{0}, size_t{15}, size_t{16}, kText.size()}) {
    EXPECT_EQ(deliver_spoiled(Mode::kTls, at, error), "");
    EXPECT_THAT(error, HasSubstr("bad record mac"));
  }
  EXPECT_NE(deliver_spoiled(Mode::kAuth, 0, error), kText);
  EXPECT_EQ(error, "");
}

TEST(Session, AManInTheMiddleReadsNothingOfTls) {
  for (const Mode mode : {Mode::kAuth, Mode::kTls}) {
    Proxy proxy;
    Session caller(proxy.left.fds[0], Role::kCaller, terms_of(mode));
    Session listener(proxy.right.fds[1], Role::kListener, terms_of(mode));
    ASSERT_TRUE(meet(caller, listener, [&] { proxy.pass_both(); }));
    ASSERT_GT(caller.send(kText.data(), kText.size()), 0);
    proxy.pass(0);
    EXPECT_EQ(proxy.seen.find(kText) == std::string::npos, mode == Mode::kTls);
    const std::string key(32, '\1');
    EXPECT_EQ(proxy.seen.find(key), std::string::npos) << "the secret was sent";
  }
}

TEST(Session, ARecordedConnectionCannotBeReplayed) {
  for (const Mode mode : {Mode::kAuth, Mode::kTls}) {
    Proxy proxy;
    std::string from_caller;
    const auto record = [&] {
      proxy.pass(0, [&](std::string& bytes) { from_caller += bytes; });
      proxy.pass(1);
    };
    Session caller(proxy.left.fds[0], Role::kCaller, terms_of(mode));
    Session listener(proxy.right.fds[1], Role::kListener, terms_of(mode));
    ASSERT_TRUE(meet(caller, listener, record));
    ASSERT_GT(caller.send(kText.data(), kText.size()), 0);
    record();

    const Sockets sockets;
    Session second(sockets.fds[1], Role::kListener, terms_of(mode));
    ASSERT_EQ(::send(sockets.fds[0], from_caller.data(), from_caller.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(from_caller.size()));
    for (int i = 0; i < 10; ++i) {
      (void)second.advance();
    }
    EXPECT_EQ(second.advance(), State::kFailed);
  }
}

TEST(Session, ATlsServerThatHasNoKeyIsRefused) {
  const Sockets sockets;
  std::string error;
  Key key{};
  const auto client = Tls::start(sockets.fds[0], Role::kCaller, key, error);
  key[0] = 1;
  const auto server = Tls::start(sockets.fds[1], Role::kListener, key, error);
  ASSERT_TRUE(client && server) << error;
  int results = 0;
  for (int i = 0; i < 10; ++i) {
    results += client->shake_hands() == 1 ? 1 : 0;
    results += server->shake_hands() == 1 ? 1 : 0;
  }
  EXPECT_EQ(results, 0);
  EXPECT_FALSE(client->error().empty() || server->error().empty());
}

TEST(Session, TlsRenewsItsKeyInTheMiddleOfATransfer) {
  const Sockets sockets;
  std::string error;
  const Key key{};
  const auto client = Tls::start(sockets.fds[0], Role::kCaller, key, error);
  const auto server = Tls::start(sockets.fds[1], Role::kListener, key, error);
  ASSERT_TRUE(client && server) << error;
  client->set_records_per_key(3);
  int ready = 0;
  for (int i = 0; i < 10 && ready != 3; ++i) {
    ready |= client->shake_hands() == 1 ? 1 : 0;
    ready |= server->shake_hands() == 1 ? 2 : 0;
  }
  ASSERT_EQ(ready, 3) << client->error() << server->error();
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(client->send(&i, sizeof i), static_cast<ssize_t>(sizeof i)) << client->error();
    int got = -1;
    ASSERT_EQ(server->receive(&got, sizeof got), static_cast<ssize_t>(sizeof got))
        << server->error();
    EXPECT_EQ(got, i);
  }
}

TEST(Session, WhatPollDoesNotKnowOfIsSaid) {
  const Sockets sockets;
  Session caller(sockets.fds[0], Role::kCaller, terms_of(Mode::kTls));
  Session listener(sockets.fds[1], Role::kListener, terms_of(Mode::kTls));
  ASSERT_TRUE(meet(caller, listener));
  char bytes[4] = {1, 2, 3, 4};
  ASSERT_EQ(caller.send(bytes, 4), 4);
  ASSERT_EQ(listener.receive(bytes, 1), 1);
  EXPECT_TRUE(listener.may_have_more());
  ASSERT_EQ(listener.receive(bytes, 4), 3);
  ASSERT_EQ(listener.receive(bytes, 1), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_FALSE(listener.may_have_more());
}

/// Threads of the library use their connections until the process has ended.
TEST(TlsDeathTest, OpenSslStaysUsableAfterExit) {
  const auto end_process = [] {
    const Sockets sockets;
    std::string error;
    const auto tls = Tls::start(sockets.fds[0], Role::kCaller, Key{}, error);
    const bool is_heard =
        OPENSSL_atexit([] { static_cast<void>(std::fputs("over\n", stderr)); }) == 1;
    std::exit(tls != nullptr && is_heard ? 0 : 1);  // NOLINT(concurrency-mt-unsafe): one thread
  };
  EXPECT_EXIT(end_process(), testing::ExitedWithCode(0), testing::Not(HasSubstr("over")));
}

}  // namespace
}  // namespace plexus::security
