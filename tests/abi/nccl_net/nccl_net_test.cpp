// SPDX-License-Identifier: Apache-2.0
// Libraries of NCCL's own ABI, one fixture per version, are usable as native ones through
// core/plugin; unusable libraries are refused in one sentence with the remedy.
#include <array>
#include <filesystem>
#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/plugin/library.hpp"
#include "core/plugin/net_plugin.hpp"
#include "core/plugin/registry.hpp"
#include "tests/support/net_pair.hpp"

namespace plexus {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::filesystem::path vendor(const std::string& name) {
  return test::built_file("PLEXUS_TEST_EXAMPLE_DIR", ("libnccl-net-" + name + ".so").c_str());
}

/// Counters of a fixture (tcp_engine.h).
struct Counters {
  int inits, contexts, listens, sends, recvs, memory;
};
const Counters& counters(std::string_view name) {
  const auto object =
      Library::load(vendor(std::string(name))).value().find_object("tcp_fixture_counters");
  return *static_cast<const Counters*>(object.value().address);
}

/// One plugin for all tests of this process, as for its communicators: the fixtures up to v10
/// refuse a second init.
std::shared_ptr<const NetPlugin> load_shared(const std::string& name) {
  static NetPluginCache cache;
  return cache.intern(test::load_plugin(vendor(name)));
}

struct Version {
  const char* name;
  const char* entry;
  bool is_per_communicator;
  uint32_t recvs_max;
};

class NcclNet : public testing::TestWithParam<Version> {
 protected:
  static std::shared_ptr<const NetPlugin> load() { return load_shared(GetParam().name); }
};

TEST_P(NcclNet, IsLoadedByItsNewestEntry) {
  const auto plugin = load();
  EXPECT_EQ(plugin->descriptor().entry, GetParam().entry);
  EXPECT_EQ(plugin->ops().net_path != nullptr, std::string(GetParam().name) == "tcp-cross-dc");
  EXPECT_THAT(describe_plugin(plugin->descriptor()), HasSubstr(GetParam().entry));
}

TEST_P(NcclNet, ShowsItsDevicesWithSaneNumbers) {
  const NetContext context = test::make_context(load());
  ASSERT_EQ(context.device_count(), 2u);
  const NetProperties& device = context.properties(1);
  EXPECT_THAT(device.name, HasSubstr("loop"));
  EXPECT_LE(device.message_bytes_max, uint64_t{INT32_MAX});
  EXPECT_GE(device.message_bytes_max, uint64_t{1} << 30);
  EXPECT_EQ(device.recvs_max, GetParam().recvs_max);
  EXPECT_EQ(device.requests_max, std::string(GetParam().name) == "tcp-v6" ? 8u : 32u);
  EXPECT_EQ(device.pointer_support, PLEXUS_MEMORY_HOST);
  EXPECT_FALSE(device.force_flush);
  EXPECT_EQ(device.rail_id.has_value(), std::string(GetParam().name) == "tcp-v12");
}

TEST_P(NcclNet, MovesMessagesOfAllSizes) {
  const NetContext sender = test::make_context(load());
  const NetContext receiver = test::make_context(load());
  test::NetPair pair = test::connect_pair(sender, receiver);
  for (const size_t size : {0u, 1u, 8u, 4096u, 1000003u}) {
    const auto message = test::make_message(size, static_cast<unsigned>(size));
    std::vector<std::byte> arrived(1000003);
    const NetBuffer buffer = test::buffer_of(arrived, 3);
    NetRequest* received = nullptr;
    ASSERT_TRUE(test::poll_until([&] {
      return pair.recv.irecv({&buffer, 1}, &received) == NetStatus::kOk;
    }));
    uint64_t got = 0;
    test::finish(pair, test::post_send(pair, message, 3), received, &got);
    arrived.resize(got);
    EXPECT_EQ(arrived, message) << size;
  }
}

TEST_P(NcclNet, GroupedReceivesGetTheirOwnSizes) {
  const NetContext context = test::make_context(load());
  test::NetPair pair = test::connect_pair(context, context);
  const uint32_t count = GetParam().recvs_max;
  std::vector<std::vector<std::byte>> targets(count, std::vector<std::byte>(4096));
  std::vector<NetBuffer> buffers;
  for (uint32_t i = 0; i < count; ++i) {
    buffers.push_back(test::buffer_of(targets[i], static_cast<int32_t>(i)));
  }
  NetRequest* received = nullptr;
  ASSERT_TRUE(
      test::poll_until([&] { return pair.recv.irecv(buffers, &received) == NetStatus::kOk; }));
  std::vector<std::vector<std::byte>> messages;
  std::vector<NetRequest*> sent;
  for (uint32_t i = count; i-- > 0;) {  // the last buffer's message first
    messages.push_back(test::make_message(100 + 10 * i, i));
  }
  for (uint32_t i = 0; i < count; ++i) {
    sent.push_back(test::post_send(pair, messages[i], static_cast<int32_t>(count - 1 - i)));
  }
  std::array<uint64_t, PLEXUS_NET_RECVS_MAX> sizes{};
  test::finish(pair, sent.back(), received, sizes.data());
  for (uint32_t i = 0; i < count; ++i) {
    EXPECT_EQ(sizes[i], 100u + 10 * i);
    targets[i].resize(sizes[i]);
    EXPECT_EQ(targets[i], messages[count - 1 - i]);
  }
  buffers.resize(count + 1);
  const auto status = pair.recv.irecv(buffers, &received);
  EXPECT_THAT(pair.recv.explain("irecv", status).message(), HasSubstr("buffers in one receive"));
}

TEST_P(NcclNet, NeverHasMoreInFlightThanTheVersionAllows) {
  const NetContext context = test::make_context(load());
  test::NetPair pair = test::connect_pair(context, context);
  std::vector<std::byte> target(8);
  const NetBuffer buffer = test::buffer_of(target, 0);
  const uint32_t most = 2 * context.properties(0).requests_max;  // the pool's size
  uint32_t posted = 0;
  for (uint32_t i = 0; i < 4 * most; ++i) {
    NetRequest* request = nullptr;
    posted += pair.recv.irecv({&buffer, 1}, &request) == NetStatus::kOk ? 1 : 0;
  }
  EXPECT_GE(posted, context.properties(0).requests_max);
  EXPECT_LE(posted, most);
}

TEST_P(NcclNet, RegistersMemoryAndClosesEverything) {
  {
    const NetContext context = test::make_context(load());
    test::NetPair pair = test::connect_pair(context, context);
    std::vector<std::byte> data(64);
    plexus_net_region_t region{data.data(), data.size(), 0, -1, PLEXUS_MEMORY_HOST};
    const auto memory = pair.send.register_memory(region);
    ASSERT_TRUE(memory.has_value());
    EXPECT_EQ(counters(GetParam().name).memory, 1);
    region.kind = PLEXUS_MEMORY_CUDA;
    EXPECT_EQ(pair.recv.register_memory(region).error().code(), Code::kInvalidUsage);
  }
  const Counters& left = counters(GetParam().name);
  EXPECT_EQ(left.memory, 0);
  EXPECT_EQ(left.sends, 0);
  EXPECT_EQ(left.recvs, 0);
  EXPECT_EQ(left.listens, 0);
  EXPECT_EQ(left.contexts, 0);
}

TEST_P(NcclNet, IsInitialisedOncePerProcessOrPerCommunicatorAsItsVersionHasIt) {
  const NetContext first = test::make_context(load());
  const NetContext second = test::make_context(load());
  EXPECT_EQ(counters(GetParam().name).inits, GetParam().is_per_communicator ? 0 : 1);
  EXPECT_EQ(counters(GetParam().name).contexts, GetParam().is_per_communicator ? 2 : 0);
}

TEST_P(NcclNet, LostPeerIsAnErrorWithThePluginsOwnSentence) {
  const NetContext context = test::make_context(load());
  test::NetPair pair = test::connect_pair(context, context);
  std::vector<std::byte> data(8);
  const NetBuffer buffer = test::buffer_of(data, 0);
  NetRequest* request = nullptr;
  ASSERT_TRUE(test::poll_until([&] {
    return pair.recv.irecv({&buffer, 1}, &request) == NetStatus::kOk;
  }));
  { const NetSend gone = std::move(pair.send); }
  NetStatus status = NetStatus::kAgain;
  ASSERT_TRUE(test::poll_until(
      [&] { return (status = pair.recv.test(request, nullptr)) != NetStatus::kAgain; }));
  const Error error = pair.recv.explain("test", status);
  EXPECT_EQ(error.code(), Code::kRemoteError);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("net plugin"), HasSubstr("connection lost")));
}

