// SPDX-License-Identifier: Apache-2.0
// Connections to net-socket's port that are no valid peers are dropped without effect on others.
#include <arpa/inet.h>
#include <array>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <optional>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plugins/net-socket/wire.hpp"
#include "plugins/support/unique_fd.hpp"
#include "security/session.hpp"
#include "tests/unit/plugins/net-socket/net_socket.hpp"

namespace plexus {
namespace {

using net_socket::WireHandle;
using net_socket::WireHeader;
using net_socket::WireHello;
using testing::AllOf;
using testing::HasSubstr;

/// A bare socket to the port of a handle, and what this side of a connection can do with it.
class Peer {
 public:
  explicit Peer(const NetHandle& handle) {
    std::memcpy(&wire_, handle.bytes, sizeof wire_);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(wire_.address.port);
    std::memcpy(&address.sin_addr, wire_.address.bytes.data(), sizeof address.sin_addr);
    EXPECT_EQ(::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::fcntl(fd_.get(), F_SETFL, O_NONBLOCK), 0);
  }
  void say(const void* data, size_t size) const {
    EXPECT_EQ(::send(fd_.get(), data, size, MSG_NOSIGNAL), static_cast<ssize_t>(size));
  }
  /// From now on progress() goes through the handshake, and then says a hello.
  void enter(const WireHello& hello, const security::Key& key) {
    session_ = security::Session(fd_.get(), security::Role::kCaller, {.key = key});
    hello_ = hello;
  }
  void progress() {
    if (hello_.has_value() && session_.advance() == security::Session::State::kProven) {
      say(&*hello_, sizeof *hello_);
      hello_.reset();
    }
  }
  /// A correct hello for tests to modify.
  [[nodiscard]] static WireHello hello() {
    WireHello hello{};
    hello.magic = net_socket::kWireMagic;
    hello.connection_id = 1;
    hello.socket_count = 1;
    hello.timeout_s = 30;
    return hello;
  }
  [[nodiscard]] const security::Key& key() const { return wire_.key; }
  /// Whether the other end has closed it; reads and ignores what it said.
  [[nodiscard]] bool is_cut_off() const {
    std::array<char, 256> bytes{};
    ssize_t n = 0;
    while ((n = ::recv(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT)) > 0) {
    }
    return n == 0 || errno == ECONNRESET;
  }
  /// It has nothing more to do, and was cut off.
  [[nodiscard]] bool is_over() {
    if (hello_.has_value() && session_.advance() == security::Session::State::kPending) {
      return false;
    }
    return is_cut_off();
  }

