// SPDX-License-Identifier: Apache-2.0
// Messages between two contexts of net-socket, and failures between peers.
#include "tests/unit/plugins/net-socket/net_socket.hpp"

#include <array>
#include <netinet/in.h>
#include <random>
#include <string>
#include <sys/socket.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/no_descriptors.hpp"

namespace plexus {
namespace {

using test::ScopedEnv;
using testing::AllOf;
using testing::HasSubstr;

/// Settings of a connection.
struct Shape {
  const char* name;
  const char* family;
  const char* threads;
  const char* sockets;
  const char* inline_bytes;
  const char* task_bytes;
  const char* buffer_bytes;
  const char* security = "auth";
};

class NetSocketShape : public NetSocket, public testing::WithParamInterface<Shape> {
 protected:
  void SetUp() override {
    if (std::string_view(GetParam().family) == "AF_INET6" && !has_ipv6_loopback()) {
      GTEST_SKIP() << "this machine has no IPv6 loopback address";
    }
  }
  static bool has_ipv6_loopback() {
    const int fd = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_addr = in6addr_loopback;
    const bool is_there = ::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    ::close(fd);
    return is_there;
  }
  ScopedEnv family_{"NCCL_SOCKET_FAMILY", GetParam().family};
  ScopedEnv threads_{"NCCL_SOCKET_NTHREADS", GetParam().threads};
  ScopedEnv sockets_{"NCCL_NSOCKS_PERTHREAD", GetParam().sockets};
  ScopedEnv inline_{"NCCL_SOCKET_INLINE", GetParam().inline_bytes};
  ScopedEnv task_{"NCCL_SOCKET_MIN_TASKSIZE", GetParam().task_bytes};
  ScopedEnv send_buffer_{"NCCL_SOCKET_SNDBUF", GetParam().buffer_bytes};
  ScopedEnv recv_buffer_{"NCCL_SOCKET_RCVBUF", GetParam().buffer_bytes};
  ScopedEnv security_{"PLEXUS_NET_SECURITY", GetParam().security};
};

TEST_P(NetSocketShape, MovesMessagesAroundEveryBoundary) {
  const NetContext sender = context();
  const NetContext receiver = context();
  test::NetPair pair = test::connect_pair(sender, receiver);
  // The header, the stash (16 KiB), inline and task sizes of the shapes, a socket buffer.
  for (const size_t edge : {1u, 8u, 16u, 1000u, 16'384u, 65'536u, 300'000u}) {
    for (const size_t size : {edge - 1, edge, edge + 1}) {
      const auto message = test::make_message(size, static_cast<unsigned>(size));
      EXPECT_EQ(test::send_one(pair, message, size + 5), message) << size;
      EXPECT_EQ(test::send_one(pair, message, size), message) << size;
    }
  }
}

// A window of outstanding messages of random sizes, which also mixes those in parts with others.
TEST_P(NetSocketShape, KeepsOrderAndContentOfManyMessages) {
  constexpr size_t kMessages = 600;
  constexpr size_t kCapacity = 40'000;
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  std::vector<std::vector<std::byte>> messages;
  for (unsigned i = 0; i < kMessages; ++i) {
    const size_t most = i % 7 == 0 ? kCapacity : 300;
    messages.push_back(test::make_message(random() % (most + 1), i));
  }
  const NetContext sender = context();
  const NetContext receiver = context();
  test::NetPair pair = test::connect_pair(sender, receiver);

  std::vector<NetRequest*> sent;
  size_t sent_done = 0;
  std::vector<NetRequest*> received;
  size_t received_done = 0;
  std::vector<std::vector<std::byte>> arrived(kMessages, std::vector<std::byte>(kCapacity));
  const bool is_done = test::poll_until([&] {
    NetRequest* request = nullptr;
    while (sent.size() < kMessages &&
           pair.send.isend(messages[sent.size()], 5, nullptr, &request) == NetStatus::kOk) {
      sent.push_back(request);
    }
    while (received.size() < kMessages) {
      const NetBuffer buffer = test::buffer_of(arrived[received.size()], 5);
      if (pair.recv.irecv({&buffer, 1}, &request) != NetStatus::kOk) {
        break;
      }
      received.push_back(request);
    }
    while (sent_done < sent.size() && pair.send.test(sent[sent_done], nullptr) == NetStatus::kOk) {
      ++sent_done;
    }
    uint64_t size = 0;
    while (received_done < received.size() &&
           pair.recv.test(received[received_done], &size) == NetStatus::kOk) {
      arrived[received_done++].resize(size);
    }
    return received_done == kMessages && sent_done == kMessages;
  });
  ASSERT_TRUE(is_done) << received_done << " arrived";
  EXPECT_TRUE(arrived == messages);
}

/// Sends `message` in two pieces and receives it in three pieces of the given sizes; returns what
/// arrived, in order.
std::vector<std::byte> carry_pieces(test::NetPair& pair,
                                    std::vector<std::byte> message,
                                    size_t head_bytes,
                                    const std::array<size_t, 3>& capacities) {
  std::array<std::vector<std::byte>, 3> places;
  std::array<NetPiece, 3> into{};
  for (size_t i = 0; i < capacities.size(); ++i) {
    places[i].resize(capacities[i]);
    into[i] = {places[i].data(), capacities[i]};
  }
  const std::array<NetPiece, 2> from = {
      {{message.data(), head_bytes}, {message.data() + head_bytes, message.size() - head_bytes}}};
  NetRequest* sent = nullptr;
  NetRequest* received = nullptr;
  uint64_t size = 0;
  bool is_sent = false;
  EXPECT_TRUE(test::poll_until([&] {
    if (sent == nullptr) {
      EXPECT_EQ(pair.send.isend_pieces(from, 5, &sent), NetStatus::kOk);
      EXPECT_EQ(pair.recv.irecv_pieces(into, 5, &received), NetStatus::kOk);
    }
    is_sent = is_sent || pair.send.test(sent, nullptr) == NetStatus::kOk;
    return pair.recv.test(received, &size) == NetStatus::kOk;
  }));
  EXPECT_TRUE(is_sent ||
              test::poll_until([&] { return pair.send.test(sent, nullptr) == NetStatus::kOk; }));
  std::vector<std::byte> all;
  for (const auto& place : places) {
    all.insert(all.end(), place.begin(), place.end());
  }
  all.resize(size);
  return all;
}

TEST_P(NetSocketShape, CarriesMessagesInPieces) {
  const NetContext sender = context();
  const NetContext receiver = context();
  ASSERT_TRUE(sender.takes_pieces(0));
  test::NetPair pair = test::connect_pair(sender, receiver);
  for (const size_t size : {1u, 64u, 20'000u, 300'001u}) {
    const auto message = test::make_message(size, static_cast<unsigned>(size));
    for (const size_t head : {size_t{0}, size_t{1}, size / 3, size}) {
      // The same division, other divisions, and more capacity than needed.
      for (const std::array<size_t, 3>& capacities :
           {std::array<size_t, 3>{head, size - head, 100}, std::array<size_t, 3>{size / 2, 0, size},
            std::array<size_t, 3>{0, size / 5, size}}) {
        EXPECT_EQ(carry_pieces(pair, message, head, capacities), message) << size << " " << head;
      }
    }
    EXPECT_EQ(test::send_one(pair, message, size), message) << "whole among them";
  }
}

TEST_P(NetSocketShape, GroupedReceiveSortsByTag) {
  const NetContext sender = context();
  const NetContext receiver = context();
  test::NetPair pair = test::connect_pair(sender, receiver);
  constexpr uint32_t kGroup = PLEXUS_NET_RECVS_MAX;
  for (unsigned round = 0; round < 50; ++round) {
    std::vector<std::vector<std::byte>> arrived(kGroup, std::vector<std::byte>(5000));
    std::array<NetBuffer, kGroup> buffers{};
    std::vector<std::vector<std::byte>> messages;
    for (uint32_t i = 0; i < kGroup; ++i) {
      buffers[i] = test::buffer_of(arrived[i], static_cast<int32_t>(i));
      messages.push_back(test::make_message(round * 100 + i, i));
    }
    NetRequest* received = test::post_recv(pair, buffers);
    std::vector<NetRequest*> sent;
    for (uint32_t i = 0; i < kGroup; ++i) {  // another order than that of the buffers
      const uint32_t tag = (i * 3 + round) % kGroup;
      sent.push_back(test::post_send(pair, messages[tag], static_cast<int32_t>(tag)));
    }
    std::array<uint64_t, kGroup> sizes{};
    test::finish(pair, sent.back(), received, sizes.data());
    sent.pop_back();
    for (NetRequest* request : sent) {
      ASSERT_TRUE(
          test::poll_until([&] { return pair.send.test(request, nullptr) == NetStatus::kOk; }));
    }
    for (uint32_t i = 0; i < kGroup; ++i) {
      arrived[i].resize(sizes[i]);
      EXPECT_TRUE(arrived[i] == messages[i]) << "round " << round << " tag " << i;
    }
  }
}

TEST_P(NetSocketShape, ClosingWithMessagesInFlightIsSafe) {
  const NetContext sender = context();
  const NetContext receiver = context();
  std::vector<std::byte> data(64 << 20);  // more than the buffers of all sockets hold
  std::vector<std::byte> arrived(8 << 20);
  {
    const ScopedEnv send_buffer("NCCL_SOCKET_SNDBUF", "65536");
    const ScopedEnv recv_buffer("NCCL_SOCKET_RCVBUF", "65536");
    // Neither can complete: nobody receives the one, nobody sends the other.
    test::NetPair sends = test::connect_pair(sender, receiver);
    NetRequest* sent = test::post_send(sends, data, 0);
    test::NetPair receives = test::connect_pair(sender, receiver);
    const NetBuffer buffer = test::buffer_of(arrived, 0);
    NetRequest* received = test::post_recv(receives, {&buffer, 1});
    EXPECT_EQ(receives.recv.test(received, nullptr), NetStatus::kAgain);
    EXPECT_EQ(sends.send.test(sent, nullptr), NetStatus::kAgain);
  }
  data.clear();
  arrived.clear();
}

TEST_P(NetSocketShape, PeersDeathIsARemoteErrorThatNamesIt) {
  const ScopedEnv send_buffer("NCCL_SOCKET_SNDBUF", "65536");
  const ScopedEnv recv_buffer("NCCL_SOCKET_RCVBUF", "65536");
  const NetContext sender = context();
  const NetContext receiver = context();
  test::NetPair pair = test::connect_pair(sender, receiver);
  // More than all socket buffers of the connection hold, so that it breaks in the middle of the
  // message. The buffers are freed before the connection: after the failure they must not be
  // accessed.
  const std::vector<std::byte> data(8 << 20);
  std::vector<std::byte> room(data.size());
  const NetBuffer buffer = test::buffer_of(room, 0);
  NetRequest* received = test::post_recv(pair, {&buffer, 1});
  test::post_send(pair, data, 0);
  { const NetSend gone = std::move(pair.send); }
  NetStatus status = NetStatus::kAgain;
  ASSERT_TRUE(test::poll_until(
      [&] { return (status = pair.recv.test(received, nullptr)) != NetStatus::kAgain; }));
  const Error error = pair.recv.explain("test", status);
  EXPECT_EQ(error.code(), Code::kRemoteError);
  EXPECT_THAT(error.message(),
              HasSubstr(std::string_view(GetParam().family) == "AF_INET6" ? "[::1]" : "127.0.0.1"));
  NetRequest* again = nullptr;
  EXPECT_EQ(static_cast<Code>(pair.recv.irecv({&buffer, 1}, &again)), Code::kRemoteError);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes,
    NetSocketShape,
    testing::Values(Shape{"Plain", "AF_INET", "0", "1", "", "", ""},
                    Shape{"Ipv6", "AF_INET6", "0", "1", "", "", ""},
                    Shape{"SmallBuffers", "AF_INET", "0", "1", "", "", "4096"},
                    Shape{"OneThread", "AF_INET", "1", "1", "1000", "16384", ""},
                    Shape{"TwoThreadsFourSockets", "AF_INET", "2", "2", "1000", "1", ""},
                    Shape{"NothingInline", "AF_INET", "3", "1", "0", "65536", "8192"},
                    Shape{"Off", "AF_INET", "0", "1", "", "", "", "off"},
                    Shape{"Tls", "AF_INET", "0", "1", "", "", "", "tls"},
                    Shape{"TlsSmallBuffers", "AF_INET6", "0", "1", "", "", "4096", "tls"},
                    Shape{"TlsTwoThreadsFourSockets", "AF_INET", "2", "2", "1000", "1", "", "tls"},
                    Shape{"TlsNothingInline", "AF_INET", "3", "1", "0", "65536", "8192", "tls"}),
    [](const testing::TestParamInfo<Shape>& shape) { return std::string(shape.param.name); });

// The sending side decides; the receiving side needs no settings.
TEST_F(NetSocket, EndsWithDifferentSettingsUnderstandEachOther) {
  const NetContext receiver = context();
  const ScopedEnv threads("NCCL_SOCKET_NTHREADS", "2");
  const ScopedEnv inline_bytes("NCCL_SOCKET_INLINE", "10");
  const ScopedEnv task("NCCL_SOCKET_MIN_TASKSIZE", "100");
  const NetContext sender = context();
  test::NetPair pair = test::connect_pair(sender, receiver);
  const auto message = test::make_message(100'000, 1);
  EXPECT_EQ(test::send_one(pair, message, 100'000), message);
}

TEST_F(NetSocket, OneListenerServesSeveralConnections) {
  const NetContext sender = context();
  const NetContext receiver = context();
  test::NetPair first = test::connect_pair(sender, receiver);
  NetSend send = sender.connect(0, first.listen.handle());
  NetRecv recv = first.listen.accept();
  ASSERT_TRUE(test::meet(send, recv));
  test::NetPair second{std::move(first.listen), std::move(send), std::move(recv)};
  const auto message = test::make_message(100, 2);
  EXPECT_EQ(test::send_one(second, message, 100), message);
  EXPECT_EQ(test::send_one(first, message, 100), message);
}

TEST_F(NetSocket, BadSettingFailsTheContextWithASentence) {
  const ScopedEnv threads("NCCL_SOCKET_NTHREADS", "many");
  const auto made = NetContext::create(plugin_, {});
  ASSERT_TRUE(made.has_error());
  EXPECT_EQ(made.error().code(), Code::kInvalidUsage);
  EXPECT_EQ(
      made.error().message(),
      "net plugin Socket: NCCL_SOCKET_NTHREADS=many is not a number in 0..16; correct or unset it");
}

TEST_F(NetSocket, InterfaceThatDoesNotExistFailsTheContext) {
  const ScopedEnv interfaces("NCCL_SOCKET_IFNAME", "=nowhere9");
  const auto made = NetContext::create(plugin_, {});
  ASSERT_TRUE(made.has_error());
  EXPECT_THAT(made.error().message(), AllOf(HasSubstr("=nowhere9"), HasSubstr("lo")));
}

TEST_F(NetSocket, AMessageLongerThanTheReceiveNamesBothSizes) {
  const NetContext sender = context();
  const NetContext receiver = context();
  test::NetPair pair = test::connect_pair(sender, receiver);
  std::vector<std::byte> room(10);
  const NetBuffer buffer = test::buffer_of(room, 4);
  NetRequest* received = test::post_recv(pair, {&buffer, 1});
  const auto message = test::make_message(11, 1);
  test::post_send(pair, message, 4);
  NetStatus status = NetStatus::kAgain;
  ASSERT_TRUE(test::poll_until(
      [&] { return (status = pair.recv.test(received, nullptr)) != NetStatus::kAgain; }));
  const Error error = pair.recv.explain("test", status);
  EXPECT_EQ(error.code(), Code::kInvalidUsage);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("11 bytes with tag 4"), HasSubstr("room for 10")));
}

TEST_F(NetSocket, SendingToADeadReceiverFails) {
  const NetContext sender = context();
  const NetContext receiver = context();
  test::NetPair pair = test::connect_pair(sender, receiver);
  { const NetRecv gone = std::move(pair.recv); }
  const std::vector<std::byte> data(1 << 20);
  NetStatus status = NetStatus::kOk;
  ASSERT_TRUE(test::poll_until([&] {
    NetRequest* request = nullptr;
    status = pair.send.isend(data, 0, nullptr, &request);
    return status != NetStatus::kOk && status != NetStatus::kAgain;
  }));
  EXPECT_EQ(pair.send.explain("isend", status).code(), Code::kRemoteError);
}

TEST_F(NetSocket, NobodyListeningIsAnErrorThatNamesTheAddressAndAttempts) {
  const NetContext sender = context();
  const NetContext receiver = context();
  NetHandle handle{};
  {
    const auto listen = receiver.listen(0);
    handle = listen.value().handle();
  }
  const ScopedEnv retries("NCCL_SOCKET_RETRY_CNT", "2");
  const ScopedEnv pause("NCCL_SOCKET_RETRY_SLEEP_MSEC", "1");
  const NetContext patient = context();
  NetSend send = patient.connect(0, handle);
  std::string message;
  ASSERT_TRUE(test::poll_until([&] {
    const auto progress = send.try_connect();
    message = progress.has_error() ? progress.error().message() : "";
    return progress.has_error();
  }));
  EXPECT_THAT(message, AllOf(HasSubstr("127.0.0.1:"), HasSubstr("3 attempts"),
                             HasSubstr("NCCL_SOCKET_IFNAME")));
}

TEST_F(NetSocket, ADescriptorThatCannotBeHadIsAnErrorWithTheLimit) {
  const auto names_limit = AllOf(HasSubstr("ulimit -n is 64"), HasSubstr("PLEXUS_RAISE_NOFILE=1"));
  const NetContext sender = context();
  const NetContext receiver = context();
  auto listen = receiver.listen(0);
  ASSERT_TRUE(listen.has_value());
  NetSend send = sender.connect(0, listen.value().handle());
  ASSERT_TRUE(send.try_connect().has_value());  // the kernel accepts it
  NetRecv recv = listen.value().accept();
  const test::NoDescriptors none;
  EXPECT_THAT(receiver.listen(0).error().message(), names_limit);
  NetSend late = sender.connect(0, listen.value().handle());
  EXPECT_THAT(late.try_connect().error().message(), names_limit);
  std::string message;
  ASSERT_TRUE(test::poll_until([&] {
    const auto progress = recv.try_accept();
    message = progress.has_error() ? progress.error().message() : "";
    return progress.has_error();
  }));
  EXPECT_THAT(message, names_limit);
}

TEST_F(NetSocket, AHandleOfAnotherPluginIsRefused) {
  const NetContext sender = context();
  NetSend send = sender.connect(0, NetHandle{});
  EXPECT_THAT(send.try_connect().error().message(),
              HasSubstr("use the same network plugin on all ranks"));
}

TEST_F(NetSocket, ATagThatNobodyCanExpectIsAnErrorOnceEverythingIsPosted) {
  const NetContext sender = context();
  const NetContext receiver = context();
  test::NetPair pair = test::connect_pair(sender, receiver);
  std::vector<std::byte> room(8);
  const NetBuffer buffer = test::buffer_of(room, 1);
  NetRequest* first = test::post_recv(pair, {&buffer, 1});
  const std::vector<std::byte> message(8);
  test::post_send(pair, message, 2);
  for (uint32_t i = 1; i < receiver.properties(0).requests_max; ++i) {
    test::post_recv(pair, {&buffer, 1});
  }
  NetStatus status = NetStatus::kAgain;
  ASSERT_TRUE(test::poll_until(
      [&] { return (status = pair.recv.test(first, nullptr)) != NetStatus::kAgain; }));
  EXPECT_THAT(pair.recv.explain("test", status).message(), HasSubstr("tag 2"));
}

}  // namespace
}  // namespace plexus
