// SPDX-License-Identifier: Apache-2.0
// What peers may map, where the user frees memory that is still registered. Ranks that really map
// are in tests/device.
#include "core/transport/memory/peer_mapped_memory.hpp"

#include <array>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/core/device/fake_runtime.hpp"

namespace plexus {
namespace {

class PeerMappedMemoryTest : public testing::Test {
 protected:
  void allocate(size_t first, size_t size_bytes, uint64_t id) {
    runtime_.allocation = Allocation{.base = &memory_[first], .size_bytes = size_bytes, .id = id};
    runtime_.exports = true;
  }

  std::array<std::byte, 64> memory_{};
  FakeRuntime runtime_;
  std::vector<std::unique_ptr<Exchange>> exchanges_ = make_local_exchanges(2);
  PeerMappedMemory mapped_{{.rank = 0,
                            .exchange = exchanges_[0].get(),
                            .runtime = &runtime_,
                            .device = 0,
                            .peers = {1}}};
};

TEST_F(PeerMappedMemoryTest, ForgetsMemoryThatWasFreedAndCannotBeMappedAnyMore) {
  allocate(16, 16, 1);
  mapped_.add(&memory_[16], 16);
  allocate(16, 16, 2);  // freed and allocated again
  runtime_.exports = false;
  mapped_.add(&memory_[16], 16);
  mapped_.remove(&memory_[16]);
  EXPECT_EQ(mapped_.map_for_peer(1, &memory_[16], 16, false).value(), kNotMapped);
}

}  // namespace
}  // namespace plexus
