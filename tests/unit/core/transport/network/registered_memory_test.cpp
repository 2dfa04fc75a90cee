// SPDX-License-Identifier: Apache-2.0
#include "core/transport/network/registered_memory.hpp"

#include <array>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/net_pair.hpp"

namespace plexus {
namespace {

/// A connection over a plugin that registers memory.
class RegisteredMemoryTest : public testing::Test {
 protected:
  RegisteredMemory::Held find(const std::byte* address, size_t size_bytes, int owner = 0) {
    return memory.find(&owners[static_cast<size_t>(owner)], address, size_bytes,
                       [this](const plexus_net_region_t& region) -> Result<NetMemory> {
                         regions.push_back(region);
                         if (refuses) {
                           return fail(Code::kSystemError, "not today");
                         }
                         return pair.send.register_memory(region);
                       });
  }

  std::shared_ptr<const NetPlugin> plugin =
      test::load_plugin(test::built_file("PLEXUS_TEST_EXAMPLE_DIR", "libplexus-net-gathering.so"));
  NetContext sender = test::make_context(plugin);
  NetContext receiver = test::make_context(plugin);
  test::NetPair pair = test::connect_pair(sender, receiver);
  UserMemory allocated;
  RegisteredMemory memory{&allocated};
  std::array<char, 2> owners{};
  std::vector<plexus_net_region_t> regions;  // that the network was asked to register
  bool refuses = false;
  std::array<std::byte, 1000> bytes{};
};

TEST_F(RegisteredMemoryTest, RegistersARangeOncePerConnectionWhenItIsNeeded) {
  memory.add(bytes.data(), 500);
  EXPECT_TRUE(regions.empty());
  EXPECT_NE(find(bytes.data(), 500), nullptr);
  EXPECT_EQ(find(bytes.data() + 499, 1), find(bytes.data(), 1));
  ASSERT_EQ(regions.size(), 1U);
  EXPECT_EQ(regions[0].data, bytes.data());
  EXPECT_EQ(regions[0].size_bytes, 500U);
  EXPECT_NE(find(bytes.data(), 1, 1), nullptr);
  EXPECT_EQ(regions.size(), 2U);
}

TEST_F(RegisteredMemoryTest, HasNothingOfWhatIsNotWhollyInARange) {
  memory.add(bytes.data() + 100, 500);
  EXPECT_EQ(find(bytes.data() + 99, 1), nullptr);
  EXPECT_EQ(find(bytes.data() + 99, 2), nullptr);
  EXPECT_EQ(find(bytes.data() + 100, 501), nullptr);
  EXPECT_EQ(find(bytes.data() + 599, 2), nullptr);
  EXPECT_EQ(find(bytes.data() + 600, 1), nullptr);
  EXPECT_TRUE(regions.empty());
}

TEST_F(RegisteredMemoryTest, AfterTheRangeTheRegistrationLastsAsLongAsItIsHeld) {
  memory.add(bytes.data(), 500);
  auto held = find(bytes.data(), 1);
  const std::weak_ptr<NetMemory> watched = held;
  memory.remove(bytes.data());
  EXPECT_EQ(find(bytes.data(), 1), nullptr);
  EXPECT_FALSE(watched.expired());
  held.reset();
  EXPECT_TRUE(watched.expired());
}

TEST_F(RegisteredMemoryTest, WhatNobodyHoldsEndsWithTheRangeOrWithItsConnection) {
  memory.add(bytes.data(), 500);
  const std::weak_ptr<NetMemory> first = find(bytes.data(), 1, 0);
  const std::weak_ptr<NetMemory> second = find(bytes.data(), 1, 1);
  memory.forget(&owners[0]);
  EXPECT_TRUE(first.expired());
  EXPECT_FALSE(second.expired());
  memory.remove(bytes.data());
  EXPECT_TRUE(second.expired());
}

TEST_F(RegisteredMemoryTest, ARangeThatIsRegisteredAnewIsSoWithTheNetworkToo) {
  for (size_t times = 1; times <= 2; ++times) {
    memory.add(bytes.data(), 500);
    EXPECT_NE(find(bytes.data(), 1), nullptr);
    memory.remove(bytes.data());
    EXPECT_EQ(regions.size(), times);
  }
}

TEST_F(RegisteredMemoryTest, ALargerRangeAtTheSameAddressCounts) {
  memory.add(bytes.data(), 500);
  EXPECT_EQ(find(bytes.data(), 1000), nullptr);
  memory.add(bytes.data(), 1000);
  EXPECT_NE(find(bytes.data(), 1000), nullptr);
  memory.remove(bytes.data());
  EXPECT_EQ(find(bytes.data(), 1), nullptr);
}

TEST_F(RegisteredMemoryTest, WhatTheNetworkRefusesIsNotTriedAgain) {
  refuses = true;
  memory.add(bytes.data(), 500);
  EXPECT_EQ(find(bytes.data(), 1), nullptr);
  EXPECT_EQ(find(bytes.data(), 1), nullptr);
  EXPECT_EQ(regions.size(), 1U);
}

TEST_F(RegisteredMemoryTest, MemoryFromNcclMemAllocNeedsNoRegistration) {
  auto* const user = static_cast<std::byte*>(allocated.allocate(5000).value());
  EXPECT_NE(find(user + 4000, 1000), nullptr);
  EXPECT_NE(find(user, 1), nullptr);
  ASSERT_EQ(regions.size(), 1U);
  EXPECT_EQ(regions[0].data, user);
  EXPECT_GE(regions[0].size_bytes, 5000U);
  memory.remove(user);  // before it is freed
  ASSERT_TRUE(allocated.release(user).has_value());
  EXPECT_EQ(find(user, 1), nullptr);
}

}  // namespace
}  // namespace plexus
