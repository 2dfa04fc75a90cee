// SPDX-License-Identifier: Apache-2.0
#include "core/device/choose_device.hpp"

#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/device/host_pointers.hpp"
#include "tests/unit/core/device/fake_runtime.hpp"

namespace plexus {
namespace {

using testing::HasSubstr;

TEST(ChooseDevice, AutoTakesTheCurrentDeviceOfTheThread) {
  FakeRuntime runtime;
  runtime.current_device = 1;
  EXPECT_EQ(choose_device(&runtime, "auto", kHostDevice).value(), 1);
}

TEST(ChooseDevice, ANamedDeviceWinsOverTheCurrentOne) {
  FakeRuntime runtime;
  runtime.current_device = 1;
  EXPECT_EQ(choose_device(&runtime, "auto", 0).value(), 0);
}

TEST(ChooseDevice, HostNeedsNoDevice) {
  FakeRuntime runtime;
  EXPECT_EQ(choose_device(&runtime, "host", 1).value(), kHostDevice);
  EXPECT_EQ(choose_device(nullptr, "host", 1).value(), kHostDevice);
}

TEST(ChooseDevice, ADeviceThatIsNotThereIsAnErrorAlsoWithAuto) {
  FakeRuntime runtime;
  for (const char* const setting : {"auto", "cuda"}) {
    const auto refused = choose_device(&runtime, setting, 2);
    ASSERT_TRUE(refused.has_error()) << setting;
    EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(refused.error().message(), HasSubstr("no device 2"));
  }
}

/// Why ranks cannot compute on a device, and what the error must say about it.
struct Unusable {
  const char* name;
  void (*spoil)(FakeRuntime& runtime);
  const char* says;
  bool is_absent;
};

class UnusableDevice : public testing::TestWithParam<Unusable> {};

/// A program on a machine with a GPU may pass memory of it: then `auto` is not the host.
TEST_P(UnusableDevice, IsAnErrorButForAutoWhereThereIsNone) {
  FakeRuntime runtime;
  GetParam().spoil(runtime);
  EXPECT_EQ(choose_device(&runtime, "host", kHostDevice).value(), kHostDevice);
  for (const char* const setting : {"auto", "cuda"}) {
    const auto chosen = choose_device(&runtime, setting, kHostDevice);
    if (GetParam().is_absent && setting == std::string_view("auto")) {
      EXPECT_EQ(chosen.value(), kHostDevice);
      continue;
    }
    ASSERT_TRUE(chosen.has_error()) << setting;
    EXPECT_EQ(chosen.error().code(), Code::kInvalidUsage);
    EXPECT_THAT(chosen.error().message(), HasSubstr(GetParam().says));
    EXPECT_THAT(chosen.error().message(), HasSubstr("PLEXUS_DEVICE=host"));
  }
}

INSTANTIATE_TEST_SUITE_P(
    ChooseDevice,
    UnusableDevice,
    testing::Values(
        Unusable{"NoDriver", [](FakeRuntime& runtime) { runtime.is_driver_there = false; },
                 "no driver", true},
        Unusable{"NoGpu", [](FakeRuntime& runtime) { runtime.devices = 0; }, "no GPU", true},
        Unusable{"OldDriver", [](FakeRuntime& runtime) { runtime.is_driver_new = false; },
                 "too old", false},
        Unusable{"NoKernel", [](FakeRuntime& runtime) { runtime.runs_kernels = false; },
                 "does not run", false}),
    [](const auto& param) { return std::string(param.param.name); });

TEST(HostPointers, NoticesMemoryOfADeviceAndRemembersThatOfTheHost) {
  FakeRuntime runtime;
  int host[3] = {};
  runtime.on_device = &host[1];
  HostPointers pointers;
  EXPECT_TRUE(pointers.may_read(&host[1])) << "nobody is asked";
  pointers.ask(&runtime);
  EXPECT_TRUE(pointers.may_read(&host[0]));
  EXPECT_TRUE(pointers.may_read(&host[0]));
  EXPECT_EQ(runtime.npointers, 1);
  EXPECT_FALSE(pointers.may_read(&host[1]));
  EXPECT_FALSE(pointers.may_read(&host[1]));
  runtime.is_driver_there = false;
  pointers.ask(&runtime);
  EXPECT_TRUE(pointers.may_read(&host[1]));
}

}  // namespace
}  // namespace plexus
