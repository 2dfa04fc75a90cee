// SPDX-License-Identifier: Apache-2.0
#include "core/os/socket.hpp"

#include <arpa/inet.h>
#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

SocketAddress loopback() { return SocketAddress::parse("127.0.0.1:0").value(); }
Patience seconds(int count) { return {.deadline = Deadline::after(std::chrono::seconds(count))}; }

struct Pair {
  Socket one;
  Socket two;
};

Pair make_pair() {
  auto listener = Socket::listen(loopback(), 0, 0);
  auto one = Socket::connect(listener.value().local_address().value(), seconds(10));
  EXPECT_TRUE(one.has_value()) << one.error().message();
  EXPECT_TRUE(seconds(10).wait(listener.value().fd(), 1, "accept").has_value());
  auto two = listener.value().try_accept();
  EXPECT_TRUE(two.has_value() && two.value().has_value());
  return {std::move(one).value(), std::move(*two.value())};
}

TEST(SocketAddress, ReadsAndWritesBothFamilies) {
  for (const char* const text : {"127.0.0.1:80", "[::1]:65535", "10.1.2.3:0"}) {
    const auto address = SocketAddress::parse(text);
    ASSERT_TRUE(address.has_value()) << text;
    EXPECT_EQ(address.value().to_string(), text);
    std::array<uint8_t, SocketAddress::kPackedBytes> bytes{};
    address.value().pack(bytes.data());
    EXPECT_EQ(SocketAddress::unpack(bytes.data()).value().to_string(), text);
  }
}

TEST(SocketAddress, RefusesWhatIsNone) {
  for (const char* const text :
       {"", "127.0.0.1", ":80", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "[::1]"}) {
    const auto address = SocketAddress::parse(text);
    ASSERT_TRUE(address.has_error()) << text;
    EXPECT_EQ(address.error().code(), Code::kInvalidArgument);
  }
  std::array<uint8_t, SocketAddress::kPackedBytes> bytes{};
  bytes[0] = 9;
  EXPECT_TRUE(SocketAddress::unpack(bytes.data()).has_error());
}

TEST(Socket, CarriesBytesBothWays) {
  Pair pair = make_pair();
  std::array<char, 5> bytes{};
  ASSERT_TRUE(pair.one.send_all("there", seconds(10)).has_value());
  ASSERT_TRUE(pair.two.recv_all(bytes.data(), bytes.size(), seconds(10)).has_value());
  EXPECT_EQ(std::string(bytes.data(), bytes.size()), "there");
  ASSERT_TRUE(pair.two.send_all("again", seconds(10)).has_value());
  ASSERT_TRUE(pair.one.recv_all(bytes.data(), bytes.size(), seconds(10)).has_value());
  EXPECT_EQ(std::string(bytes.data(), bytes.size()), "again");
}

TEST(Socket, ReturnsNothingWhenNothingIsThereAndAnErrorWhenThePeerClosed) {
  Pair pair = make_pair();
  char byte = 0;
  EXPECT_EQ(pair.one.try_recv(&byte, 1).value(), 0U);
  pair.two.close();
  ASSERT_TRUE(seconds(10).wait(pair.one.fd(), 1, "close").has_value());
  EXPECT_TRUE(pair.one.try_recv(&byte, 1).has_error());
}

TEST(Socket, EndsAWaitAtTheDeadline) {
  Pair pair = make_pair();
  char byte = 0;
  const auto received =
      pair.one.recv_all(&byte, 1, {.deadline = Deadline::after(std::chrono::milliseconds(20))});
  ASSERT_TRUE(received.has_error());
  EXPECT_EQ(received.error().code(), Code::kTimeout);
}

TEST(Socket, EndsAWaitWhenStopped) {
  Pair pair = make_pair();
  std::atomic<bool> stop{false};
  std::thread stopper([&] { stop.store(true); });
  char byte = 0;
  const auto received = pair.one.recv_all(&byte, 1, {.deadline = Deadline::never(), .stop = &stop});
  stopper.join();
  ASSERT_TRUE(received.has_error());
  EXPECT_THAT(received.error().message(), HasSubstr("aborted"));
}

