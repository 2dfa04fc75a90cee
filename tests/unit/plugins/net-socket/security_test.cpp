// SPDX-License-Identifier: Apache-2.0
// PLEXUS_NET_SECURITY of net-socket: modes that differ, and a man in the middle.
#include <arpa/inet.h>
#include <array>
#include <cstring>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plugins/net-socket/wire.hpp"
#include "plugins/support/unique_fd.hpp"
#include "tests/unit/plugins/net-socket/net_socket.hpp"

namespace plexus {
namespace {

using net_socket::WireHandle;
using plugin::UniqueFd;
using test::ScopedEnv;
using testing::AllOf;
using testing::HasSubstr;

TEST_F(NetSocket, ModesThatDifferAreNamedBeforeAnythingIsSent) {
  const NetContext receiver = context();
  auto listen = receiver.listen(0);
  const ScopedEnv mode("PLEXUS_NET_SECURITY", "tls");
  const NetContext sender = context();
  NetSend send = sender.connect(0, listen.value().handle());
  const auto progress = send.try_connect();
  ASSERT_TRUE(progress.has_error());
  EXPECT_EQ(progress.error().code(), Code::kInvalidUsage);
  EXPECT_THAT(
      progress.error().message(),
      HasSubstr("PLEXUS_NET_SECURITY is tls here and auth at the peer: set it to the same"));
}

TEST_F(NetSocket, AModeThatIsNoneFailsTheContext) {
  const ScopedEnv mode("PLEXUS_NET_SECURITY", "ssl");
  const auto made = NetContext::create(plugin_, {});
  ASSERT_TRUE(made.has_error());
  EXPECT_THAT(made.error().message(),
              HasSubstr("PLEXUS_NET_SECURITY=ssl is not understood: it takes off, auth or tls"));
}

UniqueFd make_socket() {
  return UniqueFd::open(
      [] { return ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); });
}

/// Listens beside a listener, changes its handle to point here, and passes bytes on.
class Proxy {
 public:
  explicit Proxy(NetHandle& handle) {
    std::memcpy(&wire_, handle.bytes, sizeof wire_);
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof own;
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&own), size), 0);
    EXPECT_EQ(::listen(listener_.get(), 8), 0);
    EXPECT_EQ(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&own), &size), 0);
    WireHandle forged = wire_;
    forged.address.port = ntohs(own.sin_port);
    std::memcpy(handle.bytes, &forged, sizeof forged);
  }
  /// `spoils`: changes one bit of what passes to the listener from now on.
  void pass(bool spoils = false) {
    UniqueFd near = UniqueFd::open(
        [&] { return ::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); });
    if (near.is_open()) {
      UniqueFd far = make_socket();
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(wire_.address.port);
      std::memcpy(&address.sin_addr, wire_.address.bytes.data(), sizeof address.sin_addr);
      ::connect(far.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
      pairs_.push_back({std::move(near), std::move(far)});
    }
    for (Pair& pair : pairs_) {
      move(pair.near.get(), pair.far.get(), spoils);
      move(pair.far.get(), pair.near.get(), false);
    }
  }
  [[nodiscard]] const std::string& seen() const { return seen_; }

 private:
  struct Pair {
    UniqueFd near;
    UniqueFd far;
  };
  void move(int from, int to, bool spoils) {
    std::array<char, 4096> bytes{};
    const ssize_t got = ::recv(from, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got > 0) {
      bytes[static_cast<size_t>(got) - 1] ^= spoils ? 1 : 0;
      seen_.append(bytes.data(), static_cast<size_t>(got));
      EXPECT_EQ(::send(to, bytes.data(), static_cast<size_t>(got), MSG_NOSIGNAL), got);
    } else if (got == 0) {
      ::shutdown(to, SHUT_WR);
    }
  }
  WireHandle wire_{};
  UniqueFd listener_ = make_socket();
  std::vector<Pair> pairs_;
  std::string seen_;
};

class ManInTheMiddle : public NetSocket {
 protected:
  /// Sends `message` through the proxy. Returns the receiver's status; `received`: what it got.
  NetStatus deliver(const std::vector<std::byte>& message,
                    bool spoils,
                    std::vector<std::byte>& received) {
    const NetContext sender = context();
    const NetContext receiver = context();
    auto listen = receiver.listen(0);
    NetHandle handle = listen.value().handle();
    Proxy proxy(handle);
    NetSend send = sender.connect(0, handle);
    NetRecv recv = listen.value().accept();
    bool is_connected = false;
    bool is_accepted = false;
    EXPECT_TRUE(test::poll_until([&] {
      is_connected = is_connected || send.try_connect().value() == NetProgress::kDone;
      is_accepted = is_accepted || recv.try_accept().value() == NetProgress::kDone;
      proxy.pass();
      return is_connected && is_accepted;
    }));
    received.assign(message.size(), std::byte{0});
    const NetBuffer buffer = test::buffer_of(received, 3);
    NetRequest* in = nullptr;
    NetRequest* out = nullptr;
    EXPECT_EQ(recv.irecv({&buffer, 1}, &in), NetStatus::kOk);
    EXPECT_EQ(send.isend(message, 3, nullptr, &out), NetStatus::kOk);
    NetStatus status = NetStatus::kAgain;
    EXPECT_TRUE(test::poll_until([&] {
      proxy.pass(spoils);
      return (status = recv.test(in, nullptr)) != NetStatus::kAgain;
    }));
    error_ = status == NetStatus::kOk ? "" : recv.explain("test", status).message();
    seen_ = proxy.seen();
    return status;
  }
  std::string error_;
  std::string seen_;
};

TEST_F(ManInTheMiddle, ThatFlipsABitEndsATlsConnectionWithASentenceThatNamesThePeer) {
  const ScopedEnv mode("PLEXUS_NET_SECURITY", "tls");
  const auto message = test::make_message(1000, 1);
  std::vector<std::byte> received;
  EXPECT_EQ(static_cast<Code>(deliver(message, true, received)), Code::kRemoteError);
  EXPECT_THAT(error_,
              AllOf(HasSubstr("lost the connection from 127.0.0.1:"), HasSubstr("bad record mac")));
  EXPECT_EQ(deliver(message, false, received), NetStatus::kOk);
  EXPECT_EQ(received, message);
}

TEST_F(ManInTheMiddle, ReadsMessagesUnlessItIsTls) {
  const auto message = test::make_message(1000, 1);
  const std::string text(reinterpret_cast<const char*>(message.data()), message.size());
  for (const char* const mode : {"off", "auth", "tls"}) {
    const ScopedEnv security("PLEXUS_NET_SECURITY", mode);
    std::vector<std::byte> received;
    ASSERT_EQ(deliver(message, false, received), NetStatus::kOk);
    EXPECT_EQ(seen_.find(text) == std::string::npos, std::string_view(mode) == "tls") << mode;
  }
}

}  // namespace
}  // namespace plexus
