// SPDX-License-Identifier: Apache-2.0
// NCCL_DEBUG, NCCL_DEBUG_SUBSYS and NCCL_DEBUG_FILE, the layout of lines, and the last error.
#include "core/base/log.hpp"

#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <sys/socket.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/forked.hpp"

namespace plexus {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

/// The log goes to a file of the test.
class LogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    pattern_ = (std::filesystem::temp_directory_path() / "plexus_log_%h_%p").string();
    set("WARN", nullptr);
  }
  void TearDown() override {
    unsetenv("NCCL_DEBUG");
    unsetenv("NCCL_DEBUG_SUBSYS");
    unsetenv("NCCL_DEBUG_FILE");
    reset_log();
    std::filesystem::remove(path());
  }

  void set(const char* level, const char* subsystems) const {
    setenv("NCCL_DEBUG", level, 1);
    setenv("NCCL_DEBUG_FILE", pattern_.c_str(), 1);
    subsystems == nullptr ? unsetenv("NCCL_DEBUG_SUBSYS")
                          : setenv("NCCL_DEBUG_SUBSYS", subsystems, 1);
    reset_log();
  }
  static std::filesystem::path path() {
    for (const auto& entry :
         std::filesystem::directory_iterator(std::filesystem::temp_directory_path())) {
      const std::string name = entry.path().filename();
      if (name.starts_with("plexus_log_") && name.ends_with("_" + std::to_string(getpid()))) {
        return entry.path();
      }
    }
    return "none";
  }
  static std::string text() {
    std::stringstream all;
    all << std::ifstream(path()).rdbuf();
    return all.str();
  }

  std::string pattern_;
};

TEST_F(LogTest, WritesWarningsAsNcclDoes) {
  PLEXUS_WARN("disk {} is full", 7);
  EXPECT_THAT(
      text(),
      ContainsRegex(
          R"(\[[0-9-]+ [0-9:]+\] [^ ]+:[0-9]+:[0-9]+ \[host\] log_test.cpp:[0-9]+ NCCL WARN )"
          "disk 7 is full\n"));
}

TEST_F(LogTest, PutsFractionsOfASecondWhereNcclDoes) {
  setenv("NCCL_DEBUG_TIMESTAMP_FORMAT", "<%S.%6f,%1f,%f%%3f> ", 1);
  PLEXUS_WARN("now");
  unsetenv("NCCL_DEBUG_TIMESTAMP_FORMAT");
  EXPECT_THAT(text(), ContainsRegex(R"(<[0-9]{2}\.[0-9]{6},[0-9],%f%3f> )"));
}

TEST_F(LogTest, ReadsItsSettingsFromTheFileOfSettingsToo) {
  const auto conf = std::filesystem::temp_directory_path() /
                    ("plexus_log_test_" + std::to_string(getpid()) + ".conf");
  std::ofstream(conf) << "NCCL_DEBUG=INFO\nNCCL_DEBUG_FILE=" << pattern_ << "\n";
  unsetenv("NCCL_DEBUG");
  unsetenv("NCCL_DEBUG_FILE");
  setenv("NCCL_CONF_FILE", conf.c_str(), 1);
  reset_log();
  PLEXUS_INFO(kInit, "as the file says");
  unsetenv("NCCL_CONF_FILE");
  std::filesystem::remove(conf);
  EXPECT_THAT(text(), HasSubstr("as the file says"));
}

// A pipe that nobody reads: the log must not wait for it, and goes where it can be seen.
TEST_F(LogTest, NeverWaitsForItsFile) {
  const std::string pipe =
      std::filesystem::temp_directory_path() / ("plexus_pipe_" + std::to_string(getpid()));
  ASSERT_EQ(mkfifo(pipe.c_str(), S_IRWXU), 0);
  setenv("NCCL_DEBUG_FILE", pipe.c_str(), 1);
  testing::internal::CaptureStdout();
  reset_log();
  PLEXUS_WARN("seen");
  const std::string shown = testing::internal::GetCapturedStdout();
  std::filesystem::remove(pipe);
  EXPECT_THAT(shown, HasSubstr("NCCL_DEBUG_FILE=" + pipe + " cannot be written"));
  EXPECT_THAT(shown, HasSubstr("NCCL WARN seen"));
}

/// Logs a line in a child that has put `fd` in the place of standard output.
void log_into(int fd, bool is_closed_before) {
  testing_fork::run_in_child([=] {
    unsetenv("NCCL_DEBUG_FILE");
    setenv("NCCL_DEBUG", "WARN", 1);
    reset_log();
    if (is_closed_before) {
      close(STDOUT_FILENO);
      PLEXUS_WARN("nowhere");
    }
    dup2(fd, STDOUT_FILENO);
    PLEXUS_WARN("a line of the log");
  });
}

TEST_F(LogTest, LeavesWhatTookTheNumberOfAClosedStandardOutputAlone) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
  char byte = 0;
  log_into(pair[0], false);
  EXPECT_EQ(recv(pair[1], &byte, 1, MSG_DONTWAIT), -1) << "a socket got it";
  int pipe_ends[2];
  ASSERT_EQ(pipe2(pipe_ends, O_NONBLOCK), 0);
  log_into(pipe_ends[1], true);
  EXPECT_EQ(::read(pipe_ends[0], &byte, 1), -1) << "another file got it";
  log_into(pipe_ends[1], false);
  EXPECT_EQ(::read(pipe_ends[0], &byte, 1), 1) << "a redirected standard output did not get it";
  for (const int fd : {pair[0], pair[1], pipe_ends[0], pipe_ends[1]}) {
    close(fd);
  }
}

