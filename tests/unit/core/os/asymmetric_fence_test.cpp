// SPDX-License-Identifier: Apache-2.0
#include "core/os/asymmetric_fence.hpp"

#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

namespace plexus {
namespace {

constexpr int kLooks = 1000;

/// Rounds in which neither of two threads saw what the other had stored.
int count_missed(int rounds) {
  struct alignas(64) Word {
    std::atomic<int> value{0};
  };
  Word light;
  Word heavy;
  Word round;  // both sides are in it
  Word seen;   // what the light side saw
  Word done;
  std::thread frequent([&] {
    for (int number = 1; number <= rounds; ++number) {
      round.value.store(number, std::memory_order_release);
      light.value.store(number, std::memory_order_relaxed);
      light_fence();
      seen.value.store(heavy.value.load(std::memory_order_relaxed), std::memory_order_relaxed);
      done.value.store(number, std::memory_order_release);
      while (heavy.value.load(std::memory_order_acquire) != number + rounds) {
        std::this_thread::yield();
      }
    }
  });
  int missed = 0;
  for (int number = 1; number <= rounds; ++number) {
    // Seen at once where each side has a core. Where others need the cores, turns would take too
    // long.
    for (int looks = 0; round.value.load(std::memory_order_acquire) != number; ++looks) {
      if (looks >= kLooks) {
        std::this_thread::yield();
      }
    }
    heavy.value.store(number, std::memory_order_relaxed);
    heavy_fence();
    const int saw = light.value.load(std::memory_order_relaxed);
    while (done.value.load(std::memory_order_acquire) != number) {
      std::this_thread::yield();
    }
    const int other_saw = seen.value.load(std::memory_order_relaxed);
    missed += saw != number && other_saw != number ? 1 : 0;
    heavy.value.store(number + rounds, std::memory_order_release);  // on to the next round
  }
  frequent.join();
  return missed;
}

TEST(AsymmetricFence, OneSideSeesTheOther) { EXPECT_EQ(count_missed(20'000), 0); }

TEST(AsymmetricFence, WorksInAForkedChild) {
  const pid_t child = fork();
  if (child == 0) {
    _exit(count_missed(2'000) == 0 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace plexus
