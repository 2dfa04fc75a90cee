// SPDX-License-Identifier: Apache-2.0
#include "core/comm/registrations.hpp"

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
  void* const window = registrations.add_window(&buffer, sizeof(buffer));
  void* const other = registrations.add_window(&buffer, sizeof(buffer));
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
  void* const window = registrations.add_window(&buffer, sizeof(buffer));
  EXPECT_TRUE(registrations.remove_buffer(window).has_error());
  void* const handle = registrations.add_buffer(&buffer, sizeof(buffer));
  EXPECT_TRUE(registrations.remove_window(handle).has_error());
}

}  // namespace
}  // namespace plexus
