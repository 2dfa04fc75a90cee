// SPDX-License-Identifier: Apache-2.0
// net-ofi through the core's interface: connections, messages, failures. Of links: link_test.cpp.
#include "tests/unit/plugins/net-ofi/net_ofi.hpp"

#include <array>
#include <chrono>
#include <cstring>
#include <fstream>
#include <mutex>
#include <random>
#include <rdma/fabric.h>
#include <string>
#include <thread>
#include <unistd.h>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plugins/net-ofi/wire.hpp"
#include "tests/support/no_descriptors.hpp"

namespace plexus {
namespace {

using test::NetOfi;
using test::NetOfiShape;
using test::ScopedEnv;
using testing::AllOf;
using testing::HasSubstr;

size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  size_t all_pages = 0;
  size_t pages = 0;
  statm >> all_pages >> pages;
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

/// A job has a connection per pair of ranks, direction and channel: hundreds in a process.
TEST_F(NetOfi, AConnectionTakesAFewMegabytes) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "sanitizers keep bytes of their own for each, and freed memory for a while";
#endif
  constexpr size_t kPairs = 12;
  constexpr size_t kEndBytesMax = size_t{8} << 20;  // 11 MB with buffers of 4 KiB
  const NetContext sender = context();
  const NetContext receiver = context();
  const auto message = test::make_message(size_t{1} << 20, 3);
  std::vector<test::NetPair> pairs;
  pairs.push_back(test::connect_pair(sender, receiver));
  EXPECT_TRUE(test::send_one(pairs.front(), message, message.size()) == message);
  const size_t before = resident_bytes();
  for (size_t i = 0; i < kPairs; ++i) {
    pairs.push_back(test::connect_pair(sender, receiver));
    EXPECT_TRUE(test::send_one(pairs.back(), message, message.size()) == message);
  }
  EXPECT_LT((resident_bytes() - before) / (2 * kPairs), kEndBytesMax);
}

/// libfabric says EIO where some of an endpoint's descriptors are missing, and gives the others
/// back.
TEST_F(NetOfi, AnEndpointThatGetsNoDescriptorsNamesTheirLimit) {
  const NetContext receiver = context();
  const auto listen_with = [&](size_t left) {
    const test::NoDescriptors none_but(left);
    return receiver.listen(0);
  };
  size_t left = 0;
  auto listen = listen_with(left);
  while (listen.has_error() && left < 32) {
    EXPECT_THAT(listen.error().message(),
                AllOf(HasSubstr("ulimit -n is 64"), HasSubstr("PLEXUS_RAISE_NOFILE")))
        << left << " descriptors are left";
    listen = listen_with(++left);
  }
  EXPECT_GT(left, 1U);
  EXPECT_TRUE(listen.has_value());
}

/// On a busy machine a handshake may take longer than the listener waits.
TEST_F(NetOfi, AConnectionThatTheListenerGaveUpIsMadeAllTheSame) {
  constexpr auto kTimeout = std::chrono::milliseconds(200);  // the listener's
  const NetContext sender = context();
  const ScopedEnv short_timeout("PLEXUS_OFI_CONNECT_TIMEOUT_MS", "200");
  const NetContext receiver = context();
  auto listen = receiver.listen(0);
  ASSERT_TRUE(listen.has_value()) << listen.error().message();
  NetSend send = sender.connect(0, listen.value().handle());
  NetRecv recv = listen.value().accept();
  const auto has_given_up = [this] {
    const std::scoped_lock lock(mutex_);
    return log_.find("did not finish connecting in time") != std::string::npos;
  };
  // The listener's answer needs the sender, which is so slow that the time is over before.
  ASSERT_TRUE(test::poll_until([&] {
    EXPECT_TRUE(send.try_connect().has_value());
    const auto until = std::chrono::steady_clock::now() + 2 * kTimeout;
    while (!has_given_up() && std::chrono::steady_clock::now() < until) {
      EXPECT_TRUE(recv.try_accept().has_value());
    }
    return has_given_up();
  }));
  EXPECT_TRUE(test::meet(send, recv));
}

/// Before a connector's first call, after it, and when its greeting has come but nobody answers.
/// Over shm libfabric keeps the mapping of a listener's endpoint that was closed, and crashed.
TEST_P(NetOfiShape, ConnectsToListensThatCloseFail) {
  const ScopedEnv timeout("PLEXUS_OFI_CONNECT_TIMEOUT_MS", "300");
  const NetContext sender = context();
  const NetContext receiver = context();
  for (int calls = 0; calls < 3; ++calls) {
    auto listen = receiver.listen(0);
    ASSERT_TRUE(listen.has_value());
    NetSend send = sender.connect(0, listen.value().handle());
    NetSend other = sender.connect(0, listen.value().handle());
    for (int call = 0; call < calls; ++call) {
      EXPECT_EQ(send.try_connect().value(), NetProgress::kPending);
      EXPECT_EQ(other.try_connect().value(), NetProgress::kPending);
      if (call > 0) {
        EXPECT_EQ(listen.value().accept().try_accept().value(), NetProgress::kPending);
      }
    }
    { const NetListen closed = std::move(listen).value(); }
    ASSERT_TRUE(test::poll_until([&] { return send.try_connect().has_error(); })) << calls;
    EXPECT_THAT(send.try_connect().error().message(), HasSubstr("cannot connect to")) << calls;
  }
  test::NetPair pair = test::connect_pair(sender, receiver);
  const auto message = test::make_message(1000, 5);
  EXPECT_TRUE(test::send_one(pair, message, message.size()) == message);
}

TEST_P(NetOfiShape, MovesMessagesAroundEveryBoundary) {
  const NetContext sender = context();
  const NetContext receiver = context();
  test::NetPair pair = test::connect_pair(sender, receiver);
  // Inject (64, 4096), eager (16 KiB) and segment sizes of the providers, blocks, stripes.
  for (const size_t edge : {1u, 64u, 4096u, 16'384u, 65'536u, 131'072u, 262'144u, 1'000'000u}) {
    for (const size_t size : {edge - 1, edge, edge + 1}) {
      const auto message = test::make_message(size, static_cast<unsigned>(size));
      EXPECT_TRUE(test::send_one(pair, message, size + 5) == message) << size;
      EXPECT_TRUE(test::send_one(pair, message, size) == message) << size;
    }
  }
}

TEST_P(NetOfiShape, MovesABigMessageFromAndToUnalignedMemory) {
  constexpr size_t kSize = (64u << 20) + 3;
  const NetContext sender = context();
  const NetContext receiver = context();
  test::NetPair pair = test::connect_pair(sender, receiver);
  const auto message = test::make_message(kSize + 1, 1);
  std::vector<std::byte> arrived(kSize + 3);
  const NetBuffer buffer = {arrived.data() + 3, kSize, nullptr, -9, 0};
  NetRequest* received = test::post_recv(pair, {&buffer, 1});
  NetRequest* sent = nullptr;
  ASSERT_TRUE(test::poll_until([&] {
    return pair.send.isend({message.data() + 1, kSize}, -9, nullptr, &sent) != NetStatus::kAgain;
  }));
  uint64_t size = 0;
  test::finish(pair, sent, received, &size);
  EXPECT_EQ(size, kSize);
  EXPECT_EQ(std::memcmp(arrived.data() + 3, message.data() + 1, kSize), 0);
}

// A window of outstanding messages of random sizes, which also mixes striped ones with others.
TEST_P(NetOfiShape, KeepsOrderAndContentOfManyMessages) {
  constexpr size_t kMessages = 1500;
  constexpr size_t kCapacity = 300'000;
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  std::vector<std::vector<std::byte>> messages;
  for (unsigned i = 0; i < kMessages; ++i) {
    const size_t most = i % 30 == 0 ? kCapacity : 300;
    messages.push_back(test::make_message(random() % (most + 1), i));
  }
  const NetContext sender = context();
  const NetContext receiver = context();
  test::NetPair pair = test::connect_pair(sender, receiver);

  std::vector<NetRequest*> sent;
  size_t sent_done = 0;
  std::vector<NetRequest*> received;
  size_t received_done = 0;
  std::vector<std::vector<std::byte>> arrived(kMessages);
  const bool is_done = test::poll_until([&] {
    NetRequest* request = nullptr;
    while (sent.size() < kMessages &&
           pair.send.isend(messages[sent.size()], 5, nullptr, &request) == NetStatus::kOk) {
      sent.push_back(request);
    }
    while (received.size() < kMessages) {
      arrived[received.size()].resize(received.size() % 30 == 0 ? kCapacity : 300);
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
  ASSERT_TRUE(is_done) << received_done << " arrived, " << sent_done << " sent";
  EXPECT_TRUE(arrived == messages);
}

// Without receives the sender must wait, and nothing is lost or reordered.
TEST_P(NetOfiShape, ASenderIsHeldUpByAReceiverThatAsksForNothing) {
  constexpr size_t kMost = 100'000;
  const NetContext sender = context();
  const NetContext receiver = context();
  test::NetPair pair = test::connect_pair(sender, receiver);
  const auto number = [](size_t i) {
    std::vector<std::byte> bytes(sizeof i);
    std::memcpy(bytes.data(), &i, sizeof i);
    return bytes;
  };
  size_t sent = 0;
  const auto offer = [&] {
    NetRequest* request = nullptr;
    const auto message = number(sent);
    if (pair.send.isend(message, 0, nullptr, &request) != NetStatus::kOk) {
      return false;
    }
    ++sent;
    return test::poll_until([&] { return pair.send.test(request, nullptr) == NetStatus::kOk; });
  };
  while (sent < kMost && offer()) {
  }
  const size_t ahead = sent;
  EXPECT_LT(ahead, kMost);
  for (size_t i = 0; i < ahead + 100; ++i) {
    std::vector<std::byte> arrived(sizeof i);
    const NetBuffer buffer = test::buffer_of(arrived, 0);
    NetRequest* received = test::post_recv(pair, {&buffer, 1});
    ASSERT_TRUE(test::poll_until([&] {
      offer();
      return pair.recv.test(received, nullptr) == NetStatus::kOk;
    }));
    ASSERT_TRUE(arrived == number(i)) << i;
  }
}

TEST_P(NetOfiShape, GroupedReceiveSortsByTag) {
  const NetContext sender = context();
  const NetContext receiver = context();
  test::NetPair pair = test::connect_pair(sender, receiver);
  constexpr uint32_t kGroup = PLEXUS_NET_RECVS_MAX;
  for (unsigned round = 0; round < 20; ++round) {
    std::vector<std::vector<std::byte>> arrived(kGroup, std::vector<std::byte>(200'000));
    std::array<NetBuffer, kGroup> buffers{};
    std::vector<std::vector<std::byte>> messages;
    for (uint32_t i = 0; i < kGroup; ++i) {
      buffers[i] = test::buffer_of(arrived[i], static_cast<int32_t>(i));
      messages.push_back(test::make_message(round * 100 + i * 20'000, i));
    }
    NetRequest* received = test::post_recv(pair, buffers);
    std::array<uint64_t, kGroup> sizes{};
    NetStatus status = NetStatus::kAgain;
    const auto poll_receiver = [&] {
      if (status == NetStatus::kAgain) {
        status = pair.recv.test(received, sizes.data());
      }
    };
    std::vector<NetRequest*> sent;
    for (uint32_t i = 0; i < kGroup; ++i) {  // another order than that of the buffers
      const uint32_t tag = (i * 3 + round) % kGroup;
      sent.push_back(nullptr);
      ASSERT_TRUE(test::poll_until([&] {  // shm of 2.1 sends on when the receiver has moved
        poll_receiver();
        return pair.send.isend(messages[tag], static_cast<int32_t>(tag), nullptr, &sent.back()) !=
               NetStatus::kAgain;
      }));
      ASSERT_NE(sent.back(), nullptr);
    }
    ASSERT_TRUE(test::poll_until([&] {
      std::erase_if(sent, [&](NetRequest* request) {
        return pair.send.test(request, nullptr) == NetStatus::kOk;
      });
      poll_receiver();
      return sent.empty() && status != NetStatus::kAgain;
    }));
    ASSERT_EQ(status, NetStatus::kOk);
    for (uint32_t i = 0; i < kGroup; ++i) {
      arrived[i].resize(sizes[i]);
      EXPECT_TRUE(arrived[i] == messages[i]) << "round " << round << " tag " << i;
    }
  }
}

TEST_P(NetOfiShape, ManyConnectionsAreSeparate) {
  constexpr unsigned kPairs = 12;
  const NetContext sender = context();
  const NetContext receiver = context();
  std::vector<test::NetPair> pairs;
  for (unsigned i = 0; i < kPairs; ++i) {
    pairs.push_back(test::connect_pair(sender, receiver));
  }
  for (unsigned i = 0; i < kPairs; ++i) {
    const auto message = test::make_message(i * 1000, i);
    EXPECT_TRUE(test::send_one(pairs[i], message, i * 1000 + 1) == message) << i;
  }
}

TEST_P(NetOfiShape, ConnectionsInTheirOwnThreadsWork) {
  constexpr unsigned kThreads = 4;
  const NetContext sender = context();
  const NetContext receiver = context();
  std::vector<test::NetPair> pairs;
  for (unsigned i = 0; i < kThreads; ++i) {
    pairs.push_back(test::connect_pair(sender, receiver));
  }
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (unsigned round = 0; round < 40; ++round) {
        const auto message = test::make_message((round % 4) * 60'000 + i, i);
        EXPECT_TRUE(test::send_one(pairs[i], message, message.size()) == message);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST_P(NetOfiShape, RegisteredMemoryMovesAndMayBeRegisteredTwice) {
  const NetContext sender = context();
  const NetContext receiver = context();
  test::NetPair pair = test::connect_pair(sender, receiver);
  for (unsigned round = 0; round < 3; ++round) {  // memory at the same address, mapped again
    auto message = test::make_message(500'000, round);
    std::vector<std::byte> arrived(message.size());
    const plexus_net_region_t from = {message.data(), message.size(), 0, -1, PLEXUS_MEMORY_HOST};
    const plexus_net_region_t to = {arrived.data(), arrived.size(), 0, -1, PLEXUS_MEMORY_HOST};
    auto source = pair.send.register_memory(from);
    auto again = pair.send.register_memory(from);
    auto target = pair.recv.register_memory(to);
    ASSERT_TRUE(source.has_value()) << source.error().message();
    ASSERT_TRUE(again.has_value()) << again.error().message();
    ASSERT_TRUE(target.has_value()) << target.error().message();
    { const auto gone = std::move(again).value(); }
    const NetBuffer buffer = {arrived.data(), arrived.size(), target.value().raw(), 0, 0};
    NetRequest* received = test::post_recv(pair, {&buffer, 1});
    NetRequest* sent = nullptr;
    ASSERT_TRUE(test::poll_until([&] {
      return pair.send.isend(message, 0, source.value().raw(), &sent) != NetStatus::kAgain;
    }));
    test::finish(pair, sent, received, nullptr);
    EXPECT_TRUE(arrived == message);
  }
}

TEST_P(NetOfiShape, ClosingWithMessagesInFlightIsSafe) {
  const NetContext sender = context();
  const NetContext receiver = context();
  std::vector<std::byte> data(8 << 20);
  std::vector<std::byte> arrived(8 << 20);
  {
    test::NetPair pair = test::connect_pair(sender, receiver);
    const NetBuffer buffer = test::buffer_of(arrived, 0);
    test::post_recv(pair, {&buffer, 1});
    test::post_send(pair, data, 0);
  }
  data.clear();
  arrived.clear();
}

TEST_P(NetOfiShape, PeersDeathIsARemoteErrorThatNamesIt) {
  if (is_shm() && FI_MAJOR_VERSION >= 2) {
    GTEST_SKIP() << "shm sends nothing behind a long message, so that the end of a sender in this "
                    "process is not told";
  }
  const NetContext sender = context();
  const NetContext receiver = context();
  test::NetPair pair = test::connect_pair(sender, receiver);
  const std::vector<std::byte> data(8 << 20);
  std::vector<std::byte> room(data.size());
  const NetBuffer buffer = test::buffer_of(room, 0);
  NetRequest* received = test::post_recv(pair, {&buffer, 1});
  test::post_send(pair, data, 0);
  { const NetSend gone = std::move(pair.send); }
  NetStatus status = NetStatus::kAgain;
  ASSERT_TRUE(test::poll_until([&] {
    status = pair.recv.test(received, nullptr);
    if (status == NetStatus::kOk) {  // it has arrived, so the next one cannot be cancelled
      received = test::post_recv(pair, {&buffer, 1});
      status = NetStatus::kAgain;
    }
    return status != NetStatus::kAgain;
  }));
  const Error error = pair.recv.explain("test", status);
  EXPECT_EQ(error.code(), Code::kRemoteError) << error.message();
  EXPECT_THAT(error.message(),
              AllOf(HasSubstr("(process "), HasSubstr(is_shm() ? "" : "127.0.0.1")));
  NetRequest* again = nullptr;
  EXPECT_EQ(static_cast<Code>(pair.recv.irecv({&buffer, 1}, &again)), Code::kRemoteError);
}

// The sender closes right after test() returned OK: what it sent arrives before the end is
// reported.
TEST_P(NetOfiShape, WhatWasSentBeforeTheCloseStillArrives) {
  constexpr unsigned kMessages = 20;
  const NetContext sender = context();
  const NetContext receiver = context();
  test::NetPair pair = test::connect_pair(sender, receiver);
  for (unsigned i = 0; i < kMessages; ++i) {
    const auto message = test::make_message(i * 10, i);
    NetRequest* sent = test::post_send(pair, message, 0);
    ASSERT_TRUE(test::poll_until([&] { return pair.send.test(sent, nullptr) == NetStatus::kOk; }));
  }
  { const NetSend gone = std::move(pair.send); }
  std::vector<std::byte> arrived(1000);
  const NetBuffer buffer = test::buffer_of(arrived, 0);
  for (unsigned i = 0; i < kMessages; ++i) {
    NetRequest* received = test::post_recv(pair, {&buffer, 1});
    uint64_t size = 0;
    NetStatus status = NetStatus::kAgain;
    ASSERT_TRUE(test::poll_until(
        [&] { return (status = pair.recv.test(received, &size)) != NetStatus::kAgain; }));
    ASSERT_EQ(status, NetStatus::kOk) << i << ": " << pair.recv.explain("test", status).message();
    EXPECT_EQ(size, i * 10);
  }
  NetRequest* received = test::post_recv(pair, {&buffer, 1});
  NetStatus status = NetStatus::kAgain;
  ASSERT_TRUE(test::poll_until(
      [&] { return (status = pair.recv.test(received, nullptr)) != NetStatus::kAgain; }));
  EXPECT_EQ(pair.recv.explain("test", status).code(), Code::kRemoteError);
}

TEST_P(NetOfiShape, SendingToADeadReceiverFails) {
  const NetContext sender = context();
  const NetContext receiver = context();
  test::NetPair pair = test::connect_pair(sender, receiver);
  { const NetRecv gone = std::move(pair.recv); }
  const std::vector<std::byte> data(1 << 20);
  NetStatus status = NetStatus::kOk;
  NetRequest* request = nullptr;
  ASSERT_TRUE(test::poll_until([&] {
    if (request == nullptr) {
      status = pair.send.isend(data, 0, nullptr, &request);
    } else if ((status = pair.send.test(request, nullptr)) == NetStatus::kOk) {
      request = nullptr;  // the first ones may be in the system's buffers
    }
    return status != NetStatus::kOk && status != NetStatus::kAgain;
  }));
  EXPECT_EQ(pair.send.explain("isend", status).code(), Code::kRemoteError);
}

TEST_P(NetOfiShape, AMessageLongerThanTheReceiveIsAnErrorThatNamesTheRoom) {
  const NetContext sender = context();
  const NetContext receiver = context();
  // shm of libfabric 1.17 never completes a long message (README.md of the plugin).
  const std::vector<size_t> sizes =
      is_shm() ? std::vector<size_t>{11} : std::vector<size_t>{11, 400'000};
  for (const size_t size : sizes) {
    test::NetPair pair = test::connect_pair(sender, receiver);
    std::vector<std::byte> room(size - 1);
    const NetBuffer buffer = test::buffer_of(room, 4);
    NetRequest* received = test::post_recv(pair, {&buffer, 1});
    const auto message = test::make_message(size, 1);
    NetRequest* sent = test::post_send(pair, message, 4);
    NetStatus status = NetStatus::kAgain;
    ASSERT_TRUE(test::poll_until([&] {
      static_cast<void>(sent != nullptr && pair.send.test(sent, nullptr) != NetStatus::kAgain &&
                        (sent = nullptr) != nullptr);
      return (status = pair.recv.test(received, nullptr)) != NetStatus::kAgain;
    }));
    const Error error = pair.recv.explain("test", status);
    EXPECT_EQ(error.code(), Code::kInvalidUsage) << size << ": " << error.message();
    EXPECT_THAT(error.message(),
                AllOf(HasSubstr("with tag 4"), HasSubstr(fmt::format("room for {}", size - 1))));
  }
}

TEST_P(NetOfiShape, OneListenerServesSeveralConnections) {
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

TEST_P(NetOfiShape, NobodyListeningIsAnErrorInTime) {
  const ScopedEnv timeout("PLEXUS_OFI_CONNECT_TIMEOUT_MS", "300");
  const NetContext sender = context();
  const NetContext receiver = context();
  NetHandle handle{};
  {
    const auto listen = receiver.listen(0);
    handle = listen.value().handle();
  }
  NetSend send = sender.connect(0, handle);
  std::string message;
  ASSERT_TRUE(test::poll_until([&] {
    const auto progress = send.try_connect();
    message = progress.has_error() ? progress.error().message() : "";
    return progress.has_error();
  }));
  EXPECT_THAT(message, AllOf(HasSubstr("cannot connect to"), HasSubstr("PLEXUS_OFI_DOMAIN")));
}

/// The error of init with a provider.
std::string refusal(const std::shared_ptr<const NetPlugin>& plugin, const char* provider) {
  const ScopedEnv named("PLEXUS_OFI_PROVIDER", provider);
  const auto made = NetContext::create(plugin, {});
  return made.has_error() ? made.error().message() : "no error";
}

TEST_F(NetOfi, ProvidersThatLackWhatIsNeededAreRefusedWithTheReason) {
  EXPECT_THAT(refusal(plugin_, "nowhere"),
              AllOf(HasSubstr("PLEXUS_OFI_PROVIDER=nowhere"), HasSubstr("no such provider"),
                    HasSubstr("usable here: "), HasSubstr("tcp;ofi_rxm")));
  if (FI_VERSION_LT(::fi_version(), FI_VERSION(1, 18))) {
    EXPECT_THAT(refusal(plugin_, "tcp"),
                AllOf(HasSubstr("the provider of libfabric 1.17 has only endpoints of type MSG"),
                      HasSubstr("tcp;ofi_rxm")));
    EXPECT_THAT(refusal(plugin_, "net"), HasSubstr("a preview known to crash"));
  } else {
    EXPECT_EQ(refusal(plugin_, "tcp"), "no error");
  }
}

TEST_F(NetOfi, BadSettingFailsTheContextWithASentence) {
  const ScopedEnv rails("PLEXUS_OFI_RAILS", "five");
  const auto made = NetContext::create(plugin_, {});
  ASSERT_TRUE(made.has_error());
  EXPECT_EQ(made.error().code(), Code::kInvalidUsage);
  EXPECT_EQ(made.error().message(),
            "net plugin OFI: PLEXUS_OFI_RAILS=five is not a number in 1..4; correct or unset it");
}

TEST_F(NetOfi, TlsIsRefusedWithTheReason) {
  const ScopedEnv mode("PLEXUS_NET_SECURITY", "tls");
  const auto made = NetContext::create(plugin_, {});
  ASSERT_TRUE(made.has_error());
  EXPECT_EQ(made.error().code(), Code::kInvalidUsage);
  EXPECT_THAT(made.error().message(),
              AllOf(HasSubstr("net-ofi cannot encrypt"), HasSubstr("PLEXUS_NET_SECURITY=tls"),
                    HasSubstr("use net-socket")));
}

TEST_F(NetOfi, ModesThatDifferAreNamed) {
  const NetContext receiver = context();
  const auto listen = receiver.listen(0);
  const ScopedEnv mode("PLEXUS_NET_SECURITY", "off");
  const NetContext sender = context();
  NetSend send = sender.connect(0, listen.value().handle());
  EXPECT_THAT(send.try_connect().error().message(),
              HasSubstr("PLEXUS_NET_SECURITY is off here and auth at the peer"));
}

TEST_F(NetOfi, InterfaceThatDoesNotExistFailsTheContext) {
  const ScopedEnv interfaces("NCCL_SOCKET_IFNAME", "=nowhere9");
  const auto made = NetContext::create(plugin_, {});
  ASSERT_TRUE(made.has_error());
  EXPECT_THAT(made.error().message(),
              AllOf(HasSubstr("=nowhere9"), HasSubstr("tcp;ofi_rxm"), HasSubstr("lo")));
}

TEST_F(NetOfi, AHandleOfAnotherPluginOrProviderIsRefused) {
  const NetContext sender = context();
  NetSend strange = sender.connect(0, NetHandle{});
  EXPECT_THAT(strange.try_connect().error().message(),
              HasSubstr("use the same network plugin on all ranks"));
  const NetContext same = context();
  const auto same_listen = same.listen(0);
  NetHandle older = same_listen.value().handle();
  older.bytes[7] = '2';  // of "PLXOFI03"
  EXPECT_THAT(sender.connect(0, older).try_connect().error().message(),
              HasSubstr("another version of net-ofi; use the same version"));
  const ScopedEnv other("PLEXUS_OFI_PROVIDER", "shm");
  const NetContext receiver = context();
  const auto listen = receiver.listen(0);
  NetSend send = sender.connect(0, listen.value().handle());
  EXPECT_THAT(send.try_connect().error().message(),
              AllOf(HasSubstr("shm"), HasSubstr("tcp;ofi_rxm"), HasSubstr("PLEXUS_OFI_PROVIDER")));
}

TEST_F(NetOfi, PropertiesAreThoseOfTheInterface) {
  const NetContext one = context();
  const NetProperties& properties = one.properties(0);
  EXPECT_EQ(properties.name, "lo");
  EXPECT_EQ(properties.pointer_support, PLEXUS_MEMORY_HOST);
  EXPECT_EQ(properties.recvs_max, PLEXUS_NET_RECVS_MAX);
  EXPECT_EQ(properties.fabric_id, std::nullopt);
}

// A process that knows the address, but not the secret of the handle.
TEST_F(NetOfi, AWrongSecretIsRefusedAndHarmsNobody) {
  const ScopedEnv timeout("PLEXUS_OFI_CONNECT_TIMEOUT_MS", "300");
  const NetContext sender = context();
  const NetContext receiver = context();
  auto listen = receiver.listen(0);
  ASSERT_TRUE(listen.has_value());
  NetHandle forged = listen.value().handle();
  forged.bytes[offsetof(net_ofi::WireHandle, key)] ^= 1;
  NetSend forger = sender.connect(0, forged);
  NetSend friendly = sender.connect(0, listen.value().handle());
  NetRecv recv = listen.value().accept();
  bool is_connected = false;
  bool is_accepted = false;
  ASSERT_TRUE(test::poll_until([&] {
    EXPECT_NE(forger.try_connect().value(), NetProgress::kDone);
    is_connected = is_connected || friendly.try_connect().value() == NetProgress::kDone;
    is_accepted = is_accepted || recv.try_accept().value() == NetProgress::kDone;
    return is_connected && is_accepted;
  }));
  test::NetPair pair{std::move(listen).value(), std::move(friendly), std::move(recv)};
  const auto message = test::make_message(100, 2);
  EXPECT_EQ(test::send_one(pair, message, 100), message);
  NetRecv next = pair.listen.accept();
  ASSERT_TRUE(test::poll_until([&] {
    EXPECT_NE(next.try_accept().value(), NetProgress::kDone);
    const std::scoped_lock lock(mutex_);
    return log_.find("does not show that it knows the secret") != std::string::npos;
  }));
}

INSTANTIATE_TEST_SUITE_P(Providers, NetOfiShape, test::ofi_shapes(), test::name_of_shape);

}  // namespace
}  // namespace plexus
