// SPDX-License-Identifier: Apache-2.0
// The file of a job's secret, and what it makes of a unique id's.
#include "core/join/job_secret.hpp"

#include <cstdlib>
#include <fstream>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus {
namespace {

using testing::HasSubstr;

const std::string kGood(kJobSecretBytesMin, 's');

class SecretFile : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_GE(fd_, 0);
    close(fd_);
  }
  void TearDown() override { unlink(path_.c_str()); }
  void write(const std::string& text, mode_t mode = S_IRUSR | S_IWUSR) {
    std::ofstream(path_, std::ios::trunc) << text;
    ASSERT_EQ(chmod(path_.c_str(), mode), 0);
  }
  void refused(const char* what) {
    const auto read = read_job_secret(path_);
    ASSERT_TRUE(read.has_error());
    EXPECT_EQ(read.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(std::string(read.error().message()), HasSubstr(what));
  }

  std::string path_ = testing::TempDir() + "plexus-secret-XXXXXX";
  int fd_ = mkstemp(path_.data());
};

TEST_F(SecretFile, IsReadWithoutBlanksAtItsEnd) {
  write(kGood + " \r\n");
  EXPECT_EQ(read_job_secret(path_).value(), kGood);
}

TEST_F(SecretFile, ThatOthersMayUseIsRefused) {
  for (const mode_t others : {S_IRGRP, S_IROTH, S_IWGRP, S_IXOTH}) {
    write(kGood, S_IRUSR | others);
    refused("since others may use it");
  }
}

TEST_F(SecretFile, ThatIsTooShortTooLongOrNotThereIsRefused) {
  write(kGood.substr(1) + "\n");
  refused("has 31 bytes, fewer than 32");
  write("");
  refused("has 0 bytes");
  write(std::string(5000, 's'));
  refused("larger than 4096 bytes");
  unlink(path_.c_str());
  refused("cannot be read");
  ASSERT_EQ(mkdir(path_.c_str(), S_IRWXU), 0);
  refused("not a regular file");
  rmdir(path_.c_str());
}

TEST(JobSecret, ChangesWhatConnectionsProveAndNothingElse) {
  const UniqueId id = UniqueId::derive({}, "known to all").value();
  const UniqueId same = with_job_secret(id, "");
  EXPECT_EQ(same.to_bytes(), id.to_bytes());
  const UniqueId other = with_job_secret(id, kGood);
  EXPECT_NE(other.secret, id.secret);
  EXPECT_EQ(other.job, id.job);
  EXPECT_EQ(with_job_secret(id, kGood).secret, other.secret);
  EXPECT_NE(with_job_secret(id, kGood + "x").secret, other.secret);
}

}  // namespace
}  // namespace plexus
