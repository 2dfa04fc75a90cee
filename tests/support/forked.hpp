// SPDX-License-Identifier: Apache-2.0
// Shared by tests of fork: a child that runs a function and reports success by its exit code in
// bounded time.
#pragma once

#include <cstdlib>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

// Skips a test whose children start threads, as communicators do, where that is not possible.
#ifdef __SANITIZE_THREAD__
#define NEEDS_THREADS_IN_CHILDREN() \
  GTEST_SKIP() << "ThreadSanitizer does not know threads of a child whose parent had threads"
#else
#define NEEDS_THREADS_IN_CHILDREN() static_cast<void>(0)
#endif

namespace plexus::testing_fork {

constexpr int kFailed = 1;
constexpr int kBoundSeconds = 20;

inline unsigned bound(int seconds) {
  const char* const factor = std::getenv("PLEXUS_TEST_TIME_FACTOR");
  return static_cast<unsigned>(seconds * (factor == nullptr ? 1 : std::atoi(factor)));
}

/// Forks. The child runs `body` and ends without exit handlers; it is killed after a time limit.
template <class Body>
pid_t start_child(const Body& body) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(bound(kBoundSeconds));
    body();
    _exit(testing::Test::HasFailure() ? kFailed : 0);
  }
  EXPECT_GT(pid, 0);
  return pid;
}

/// Waits for the child. -1: it was killed.
inline int exit_code_of(pid_t pid) {
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// Failed expectations in the child fail the test here.
template <class Body>
void run_in_child(const Body& body) {
  EXPECT_EQ(exit_code_of(start_child(body)), 0) << "the child failed (1) or hung (-1)";
}

}  // namespace plexus::testing_fork