TEST_F(LogTest, SurvivesAPipeThatNobodyReadsAnyMore) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  log_into(ends[1], false);
  close(ends[1]);
}

TEST_F(LogTest, WritesInfoOnlyAtThatLevelAndOfChosenSubsystems) {
  PLEXUS_INFO(kInit, "quiet");
  set("INFO", "NET,INIT");
  PLEXUS_INFO(kNet, "about nets");
  PLEXUS_INFO(kInit, "about init");
  PLEXUS_INFO(kTuning, "about tuning");
  EXPECT_THAT(text(), HasSubstr("NCCL INFO about nets\n"));
  EXPECT_THAT(text(), HasSubstr("NCCL INFO about init\n"));
  EXPECT_THAT(text(), Not(HasSubstr("about tuning")));
  EXPECT_THAT(text(), Not(HasSubstr("quiet")));
}

TEST_F(LogTest, TakesALeadingCaretForAllButThese) {
  set("info", "^NET");
  EXPECT_FALSE(log_enabled(LogLevel::kInfo, Subsystem::kNet));
  EXPECT_TRUE(log_enabled(LogLevel::kInfo, Subsystem::kTuning));
  EXPECT_TRUE(log_enabled(LogLevel::kWarn, Subsystem::kNet));
}

TEST_F(LogTest, AChildMadeByForkWritesToAFileOfItsOwn) {
  PLEXUS_WARN("of the parent");
  testing_fork::run_in_child([] {
    PLEXUS_WARN("of the child");
    EXPECT_THAT(text(), HasSubstr("of the child"));
    EXPECT_THAT(text(), Not(HasSubstr("of the parent")));
    std::filesystem::remove(path());
  });
  EXPECT_THAT(text(), Not(HasSubstr("of the child")));
}

TEST_F(LogTest, AChildAppendsToAFileThatIsNotNamedForTheProcess) {
  setenv("NCCL_DEBUG_FILE", path().c_str(), 1);
  reset_log();
  PLEXUS_WARN("of the parent");
  testing_fork::run_in_child([] { PLEXUS_WARN("of the child"); });
  EXPECT_THAT(text(), HasSubstr("of the parent"));
  EXPECT_THAT(text(), HasSubstr("of the child"));
}

TEST_F(LogTest, IsSilentAtALevelItDoesNotKnow) {
  set("LOUD", nullptr);
  PLEXUS_WARN("nobody hears this");
  EXPECT_EQ(text(), "");
}

// Those who asked for no log see a notice on standard error, unless they asked for silence.
TEST_F(LogTest, WritesANoticeAlsoForThoseWhoAskedForNoLog) {
  const auto notice = [](const char* level) {
    level == nullptr ? unsetenv("NCCL_DEBUG") : setenv("NCCL_DEBUG", level, 1);
    testing::internal::CaptureStderr();
    reset_log();
    PLEXUS_NOTIFY("rank {} is late", 3);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(notice("WARN"), "");
  EXPECT_THAT(text(), HasSubstr("NCCL WARN rank 3 is late\n"));
  for (const char* level : {static_cast<const char*>(nullptr), "", "VERSION", "LOUD"}) {
    EXPECT_EQ(notice(level), "plexus: rank 3 is late\n");
  }
  EXPECT_EQ(notice("none"), "");
  EXPECT_STREQ(last_error_text(), "rank 3 is late");
}

TEST_F(LogTest, LeavesWhatTookTheNumberOfAClosedStandardErrorAlone) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_NONBLOCK), 0);
  testing_fork::run_in_child([&] {
    unsetenv("NCCL_DEBUG");
    reset_log();
    close(STDERR_FILENO);
    PLEXUS_NOTIFY("nowhere");
    dup2(ends[1], STDERR_FILENO);
    PLEXUS_NOTIFY("a line");
  });
  char byte = 0;
  EXPECT_EQ(::read(ends[0], &byte, 1), -1) << "another file got it";
  close(ends[0]);
  close(ends[1]);
}

TEST_F(LogTest, KeepsTheLastErrorAtEveryLevelAndCutsIt) {
  set("NONE", nullptr);
  PLEXUS_WARN("first");
  PLEXUS_WARN("{}", std::string(5000, 'x'));
  EXPECT_EQ(std::string(last_error_text()), std::string(1023, 'x'));
  warn(fail(Code::kInvalidArgument, "count is {}", -1));
  EXPECT_STREQ(last_error_text(), "count is -1");
}

TEST_F(LogTest, KeepsLinesOfManyThreadsWhole) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([i] {
      for (int line = 0; line < 100; ++line) {
        PLEXUS_WARN("thread {} says {} and ends here", i, line);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  std::istringstream lines(text());
  int whole = 0;
  for (std::string line; std::getline(lines, line);) {
    whole += line.ends_with("and ends here") ? 1 : 0;
  }
  EXPECT_EQ(whole, 400);
}

}  // namespace
}  // namespace plexus
