// SPDX-License-Identifier: Apache-2.0
// Both ends of a connection in this process, over simulated cards (card.hpp) and a real TCP
// connection on loopback: messages, and what happens to them when a rail is lost at a bad moment.
#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plugins/net-ib/endpoint.hpp"
#include "plugins/net-ib/recv.hpp"
#include "plugins/net-ib/send.hpp"
#include "tests/unit/plugins/net-ib/card.hpp"

namespace plexus::net_ib {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr size_t kRails = 2;
constexpr uint64_t kShort = 1000;
constexpr uint64_t kLong = 400'000;  // a part for each rail

std::vector<std::byte> make_message(uint64_t size_bytes, int seed = 1) {
  std::vector<std::byte> message(size_bytes);
  for (uint64_t i = 0; i < size_bytes; ++i) {
    message[i] = static_cast<std::byte>(i / 7 + static_cast<uint64_t>(seed));
  }
  return message;
}

/// One host: two cards, merged into one device.
struct Host {
  Host(const std::string& name, const Settings& settings, bool has_gpus, uint32_t inline_bytes_max)
      : cards{test::Card(name + "0"), test::Card(name + "1")} {
    for (size_t i = 0; i < kRails; ++i) {
      cards[i].takes_dmabufs = has_gpus;
      cards[i].inline_bytes_max = inline_bytes_max;
      opened[i] = Card::open(&cards[i].device, settings).value();
      opened[i]->set_port_up(1, true);
      ports[i].card = opened[i].get();
      ports[i].number = 1;
      ports[i].name = opened[i]->name();
      ports[i].attributes = query_port(&cards[i].context, 1).value();
      ports[i].gid = list_gids(&cards[i].context, 1).value().front();
      device.ports.push_back(&ports[i]);
    }
  }
  std::array<test::Card, kRails> cards;
  std::array<std::unique_ptr<Card>, kRails> opened;
  std::array<Port, kRails> ports;
  Device device;
};

class IbConnection : public testing::Test {
 protected:
  static void keep_line(plexus_log_sink_t* sink, int32_t, const char*, int32_t, const char* text) {
    reinterpret_cast<std::vector<std::string>*>(sink)->emplace_back(text);
  }
  template <class Condition>
  static void wait_until(const Condition& is_true, int line = __builtin_LINE()) {
    const auto deadline = Clock::now() + 20s;
    while (!is_true()) {
      ASSERT_LT(Clock::now(), deadline) << "waited too long in line " << line;
    }
  }

  void make_hosts(bool has_gpus, uint32_t inline_bytes_max) {
    const auto setting = [](std::string_view name) {
      return name == "NCCL_SOCKET_IFNAME"             ? "lo"
             : name == "NCCL_IB_MQP_RETRY_SLEEP_MSEC" ? "1"
                                                      : nullptr;
    };
    settings = read_settings(setting, -1).value();
    a.emplace("a", settings, has_gpus, inline_bytes_max);
    b.emplace("b", settings, has_gpus, inline_bytes_max);
  }
  void connect(bool has_gpus = false, uint32_t inline_bytes_max = UINT32_MAX) {
    make_hosts(has_gpus, inline_bytes_max);
    connect_hosts();
  }
  [[nodiscard]] plugin::Log log() {
    return {&keep_line, reinterpret_cast<plexus_log_sink_t*>(&lines)};
  }
  void connect_hosts() {
    plexus_net_handle_t handle{};
    const auto listener = Listener::create({&b->device, &settings, log()}, handle).value();
    auto connector = Connector::create({&a->device, &settings, log()}, handle).value();
    Link here;
    Link there;
    bool is_connected = false;
    bool is_accepted = false;
    wait_until([&] {
      is_connected = is_connected || connector.try_connect(here).value() == Progress::kDone;
      is_accepted = is_accepted || listener->try_accept(there).value() == Progress::kDone;
      return is_connected && is_accepted;
    });
    sender = std::make_unique<SendConnection>(std::move(here), Place{&a->device, &settings, log()});
    receiver =
        std::make_unique<RecvConnection>(std::move(there), Place{&b->device, &settings, log()});
  }

