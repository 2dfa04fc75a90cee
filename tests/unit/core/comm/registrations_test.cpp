// SPDX-License-Identifier: Apache-2.0
#include "core/comm/registrations.hpp"

#include <array>
#include <limits>

#include <gtest/gtest.h>

namespace plexus {
namespace {

TEST(Registrations, ABufferIsRegisteredAsOftenAsItWasAdded) {
  Registrations registrations;
  int buffer = 0;
  void* const first = registrations.add_buffer(&buffer, sizeof(buffer));
  void* const second = registrations.add_buffer(&buffer, sizeof(buffer));
  EXPECT_TRUE(registrations.remove_buffer(first).has_value());
  EXPECT_TRUE(registrations.remove_buffer(second).has_value());
  const auto refused = registrations.remove_buffer(second);
  ASSERT_TRUE(refused.has_error());
  EXPECT_EQ(refused.error().code(), Code::kInvalidUsage);
}

TEST(Registrations, AWindowKnowsItsBufferUntilItIsRemoved) {
  Registrations registrations;
  int buffer = 0;
  void* const window = registrations.add_window({&buffer, sizeof(buffer), false, 0});
  void* const other = registrations.add_window({&buffer, sizeof(buffer), true, 0});
  EXPECT_NE(window, other);
  const auto found = registrations.window_buffer(window);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found.value(), &buffer);
  EXPECT_TRUE(registrations.remove_window(window).has_value());
  EXPECT_TRUE(registrations.window_buffer(other).has_value());
  const auto refused = registrations.remove_window(window);
  ASSERT_TRUE(refused.has_error());
  EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
}

TEST(Registrations, HandlesOfBuffersAndWindowsAreNotMixedUp) {
  Registrations registrations;
  int buffer = 0;
  void* const window = registrations.add_window({&buffer, sizeof(buffer), false, 0});
  EXPECT_TRUE(registrations.remove_buffer(window).has_error());
  void* const handle = registrations.add_buffer(&buffer, sizeof(buffer));
  EXPECT_TRUE(registrations.remove_window(handle).has_error());
}

TEST(Registrations, ACallIsInWindowsWhereAllRanksKnowThatItIs) {
  const UserMemory allocated;
  RegisteredMemory memory(&allocated);
  Registrations registrations(nullptr, &memory);
  std::array<int, 8> buffer{};
  const CallShape all{.collective = Collective::kAllReduce};
  const auto is_in = [&](const CallShape& shape) {
    return registrations.has_in_windows(shape, &buffer[0], &buffer[4]);
  };
  void* const local = registrations.add_window({&buffer, sizeof(buffer), false, 0});
  EXPECT_FALSE(registrations.has_symmetric_windows());
  EXPECT_FALSE(is_in(all));

  void* const half = registrations.add_window({&buffer, sizeof(buffer) / 2, true, 0});
  EXPECT_TRUE(registrations.has_symmetric_windows());
  EXPECT_FALSE(is_in(all));
  void* const whole = registrations.add_window({&buffer, sizeof(buffer), true, 0});
  EXPECT_TRUE(is_in(all));
  EXPECT_FALSE(is_in({.collective = Collective::kBroadcast}));  // a rank needs one buffer only
  EXPECT_FALSE(is_in({.collective = Collective::kSend}));

  for (void* const window : {local, half, whole}) {
    EXPECT_TRUE(registrations.remove_window(window).has_value());
  }
  EXPECT_FALSE(is_in(all));
  EXPECT_FALSE(registrations.has_symmetric_windows());
}

TEST(Registrations, ARangeIsInASymmetricWindowWhenAllOfItIs) {
  Registrations registrations;
  std::array<int, 8> buffer{};
  void* const local = registrations.add_window({&buffer, sizeof(buffer), false, 1});
  EXPECT_FALSE(registrations.has_symmetric(&buffer, sizeof(int)));
  void* const window = registrations.add_window({&buffer, sizeof(buffer), true, 2});
  EXPECT_TRUE(registrations.has_symmetric(&buffer, sizeof(buffer)));
  EXPECT_TRUE(registrations.has_symmetric(&buffer[7], sizeof(int)));
  EXPECT_TRUE(registrations.has_symmetric(buffer.data() + buffer.size(), 0));
  EXPECT_FALSE(registrations.has_symmetric(&buffer[7], sizeof(int) + 1));
  EXPECT_FALSE(registrations.has_symmetric(&buffer, std::numeric_limits<size_t>::max()));
  EXPECT_FALSE(registrations.has_symmetric(nullptr, 1));
  EXPECT_EQ(registrations.window_number(local).value(), 1U);
  EXPECT_EQ(registrations.window_number(window).value(), 2U);
  EXPECT_TRUE(registrations.window_number(&buffer).has_error());
}

TEST(Registrations, NoCallIsInWindowsWhereMemoryIsNotRegistered) {
  Registrations registrations;
  int buffer = 0;
  registrations.add_window({&buffer, sizeof(buffer), true, 0});
  EXPECT_FALSE(
      registrations.has_in_windows({.collective = Collective::kAllReduce}, &buffer, &buffer));
}

}  // namespace
}  // namespace plexus
