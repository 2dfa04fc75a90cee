// SPDX-License-Identifier: Apache-2.0
// Tests that end in every way there is, for watched_test.py; its variables are of that test too.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <sys/types.h>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

namespace {

void hang() { std::this_thread::sleep_for(std::chrono::seconds(1000)); }

TEST(Some, Works) {}
TEST(Some, Fails) { EXPECT_TRUE(false) << "because of this"; }
TEST(Some, WorksAfterAFailure) {}
TEST(Some, Hangs) {
  const pid_t child = fork();
  if (child == 0) {
    hang();
  }
  std::printf("child %d\n", static_cast<int>(child));
  std::fflush(stdout);
  hang();
}
TEST(Some, Dies) { _exit(3); }
TEST(Some, Skips) { GTEST_SKIP() << "not here"; }
TEST(Some, WorksToo) {}

class Numbers : public testing::TestWithParam<int> {};
TEST_P(Numbers, AreNotTwo) { EXPECT_NE(GetParam(), 2); }
INSTANTIATE_TEST_SUITE_P(Few, Numbers, testing::Values(1, 2, 3));

int code_of(const char* variable) {
  const char* const value = std::getenv(variable);
  return value == nullptr ? 0 : std::atoi(value);
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const bool lists = testing::GTEST_FLAG(list_tests);
  if (lists && std::getenv("LIST_HANGS") != nullptr) {
    hang();
  }
  const int result = RUN_ALL_TESTS();
  if (const int code = code_of(lists ? "LIST_CODE" : "END_CODE"); code != 0) {
    return code;
  }
  return result;
}
