// SPDX-License-Identifier: Apache-2.0
// Libraries of NCCL's collnet ABI of every version, driven as the core drives them, and libraries
// that misbehave.
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/plugin/collnet_plugin.hpp"
#include "core/plugin/collnet_registry.hpp"

namespace plexus {
namespace {

using testing::HasSubstr;

std::string path_of(const std::string& name) {
  const char* const folder = std::getenv("PLEXUS_TEST_EXAMPLE_DIR");
  return std::string(folder == nullptr ? "build/dev/test-bin" : folder) + "/libnccl-net-" + name +
         ".so";
}

Result<std::shared_ptr<const CollnetPlugin>> find(const std::string& name) {
  return find_collnet_plugin(
      {.plugin = path_of(name), .net_plugins = {}, .folders = {}, .own_folder = {}});
}

/// A counter of the vendor's library.
int counter(const std::string& name, const char* which) {
  const auto library = Library::load(path_of(name));
  const auto* const value = static_cast<const int*>(library.value().find_object(which)->address);
  return __atomic_load_n(value, __ATOMIC_ACQUIRE);
}

template <class Step>
bool repeat(const Step& step) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!step()) {
    if (std::chrono::steady_clock::now() > until) {
      return false;
    }
    std::this_thread::yield();
  }
  return true;
}

/// A group of `count` members in this thread.
class Members {
 public:
  Members(const std::shared_ptr<const CollnetPlugin>& plugin, uint32_t count) {
    std::vector<CollnetListen> listens;
    std::vector<plexus_net_handle_t> handles;
    for (uint32_t i = 0; i < count; ++i) {
      contexts_.push_back(CollnetContext::create(plugin, 7).value());
      listens.push_back(contexts_.back().listen(i % 2).value());
      handles.push_back(listens.back().handle());
    }
    for (uint32_t i = 0; i < count; ++i) {
      groups_.push_back(std::make_unique<CollnetGroup>(std::move(listens[i]), handles, i));
    }
  }
  bool connect() {
    std::vector<bool> connected(groups_.size());
    return repeat([&] {
      bool all = true;
      for (size_t i = 0; i < groups_.size(); ++i) {
        connected[i] = connected[i] || groups_[i]->try_connect().value() == NetProgress::kDone;
        all = all && connected[i];
      }
      return all;
    });
  }
  std::vector<CollnetContext>& contexts() { return contexts_; }
  CollnetGroup& group(size_t i) { return *groups_[i]; }

 private:
  std::vector<CollnetContext> contexts_;
  std::vector<std::unique_ptr<CollnetGroup>> groups_;
};

class EveryVersion : public testing::TestWithParam<const char*> {};

TEST_P(EveryVersion, SumsOverItsMembersAndLeavesNothingOpen) {
  const std::string name = GetParam();
  constexpr uint32_t kMembers = 3;
  constexpr size_t kCount = 1000;
  {
    const auto plugin = find(name);
    ASSERT_TRUE(plugin.has_value()) << plugin.error().message();
    EXPECT_EQ(plugin.value()->name, "Summer");
    Members members(plugin.value(), kMembers);
    const auto devices = members.contexts()[0].devices();
    ASSERT_EQ(devices.size(), 2U);
    EXPECT_STREQ(devices[1].name, "sum1");
    EXPECT_EQ(devices[1].speed_mbit_per_s, 2000U);
    const bool says_size = name != "sum-v6" && name != "sum-v7" && name != "sum-v8";
    EXPECT_EQ(devices[0].message_bytes_max, says_size ? 12345678U : 1U << 29);
    EXPECT_TRUE(members.contexts()[0].supports(PLEXUS_TYPE_FLOAT32, PLEXUS_REDUCE_SUM).value());
    EXPECT_FALSE(members.contexts()[0].supports(PLEXUS_TYPE_INT8, PLEXUS_REDUCE_SUM).value());
    ASSERT_TRUE(members.connect());

    std::vector<std::vector<float>> values;
    std::vector<CollnetMemory> memory;
    std::vector<plexus_collnet_request_t*> requests(kMembers);
    for (uint32_t i = 0; i < kMembers; ++i) {
      values.emplace_back(kCount, static_cast<float>(i + 1));
      memory.push_back(members.group(i)
                           .register_memory({values[i].data(), kCount * sizeof(float), 0, -1,
                                             PLEXUS_MEMORY_HOST})
                           .value());
      ASSERT_EQ(
          members.group(i).iallreduce({values[i].data(), values[i].data(), kCount, memory[i].raw(),
                                       memory[i].raw(), PLEXUS_TYPE_FLOAT32, PLEXUS_REDUCE_SUM},
                                      &requests[i]),
          NetStatus::kOk);
      if (i == 0) {
        EXPECT_EQ(members.group(0).test(requests[0]), NetStatus::kAgain);
      }
    }
    for (uint32_t i = 0; i < kMembers; ++i) {
      EXPECT_EQ(members.group(i).test(requests[i]), NetStatus::kOk);
      EXPECT_EQ(values[i].front(), 6.0F);
      EXPECT_EQ(values[i].back(), 6.0F);
    }
    // The plugin's message about a bad call becomes the reason that the user reads.
    const auto status = members.group(0).iallreduce(
        {values[0].data(), values[0].data(), 1, memory[0].raw(), memory[0].raw(), 0, 0},
        &requests[0]);
    EXPECT_NE(status, NetStatus::kOk);
    EXPECT_THAT(members.group(0).explain("iallreduce", status).message(),
                HasSubstr("only registered floats are summed"));
  }
  EXPECT_EQ(counter(name, "vendor_open"), 0);
  const bool per_communicator = name == "sum-v11" || name == "sum-v12";
  EXPECT_EQ(counter(name, "vendor_inits"), per_communicator ? static_cast<int>(kMembers) : 1);
  EXPECT_EQ(counter(name, "vendor_finalizes"), per_communicator ? static_cast<int>(kMembers) : 0);
}