  template <class End>
  plexus_net_memory_t* add(End& end, std::vector<std::byte>& bytes, uint32_t kind) {
    plexus_net_region_t region{bytes.data(), bytes.size(), 0, 3, kind};
    auto* const memory = end.register_memory(region).value();
    if (memory != nullptr) {
      memories.emplace_back(memory);
    }
    return memory;
  }
  plexus_net_request_t* post(std::vector<std::byte>& target, uint32_t kind = PLEXUS_MEMORY_HOST) {
    into = {target.data(), target.size(), add(*receiver, target, kind), 0, 0};
    plexus_net_request_t* request = nullptr;
    EXPECT_EQ(receiver->irecv(1, &into, &request), PLEXUS_OK);
    return request;
  }
  plexus_net_request_t* start(std::vector<std::byte>& message) {
    return start_gathered(
        {{message.data(), message.size(), add(*sender, message, PLEXUS_MEMORY_HOST)}});
  }
  plexus_net_request_t* start_gathered(const std::vector<plexus_net_source_t>& sources) {
    plexus_net_request_t* request = nullptr;
    EXPECT_EQ(sender->isend(sources, 0, &request), PLEXUS_OK);
    return request;
  }
  /// True: done.
  bool try_end_recv(plexus_net_request_t* request) {
    const int32_t code = receiver->test(static_cast<RecvRequest&>(*request), nullptr);
    EXPECT_TRUE(code == PLEXUS_OK || code == PLEXUS_AGAIN) << lines.back();
    return code != PLEXUS_AGAIN;
  }
  bool try_end_send(plexus_net_request_t* request) {
    const int32_t code = sender->test(static_cast<SendRequest&>(*request), nullptr);
    EXPECT_TRUE(code == PLEXUS_OK || code == PLEXUS_AGAIN) << lines.back();
    return code != PLEXUS_AGAIN;
  }
  /// One message there, both ends driven.
  void carry(uint64_t size_bytes) {
    auto message = make_message(size_bytes, 3);
    std::vector<std::byte> target(size_bytes);
    auto* received = post(target);
    auto* sent = start(message);
    finish(received, sent);
    EXPECT_TRUE(target == message);
    forget_memory();
  }
  void finish(plexus_net_request_t* received, plexus_net_request_t* sent) {
    bool is_received = false;
    bool is_sent = false;
    wait_until([&] {
      is_received = is_received || try_end_recv(received);
      is_sent = is_sent || try_end_send(sent);
      return is_received && is_sent;
    });
  }
  /// A message that changes after isend arrives as it was, because the card does not read it.
  bool goes_inline(uint64_t size_bytes) {
    auto message = make_message(size_bytes);
    const auto at_isend = message;
    std::vector<std::byte> target(size_bytes);
    auto* received = post(target);
    EXPECT_FALSE(try_end_recv(received));
    a->cards[0].is_holding = a->cards[1].is_holding = true;
    auto* sent = start(message);
    std::fill(message.begin(), message.end(), std::byte{0xff});
    a->cards[0].is_holding = a->cards[1].is_holding = false;
    finish(received, sent);
    forget_memory();
    return target == at_isend;
  }
  void forget_memory() {
    for (const auto& memory : memories) {
      deregister(*memory);
    }
    memories.clear();
  }
  void drive_both(plexus_net_request_t* received, plexus_net_request_t* sent) {
    (void)try_end_recv(received);
    (void)try_end_send(sent);
  }
  size_t lines_with(std::string_view text) const {
    return static_cast<size_t>(std::count_if(
        lines.begin(), lines.end(),
        [&](const std::string& line) { return line.find(text) != std::string::npos; }));
  }
  void TearDown() override { forget_memory(); }

