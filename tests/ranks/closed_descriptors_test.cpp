// SPDX-License-Identifier: Apache-2.0
// A program that closes all descriptors, also those of the library, as daemons do: its calls fail
// with a sentence, and neither it nor the other ranks wait for ever.
#include <csignal>
#include <plexus.h>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus {
namespace {

/// Reads all of the pipe's end.
std::string read_all(int fd) {
  std::string text;
  char part[512];
  for (ssize_t size = 0; (size = read(fd, part, sizeof(part))) > 0;) {
    text.append(part, static_cast<size_t>(size));
  }
  return text;
}

/// In a process of its own: joins, and returns the communicator.
ncclComm_t join(const ncclUniqueId& id, int rank) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  ncclComm_t comm = nullptr;
  float value = 1;
  if (ncclCommInitRank(&comm, 2, id, rank) != ncclSuccess ||
      ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, comm, nullptr) != ncclSuccess) {
    _exit(2);
  }
  return comm;
}

TEST(ClosedDescriptors, OfTheLibraryFailTheCallsOfItsRanks) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "to close a descriptor that another thread uses is what this test does";
#endif
  int id_pipe[2];
  int text_pipe[2];
  ASSERT_EQ(pipe(id_pipe), 0);
  ASSERT_EQ(pipe(text_pipe), 0);
  const pid_t closer = fork();
  if (closer == 0) {
    close(text_pipe[0]);
    ncclUniqueId id{};
    if (ncclGetUniqueId(&id) != ncclSuccess || write(id_pipe[1], &id, sizeof(id)) != sizeof(id)) {
      _exit(2);
    }
    const ncclComm_t comm = join(id, 0);
    constexpr int kDescriptors = 1024;
    for (int fd = STDERR_FILENO + 1; fd < kDescriptors; ++fd) {
      if (fd != text_pipe[1]) {
        close(fd);
      }
    }
    float value = 1;  // the other rank does not make this call
    const ncclResult_t result =
        ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, comm, nullptr);
    const std::string text = ncclGetLastError(comm);
    const auto size = static_cast<ssize_t>(text.size());
    _exit(result != ncclSuccess && write(text_pipe[1], text.data(), text.size()) == size ? 0 : 3);
  }
  const pid_t other = fork();
  if (other == 0) {
    close(text_pipe[1]);
    ncclUniqueId id{};
    if (read(id_pipe[0], &id, sizeof(id)) != sizeof(id)) {
      _exit(2);
    }
    join(id, 1);
    for (;;) {
      pause();
    }
  }
  close(text_pipe[1]);
  EXPECT_THAT(read_all(text_pipe[0]), testing::HasSubstr("were closed by the program"));
  int status = -1;
  EXPECT_EQ(waitpid(closer, &status, 0), closer);
  EXPECT_EQ(status, 0);
  kill(other, SIGKILL);
  EXPECT_EQ(waitpid(other, &status, 0), other);
}

}  // namespace
}  // namespace plexus
