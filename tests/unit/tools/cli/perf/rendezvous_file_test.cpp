// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/perf/rendezvous_file.hpp"

#include <fstream>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus::perf {
namespace {

using namespace std::chrono_literals;

class RendezvousFile : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directory(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static UniqueIdBytes make_id(int value) {
    UniqueIdBytes id;
    id.fill(std::byte(value));
    return id;
  }
  std::filesystem::path folder_ =
      std::filesystem::path(::testing::TempDir()) / ("rendezvous_test." + std::to_string(getpid()));
  std::filesystem::path path_ = rendezvous_path(folder_, "Open MPI 12/34");
  std::filesystem::file_time_type long_ago_ = std::filesystem::file_time_type::clock::now() - 1h;
};

TEST_F(RendezvousFile, NameIsOneFileOfTheUserAndTheJob) {
  EXPECT_EQ(path_.parent_path(), folder_);
  EXPECT_EQ(path_.filename(), "plexus-" + std::to_string(geteuid()) + "-Open-MPI-12-34");
}

TEST_F(RendezvousFile, GivesTheIdToThoseWhoWaitAlready) {
  UniqueIdBytes got{};
  std::thread reader([&] { got = wait_unique_id(path_, long_ago_, 10s).value(); });
  EXPECT_TRUE(publish_unique_id(path_, make_id(5)));
  reader.join();
  EXPECT_EQ(got, make_id(5));
}

TEST_F(RendezvousFile, IsPrivateAndLeavesNoDraft) {
  ASSERT_TRUE(publish_unique_id(path_, make_id(5)));
  struct stat status {};
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(RendezvousFile, ReplacesWhatAnEarlierJobLeft) {
  ASSERT_TRUE(publish_unique_id(path_, make_id(1)));
  ASSERT_TRUE(publish_unique_id(path_, make_id(2)));
  EXPECT_EQ(wait_unique_id(path_, long_ago_, 1s).value(), make_id(2));
}

TEST_F(RendezvousFile, AnOldFileDoesNotCount) {
  ASSERT_TRUE(publish_unique_id(path_, make_id(1)));
  std::filesystem::last_write_time(path_, long_ago_);
  const auto id = wait_unique_id(path_, long_ago_ + 1min, 20ms);
  ASSERT_FALSE(id);
  EXPECT_EQ(id.error().code(), Code::kTimeout);
}

TEST_F(RendezvousFile, AnAbsentRankZeroIsATimeoutThatNamesTheFile) {
  const auto id = wait_unique_id(path_, long_ago_, 10ms);
  ASSERT_FALSE(id);
  EXPECT_THAT(id.error().message(), ::testing::HasSubstr(path_.string()));
}

TEST_F(RendezvousFile, RefusesWhatOthersMayReadOrLinkElsewhere) {
  std::ofstream(path_) << std::string(kUniqueIdBytes, 'x');
  chmod(path_.c_str(), 0644);
  EXPECT_EQ(wait_unique_id(path_, long_ago_, 1s).error().code(), Code::kSystemError);
  std::filesystem::remove(path_);
  std::filesystem::create_symlink("/etc/hostname", path_);
  EXPECT_EQ(wait_unique_id(path_, long_ago_, 1s).error().code(), Code::kSystemError);
}

TEST_F(RendezvousFile, SaysWhyItCannotBeMade) {
  const auto made = publish_unique_id(folder_ / "absent" / "x", make_id(1));
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message(), ::testing::HasSubstr("--rendezvous"));
}

}  // namespace
}  // namespace plexus::perf
