// SPDX-License-Identifier: Apache-2.0
// Connections to net-socket's port that are no valid peers are dropped without effect on others.
#include <arpa/inet.h>
#include <cstring>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plugins/net-socket/wire.hpp"
#include "tests/unit/plugins/net-socket/net_socket.hpp"

namespace plexus {
namespace {

using net_socket::WireHandle;
using net_socket::WireHeader;
using net_socket::WireHello;
using testing::AllOf;
using testing::HasSubstr;

/// A bare socket to the port of a handle.
class Stranger {
 public:
  explicit Stranger(const NetHandle& handle)
      : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    std::memcpy(&wire_, handle.bytes, sizeof wire_);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(wire_.port);
    std::memcpy(&address.sin_addr, wire_.address.data(), sizeof address.sin_addr);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  Stranger(Stranger&& other) noexcept : fd_(std::exchange(other.fd_, -1)), wire_(other.wire_) {}
  Stranger& operator=(Stranger&&) = delete;
  ~Stranger() {
    if (fd_ >= 0) {
      ::close(fd_);
    }
  }
  void say(const void* data, size_t size) const {
    EXPECT_EQ(::send(fd_, data, size, MSG_NOSIGNAL), static_cast<ssize_t>(size));
  }
  /// A correct hello for tests to modify.
  [[nodiscard]] WireHello hello() const {
    WireHello hello{};
    hello.magic = net_socket::kWireMagic;
    hello.connection_id = 1;
    hello.socket_count = 1;
    hello.connect_cookie = wire_.connect_cookie;
    return hello;
  }
  /// Whether the other end has closed it.
  [[nodiscard]] bool is_cut_off() const {
    char byte = 0;
    const ssize_t n = ::recv(fd_, &byte, 1, MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno == ECONNRESET);
  }

 private:
  int fd_;
  WireHandle wire_{};
};

TEST_F(NetSocket, GarbageAndWrongSecretsAreCutOffAndHarmNobody) {
  const NetContext sender = context();
  const NetContext receiver = context();
  auto listen = receiver.listen(0);
  ASSERT_TRUE(listen.has_value());
  const NetHandle& handle = listen.value().handle();

  std::vector<Stranger> strangers;
  const auto spoil = [&](const std::function<void(WireHello&)>& change) {
    strangers.emplace_back(handle);
    WireHello hello = strangers.back().hello();
    change(hello);
    strangers.back().say(&hello, sizeof hello);
  };
  spoil([](WireHello& hello) { hello.magic = 0; });
  spoil([](WireHello& hello) { hello.connect_cookie.back() ^= 1; });
  spoil([](WireHello& hello) { hello.socket_count = 0; });
  spoil([](WireHello& hello) { hello.socket_count = 1000; });
  spoil([](WireHello& hello) { hello.socket_index = 1; });
  spoil([](WireHello& hello) { hello.threads = 1; });
  spoil([](WireHello& hello) { hello.socket_count = 3; });  // data sockets without helper threads
  strangers.emplace_back(handle);
  strangers.back().say(std::string(200, 'G').c_str(), 200);
  const Stranger silent(handle);
  const Stranger slow(handle);
  slow.say("PLX", 3);

  NetRecv recv = listen.value().accept();
  ASSERT_TRUE(test::poll_until([&] {
    const auto progress = recv.try_accept();
    EXPECT_TRUE(progress.has_value() && progress.value() == NetProgress::kPending);
    return std::all_of(strangers.begin(), strangers.end(),
                       [](const Stranger& each) { return each.is_cut_off(); });
  }));
  EXPECT_FALSE(silent.is_cut_off());  // its time limit has not passed
  EXPECT_THAT(
      log_, AllOf(HasSubstr("refused a connection from 127.0.0.1:"),
                  HasSubstr("does not have the secret"), HasSubstr("further ones are not logged")));

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
  std::vector<Stranger> flood;
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
  forged.bytes[offsetof(WireHandle, connect_cookie)] ^= 1;
  NetSend send = sender.connect(0, forged);
  NetRecv recv = listen.value().accept();
  std::string message;
  ASSERT_TRUE(test::poll_until([&] {
    EXPECT_EQ(recv.try_accept().value(), NetProgress::kPending);
    const auto progress = send.try_connect();
    message = progress.has_error() ? progress.error().message() : "";
    return progress.has_error();
  }));
  EXPECT_THAT(message, HasSubstr("closed the connection during the handshake"));
}

TEST_F(NetSocket, AListenerWithoutTheSecretIsNotTrusted) {
  const NetContext sender = context();
  const NetContext receiver = context();
  auto listen = receiver.listen(0);
  NetHandle forged = listen.value().handle();
  forged.bytes[offsetof(WireHandle, accept_cookie)] ^= 1;
  NetSend send = sender.connect(0, forged);
  NetRecv recv = listen.value().accept();
  std::string message;
  ASSERT_TRUE(test::poll_until([&] {
    EXPECT_TRUE(recv.try_accept().has_value());
    const auto progress = send.try_connect();
    message = progress.has_error() ? progress.error().message() : "";
    return progress.has_error();
  }));
  EXPECT_THAT(message, HasSubstr("not the listener that created the handle"));
}

/// A peer that knows the secret and then sends `header`; returns the receiver's error.
class HostileHeader : public NetSocket {
 protected:
  Error answer_to(const WireHeader& header) {
    const NetContext receiver = context();
    auto listen = receiver.listen(0);
    const Stranger peer(listen.value().handle());
    const WireHello hello = peer.hello();
    peer.say(&hello, sizeof hello);
    NetRecv recv = listen.value().accept();
    EXPECT_TRUE(test::poll_until([&] { return recv.try_accept().value() == NetProgress::kDone; }));
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