TEST(Socket, SaysWhoRefusedAConnection) {
  SocketAddress address;
  {
    auto listener = Socket::listen(loopback(), 0, 0);
    address = listener.value().local_address().value();
  }
  const auto socket = Socket::connect(address, seconds(10));
  ASSERT_TRUE(socket.has_error());
  EXPECT_EQ(socket.error().code(), Code::kRemoteError);
  EXPECT_THAT(socket.error().message(), HasSubstr(address.to_string()));
}

TEST(Socket, ListensInAPortRangeAndSaysWhenItIsFull) {
  // A free port whose successor is in use: a range of one port.
  auto first = Socket::listen(loopback(), 0, 0);
  const int port = first.value().local_address().value().port();
  const auto second = Socket::listen(loopback(), port, port);
  ASSERT_TRUE(second.has_error());
  EXPECT_THAT(second.error().message(), HasSubstr("ports " + std::to_string(port)));
  first.value().close();
  const auto third = Socket::listen(loopback(), port, port);
  ASSERT_TRUE(third.has_value()) << third.error().message();
  EXPECT_EQ(third.value().local_address().value().port(), port);
}

// TCP lets a socket connect to itself where nothing listens at a port that it may be given.
TEST(Socket, NeverConnectsToItself) {
  auto taken = Socket::listen(loopback(), 0, 0);
  SocketAddress address = taken.value().local_address().value();
  taken.value().close();
  auto caller = Socket::listen(address, 0, 0);  // has this port, and stops listening below
  ASSERT_TRUE(caller.has_value()) << caller.error().message();
  ASSERT_EQ(shutdown(caller.value().fd(), SHUT_RDWR), 0);
  if (connect(caller.value().fd(), address.raw(), address.raw_size()) != 0 &&
      errno != EINPROGRESS) {
    GTEST_SKIP() << "this kernel does not connect a socket to itself";
  }
  const auto finished = caller.value().finish_connect(address);
  ASSERT_TRUE(finished.has_error());
  EXPECT_EQ(finished.error().code(), Code::kRemoteError);
}

TEST(SocketAddress, TakesTheScopeOfTheOwnInterfaceWhenItIsLinkLocal) {
  const auto own = SocketAddress::parse("[fe80::2%lo]:1").value();
  ASSERT_NE(own.scope(), 0U);
  std::array<uint8_t, SocketAddress::kPackedBytes> bytes{};
  SocketAddress::parse("[fe80::1%lo]:5").value().pack(bytes.data());
  const auto received = SocketAddress::unpack(bytes.data()).value();
  EXPECT_EQ(received.scope(), 0U) << "it is a number of the sender's";
  EXPECT_EQ(received.as_seen_from(own).scope(), own.scope());
  const auto global = SocketAddress::parse("[2001:db8::1]:5").value();
  EXPECT_EQ(global.as_seen_from(own).scope(), 0U);
}

TEST(SocketAddress, KnowsNamesFromAddresses) {
  EXPECT_TRUE(SocketAddress::is_numeric("10.0.0.1:5"));
  EXPECT_TRUE(SocketAddress::is_numeric("[::1]:5"));
  EXPECT_FALSE(SocketAddress::is_numeric("localhost:5"));
}

TEST(FindInterface, FindsLoopbackByNameAndFamily) {
  const auto v4 = find_interface("=lo", "AF_INET");
  ASSERT_TRUE(v4.has_value()) << v4.error().message();
  EXPECT_THAT(v4.value().to_string(), StartsWith("127.0.0.1"));
  EXPECT_EQ(find_interface("lo", "").value().family(), AF_INET);
}

TEST(FindInterface, SaysWhatItLookedForWhenThereIsNone) {
  const auto none = find_interface("=nosuch0", "");
  ASSERT_TRUE(none.has_error());
  EXPECT_THAT(none.error().message(), HasSubstr("NCCL_SOCKET_IFNAME==nosuch0"));
  const auto other = find_interface("nosuch0", "AF_INET", "NCCL_OOB_NET_IFNAME");
  ASSERT_TRUE(other.has_error());
  EXPECT_THAT(other.error().message(), HasSubstr("NCCL_OOB_NET_IFNAME=nosuch0"));
  EXPECT_THAT(other.error().message(), HasSubstr("NCCL_SOCKET_FAMILY=AF_INET"));
}

}  // namespace
}  // namespace plexus
