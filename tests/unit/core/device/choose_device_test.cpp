// SPDX-License-Identifier: Apache-2.0
#include "core/device/choose_device.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

/// What makes CUDA unusable, and what the error must say about it.
struct Unusable {
  const char* name;
  void (*spoil)(FakeRuntime& runtime);
  const char* says;
};

class UnusableDevice : public testing::TestWithParam<Unusable> {};

TEST_P(UnusableDevice, GivesTheHostWithAutoAndAnErrorWithCuda) {
  FakeRuntime runtime;
  GetParam().spoil(runtime);
  EXPECT_EQ(choose_device(&runtime, "auto", kHostDevice).value(), kHostDevice);
  const auto refused = choose_device(&runtime, "cuda", kHostDevice);
  ASSERT_TRUE(refused.has_error());
  EXPECT_EQ(refused.error().code(), Code::kInvalidUsage);
  EXPECT_THAT(refused.error().message(), HasSubstr(GetParam().says));
  EXPECT_THAT(refused.error().message(), HasSubstr("PLEXUS_DEVICE=host"));
}

INSTANTIATE_TEST_SUITE_P(
    ChooseDevice,
    UnusableDevice,
    testing::Values(Unusable{"NoDriver", [](FakeRuntime& runtime) { runtime.has_driver = false; },
                             "no driver"},
                    Unusable{"NoGpu", [](FakeRuntime& runtime) { runtime.devices = 0; }, "no GPU"},
                    Unusable{"NoKernel", [](FakeRuntime& runtime) { runtime.runs_kernels = false; },
                             "does not run"}),
    [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace plexus
