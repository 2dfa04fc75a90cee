// SPDX-License-Identifier: Apache-2.0
#include "core/device/device_memory.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/core/device/fake_runtime.hpp"

namespace plexus {
namespace {

using testing::ElementsAre;

TEST(DeviceMemory, EachKindIsReleasedByItsOwnFunctionOnItsDevice) {
  FakeRuntime runtime;
  std::byte mine{};
  allocate_device(runtime, 0, 8).value().reset();
  allocate_lasting(runtime, 1, 8).value().reset();
  allocate_pinned(runtime, 2, 8).value().reset();
  register_host(runtime, 3, &mine, 1).value().reset();
  import_memory(runtime, 4, {}).value().reset();
  make_event(runtime, 5).value().reset();
  allocate_piece(runtime, 6, 8).value().reset();
  import_pieces(runtime, 7, {}).value().reset();
  EXPECT_THAT(runtime.released,
              ElementsAre("release 0", "release 1", "release_pinned 2", "unregister_host 3",
                          "close_imported 4", "destroy_event 5", "release 6", "close_imported 7"));
}

TEST(DeviceMemory, RegisteredMemoryIsUnregisteredAtItsHostAddress) {
  FakeRuntime runtime;
  std::array<std::byte, 2> mine{};
  {
    const auto registered = register_host(runtime, 0, mine.data(), 1);
    EXPECT_EQ(registered.value().get(), mine.data() + 1) << "the address on the device";
    EXPECT_TRUE(runtime.released.empty());
  }
  EXPECT_THAT(runtime.addresses, ElementsAre(mine.data()));
}

TEST(DeviceMemory, AFailedAllocationReleasesNothing) {
  FakeRuntime runtime;
  runtime.allocates = false;
  EXPECT_EQ(allocate_device(runtime, 0, 8).error().code(), Code::kUnhandledCudaError);
  EXPECT_TRUE(allocate_pinned(runtime, 0, 8).has_error());
  EXPECT_TRUE(make_event(runtime, 0).has_error());
  EXPECT_TRUE(runtime.released.empty());
}

TEST(DeviceMemory, MovingTheOwnerReleasesOnce) {
  FakeRuntime runtime;
  DeviceMemory first = allocate_device(runtime, 0, 8).value();
  DeviceMemory second = std::move(first);
  first.reset();
  EXPECT_TRUE(runtime.released.empty());
  second.reset();
  EXPECT_EQ(runtime.released.size(), 1U);
}

}  // namespace
}  // namespace plexus
