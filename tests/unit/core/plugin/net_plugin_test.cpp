// SPDX-License-Identifier: Apache-2.0
// The C++ interface, used with the C99 example plugin, which is thereby tested as well.
#include "core/plugin/net_plugin.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/net_pair.hpp"

namespace plexus {
namespace {

using testing::HasSubstr;

class MinimalPlugin : public testing::Test {
 protected:
  std::shared_ptr<const NetPlugin> plugin_ =
      test::load_plugin(test::built_file("PLEXUS_TEST_EXAMPLE_DIR", "libplexus-net-minimal.so"));
  NetContext sender_ = test::make_context(plugin_);
  NetContext receiver_ = test::make_context(plugin_);
};

TEST_F(MinimalPlugin, ShowsItsDevice) {
  EXPECT_EQ(plugin_->descriptor().name, "minimal");
  ASSERT_EQ(sender_.device_count(), 1u);
  EXPECT_EQ(sender_.properties(0).name, "unix0");
  EXPECT_EQ(sender_.properties(0).speed_mbit_per_s, std::nullopt);
}

TEST_F(MinimalPlugin, MovesMessagesOfAllSizes) {
  test::NetPair pair = test::connect_pair(sender_, receiver_);
  for (const size_t size : {0u, 1u, 8u, 4096u, 65536u}) {
    const auto message = test::make_message(size, static_cast<unsigned>(size));
    EXPECT_EQ(test::send_one(pair, message, 65536, 3), message) << size;
  }
}

TEST_F(MinimalPlugin, KeepsOrderWithSeveralReceivesPosted) {
  test::NetPair pair = test::connect_pair(sender_, receiver_);
  std::vector<std::vector<std::byte>> arrived(8, std::vector<std::byte>(16));
  std::vector<NetRequest*> received;
  for (auto& data : arrived) {
    const NetBuffer buffer = test::buffer_of(data, 0);
    received.push_back(test::post_recv(pair, {&buffer, 1}));
  }
  const NetBuffer one_more = test::buffer_of(arrived[0], 0);
  NetRequest* refused = nullptr;
  EXPECT_EQ(pair.recv.irecv({&one_more, 1}, &refused), NetStatus::kAgain);
  for (unsigned i = 0; i < 8; ++i) {
    const auto message = test::make_message(16, i);
    uint64_t size = 0;
    test::finish(pair, test::post_send(pair, message, 0), received[i], &size);
    EXPECT_EQ(arrived[i], message);
  }
}

TEST_F(MinimalPlugin, ErrorCarriesThePluginsOwnSentence) {
  test::NetPair pair = test::connect_pair(sender_, receiver_);
  std::vector<std::byte> data(8);
  const NetBuffer buffer = test::buffer_of(data, 0);
  NetRequest* request = test::post_recv(pair, {&buffer, 1});
  { const NetSend gone = std::move(pair.send); }
  NetStatus status = NetStatus::kAgain;
  ASSERT_TRUE(test::poll_until(
      [&] { return (status = pair.recv.test(request, nullptr)) != NetStatus::kAgain; }));
  const Error error = pair.recv.explain("test", status);
  EXPECT_EQ(error.code(), Code::kRemoteError);
  EXPECT_EQ(error.message(), "net plugin minimal: the peer closed the connection");
  EXPECT_EQ(pair.recv.explain("test", status).message(),
            "net plugin minimal: test failed with code 6 and gave no reason");
}

TEST_F(MinimalPlugin, ConnectToNobodyFails) {
  NetSend send = sender_.connect(0, NetHandle{});
  const auto progress = send.try_connect();
  ASSERT_TRUE(progress.has_error());
  EXPECT_THAT(progress.error().message(), HasSubstr("no listener"));
}

TEST_F(MinimalPlugin, RegistersHostMemoryOnly) {
  test::NetPair pair = test::connect_pair(sender_, receiver_);
  std::vector<std::byte> data(64);
  plexus_net_region_t region{data.data(), data.size(), 0, -1, PLEXUS_MEMORY_HOST};
  const auto memory = pair.send.register_memory(region);
  ASSERT_TRUE(memory.has_value());
  EXPECT_EQ(memory.value().raw(), nullptr);
  region.kind = PLEXUS_MEMORY_CUDA;
  EXPECT_EQ(pair.recv.register_memory(region).error().code(), Code::kInvalidUsage);
}

TEST_F(MinimalPlugin, WithoutNetPathOneFabricIsNearAndOthersAreUnknown) {
  EXPECT_EQ(sender_.net_path(4, 4).value().level, 0u);
  EXPECT_EQ(sender_.net_path(4, 5).value().level, std::nullopt);
  EXPECT_TRUE(sender_.net_path(4, 5).value().connected);
}

}  // namespace
}  // namespace plexus
