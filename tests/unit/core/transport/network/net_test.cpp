// SPDX-License-Identifier: Apache-2.0
#include "core/transport/network/net.hpp"

#include <dlfcn.h>
#include <span>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/plugin/registry.hpp"
#include "core/transport/network/net_message.hpp"
#include "core/transport/network/net_set.hpp"
#include "tests/support/net_pair.hpp"

namespace plexus {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::shared_ptr<const NetPlugin> minimal() {
  return test::load_plugin(test::built_file("PLEXUS_TEST_EXAMPLE_DIR", "libplexus-net-minimal.so"));
}

std::vector<PeerInfo> two_hosts() {
  std::vector<PeerInfo> infos(2);
  std::memcpy(infos[0].host, "here", 5);
  std::memcpy(infos[1].host, "there", 6);
  infos[1].host_hash = 1;
  infos[0].pid = 11;
  infos[1].pid = 22;
  return infos;
}

/// Networks of two ranks that have exchanged their offers: the minimal plugin under each name.
std::vector<NetSet> make_sets(const std::vector<std::vector<std::string>>& names) {
  std::vector<NetSet> sets;
  std::vector<std::string> offers;
  for (const auto& of_rank : names) {
    std::vector<OpenNet> nets;
    for (const std::string& name : of_rank) {
      nets.push_back({name, test::make_context(minimal())});
    }
    sets.emplace_back(std::move(nets));
    offers.push_back(sets.back().offers());
  }
  const Gathered gathered(offers);
  for (NetSet& set : sets) {
    EXPECT_TRUE(set.learn_offers(gathered).has_value());
  }
  return sets;
}

TEST(NetSet, FindsTheWayWithEachEndsOwnContext) {
  auto sets = make_sets({{"a", "b"}, {"b"}});
  const auto infos = two_hosts();
  const auto sends = sets[0].find_path(0, 0, 1, 3, infos);
  const auto receives = sets[1].find_path(1, 0, 1, 3, infos);
  ASSERT_TRUE(sends.has_value() && receives.has_value());
  EXPECT_EQ(sends.value().route, "b 0 (unix0) > 0 (unix0)");
  EXPECT_EQ(receives.value().route, sends.value().route);
  EXPECT_NE(sends.value().context, receives.value().context);
}

TEST(NetSet, WithoutACommonNetworkTheErrorNamesBothRanksAndTheirNetworks) {
  auto sets = make_sets({{"a", "b"}, {"c"}});
  for (int rank = 0; rank < 2; ++rank) {
    const auto path = sets[static_cast<size_t>(rank)].find_path(rank, 0, 1, 0, two_hosts());
    ASSERT_TRUE(path.has_error());
    EXPECT_THAT(path.error().message(),
                AllOf(HasSubstr("rank 0 (here:11) and rank 1 (there:22)"),
                      HasSubstr("a (unix0), b (unix0)"), HasSubstr("c (unix0)")));
  }
}

TEST(NetSet, OnlyTheFirstRankOfANetworkTellsItsPaths) {
  auto sets = make_sets({{"a"}, {"a", "b"}});
  FabricPaths none;
  EXPECT_EQ(sets[0].paths(0).value(), none.encode());
  EXPECT_FALSE(sets[0].knows_fabrics());
  EXPECT_TRUE(
      sets[0].learn_paths(Gathered(std::vector<std::string>(2, none.encode()))).has_value());
}

std::shared_ptr<const NetPlugin> socket() {
  return test::load_plugin(test::built_file("PLEXUS_TEST_LIB_DIR", "libplexus-net-socket.so"));
}

/// Both ends of a connection between two ranks of this process.
struct Ends {
  Ends(const std::string& sender_route,
       const std::string& receiver_route,
       const std::shared_ptr<const NetPlugin>& plugin = minimal(),
       bool are_apart = false,
       RegisteredMemory* registered_memory = nullptr)
      : context(test::make_context(plugin)),
        registered(registered_memory),
        apart(are_apart),
        exchanges(make_local_exchanges(2)),
        send({.key = {1, true, 0}}, options(0, sender_route)),
        recv({.key = {0, false, 0}}, options(1, receiver_route)) {}
  NetEndOptions options(size_t rank, const std::string& route) {
    return {.exchange = exchanges[rank].get(),
            .path = {&context, 0, route, apart},
            .slot_bytes = 1024,
            .peer_name = rank == 0 ? "rank 1 (there:22)" : "rank 0 (here:11)",
            .registered = registered};
  }
  [[nodiscard]] bool connect() {
    return test::poll_until([&] {
      const bool accepted = recv.connected() || recv.progress_connect().value();
      return (send.connected() || send.progress_connect().value()) && accepted;
    });
  }
  NetContext context;
  RegisteredMemory* registered;
  bool apart;
  std::vector<std::unique_ptr<Exchange>> exchanges;
  NetSendEnd send;
  NetRecvEnd recv;
};

TEST(NetEnds, ConnectWhenBothSeeTheSameRoute) {
  Ends ends("a 0 (x) > 1 (y)", "a 0 (x) > 1 (y)");
  EXPECT_TRUE(ends.connect());
}

TEST(NetMessages, OfAnotherConnectionOrAnotherStepAreErrorsAndNoNumbers) {
  const uint64_t here = identify_connection(7, 0, 1, 2);
  NetHeader message_header{};
  message_header.connection = here;
  message_header.step = 5;
  EXPECT_TRUE(check_identity(message_header, here, 5, "rank 0").has_value());
  for (const uint64_t other : {identify_connection(8, 0, 1, 2), identify_connection(7, 1, 0, 2),
                               identify_connection(7, 0, 2, 2), identify_connection(7, 0, 1, 3)}) {
    message_header.connection = other;
    const auto checked = check_identity(message_header, here, 5, "rank 0 (here:11)");
    ASSERT_TRUE(checked.has_error());
    EXPECT_THAT(checked.error().message(),
                AllOf(HasSubstr("another connection"), HasSubstr("rank 0 (here:11)")));
  }
  message_header.connection = here;
  const auto late = check_identity(message_header, here, 4, "rank 0");
  ASSERT_TRUE(late.has_error());
  EXPECT_THAT(late.error().message(), HasSubstr("message 5 of rank 0 where message 4"));
}

TEST(NetEnds, SendFromUserMemoryWhereThePluginTakesPieces) {
  Ends in_pieces("a", "a", socket());
  ASSERT_TRUE(in_pieces.connect());
  EXPECT_EQ(in_pieces.send.connection().reach(), Reach::kProcess);
  Ends whole("a", "a");
  ASSERT_TRUE(whole.connect());
  EXPECT_EQ(whole.send.connection().reach(), Reach::kNothing);
}

TEST(NetEnds, SendNoPiecesWhereThePeerTakesHeaderAndPayloadApart) {
  Ends ends("a", "a", socket(), true);
  ASSERT_TRUE(ends.connect());
  EXPECT_EQ(ends.send.connection().reach(), Reach::kNothing);
}

/// Hands over messages by address and receives them, until `payloads` have arrived.
void move_from_user_memory(Ends& ends, const std::vector<std::span<const std::byte>>& payloads) {
  size_t sent = 0;
  size_t taken = 0;
  ends.recv.expect(payloads.size());
  ASSERT_TRUE(test::poll_until([&] {
    if (sent < payloads.size() && ends.send.connection().try_acquire()) {
      const std::span<const std::byte> payload = payloads[sent++];
      ends.send.connection().commit_pointer(payload.data(), static_cast<uint32_t>(payload.size()),
                                            99);
    }
    for (ConnectionEnd* const end :
         {static_cast<ConnectionEnd*>(&ends.send), static_cast<ConnectionEnd*>(&ends.recv)}) {
      const auto pumped = end->progress_pump();
      EXPECT_TRUE(pumped.has_value()) << pumped.error().message();
    }
    if (ends.recv.connection().try_peek()) {
      const std::span<const std::byte> payload = payloads[taken++];
      EXPECT_EQ(ends.recv.connection().header().size_bytes, payload.size());
      EXPECT_EQ(std::memcmp(ends.recv.connection().payload(), payload.data(), payload.size()), 0);
      ends.recv.connection().release();
    }
    return (taken == payloads.size() && ends.send.drained()) || testing::Test::HasFailure();
  }));
}

/// What the plugin has gathered in this process.
uint64_t gathered_bytes() {
  const auto path = test::built_file("PLEXUS_TEST_EXAMPLE_DIR", "libplexus-net-gathering.so");
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  auto* const count = reinterpret_cast<uint64_t (*)()>(dlsym(library, "gathered_bytes"));
  return count();
}

std::shared_ptr<const NetPlugin> gathering() {
  return test::load_plugin(
      test::built_file("PLEXUS_TEST_EXAMPLE_DIR", "libplexus-net-gathering.so"));
}

TEST(NetEnds, SendRegisteredMemoryFromWhereItLiesAndOtherMemoryThroughSlots) {
  const UserMemory allocated;
  RegisteredMemory memory(&allocated);
  std::vector<std::byte> user(40'000);
  for (size_t i = 0; i < user.size(); ++i) {
    user[i] = static_cast<std::byte>(i * 7 >> 3);
  }
  const std::span<const std::byte> all(user);
  memory.add(user.data() + 100, 20'000);
  Ends ends("a", "a", gathering(), false, &memory);
  ASSERT_TRUE(ends.connect());
  const uint64_t before = gathered_bytes();
  move_from_user_memory(ends, {all.subspan(100, 1000), all.subspan(50, 1000), all.subspan(0, 10),
                               all.subspan(19'100, 1000), all.subspan(19'101, 1000)});
  EXPECT_EQ(gathered_bytes() - before, 2 * (1000 + sizeof(NetHeader)));
}

TEST(NetEnds, SendFromMemoryThatIsDeregisteredMeanwhile) {
  const UserMemory allocated;
  RegisteredMemory memory(&allocated);
  std::vector<std::byte> user(1000, std::byte{7});
  Ends ends("a", "a", gathering(), false, &memory);
  ASSERT_TRUE(ends.connect());
  for (int i = 0; i < 3; ++i) {  // the plugin refuses what is not registered until test says OK
    memory.add(user.data(), user.size());
    ends.send.connection().commit_pointer(user.data(), 1000, 99);
    ASSERT_TRUE(ends.send.progress_pump().value());
    memory.remove(user.data());
    ends.recv.expect(1);
    ASSERT_TRUE(test::poll_until([&] {
      EXPECT_TRUE(ends.send.progress_pump().has_value());
      EXPECT_TRUE(ends.recv.progress_pump().has_value());
      return ends.recv.connection().try_peek() && ends.send.drained();
    }));
    ends.recv.connection().release();
  }
  // Handed over while it was registered, sent when it is not any more.
  const uint64_t before = gathered_bytes();
  memory.add(user.data(), user.size());
  ends.send.connection().commit_pointer(user.data(), 1000, 99);
  memory.remove(user.data());
  ends.recv.expect(1);
  ASSERT_TRUE(test::poll_until([&] {
    EXPECT_TRUE(ends.send.progress_pump().has_value());
    EXPECT_TRUE(ends.recv.progress_pump().has_value());
    return ends.recv.connection().try_peek() && ends.send.drained();
  }));
  EXPECT_EQ(gathered_bytes(), before);
}

TEST(NetEnds, GatherNothingWhereTheUserMayNotRegister) {
  Ends ends("a", "a", gathering());
  ASSERT_TRUE(ends.connect());
  EXPECT_EQ(ends.send.connection().reach(), Reach::kNothing);
}

/// One of the fixtures of tests/abi/nccl_net, which are initialised once per process.
std::shared_ptr<const NetPlugin> vendors(const std::string& name) {
  static NetPluginCache cache;
  return cache.intern(test::load_plugin(
      test::built_file("PLEXUS_TEST_EXAMPLE_DIR", ("libnccl-net-" + name + ".so").c_str())));
}

/// Sends messages while slots are free, and receives `messages` of them.
void move_messages(Ends& ends, uint64_t messages) {
  uint64_t sent = 0;
  uint64_t taken = 0;
  ASSERT_TRUE(test::poll_until([&] {
    if (sent < messages && ends.send.connection().try_acquire()) {
      std::memset(ends.send.connection().payload(100), static_cast<int>(sent), 100);
      ends.send.connection().commit(100, 99);
      ++sent;
    }
    EXPECT_TRUE(ends.send.progress_pump().has_value());
    EXPECT_TRUE(ends.recv.progress_pump().has_value());
    if (ends.recv.connection().try_peek()) {
      EXPECT_EQ(ends.recv.connection().header().size_bytes, 100U);
      EXPECT_EQ(ends.recv.connection().payload()[99], static_cast<std::byte>(taken));
      ends.recv.connection().release();
      ++taken;
    }
    return (taken == messages && ends.send.drained()) || testing::Test::HasFailure();
  }));
}

TEST(NetEnds, PostNoReceiveThatNoCallExpects) {
  Ends ends("a", "a", vendors("quirk-shared-endpoint"));
  ASSERT_TRUE(ends.connect());
  EXPECT_FALSE(ends.recv.progress_pump().value());
  ends.recv.expect(20);
  move_messages(ends, 20);
  EXPECT_FALSE(ends.recv.progress_pump().value());
  ends.recv.expect(1);
  move_messages(ends, 1);
}

TEST(NetEnds, ConnectWhereThePluginsAcceptBlocks) {
  Ends ends("a", "a", vendors("quirk-accept-blocks"));
  EXPECT_TRUE(ends.connect());
}

TEST(NetEnds, TakeTheSizeFromTheHeaderWhereThePluginTellsNone) {
  for (const bool apart : {false, true}) {
    Ends ends("a", "a", vendors("quirk-no-sizes"), apart);
    ASSERT_TRUE(ends.connect());
    ends.recv.expect(20);
    move_messages(ends, 20);
  }
}

TEST(NetEnds, RefuseToConnectWhenTheirRoutesDiffer) {
  Ends ends("a 0 (x) > 1 (y)", "b 0 (x) > 0 (z)");
  ASSERT_TRUE(ends.recv.progress_connect().has_value());
  const auto refused = ends.send.progress_connect();
  ASSERT_TRUE(refused.has_error());
  EXPECT_EQ(refused.error().code(), Code::kInvalidUsage);
  EXPECT_THAT(refused.error().message(),
              AllOf(HasSubstr("rank 0"), HasSubstr("rank 1 (there:22)"),
                    HasSubstr("a 0 (x) > 1 (y)"), HasSubstr("b 0 (x) > 0 (z)")));
}

}  // namespace
}  // namespace plexus
