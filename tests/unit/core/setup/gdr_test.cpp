// SPDX-License-Identifier: Apache-2.0
// The choice of slots in GPU memory from facts about GPU and NIC.
#include "core/setup/gdr.hpp"

#include <gtest/gtest.h>

namespace plexus {
namespace {

constexpr uint32_t kHost = PLEXUS_MEMORY_HOST;
constexpr uint32_t kCuda = PLEXUS_MEMORY_CUDA;
constexpr uint32_t kDmabuf = PLEXUS_MEMORY_DMABUF;

GdrFacts near_facts() {
  return {.sending = GdrUse::kOn,
          .receiving = GdrUse::kOn,
          .pointer_support = kHost | kCuda | kDmabuf,
          .force_flush = false,
          .device_sm = 90};
}

TEST(GpuSlots, AreOfAllKindsThatTheNetworkTakesButTheHosts) {
  const GpuSlots slots = choose_gpu_slots(near_facts(), {});
  EXPECT_EQ(slots.send_kinds, kCuda | kDmabuf);
  EXPECT_EQ(slots.recv_kinds, kCuda | kDmabuf);
}

TEST(GpuSlots, FollowEachDirectionsDistance) {
  GdrFacts facts = near_facts();
  facts.sending = GdrUse::kOff;
  EXPECT_EQ(choose_gpu_slots(facts, {}).send_kinds, 0u);
  EXPECT_NE(choose_gpu_slots(facts, {}).recv_kinds, 0u);
  facts.receiving = GdrUse::kOff;
  EXPECT_EQ(choose_gpu_slots(facts, {}).recv_kinds, 0u);
}

TEST(GpuSlots, AreNotByDmabufWhenThatIsSwitchedOff) {
  Config config;
  config.dmabuf_enable = false;
  GdrFacts facts = near_facts();
  EXPECT_EQ(choose_gpu_slots(facts, config).recv_kinds, kCuda);
  facts.pointer_support = kHost | kDmabuf;
  EXPECT_EQ(choose_gpu_slots(facts, config).recv_kinds, 0u);
}

TEST(GpuSlots, AreNotWithANetworkOfHostMemory) {
  GdrFacts facts = near_facts();
  facts.pointer_support = kHost;
  EXPECT_EQ(choose_gpu_slots(facts, {}).send_kinds | choose_gpu_slots(facts, {}).recv_kinds, 0u);
}

TEST(GpuSlots, AreFlushedBeforeHopperWhenTheNicOrTheUserSaysSoAndBesideAC2cGpu) {
  EXPECT_FALSE(choose_gpu_slots(near_facts(), {}).flushes);
  GdrFacts ampere = near_facts();
  ampere.device_sm = 80;
  EXPECT_TRUE(choose_gpu_slots(ampere, {}).flushes);
  GdrFacts forced = near_facts();
  forced.force_flush = true;
  EXPECT_TRUE(choose_gpu_slots(forced, {}).flushes);
  GdrFacts c2c = near_facts();
  c2c.receiving = GdrUse::kPciMode;
  EXPECT_TRUE(choose_gpu_slots(c2c, {}).flushes);
  Config config;
  config.net_force_flush = true;
  EXPECT_TRUE(choose_gpu_slots(near_facts(), config).flushes);
}

}  // namespace
}  // namespace plexus