INSTANTIATE_TEST_SUITE_P(
    Abi,
    EveryVersion,
    testing::Values(
        "sum-v6", "sum-v7", "sum-v8", "sum-v9", "sum-v10", "sum-v11", "sum-v12", "sum-cross-dc"),
    [](const auto& row) {
      std::string name = row.param;
      std::erase(name, '-');
      return name;
    });

TEST(NcclCollnet, RefusesATableThatIsTooSmall) {
  const auto plugin = find("sum-small");
  ASSERT_TRUE(plugin.has_error());
  EXPECT_THAT(plugin.error().message(),
              HasSubstr("its ncclCollNetPlugin_v8 has 48 bytes, expected 136"));
}

TEST(NcclCollnet, RefusesATableWithoutAMandatoryEntry) {
  const auto plugin = find("sum-no-test");
  ASSERT_TRUE(plugin.has_value()) << plugin.error().message();
  const auto context = CollnetContext::create(plugin.value(), 1);
  ASSERT_TRUE(context.has_error());
  EXPECT_THAT(context.error().message(), HasSubstr("its table has no entry `test`"));
}

TEST(NcclCollnet, TellsWhyAConnectFailed) {
  Members members(find("sum-refuses").value(), 1);
  std::string why;
  ASSERT_TRUE(repeat([&] {
    const auto progress = members.group(0).try_connect();
    why = progress.has_error() ? progress.error().message() : "";
    return progress.has_error();
  }));
  EXPECT_THAT(why, HasSubstr("the switch s17 is full"));
}

/// The first member waits in connect until another one joins, which happens after it was given up.
TEST(NcclCollnet, AConnectThatDoesNotEndBlocksNobodyAndIsCleanedUp) {
  const auto plugin = find("sum-stuck").value();
  const auto context = CollnetContext::create(plugin, 1).value();
  auto first = context.listen(0).value();
  auto second = context.listen(0).value();
  const std::vector<plexus_net_handle_t> handles = {first.handle()};
  auto stuck = std::make_unique<CollnetGroup>(std::move(first), handles, 0);
  EXPECT_EQ(stuck->try_connect().value(), NetProgress::kPending);
  stuck.reset();  // at once
  CollnetGroup late(std::move(second), handles, 1);
  ASSERT_TRUE(repeat([&] { return late.try_connect().value() == NetProgress::kDone; }));
  // Only the late member's listen handle and group remain; the first member's thread closed its
  // own.
  EXPECT_TRUE(repeat([] { return counter("sum-stuck", "vendor_open") == 2; }));
}

TEST(NcclCollnet, ANetPluginWithoutOneHasNone) {
  const auto none = find_collnet_plugin(
      {.plugin = {}, .net_plugins = path_of("sum-no-test") + ",none", .folders = {}});
  ASSERT_TRUE(none.has_value()) << none.error().message();
  EXPECT_NE(none.value(), nullptr) << "a library of NCCL_NET_PLUGIN is looked into";
  const auto named =
      find_collnet_plugin({.plugin = "net-socket", .net_plugins = {}, .folders = {}});
  ASSERT_TRUE(named.has_error());
  EXPECT_THAT(named.error().message(), HasSubstr("collnet plugin"));
}

}  // namespace
}  // namespace plexus
