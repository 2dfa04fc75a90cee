// SPDX-License-Identifier: Apache-2.0
// NCCL_NET_PLUGIN=STATIC_PLUGIN: the fixture tcp_v8.c is linked into this program, which exports
// its table; the plugin is found there and moves a message.
#include <gtest/gtest.h>

#include "core/plugin/registry.hpp"
#include "tests/support/net_pair.hpp"

namespace plexus {
namespace {

TEST(StaticPlugin, IsFoundInTheProgramAndServes) {
  NetPluginCache cache;
  NetPluginOptions options;
  options.plugins = "STATIC_PLUGIN";
  options.cache = &cache;
  const auto opened = open_net(options, {});
  ASSERT_TRUE(opened.has_value()) << opened.error().message();
  const NetContext& context = opened.value();
  EXPECT_EQ(context.plugin().descriptor().entry, "ncclNetPlugin_v8");
  EXPECT_EQ(context.plugin().path(), "STATIC_PLUGIN");
  test::NetPair pair = test::connect_pair(context, context);
  const auto message = test::make_message(1000, 1);
  std::vector<std::byte> arrived(1000);
  const NetBuffer buffer = test::buffer_of(arrived, 0);
  NetRequest* received = nullptr;
  ASSERT_TRUE(test::poll_until([&] {
    return pair.recv.irecv({&buffer, 1}, &received) == NetStatus::kOk;
  }));
  uint64_t size = 0;
  test::finish(pair, test::post_send(pair, message, 0), received, &size);
  EXPECT_EQ(size, 1000u);
  EXPECT_EQ(arrived, message);
}

}  // namespace
}  // namespace plexus
