// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/perf/rank_process.hpp"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

namespace plexus::perf {
namespace {

template <class Life>
pid_t start(Life life) {
  const pid_t pid = fork();
  if (pid == 0) {
    life();
    _exit(0);
  }
  return pid;
}

void wait_forever() {
  while (true) {
    pause();
  }
}

void wait_end(RankProcess& process) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!process.end() && std::chrono::steady_clock::now() < deadline) {
    process.poll();
    std::this_thread::yield();
  }
}

TEST(RankProcess, KnowsHowItEnded) {
  RankProcess process(start([] { _exit(3); }));
  wait_end(process);
  ASSERT_TRUE(process.end());
  EXPECT_FALSE(process.end()->succeeded());
  EXPECT_EQ(describe(*process.end()), "ended with exit code 3");
}

TEST(RankProcess, KnowsASignal) {
  RankProcess process(start([] { raise(SIGKILL); }));
  wait_end(process);
  ASSERT_TRUE(process.end());
  EXPECT_EQ(describe(*process.end()), "was killed by signal 9 (Killed)");
}

TEST(RankProcess, IsEndedAndReapedByItsOwner) {
  pid_t pid = 0;
  {
    const RankProcess process(pid = start(wait_forever));
    EXPECT_EQ(kill(pid, 0), 0);
  }
  EXPECT_EQ(kill(pid, 0), -1);
  EXPECT_EQ(errno, ESRCH);
}

TEST(RankProcess, LivesOnWhenReleased) {
  const pid_t pid = start(wait_forever);
  {
    RankProcess process(pid);
    process.release();
  }
  EXPECT_EQ(kill(pid, SIGKILL), 0);
  EXPECT_EQ(waitpid(pid, nullptr, 0), pid);
}

}  // namespace
}  // namespace plexus::perf
