// SPDX-License-Identifier: Apache-2.0
// Plugins that break the contract: each is refused with its own message, without leaks.
#include <array>
#include <span>
#include <string>
#include <utility>
#include <vector>

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

std::filesystem::path broken(const std::string& name) {
  return test::built_file("PLEXUS_TEST_EXAMPLE_DIR",
                          ("libplexus-net-broken-" + name + ".so").c_str());
}

std::string load_error(const std::string& name) {
  const auto plugin = NetPlugin::load(broken(name));
  return plugin.has_error() ? plugin.error().message() : "loaded";
}

/// Loads the plugin, which must succeed, and returns the error of making a context. No context may
/// leak.
std::string context_error(const std::string& name) {
  const auto plugin = test::load_plugin(broken(name));
  const auto context = NetContext::create(plugin, {});
  const auto library = Library::load(broken(name));
  EXPECT_EQ(library.value().find_function<int()>("plexus_test_contexts")(), 0)
      << "init without finalize";
  return context.has_error() ? context.error().message() : "made";
}

struct Connection {
  NetContext context;
  NetListen listen;
  NetSend send;
  NetRecv recv;
};

Connection connect_broken(const std::string& name, std::string* log = nullptr) {
  NetContext context = test::make_context(test::load_plugin(broken(name)),
                                          [log](NetLogLevel, std::string_view text) {
                                            if (log != nullptr) {
                                              *log += text;
                                            }
                                          });
  NetListen listen = context.listen(0).value();
  NetSend send = context.connect(0, listen.handle());
  NetRecv recv = listen.accept();
  EXPECT_TRUE(test::meet(send, recv));
  return {std::move(context), std::move(listen), std::move(send), std::move(recv)};
}

/// Makes each call that starts something, which must fail, and returns why.
std::vector<std::pair<const char*, std::string>> start_all(Connection& all,
                                                           std::span<std::byte> bytes) {
  const NetBuffer buffer{bytes.data(), bytes.size(), nullptr, 0, 0};
  const NetPiece piece{bytes.data(), bytes.size()};
  const NetSource source{bytes.data(), bytes.size(), nullptr};
  NetRequest* request = nullptr;
  const auto why = [](const auto& end, NetStatus status) {
    EXPECT_EQ(status, NetStatus{PLEXUS_INTERNAL_ERROR});
    return end.explain("", status).message();
  };
  return {
      {"isend", why(all.send, all.send.isend(bytes, 0, nullptr, &request))},
      {"isend_pieces", why(all.send, all.send.isend_pieces({&piece, 1}, 0, &request))},
      {"isend_gathered", why(all.send, all.send.isend_gathered({&source, 1}, 0, &request))},
      {"irecv", why(all.recv, all.recv.irecv({&buffer, 1}, &request))},
      {"irecv_pieces", why(all.recv, all.recv.irecv_pieces({&piece, 1}, 0, &request))},
  };
}

TEST(PluginAbi, ShortTableIsRefused) {
  EXPECT_THAT(load_error("short-table"), AllOf(HasSubstr("64 bytes"), HasSubstr("expected 144")));
}
TEST(PluginAbi, WrongMajorIsRefusedWithFoundAndExpected) {
  EXPECT_THAT(load_error("wrong-major"), AllOf(HasSubstr("ABI 2.0"), HasSubstr("expected 1.x")));
}
TEST(PluginAbi, MissingEntryIsRefused) {
  EXPECT_THAT(
      load_error("no-symbol"),
      HasSubstr("neither plexus_plugin_query nor ncclNetPlugin_v6 to v12: it is not a net"));
}
TEST(PluginAbi, ThrowingQueryIsRefused) {
  EXPECT_THAT(load_error("throwing-query"), HasSubstr("threw an exception"));
}
TEST(PluginAbi, PluginThatRefusesTheHostIsRefused) {
  EXPECT_THAT(load_error("refusing-host"),
              HasSubstr("does not support this host (plugin ABI 1.8)"));
}
TEST(PluginAbi, ThrowingInitIsAnErrorWithItsText) {
  EXPECT_THAT(context_error("throwing-init"),
              AllOf(HasSubstr("net plugin broken"), HasSubstr("no luck today")));
}
TEST(PluginAbi, AnExceptionOfTheDataPathIsAnErrorThatNamesPluginAndEntry) {
  std::string log;
  const auto name = [](const char* entry) {
    return AllOf(HasSubstr("net plugin broken"), HasSubstr(entry),
                 HasSubstr("threw an exception (no data today)"));
  };
  {
    Connection all = connect_broken("throwing-data", &log);
    std::array<std::byte, 8> bytes{};
    const NetMemory memory =
        all.send.register_memory({bytes.data(), bytes.size(), 0, -1, 0}).value();
    const NetBuffer buffer{bytes.data(), bytes.size(), nullptr, 0, 0};
    NetRequest* request = nullptr;
    for (const auto& [entry, reason] : start_all(all, bytes)) {
      EXPECT_THAT(reason, name(entry));
    }
    EXPECT_THAT(all.send.explain("", all.send.test(nullptr, nullptr)).message(), name("test"));
    EXPECT_THAT(all.recv.explain("", all.recv.flush({&buffer, 1}, &request)).message(),
                name("flush"));
    EXPECT_THAT(all.recv.explain("", all.recv.test(nullptr, nullptr)).message(), name("test"));
    EXPECT_EQ(all.recv.test(nullptr, nullptr), NetStatus{PLEXUS_INTERNAL_ERROR});
  }
  for (const char* const entry : {"deregister", "close_send", "close_recv", "close_listen"}) {
    EXPECT_THAT(log, name(entry));
  }
}
TEST(PluginAbi, OkWithoutARequestIsAnErrorThatNamesPluginAndEntry) {
  Connection all = connect_broken("null-request");
  std::array<std::byte, 8> bytes{};
  for (const auto& [entry, reason] : start_all(all, bytes)) {
    EXPECT_THAT(reason, AllOf(HasSubstr("net plugin broken: "), HasSubstr(entry),
                              HasSubstr("returned PLEXUS_OK but no request")));
  }
}
TEST(PluginAbi, ContextIsFinalizedWhenPropertiesAreBad) {
  EXPECT_THAT(context_error("bad-properties"),
              AllOf(HasSubstr("device 0"), HasSubstr("device name")));
}
TEST(PluginAbi, ContextIsFinalizedWhenDevicesFail) {
  EXPECT_THAT(context_error("failing-devices"), HasSubstr("device_count failed with code 2"));
}
TEST(PluginAbi, OkWithoutAContextIsAnError) {
  EXPECT_THAT(context_error("null-context"), HasSubstr("but no handle"));
}
TEST(PluginAbi, UserReadsTheFileAndTheReasonInOneSentence) {
  NetPluginOptions options;
  const auto plugin = load_net_plugin(options, broken("wrong-major").string());
  ASSERT_TRUE(plugin.has_error());
  EXPECT_EQ(plugin.error().code(), Code::kInvalidUsage);
  EXPECT_THAT(plugin.error().message(),
              AllOf(HasSubstr("cannot be used"), HasSubstr("libplexus-net-broken-wrong-major.so"),
                    HasSubstr("expected 1.x")));
}

}  // namespace
}  // namespace plexus
