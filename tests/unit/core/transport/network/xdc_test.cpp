// SPDX-License-Identifier: Apache-2.0
// Cross-datacenter connections whose paths break: messages arrive once and in order over another
// path.
#include "core/transport/network/xdc.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/control/control_tag.hpp"
#include "tests/support/net_pair.hpp"

namespace plexus {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

constexpr uint32_t kSlotBytes = 1024;
constexpr uint32_t kWindow = 12;

NetContext chaos(const std::string& script) {
  const auto plugin =
      test::load_plugin(test::built_file("PLEXUS_TEST_LIB_DIR", "libplexus-net-chaos.so"));
  auto context = NetContext::create(
      plugin, {.comm_id = 7,
               .traffic_class = -1,
               .log = {},
               .settings = [script](std::string_view name) -> std::optional<std::string> {
                 if (name == "NCCL_SOCKET_IFNAME") {
                   return "=lo";
                 }
                 return name == "PLEXUS_CHAOS_SCRIPT" ? std::optional(script) : std::nullopt;
               }});
  EXPECT_TRUE(context.has_value()) << context.error().message();
  return std::move(context).value();
}

/// A context of one of the fixtures of tests/abi/nccl_net, in place of a vendor's library.
NetContext vendors(const std::string& name, NetLog log = {}) {
  const auto file =
      test::built_file("PLEXUS_TEST_EXAMPLE_DIR", ("libnccl-net-" + name + ".so").c_str());
  return test::make_context(test::load_plugin(file), std::move(log));
}

/// Both ends of a connection between two ranks of this process. `scripts`: the faults of each path.
struct Link {
  explicit Link(const std::vector<std::string>& scripts,
                milliseconds patience = milliseconds(50),
                milliseconds retries = milliseconds(0))
      : retry(retries) {
    for (const std::string& script : scripts) {
      contexts.push_back(chaos(script));
    }
    make_ends(patience);
  }
  /// One path, through `context`.
  explicit Link(NetContext context) {
    contexts.push_back(std::move(context));
    make_ends(milliseconds(2000));
  }
  void make_ends(milliseconds patience) {
    exchanges = make_local_exchanges(2);
    send = std::make_unique<XdcSendEnd>(EndId{.key = {1, true, 4}}, options(0, patience));
    recv = std::make_unique<XdcRecvEnd>(EndId{.key = {0, false, 4}}, options(1, patience));
  }
  XdcEndOptions options(size_t rank, milliseconds patience) {
    XdcEndOptions made{.exchange = exchanges[rank].get(),
                       .paths = {},
                       .slot_bytes = kSlotBytes,
                       .life = 0,
                       .window = kWindow,
                       .sockets = 3,
                       .patience = patience,
                       .retry = retry,
                       .peer_name = rank == 0 ? "rank 1 (there:22)" : "rank 0 (here:11)",
                       .routes = &routes[rank],
                       .counts = &counts[rank],
                       .has_checksums = true};
    for (size_t way = 0; way < contexts.size(); ++way) {
      made.paths.push_back({&contexts[way], 0, fmt::format("Chaos {}", way)});
    }
    return made;
  }
  bool connect() {
    return test::poll_until([&] {
      const bool accepted = recv->connected() || recv->progress_connect().value();
      return (send->connected() || send->progress_connect().value()) && accepted;
    });
  }
  /// Sends and receives as much as possible; every byte of a message is the message's number.
  void step(uint64_t messages) {
    if (sent < messages && send->connection().try_acquire()) {
      const auto size = static_cast<uint32_t>(1 + sent % kSlotBytes);
      std::memset(send->connection().payload(size), static_cast<int>(sent % 251), size);
      send->connection().commit(size, 99);
      ++sent;
    }
    for (ConnectionEnd* const end :
         {static_cast<ConnectionEnd*>(send.get()), static_cast<ConnectionEnd*>(recv.get())}) {
      auto pumped = end->progress_pump();
      if (pumped.has_error()) {
        error = std::move(pumped).error();
      }
    }
    if (recv->connection().try_peek()) {
      const uint32_t size = recv->connection().header().size_bytes;
      EXPECT_EQ(size, 1 + taken % kSlotBytes);
      for (uint32_t at = 0; at < size; ++at) {
        ASSERT_EQ(recv->connection().payload()[at], static_cast<std::byte>(taken % 251)) << taken;
      }
      recv->connection().release();
      ++taken;
    }
  }
  bool run(uint64_t messages) {
    recv->expect(messages);
    return test::poll_until([&] {
      step(messages);
      return error.has_value() || testing::Test::HasFailure() ||
             (taken == messages && send->drained() && recv->drained());
    });
  }

