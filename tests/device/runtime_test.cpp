// SPDX-License-Identifier: Apache-2.0
// The layer below CUDA ranks: the choice of a device, owners, and the order of the software device,
// on which all other tests here rely.
#include "core/device/choose_device.hpp"
#include "core/device/device_memory.hpp"
#include "tests/device/job.hpp"
#include "tests/support/software_device.hpp"

namespace plexus::testing_device {
namespace {

TEST(ChooseDevice, TakesTheCurrentOneOrTheNamedOne) {
  SoftwareDevice two({.devices = 2});
  SoftwareDevice::set_current(1);
  EXPECT_EQ(choose_device(&two, "auto", kHostDevice).value(), 1);
  EXPECT_EQ(choose_device(&two, "cuda", 0).value(), 0);
  EXPECT_EQ(choose_device(&two, "host", 0).value(), kHostDevice);
  EXPECT_EQ(choose_device(&two, "auto", 2).error().code(), Code::kInvalidArgument);
  SoftwareDevice::set_current(0);
}

TEST(ChooseDevice, WithoutCudaComputesOnTheHostUnlessAskedForMore) {
  EXPECT_EQ(choose_device(nullptr, "auto", kHostDevice).value(), kHostDevice);
  EXPECT_EQ(choose_device(nullptr, "auto", 3).value(), kHostDevice);
  const auto refused = choose_device(nullptr, "cuda", kHostDevice);
  ASSERT_TRUE(refused.has_error());
  EXPECT_EQ(refused.error().code(), Code::kInvalidUsage);
  EXPECT_THAT(refused.error().message(), testing::HasSubstr("set PLEXUS_DEVICE=host"));
}

/// The built-in runtime, on machines with and without a driver.
TEST(ChooseDevice, WorksWithWhatThisMachineHas) {
  EXPECT_TRUE(choose_device(cuda_runtime(), "auto", kHostDevice).has_value());
}

TEST(DeviceMemory, GoesBackWithItsOwner) {
  SoftwareDevice device({});
  {
    auto memory = allocate_device(device, 0, 100).value();
    auto pinned = allocate_pinned(device, 0, 100).value();
    std::vector<std::byte> mine(100);
    auto registered = register_host(device, 0, mine.data(), mine.size()).value();
    EXPECT_EQ(registered.get(), mine.data());
    auto event = make_event(device, 0).value();
    EXPECT_EQ(device.live(), 4);
    EXPECT_EQ(device.describe_pointer(memory.get() + 50).place, PointerFacts::Place::kDevice);
    EXPECT_EQ(device.describe_pointer(pinned.get()).place, PointerFacts::Place::kPinned);
    EXPECT_EQ(device.describe_pointer(&device).place, PointerFacts::Place::kPageable);
    EXPECT_TRUE(register_host(device, 0, mine.data(), mine.size()).has_error());
  }
  EXPECT_EQ(device.live(), 0);
}

TEST(SoftwareStream, EventsOrderStreamsAndHostFunctionsRunInOrder) {
  SoftwareDevice device({});
  const DeviceStream first = device.make_stream();
  const DeviceStream second = device.make_stream();
  auto event = make_event(device, 0).value();
  std::atomic<bool> released{false};
  std::vector<int> order;
  device.enqueue(first, [&] {
    released.wait(false);
    order.push_back(1);
  });
  ASSERT_TRUE(device.record(0, event.get(), first).has_value());
  ASSERT_TRUE(device.wait(0, second, event.get()).has_value());
  struct Note {
    std::vector<int>* order;
  } note{&order};
  ASSERT_TRUE(device
                  .call_host(
                      0, second,
                      [](void* argument) { static_cast<Note*>(argument)->order->push_back(2); },
                      &note)
                  .has_value());
  EXPECT_FALSE(SoftwareDevice::has_happened(event.get()));
  released = true;
  released.notify_all();
  device.synchronize(second);
  EXPECT_TRUE(SoftwareDevice::has_happened(event.get()));
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  device.destroy_stream(first);
  device.destroy_stream(second);
}

TEST(SoftwareStream, CapturesWhatItIsGivenAndReplaysIt) {
  SoftwareDevice device({});
  const DeviceStream stream = device.make_stream();
  int times = 0;
  device.begin_capture(stream);
  EXPECT_TRUE(device.capture(0, stream).value().active);
  device.enqueue(stream, [&] { ++times; });
  const auto graph = device.end_capture(stream);
  EXPECT_FALSE(device.capture(0, stream).value().active);
  EXPECT_EQ(times, 0);
  device.replay(graph, stream);
  device.replay(graph, stream);
  device.synchronize(stream);
  EXPECT_EQ(times, 2);
  device.destroy_stream(stream);
}

}  // namespace
}  // namespace plexus::testing_device
