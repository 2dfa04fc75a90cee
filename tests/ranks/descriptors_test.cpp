// SPDX-License-Identifier: Apache-2.0
// The limit of open files: raised by the first init where PLEXUS_RAISE_NOFILE=1 says so.
#include <cstdlib>
#include <sys/resource.h>

#include "tests/ranks/job.hpp"

namespace plexus {
namespace {

rlim_t soft_limit() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

void set_soft_limit(rlim_t soft) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = soft;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// One test, because the library raises the limit once in a process.
TEST(DescriptorLimit, IsRaisedOnceByTheFirstInitThatIsToldSo) {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlim_t low = before.rlim_max - 1;
  set_soft_limit(low);
  { const testing_job::Job job(2); }
  EXPECT_EQ(soft_limit(), low) << "without the setting the limit is the program's";
  setenv("PLEXUS_RAISE_NOFILE", "1", 1);
  { const testing_job::Job job(2); }
  EXPECT_EQ(soft_limit(), before.rlim_max);
  set_soft_limit(low);
  { const testing_job::Job job(2); }
  EXPECT_EQ(soft_limit(), low) << "a program that lowers it again has its reasons";
  unsetenv("PLEXUS_RAISE_NOFILE");
}

}  // namespace
}  // namespace plexus