  /// After run_until_left(): what that has begun, and `messages` more.
  bool run_more(uint64_t messages) {
    recv->expect(messages);
    wanted += messages;
    return test::poll_until([&] {
      step(wanted);
      return error.has_value() || testing::Test::HasFailure() || taken == wanted;
    });
  }
  /// Until both ends have told that what is left of the way is `share`, with messages under way.
  bool run_until_left(uint32_t share) {
    return test::poll_until([&] {
      if (taken == wanted) {
        recv->expect(100);
        wanted += 100;
      }
      step(wanted);
      return error.has_value() || testing::Test::HasFailure() ||
             (left[0] == share && left[1] == share);
    });
  }

  milliseconds retry{0};
  uint64_t wanted = 0;  // messages, by run_until_left()
  std::array<uint32_t, 2> left{kWholeShare, kWholeShare};
  std::array<XdcRoutes, 2> routes{
      XdcRoutes([this](uint32_t /*datacenter*/, uint32_t share) { left[0] = share; }),
      XdcRoutes([this](uint32_t /*datacenter*/, uint32_t share) { left[1] = share; })};
  std::array<LinkCounts, 2> counts;
  std::vector<NetContext> contexts;
  std::vector<std::unique_ptr<Exchange>> exchanges;
  std::unique_ptr<XdcSendEnd> send;
  std::unique_ptr<XdcRecvEnd> recv;
  uint64_t sent = 0;
  uint64_t taken = 0;
  std::optional<Error> error;
};

TEST(XdcEnds, CarryMessagesInOrder) {
  Link link({""});
  ASSERT_TRUE(link.connect());
  EXPECT_TRUE(link.run(500));
  EXPECT_EQ(link.taken, 500U);
  EXPECT_TRUE(test::poll_until([&] {
    link.step(500);
    return link.send->settled();
  }));
}

TEST(XdcEnds, TakeMoreThanAFifoHoldsBeforeAnythingIsAcknowledged) {
  Link link({""});
  ASSERT_TRUE(link.connect());
  EXPECT_TRUE(test::poll_until([&] {
    if (link.sent < kWindow && link.send->connection().try_acquire()) {
      link.send->connection().commit(1, 99);
      ++link.sent;
    }
    return !link.send->progress_pump().value() && link.sent == kWindow;
  }));
  EXPECT_TRUE(link.send->drained());
  EXPECT_FALSE(link.send->settled());
}

TEST(XdcEnds, TakeNothingThatNoCallExpects) {
  Link link({""});
  ASSERT_TRUE(link.connect());
  link.recv->expect(3);
  ASSERT_TRUE(test::poll_until([&] {
    link.step(5);
    return link.taken == 3 && link.sent == 5 && link.send->drained();
  }));
  EXPECT_FALSE(link.recv->progress_pump().value());
  EXPECT_FALSE(link.recv->connection().try_peek());
  link.recv->expect(2);
  EXPECT_TRUE(test::poll_until([&] {
    link.step(5);
    return link.taken == 5;
  }));
}

/// Blocking accepts would wait for each other for ever, because one thread drives both ends.
TEST(XdcEnds, ConnectWhereThePluginsAcceptBlocks) {
  Link link(vendors("quirk-accept-blocks"));
  ASSERT_TRUE(link.connect());
  EXPECT_TRUE(link.run(50));
}

TEST(XdcEnds, TakeTheSizeFromTheHeaderWhereThePluginTellsNone) {
  Link link(vendors("quirk-no-sizes"));
  ASSERT_TRUE(link.connect());
  EXPECT_TRUE(link.run(50));
  EXPECT_FALSE(link.error.has_value()) << link.error->message();
}

/// The fixture reports each connection that is closed with posted receives.
TEST(XdcEnds, LeaveNoReceiveBehind) {
  std::vector<std::string> lines;
  {
    Link link(vendors("quirk-shared-endpoint", [&](NetLogLevel level, std::string_view text) {
      if (level == NetLogLevel::kWarn) {
        lines.emplace_back(text);
      }
    }));
    ASSERT_TRUE(link.connect());
    EXPECT_TRUE(link.run(50));
    EXPECT_TRUE(test::poll_until([&] {
      link.step(50);
      return link.send->settled() && link.recv->drained();
    }));
  }
  EXPECT_THAT(lines, testing::IsEmpty());
}

TEST(XdcEnds, GoOnByAnotherWayWhenAConnectionBreaks) {
  for (const char* const broken : {"send: cut=20KiB", "recv: cut=20KiB", "*: cut=20KiB"}) {
    Link link({broken, ""});
    ASSERT_TRUE(link.connect());
    EXPECT_TRUE(link.run(500)) << broken;
    EXPECT_FALSE(link.error.has_value()) << link.error->message();
    EXPECT_EQ(link.taken, 500U);
  }
}

TEST(XdcEnds, CountAFailoverAndWhatIsSentAgainAtTheEndThatSends) {
  for (const char* const broken : {"", "recv: cut=20KiB"}) {
    Link link({broken, ""});
    ASSERT_TRUE(link.connect());
    EXPECT_TRUE(link.run(500)) << broken;
    const bool is_cut = *broken != '\0';
    EXPECT_EQ(link.counts[0].failovers, is_cut ? 1U : 0U);
    EXPECT_EQ(link.counts[1].failovers, 0U);
    EXPECT_EQ(link.counts[0].resent > 0, is_cut);  // it was cut when it had to arrive
    EXPECT_LE(link.counts[0].resent, kWindow);
  }
}

TEST(XdcEnds, GoOnByAnotherWayWhenALinkFallsSilent) {
  Link link({"send: stall=20KiB/30s", ""});
  ASSERT_TRUE(link.connect());
  EXPECT_TRUE(link.run(300));
  EXPECT_FALSE(link.error.has_value()) << link.error->message();
}

TEST(XdcEnds, GoOnWhenTheOnlyWayBreaksNowAndThen) {
  Link link({"send connection=0: cut=20KiB; send connection=5: cut=20KiB"});
  ASSERT_TRUE(link.connect());
  EXPECT_TRUE(link.run(300));
  EXPECT_FALSE(link.error.has_value()) << link.error->message();
}

TEST(XdcEnds, GoBackToAPathThatHasReturned) {
  for (const char* const broken : {"send connection=0: cut=20KiB", "recv connection=1: cut=20KiB",
                                   "send connection=0: stall=20KiB/30s"}) {
    Link link({broken, ""}, milliseconds(50), milliseconds(20));
    ASSERT_TRUE(link.connect());
    ASSERT_TRUE(link.run_until_left(500)) << broken;
    EXPECT_TRUE(link.send->seeks() && link.recv->seeks());
    ASSERT_TRUE(link.run_until_left(kWholeShare)) << broken;
    EXPECT_FALSE(link.error.has_value()) << link.error->message();
    EXPECT_FALSE(link.send->seeks() || link.recv->seeks());
    EXPECT_EQ(link.send->describe_route(), "xdc/Chaos 0");
    EXPECT_TRUE(link.run_more(200));
  }
}

TEST(XdcEnds, DoNotGoBackWhereThatIsSwitchedOff) {
  Link link({"send connection=0: cut=20KiB", ""});
  ASSERT_TRUE(link.connect());
  ASSERT_TRUE(link.run_until_left(500));
  EXPECT_TRUE(link.run_more(500));
  EXPECT_EQ(link.send->describe_route(), "xdc/Chaos 1");
}

/// The path connects each time, and carries next to nothing.
TEST(XdcEnds, CarryEveryMessageOnceOverAPathThatComesAndGoes) {
  Link link({"send: cut=3KiB", ""}, milliseconds(50), milliseconds(1));
  ASSERT_TRUE(link.connect());
  for (int times = 0; times < 3; ++times) {
    ASSERT_TRUE(link.run_until_left(500));
    ASSERT_TRUE(link.run_until_left(kWholeShare));
  }
  EXPECT_TRUE(link.run_more(500));
  EXPECT_FALSE(link.error.has_value()) << link.error->message();
}

TEST(XdcEnds, BeginByAPathThatNoOtherConnectionHasLost) {
  Link link({"*: cut=1", ""});
  const std::vector<NetSet::Path> paths = {{&link.contexts[0], 0, "Chaos 0"},
                                           {&link.contexts[1], 0, "Chaos 1"}};
  link.routes[1].use({7, false, 4}, 0, paths, 1);
  ASSERT_TRUE(link.connect());
  EXPECT_EQ(link.send->describe_route(), "xdc/Chaos 1");
  EXPECT_TRUE(link.run(100));
  EXPECT_FALSE(link.error.has_value()) << link.error->message();
}

TEST(XdcEnds, SilenceOfAReceiverThatIsElsewhereIsNoLoss) {
  Link link({"", ""}, milliseconds(20));
  ASSERT_TRUE(link.connect());
  link.send->connection().commit(1, 99);
  const auto until = Clock::now() + milliseconds(100);
  EXPECT_TRUE(test::poll_until([&] {
    EXPECT_FALSE(link.send->progress_pump().has_error());
    return Clock::now() > until;
  }));
  link.sent = 1;
  std::memset(link.send->connection().payload(1), 0, 1);
  link.taken = 1;
  link.recv->expect(1);
  EXPECT_TRUE(test::poll_until([&] {
    EXPECT_FALSE(link.recv->progress_pump().has_error());
    EXPECT_FALSE(link.send->progress_pump().has_error());
    return link.send->settled() && link.recv->connection().try_peek();
  }));
}

/// Its rank has many handshakes to make, one after the other.
TEST(XdcEnds, AReceiverThatIsBusyWhileTheyConnectIsNoLoss) {
  Link link({""});
  ASSERT_FALSE(link.recv->progress_connect().value());  // listens
  const auto until = Clock::now() + milliseconds(1500);
  ASSERT_FALSE(link.send->progress_connect().value());
  const uint64_t reported = link.exchanges[0]->traffic().messages;
  while (Clock::now() < until) {
    ASSERT_FALSE(link.send->progress_connect().value());
  }
  EXPECT_LE(link.exchanges[0]->traffic().messages, reported + 1) << "asked for another attempt";
  ASSERT_TRUE(link.connect());
  EXPECT_TRUE(link.run(50));
}

TEST(XdcEnds, SayWhichLinkWhenNoWayIsLeft) {
  // The connections of the first attempt carry some data, all later ones none.
  std::string first = "send: cut=1";
  for (int connection = 0; connection < 4; ++connection) {
    first += fmt::format("; send connection={}: cut=20KiB", connection);
  }
  Link link({first, "send: cut=1"});
  ASSERT_TRUE(link.connect());
  EXPECT_TRUE(link.run(300));
  ASSERT_TRUE(link.error.has_value());
  EXPECT_THAT(link.error->message(),
              AllOf(HasSubstr("lost the link to rank 1 (there:22) by Chaos"), HasSubstr("on 2")));
}

TEST(XdcEnds, FindABitThatTheNetworkChanged) {
  Link link({"recv: flip=3000"});
  ASSERT_TRUE(link.connect());
  EXPECT_TRUE(link.run(500));
  ASSERT_TRUE(link.error.has_value());
  EXPECT_THAT(link.error->message(),
              AllOf(HasSubstr("the link from rank 0 (here:11) to rank 1 by Chaos 0 changed data"),
                    HasSubstr("CRC32C")));
}

TEST(XdcEnds, RefuseControlMessagesThatMakeNoSense) {
  Link link({""});
  constexpr uint64_t kTagOfIndex4 = tag_of(ControlTag::kXdc, 4U << 1);
  ASSERT_TRUE(link.exchanges[1]->post(0, kTagOfIndex4, "nonsense").has_value());
  const auto refused = link.send->progress_connect();
  ASSERT_TRUE(refused.has_error());
  EXPECT_THAT(refused.error().message(), HasSubstr("rank 1 (there:22)"));
}

}  // namespace
}  // namespace plexus
