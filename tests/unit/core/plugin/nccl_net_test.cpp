// SPDX-License-Identifier: Apache-2.0
// Every version of NCCL's net ABI through the adapter: libraries as vendors ship them, and the
// tables that net-socket exports for NCCL itself, so that both sides of each version are ours.
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/plugin/nccl_net/adapter.hpp"
#include "core/plugin/nccl_net/choose.hpp"
#include "tests/support/net_pair.hpp"

namespace plexus::nccl_net {
namespace {

using testing::HasSubstr;

Library load(const char* folder_variable, const std::string& name) {
  auto library = Library::load(test::built_file(folder_variable, name.c_str()));
  EXPECT_TRUE(library.has_value()) << library.error().message();
  return std::move(library).value();
}

Library load_vendor(const std::string& version) {
  return load("PLEXUS_TEST_EXAMPLE_DIR", "libnccl-net-tcp-" + version + ".so");
}

/// Sends messages between two contexts of the choice, also an empty one.
void exchange(const Library& library, Choice choice, uint32_t requests_max) {
  auto adapted = adapt(library, std::move(choice));
  ASSERT_TRUE(adapted.has_value()) << adapted.error().message();
  const NetContext sender = test::make_context(adapted.value());
  const NetContext receiver = test::make_context(adapted.value());
  EXPECT_EQ(sender.properties(0).requests_max, requests_max);
  EXPECT_GT(sender.properties(0).message_bytes_max, 0U);
  EXPECT_EQ(sender.properties(0).recvs_max, receiver.properties(0).recvs_max);
  test::NetPair pair = test::connect_pair(sender, receiver);
  for (const size_t size : {size_t{0}, size_t{1}, size_t{100'000}}) {
    const auto message = test::make_message(size, static_cast<unsigned>(size));
    std::vector<std::byte> arrived(size + 8);
    const NetBuffer buffer = test::buffer_of(arrived, 3);
    NetRequest* received = nullptr;  // a vendor's may say "call again"
    EXPECT_TRUE(test::poll_until([&] {
      return pair.recv.irecv({&buffer, 1}, &received) != NetStatus::kAgain;
    }));
    NetRequest* const sent = test::post_send(pair, message, 3);
    uint64_t got = ~uint64_t{0};
    test::finish(pair, sent, received, &got);
    ASSERT_EQ(got, size);
    arrived.resize(size);
    EXPECT_TRUE(arrived == message) << size;
  }
}

class NcclNetVersions : public testing::TestWithParam<int> {
 protected:
  [[nodiscard]] std::string entry() const { return fmt::format("ncclNetPlugin_v{}", GetParam()); }
  [[nodiscard]] uint32_t requests_max() const { return GetParam() == 6 ? 8 : 32; }
  void check(const Choice& choice) const {
    EXPECT_EQ(choice.entry, entry());
    EXPECT_EQ(choice.net->find_missing_entry(), nullptr);
    EXPECT_EQ(choice.net->is_per_communicator(), GetParam() >= 11);
    EXPECT_EQ(choice.net->requests_max(), requests_max());
    EXPECT_EQ(choice.net->region_bytes_max(), GetParam() < 8 ? uint64_t{INT32_MAX} : UINT64_MAX);
    EXPECT_FALSE(choice.net->has_net_path());
  }
  test::ScopedEnv only_lo_{"NCCL_SOCKET_IFNAME", "=lo"};
};

TEST_P(NcclNetVersions, OfVendorsCarryMessages) {
  const Library library = load_vendor(fmt::format("v{}", GetParam()));
  auto choice = choose_net(library, 0, V11Layout::kBySize);
  ASSERT_TRUE(choice.has_value()) << choice.error().message();
  check(choice.value());
  exchange(library, std::move(choice).value(), requests_max());
}

TEST_P(NcclNetVersions, OfOurOwnPluginCarryMessages) {
  const Library library = load("PLEXUS_TEST_LIB_DIR", "libplexus-net-socket.so");
  auto choice = choose_net(library, GetParam(), V11Layout::kBySize);
  ASSERT_TRUE(choice.has_value()) << choice.error().message();
  check(choice.value());
  EXPECT_STREQ(choice.value().net->name(), "Socket");
  exchange(library, std::move(choice).value(), requests_max());
}

INSTANTIATE_TEST_SUITE_P(All,
                         NcclNetVersions,
                         testing::Range(kVersionLeast, kVersionMost + 1),
                         [](const auto& version) { return fmt::format("V{}", version.param); });

TEST(NcclNetChoice, OfTwoAbisWithOneNumberTheSizeOrTheUserTells) {
  const Library library = load_vendor("cross-dc");
  for (const V11Layout layout : {V11Layout::kBySize, V11Layout::kCrossDc}) {
    const auto choice = choose_net(library, 0, layout);
    ASSERT_TRUE(choice.has_value()) << choice.error().message();
    EXPECT_EQ(choice.value().entry, "ncclNetPlugin_v11 (cross-dc)");
    EXPECT_FALSE(choice.value().net->is_per_communicator());
    EXPECT_TRUE(choice.value().net->has_net_path());
  }
  exchange(library, std::move(choose_net(library, 0, V11Layout::kBySize)).value(), 32);
  EXPECT_TRUE(choose_net(library, 0, V11Layout::kMainline).has_error()) << "it is too small";
}

TEST(NcclNetChoice, AVersionThatIsNotThereIsNamed) {
  const Library library = load_vendor("v8");
  EXPECT_TRUE(choose_net(library, 8, V11Layout::kBySize).has_value());
  const auto other = choose_net(library, 9, V11Layout::kBySize);
  ASSERT_TRUE(other.has_error());
  EXPECT_THAT(other.error().message(), HasSubstr("no ncclNetPlugin_v9"));
}

}  // namespace
}  // namespace plexus::nccl_net