  Settings settings;
  std::vector<std::string> lines;
  std::optional<Host> a;
  std::optional<Host> b;
  std::unique_ptr<SendConnection> sender;
  std::unique_ptr<RecvConnection> receiver;
  std::vector<std::unique_ptr<plexus_net_memory_t>> memories;
  plexus_net_buffer_t into{};
};

TEST_F(IbConnection, LongMessagesGoOverBothRails) {
  connect();
  for (const uint64_t size : {uint64_t{0}, uint64_t{1}, kShort, kLong, 10 * kLong}) {
    carry(size);
  }
  EXPECT_GT(a->cards[0].writes, 2U);
  EXPECT_GT(a->cards[1].writes, 2U);
}

// Boundaries between sources fall into parts, on boundaries of parts, and between them.
TEST_F(IbConnection, AnAddressThatIsFoundLateIsConnected) {
  make_hosts(false, UINT32_MAX);
  for (auto* const host : {&*a, &*b}) {
    host->cards[0].unresolved = 3;
    host->cards[1].unresolved = 1;
  }
  connect_hosts();
  carry(kLong);
  EXPECT_EQ(a->cards[0].unresolved + b->cards[0].unresolved, 0U);
  EXPECT_GT(a->cards[0].writes, 0U);
  EXPECT_GT(a->cards[1].writes, 0U);
}

TEST_F(IbConnection, PortsThatThePeerLacksAreNotUsedAndBothEndsSaySo) {
  make_hosts(false, UINT32_MAX);
  b->device.ports.pop_back();
  connect_hosts();
  carry(kLong);
  EXPECT_EQ(a->cards[1].writes, 0U);
  EXPECT_EQ(lines_with("has 2 ports and the device of"), 1U);
  EXPECT_EQ(lines_with("has 1 port and the device of"), 1U);
}

TEST_F(IbConnection, AnAddressThatIsNeverFoundIsAnError) {
  make_hosts(false, UINT32_MAX);
  b->cards[1].unresolved = UINT32_MAX;
  settings.connect_retries = 2;
  plexus_net_handle_t handle{};
  const auto listener = Listener::create({&b->device, &settings, log()}, handle).value();
  auto connector = Connector::create({&a->device, &settings, log()}, handle).value();
  Link here;
  Link there;
  std::string problem;
  wait_until([&] {
    (void)connector.try_connect(here);
    const auto accepted = listener->try_accept(there);
    problem = accepted.has_error() ? accepted.error().text : "";
    return !problem.empty();
  });
  EXPECT_THAT(problem, HasSubstr("b1 port 1"));
  EXPECT_THAT(problem, HasSubstr("cannot be connected with the peer's a1 port 1"));
  EXPECT_EQ(b->cards[1].unresolved, UINT32_MAX - 3);
}

TEST_F(IbConnection, MessagesAreGatheredFromSeveralPlaces) {
  connect();
  for (const uint64_t size : {uint64_t{1}, uint64_t{64}, kShort, kLong}) {
    for (const uint64_t head : {uint64_t{0}, uint64_t{1}, size / 2, size}) {
      auto message = make_message(size, 5);
      std::vector<std::byte> first(message.begin(), message.begin() + static_cast<ptrdiff_t>(head));
      std::vector<std::byte> second(message.begin() + static_cast<ptrdiff_t>(head), message.end());
      std::vector<std::byte> target(size);
      auto* received = post(target);
      auto* sent = start_gathered(
          {{first.data(), head, head == 0 ? nullptr : add(*sender, first, PLEXUS_MEMORY_HOST)},
           {nullptr, 0, nullptr},
           {second.data(), size - head,
            head == size ? nullptr : add(*sender, second, PLEXUS_MEMORY_HOST)}});
      finish(received, sent);
      EXPECT_TRUE(target == message) << size << " of which " << head << " lie elsewhere";
      forget_memory();
    }
  }
}

// As what did not arrive does: the part is gathered again.
TEST_F(IbConnection, GatheredPartThatDidNotArriveComesOverTheOtherRail) {
  connect();
  auto message = make_message(kLong);
  std::vector<std::byte> first(message.begin(), message.begin() + kShort);
  std::vector<std::byte> second(message.begin() + kShort, message.end());
  std::vector<std::byte> target(kLong);
  a->cards[0].is_holding = true;
  auto* received = post(target);
  auto* sent =
      start_gathered({{first.data(), first.size(), add(*sender, first, PLEXUS_MEMORY_HOST)},
                      {second.data(), second.size(), add(*sender, second, PLEXUS_MEMORY_HOST)}});
  for (int i = 0; i < 100; ++i) {
    drive_both(received, sent);
  }
  EXPECT_FALSE(target == message);
  a->cards[0].exhaust_retries();
  finish(received, sent);
  EXPECT_TRUE(target == message);
}

// The card reads the sources where they are, when it gets to them.
TEST_F(IbConnection, GatheredSourcesAreNotCopied) {
  connect();
  std::vector<std::byte> header(64, std::byte{1});
  std::vector<std::byte> payload(kShort, std::byte{2});
  std::vector<std::byte> target(header.size() + payload.size());
  auto* received = post(target);
  EXPECT_FALSE(try_end_recv(received));
  a->cards[0].is_holding = a->cards[1].is_holding = true;
  auto* sent =
      start_gathered({{header.data(), header.size(), add(*sender, header, PLEXUS_MEMORY_HOST)},
                      {payload.data(), payload.size(), add(*sender, payload, PLEXUS_MEMORY_HOST)}});
  std::fill(payload.begin(), payload.end(), std::byte{3});
  a->cards[0].is_holding = a->cards[1].is_holding = false;
  finish(received, sent);
  EXPECT_EQ(target.front(), std::byte{1});
  EXPECT_EQ(target.back(), std::byte{3});
}

// Nothing is read after the connection's end: the memory may be unmapped then.
TEST_F(IbConnection, AnEndedConnectionReadsNoSources) {
  connect();
  auto message = make_message(kShort);
  std::vector<std::byte> target(kShort);
  auto* received = post(target);
  EXPECT_FALSE(try_end_recv(received));
  a->cards[0].is_holding = a->cards[1].is_holding = true;
  start(message);
  EXPECT_EQ(a->cards[0].pairs.empty(), false);
  sender.reset();
  EXPECT_TRUE(a->cards[0].pairs.empty() && a->cards[1].pairs.empty());
}

TEST_F(IbConnection, MessagesWithoutSourcesOrWithUnregisteredOnesAreRefused) {
  connect();
  plexus_net_request_t* request = nullptr;
  std::byte byte{};
  const plexus_net_source_t unregistered = {&byte, 1, nullptr};
  EXPECT_EQ(sender->isend({}, 0, &request), PLEXUS_INVALID_ARGUMENT);
  EXPECT_EQ(sender->isend({&unregistered, 1}, 0, &request), PLEXUS_INVALID_ARGUMENT);
  const std::vector<plexus_net_source_t> many(PLEXUS_NET_PIECES_MAX + 1);
  EXPECT_EQ(sender->isend(many, 0, &request), PLEXUS_INVALID_ARGUMENT);
}

// The receiver's host has the buffer back when the rail is lost whose acknowledgement is missing,
// and asks the receiver for nothing more.
TEST_F(IbConnection, WhatArrivedIsNotWrittenAgain) {
  connect();
  auto message = make_message(kLong);
  std::vector<std::byte> target(kLong);
  a->cards[1].loses_acknowledgements = true;
  auto* received = post(target);
  auto* sent = start(message);
  wait_until([&] {
    (void)try_end_send(sent);
    return try_end_recv(received);
  });
  EXPECT_TRUE(target == message);
  const auto next_use = make_message(kLong, 99);
  target = next_use;
  a->cards[1].set_port_up(false);
  wait_until([&] { return try_end_send(sent); });
  EXPECT_TRUE(target == next_use);
  EXPECT_EQ(lines_with("goes on without a1"), 1U);
  EXPECT_EQ(lines_with("goes on without b1"), 1U);
}

// As above, but the other half of the message completes it after the loss.
TEST_F(IbConnection, PartThatArrivedIsNotWrittenAgain) {
  connect();
  auto message = make_message(kLong);
  std::vector<std::byte> target(kLong);
  a->cards[1].loses_acknowledgements = true;
  auto* received = post(target);
  a->cards[0].is_holding = true;
  auto* sent = start(message);
  wait_until([&] {
    drive_both(received, sent);
    return a->cards[1].writes > 0;
  });
  a->cards[1].set_port_up(false);
  wait_until([&] {
    drive_both(received, sent);
    return lines_with("goes on without") == 2;
  });
  const uint64_t writes = a->cards[0].writes;
  a->cards[0].is_holding = false;
  finish(received, sent);
  EXPECT_TRUE(target == message);
  EXPECT_LE(a->cards[0].writes - writes, 2U) << "its size and its own part";
}

TEST_F(IbConnection, WhatDidNotArriveComesOverTheOtherRail) {
  connect();
  auto message = make_message(kLong);
  std::vector<std::byte> target(kLong);
  a->cards[1].is_holding = true;
  auto* received = post(target);
  auto* sent = start(message);
  for (int i = 0; i < 100; ++i) {
    drive_both(received, sent);
  }
  EXPECT_FALSE(target == message);
  a->cards[1].exhaust_retries();
  finish(received, sent);
  EXPECT_TRUE(target == message);
  EXPECT_EQ(lines_with("goes on without a1: a1 port 1"), 1U);
  EXPECT_EQ(lines_with("transport retry counter exceeded"), 2U);  // the peer is told why
}

TEST_F(IbConnection, MessagesOfUpTo128BytesGoWithTheirWorkRequest) {
  connect();
  EXPECT_TRUE(goes_inline(128));
  EXPECT_FALSE(goes_inline(129));
}

TEST_F(IbConnection, CardsThatTakeFewerBytesInlineGetFewer) {
  connect(false, 100);
  EXPECT_TRUE(goes_inline(64));
  EXPECT_FALSE(goes_inline(65));
}

TEST_F(IbConnection, CardsMayTakeNothingInline) {
  connect(false, 0);
  EXPECT_FALSE(goes_inline(1));
}

TEST_F(IbConnection, ShortMessageThatDidNotArriveComesOverTheOtherRail) {
  connect();
  auto message = make_message(8);
  std::vector<std::byte> target(8);
  a->cards[0].is_holding = true;
  auto* received = post(target);
  EXPECT_FALSE(try_end_recv(received));
  auto* sent = start(message);
  for (int i = 0; i < 100; ++i) {
    drive_both(received, sent);
  }
  EXPECT_FALSE(target == message);
  a->cards[0].exhaust_retries();
  finish(received, sent);
  EXPECT_TRUE(target == message);
  EXPECT_EQ(lines_with("goes on without a0"), 1U);
}

// A queue pair may have taken the first writes of a chain when it refuses a later one.
TEST_F(IbConnection, PartThatIsRefusedHalfwayGoesOverTheOtherRail) {
  connect();
  carry(kShort);
  a->cards[1].posts_until_refusal = 1;
  carry(kLong);
  EXPECT_EQ(lines_with("goes on without a1: a1 port 1: cannot post"), 1U);
}

TEST_F(IbConnection, LostRailIsTakenBack) {
  connect();
  carry(kLong);
  a->cards[1].set_port_up(false);
  auto target = make_message(kShort);
  auto message = make_message(kShort, 5);
  auto* received = post(target);
  auto* sent = start(message);
  bool is_received = false;
  bool is_sent = false;
  const auto drive = [&] {  // the message is done soon; then only the rails are looked after
    is_received = is_received || try_end_recv(received);
    is_sent = is_sent || try_end_send(sent);
    if (is_received && is_sent) {
      received = post(target);
      sent = start(message);
      is_received = is_sent = false;
    }
  };
  wait_until([&] {
    drive();
    return lines_with("goes on without") == 2;
  });
  a->cards[1].gid_index = 3;  // its address is at another place now
  a->cards[1].set_port_up(true);
  wait_until([&] {
    drive();
    return lines_with("is back in the connection") == 2;
  });
  const uint64_t writes = a->cards[1].writes;
  for (int i = 0; i < 1000; ++i) {
    drive();
  }
  EXPECT_GT(a->cards[1].writes, writes);
}

TEST_F(IbConnection, LastRailThatIsLostEndsIt) {
  connect();
  auto message = make_message(kShort);
  a->cards[0].is_holding = true;
  a->cards[1].is_holding = true;
  std::vector<std::byte> target(kShort);
  auto* received = post(target);
  auto* sent = start(message);
  for (int i = 0; i < 10; ++i) {
    drive_both(received, sent);
  }
  a->cards[0].set_port_up(false);
  a->cards[1].set_port_up(false);
  int32_t code = PLEXUS_AGAIN;
  wait_until([&] {
    code = sender->test(static_cast<SendRequest&>(*sent), nullptr);
    return code != PLEXUS_AGAIN;
  });
  EXPECT_EQ(code, PLEXUS_REMOTE_ERROR);
  EXPECT_THAT(lines.back(), HasSubstr("lost the connection to"));
  EXPECT_THAT(lines.back(), HasSubstr("is down (last event: port error)"));
  wait_until([&] {
    code = receiver->test(static_cast<RecvRequest&>(*received), nullptr);
    return code != PLEXUS_AGAIN;
  });
  EXPECT_EQ(code, PLEXUS_REMOTE_ERROR);
}

TEST_F(IbConnection, FlushReadsThroughEveryRailAlsoThroughOneThatIsLost) {
  connect(true);
  auto message = make_message(kLong);
  std::vector<std::byte> target(kLong);
  auto* received = post(target, PLEXUS_MEMORY_DMABUF);
  auto* sent = start(message);
  finish(received, sent);
  b->cards[1].is_holding = true;
  plexus_net_request_t* flushed = nullptr;
  ASSERT_EQ(receiver->flush(1, &into, &flushed), PLEXUS_OK);
  ASSERT_NE(flushed, nullptr);
  auto& request = static_cast<FlushRequest&>(*flushed);
  a->cards[1].set_port_up(false);
  auto other = make_message(kShort);
  auto* more = start(other);
  wait_until([&] {
    (void)sender->test(static_cast<SendRequest&>(*more), nullptr);
    EXPECT_EQ(receiver->test(request), PLEXUS_AGAIN);
    return lines_with("goes on without") == 2;
  });
  b->cards[1].is_holding = false;
  wait_until([&] { return receiver->test(request) == PLEXUS_OK; });
  EXPECT_EQ(b->cards[0].reads, 1U);
  EXPECT_EQ(b->cards[1].reads, 1U);
}

}  // namespace
}  // namespace plexus::net_ib
