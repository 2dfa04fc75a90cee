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