 private:
  plugin::UniqueFd fd_ =
      plugin::UniqueFd::open([] { return ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); });
  security::Session session_;
  std::optional<WireHello> hello_;
  WireHandle wire_{};
};

TEST_F(NetSocket, GarbageAndWrongSecretsAreCutOffAndHarmNobody) {
  const NetContext sender = context();
  const NetContext receiver = context();
  auto listen = receiver.listen(0);
  ASSERT_TRUE(listen.has_value());
  const NetHandle& handle = listen.value().handle();

  std::vector<Peer> peers;
  const auto spoil = [&](const std::function<void(WireHello&)>& change, uint8_t of_key = 0) {
    Peer& peer = peers.emplace_back(handle);
    WireHello hello = Peer::hello();
    change(hello);
    security::Key key = peer.key();
    key.back() ^= of_key;
    peer.enter(hello, key);
  };
  spoil([](WireHello&) {}, 1);
  spoil([](WireHello& hello) { hello.magic = 0; });
  spoil([](WireHello& hello) { hello.socket_count = 0; });
  spoil([](WireHello& hello) { hello.socket_count = 1000; });
  spoil([](WireHello& hello) { hello.socket_index = 1; });
  spoil([](WireHello& hello) { hello.threads = 1; });
  spoil([](WireHello& hello) { hello.socket_count = 3; });  // data sockets without helper threads
  peers.emplace_back(handle);
  peers.back().say(std::string(200, 'G').c_str(), 200);
  const Peer silent(handle);
  const Peer slow(handle);
  slow.say("PLX", 3);

  NetRecv recv = listen.value().accept();
  ASSERT_TRUE(test::poll_until([&] {
    const auto progress = recv.try_accept();
    EXPECT_TRUE(progress.has_value() && progress.value() == NetProgress::kPending);
    return std::count_if(peers.begin(), peers.end(), [](Peer& each) {
             each.progress();
             return each.is_over();
           }) == static_cast<std::ptrdiff_t>(peers.size());
  }));
  EXPECT_FALSE(silent.is_cut_off());  // its time limit has not passed
  EXPECT_THAT(
      log_, AllOf(HasSubstr("refused a connection from 127.0.0.1:"),
                  HasSubstr("does not know the secret"), HasSubstr("further ones are not logged")));

  NetSend send = sender.connect(0, handle);
  ASSERT_TRUE(test::meet(send, recv));
}

TEST_F(NetSocket, AFloodOfSilentConnectionsIsBoundedAndThePeerStillGetsIn) {
  constexpr int kFlood = 300;  // more than the listener keeps
  const NetContext sender = context();
  const NetContext receiver = context();
  auto listen = receiver.listen(0);
  ASSERT_TRUE(listen.has_value());
  NetRecv recv = listen.value().accept();
  std::vector<Peer> flood;
  for (int i = 0; i < kFlood; ++i) {
    flood.emplace_back(listen.value().handle());
    ASSERT_EQ(recv.try_accept().value(), NetProgress::kPending);
  }
  EXPECT_TRUE(test::poll_until(
      [&] { return recv.try_accept().has_value() && flood.front().is_cut_off(); }));
  EXPECT_FALSE(flood.back().is_cut_off());
  NetSend send = sender.connect(0, listen.value().handle());
  EXPECT_TRUE(test::meet(send, recv));
}

TEST_F(NetSocket, WrongSecretDoesNotConnect) {
  const NetContext sender = context();
  const NetContext receiver = context();
  auto listen = receiver.listen(0);
  NetHandle forged = listen.value().handle();
  forged.bytes[offsetof(WireHandle, key)] ^= 1;
  NetSend send = sender.connect(0, forged);
  NetRecv recv = listen.value().accept();
  std::string message;
  ASSERT_TRUE(test::poll_until([&] {
    EXPECT_EQ(recv.try_accept().value(), NetProgress::kPending);
    const auto progress = send.try_connect();
    message = progress.has_error() ? progress.error().message() : "";
    return progress.has_error();
  }));
  EXPECT_THAT(message, HasSubstr("it knows another secret"));
}

/// A peer that knows the secret and then sends `header`; returns the receiver's error.
class HostileHeader : public NetSocket {
 protected:
  Error answer_to(const WireHeader& header) {
    const NetContext receiver = context();
    auto listen = receiver.listen(0);
    Peer peer(listen.value().handle());
    peer.enter(Peer::hello(), peer.key());
    NetRecv recv = listen.value().accept();
    EXPECT_TRUE(test::poll_until([&] {
      peer.progress();
      return recv.try_accept().value() == NetProgress::kDone;
    }));
    peer.say(&header, sizeof header);
    std::vector<std::byte> room(64);
    const NetBuffer buffer = test::buffer_of(room, 0);
    NetRequest* request = nullptr;
    EXPECT_EQ(recv.irecv({&buffer, 1}, &request), NetStatus::kOk);
    NetStatus status = NetStatus::kAgain;
    EXPECT_TRUE(test::poll_until(
        [&] { return (status = recv.test(request, nullptr)) != NetStatus::kAgain; }));
    return recv.explain("test", status);
  }
};

TEST_F(HostileHeader, SizesAndPartsThatMakeNoSenseAreRefused) {
  EXPECT_THAT(answer_to({UINT64_MAX, 0, 0, 0}).message(), HasSubstr("sent an invalid header"));
  EXPECT_THAT(answer_to({64, 0, 1, 0}).message(), HasSubstr("sent an invalid header"));
  EXPECT_THAT(answer_to({uint64_t{1} << 40, 0, 0, 0}).message(), HasSubstr("room for 64"));
  EXPECT_THAT(answer_to({65, 0, 0, 0}).message(), HasSubstr("room for 64"));
}

}  // namespace
}  // namespace plexus