TEST_P(NcclNet, GivingUpWhileConnectingIsAllowed) {
  const NetContext context = test::make_context(load());
  auto listen = context.listen(0);
  ASSERT_TRUE(listen.has_value());
  NetSend send = context.connect(0, listen.value().handle());
  EXPECT_EQ(send.try_connect().value(), NetProgress::kPending);
}

INSTANTIATE_TEST_SUITE_P(Versions,
                         NcclNet,
                         testing::Values(Version{"tcp-v6", "ncclNetPlugin_v6", false, 1},
                                         Version{"tcp-v7", "ncclNetPlugin_v7", false, 4},
                                         Version{"tcp-v8", "ncclNetPlugin_v8", false, 4},
                                         Version{"tcp-v9", "ncclNetPlugin_v9", false, 4},
                                         Version{"tcp-v10", "ncclNetPlugin_v10", false, 4},
                                         Version{"tcp-v11", "ncclNetPlugin_v11", true, 4},
                                         Version{"tcp-v12", "ncclNetPlugin_v12", true, 4},
                                         Version{"tcp-cross-dc", "ncclNetPlugin_v11 (cross-dc)",
                                                 false, 4}),
                         [](const auto& version) {
                           std::string name = version.param.name;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(CrossDc, KnowsWhichFabricsReachEachOther) {
  const NetContext context = test::make_context(load_shared("tcp-cross-dc"));
  EXPECT_EQ(context.properties(1).fabric_id, 1u);
  EXPECT_EQ(context.net_path(1, 1).value().level, 0u);
  EXPECT_EQ(context.net_path(1, 2).value().level, 1u);
  EXPECT_FALSE(context.net_path(1, 8).value().connected);
}

TEST(Abi, UserMayChooseTheLayoutOfV11) {
  const auto plugin = NetPlugin::load(vendor("tcp-v11"), {.abi = "auto", .v11 = "cross-dc"});
  EXPECT_EQ(plugin.value()->descriptor().entry, "ncclNetPlugin_v11 (cross-dc)");
  const auto unknown = NetPlugin::load(vendor("tcp-v11"), {.abi = "auto", .v11 = "main"});
  EXPECT_THAT(unknown.error().message(), HasSubstr("PLEXUS_NET_V11=main"));
}

TEST(Abi, ANameThatChangesAtInitIsReadAgain) {
  const auto plugin = load_shared("tcp-v8");
  const NetContext context = test::make_context(plugin);
  EXPECT_EQ(plugin->network_name(), "TcpOld-ready");
}

TEST(Abi, ATableThatIsFilledAtInitIsLookedAtAfterIt) {
  const NetContext context = test::make_context(load_shared("quirk-fills-at-init"));
  test::NetPair pair = test::connect_pair(context, context);
  const auto message = test::make_message(100, 1);
  EXPECT_EQ(context.plugin().network_name(), "TcpOld-ready");
  std::vector<std::byte> arrived(100);
  const NetBuffer buffer = test::buffer_of(arrived, 0);
  test::finish(pair, test::post_send(pair, message, 0), test::post_recv(pair, {&buffer, 1}),
               nullptr);
  EXPECT_EQ(arrived, message);
}

TEST(Abi, TheFirstWarningOfACallIsItsReason) {
  const test::ScopedEnv fault("TCP_FIXTURE_FAULT", "listen");
  std::vector<std::string> lines;
  const NetContext context =
      test::make_context(load_shared("tcp-v12"), [&](NetLogLevel level, std::string_view text) {
        if (level == NetLogLevel::kWarn) {
          lines.emplace_back(text);
        }
      });
  const auto listen = context.listen(0);
  ASSERT_TRUE(listen.has_error());
  EXPECT_THAT(listen.error().message(), HasSubstr("listen fails on purpose"));
  EXPECT_THAT(lines, testing::ElementsAre(HasSubstr("what follows from it")));
}

// ---- loader errors: one row per cause, with the expected message ----

struct LoaderError {
  const char* plugins;  // NCCL_NET_PLUGIN; a leading '!' stands for the fixtures' folder
  const char* fault;    // TCP_FIXTURE_FAULT
  const char* abi;      // PLEXUS_NET_ABI
  std::array<const char*, 3> says;  // all of it, in one sentence
};

const LoaderError kLoaderErrors[] = {
    {"absent", "", "", {"'absent' was not found", "libnccl-net-absent.so", "PLEXUS_PLUGIN_PATH"}},
    {"!libabsent.so", "", "", {"libabsent.so) cannot be used", "there is no such file", ""}},
    {"odd-needy",
     "",
     "",
     {"libnccl-net-odd-provider.so: cannot open shared object file", "install that library",
      "LD_LIBRARY_PATH"}},
    {"odd-unresolved", "", "", {"undefined symbol: odd_function", "built for another version", ""}},
    {"odd-no-plugin",
     "",
     "",
     {"neither plexus_plugin_query nor ncclNetPlugin_v6 to v12", "not a net plugin",
      "correct the name"}},
    {"odd-too-old",
     "",
     "",
     {"it has ncclNetPlugin_v5", "expected plexus_plugin_query or ncclNetPlugin_v6 to v12", ""}},
    {"odd-too-small", "", "", {"its ncclNetPlugin_v8 has 136 bytes", "expected 152", "rebuild it"}},
    {"odd-empty-table", "", "", {"ncclNetPlugin_v9", "no `init`", "bug in the plugin"}},
    {"tcp-v12",
     "devices",
     "",
     {"found no device on this host", "check its settings", "libnccl-net-tcp-v12.so"}},
    {"tcp-v12", "init", "", {"init fails on purpose", "net plugin TcpNew", ""}},
    {"tcp-v12,tcp-v11", "all", "", {"both provide the network TcpNew", "a=NAME,b=NAME", ""}},
    {"absent,odd-too-old,^socket", "all", "", {"'absent' was not found", "", ""}},
    {"tcp-v12", "properties", "", {"properties fail on purpose", "", ""}},
    {"tcp-v12", "limit", "", {"maxP2pBytes = 0", "expected 1..", ""}},
    {"tcp-v12", "offload", "", {"netDeviceType 1", "driven by a GPU", ""}},
    {"tcp-v12", "", "v8", {"it has no ncclNetPlugin_v8", "PLEXUS_NET_ABI=v8", "unset"}},
    {"tcp-v12", "", "native", {"it has no plexus_plugin_query", "PLEXUS_NET_ABI=native", ""}},
    {"tcp-v12", "", "v13", {"PLEXUS_NET_ABI=v13 is invalid", "v6 to v12", ""}},
    {"STATIC_PLUGIN",
     "",
     "",
     {"'STATIC_PLUGIN' (STATIC_PLUGIN) cannot be used", "neither plexus_plugin_query nor",
      "correct the name"}},
    {"static",
     "",
     "",
     {"'static' was not found", "libnccl-net-static.so", ""}},  // NCCL: the program
    {"tcp-v12?NCCL_DEBUG=INFO",
     "",
     "",
     {"does not support settings in NCCL_NET_PLUGIN", "remove what follows", ""}},
    {"a b=tcp-v12", "", "", {"LABEL=NAME needs a name", "", ""}},
    {"^socket,ib", "", "", {"excludes every net plugin", "remove an exclusion", ""}},
    {"tcp-v12,odd-no-plugin", "init", "", {"init fails on purpose", "", ""}},
};

class Loader : public testing::TestWithParam<LoaderError> {};

TEST_P(Loader, SaysInOneSentenceWhatFailedAndWhatToDo) {
  const LoaderError& row = GetParam();
  const std::string folder = vendor("x").parent_path().string();
  NetPluginOptions options;
  options.folders = folder;
  options.own_folder = folder;
  options.plugins = row.plugins;
  if (options.plugins.front() == '!') {
    options.plugins = folder + "/" + options.plugins.substr(1);
  }
  options.load.abi = row.abi;
  options.all = std::string_view(row.fault) == "all";  // NCCL_ALLNET_ENABLE, and no fault
  const test::ScopedEnv fault("TCP_FIXTURE_FAULT", row.fault);
  const auto opened = open_nets(options, {});
  ASSERT_TRUE(opened.has_error());
  for (const char* part : row.says) {
    EXPECT_THAT(opened.error().message(), HasSubstr(part));
  }
  EXPECT_THAT(opened.error().message(), Not(HasSubstr("\n")));
}

INSTANTIATE_TEST_SUITE_P(Table, Loader, testing::ValuesIn(kLoaderErrors));

TEST(Loader, ListGoesOnAfterAnInitThatFailsOrFindsNoDevice) {
  for (const char* fault : {"init", "devices"}) {
    const test::ScopedEnv env("TCP_FIXTURE_FAULT", fault);
    NetPluginOptions options;
    options.own_folder = vendor("x").parent_path();
    options.plugins = "tcp-v12,minimal";
    const auto opened = open_nets(options, {});
    ASSERT_TRUE(opened.has_value()) << opened.error().message();
    EXPECT_EQ(opened.value().front().name, "minimal");
  }
}

TEST(LoaderV11, FailedInitIsNotFinalizedAndFailedDevicesAre) {
  for (const char* fault : {"init", "properties", "limit"}) {
    const test::ScopedEnv env("TCP_FIXTURE_FAULT", fault);
    EXPECT_TRUE(NetContext::create(test::load_plugin(vendor("tcp-v11")), {}).has_error());
    EXPECT_EQ(counters("tcp-v11").contexts, 0) << fault;
  }
}

}  // namespace
}  // namespace plexus
