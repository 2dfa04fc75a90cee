// SPDX-License-Identifier: Apache-2.0
#include "guest/thread.hpp"

#include <array>
#include <stdexcept>

#include <gtest/gtest.h>

namespace plexus {
namespace {

/// A recursion that uses 1 KiB and more in each call.
int use_stack(int calls) {
  std::array<volatile char, 1024> used{};
  used[static_cast<size_t>(calls) % used.size()] = 1;
  return calls == 0 ? 0 : use_stack(calls - 1) + used[static_cast<size_t>(calls) % used.size()];
}

TEST(RunWithStack, HasTheStackThatWasAskedFor) {
  constexpr size_t kStackBytes = size_t{64} << 20;
  constexpr int kCalls = 32 * 1024;  // more than the 8 MiB that a program has
  int calls = 0;
  run_with_stack(kStackBytes, [&] { calls = use_stack(kCalls); });
  EXPECT_EQ(calls, kCalls);
}

TEST(RunWithStack, ThrowsWhatIsThrownThere) {
  EXPECT_THROW(run_with_stack(size_t{1} << 20, [] { throw std::runtime_error("no"); }),
               std::runtime_error);
}

TEST(RunWithStack, RunsHereWhereThereIsNoSuchStack) {
  bool has_run = false;
  run_with_stack(size_t{1} << 60, [&] { has_run = true; });
  EXPECT_TRUE(has_run);
}

}  // namespace
}  // namespace plexus
