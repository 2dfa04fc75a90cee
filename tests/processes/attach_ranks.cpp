// SPDX-License-Identifier: Apache-2.0
// Two processes whose plain buffers are read in place (PLEXUS_ATTACH), and what happens when that
// is refused from the start, refused later, or when the memory is gone.
//
//   attach_ranks DEED        DEED: see kDeeds. Exit code 0: both ranks saw what they should;
//                            the texts of errors go to stdout.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nccl.h>
#include <numeric>
#include <plexus.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "tests/support/refused_calls.hpp"
#include "tests/support/require.hpp"

namespace {

using plexus::testing_require::bound_seconds;
using plexus::testing_require::require;

constexpr size_t kCount = 300'001;  // several slots, and no multiple of anything
constexpr uid_t kNobody = 65534;

struct Rank {
  int rank = 0;
  pid_t child = 0;  // rank 1, where this is rank 0
  ncclComm_t comm = nullptr;
  int to_peer[2] = {-1, -1};    // pipe
  int from_peer[2] = {-1, -1};  // pipe
};

/// From now on the kernel refuses this process to read others' memory.
void refuse_reading() { REQUIRE(plexus::refuse_calls({SYS_process_vm_readv})); }

void tell(const Rank& me) { REQUIRE(write(me.to_peer[1], "x", 1) == 1); }
void hear(const Rank& me) {
  char byte = 0;
  REQUIRE(read(me.from_peer[0], &byte, 1) == 1);
}

void join(Rank& me, const ncclUniqueId& id) {
  REQUIRE(ncclCommInitRank(&me.comm, 2, id, me.rank) == ncclSuccess);
}

std::vector<int> values_of(int rank) {
  std::vector<int> values(kCount);
  std::iota(values.begin(), values.end(), rank * 1000);
  return values;
}

/// Each takes what the other has; the bytes must be right when this succeeds.
ncclResult_t exchange(const Rank& me) {
  const std::vector<int> mine = values_of(me.rank);
  std::vector<int> theirs(kCount, -1);
  REQUIRE(ncclGroupStart() == ncclSuccess);
  REQUIRE(ncclSend(mine.data(), kCount, ncclInt32, 1 - me.rank, me.comm, nullptr) == ncclSuccess);
  REQUIRE(ncclRecv(theirs.data(), kCount, ncclInt32, 1 - me.rank, me.comm, nullptr) == ncclSuccess);
  const ncclResult_t result = ncclGroupEnd();
  REQUIRE(result != ncclSuccess || theirs == values_of(1 - me.rank));
  return result;
}

ncclResult_t reduce(const Rank& me) {
  std::vector<int> data = values_of(me.rank);
  const ncclResult_t result =
      ncclAllReduce(data.data(), data.data(), kCount, ncclInt32, ncclSum, me.comm, nullptr);
  for (size_t i = 0; i < kCount && result == ncclSuccess; ++i) {
    REQUIRE(data[i] == 2 * static_cast<int>(i) + 1000);
  }
  return result;
}

void say_error(const Rank& me) { std::printf("rank %d: %s\n", me.rank, ncclGetLastError(me.comm)); }

/// Receives from the other rank until that fails, which it must within bounds.
void expect_failing_receive(const Rank& me) {
  std::vector<int> theirs(kCount, -1);
  const ncclResult_t result =
      ncclRecv(theirs.data(), kCount, ncclInt32, 1 - me.rank, me.comm, nullptr);
  REQUIRE(result != ncclSuccess);
  say_error(me);
  REQUIRE(ncclCommAbort(me.comm) == ncclSuccess);
}

void work(Rank& me) {
  REQUIRE(exchange(me) == ncclSuccess);
  REQUIRE(reduce(me) == ncclSuccess);
  REQUIRE(ncclCommDestroy(me.comm) == ncclSuccess);
}

// ---- deeds ----

void plain(Rank& me, const ncclUniqueId& id) {
  join(me, id);
  work(me);
}

void refused(Rank& me, const ncclUniqueId& id) {
  if (me.rank == 1) {
    refuse_reading();
  }
  join(me, id);
  work(me);
}

/// What was opened in time is still read.
void refused_later(Rank& me, const ncclUniqueId& id) {
  join(me, id);
  REQUIRE(exchange(me) == ncclSuccess);
  if (me.rank == 1) {
    refuse_reading();
  }
  work(me);
}

/// Rank 1 lets nobody look into it any more. Without privileges, which may always look.
void undumpable_later(Rank& me, const ncclUniqueId& id) {
  if (getuid() == 0) {
    REQUIRE(setresgid(kNobody, kNobody, kNobody) == 0);
    REQUIRE(setresuid(kNobody, kNobody, kNobody) == 0);
    REQUIRE(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0);
  }
  join(me, id);
  REQUIRE(exchange(me) == ncclSuccess);
  if (me.rank == 1) {
    REQUIRE(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0);
    tell(me);
  } else {
    hear(me);
  }
  work(me);
}

/// Rank 1 sends by a stream, and its buffer is gone before rank 0 takes it.
void unmapped(Rank& me, const ncclUniqueId& id) {
  join(me, id);
  REQUIRE(exchange(me) == ncclSuccess);
  if (me.rank == 0) {
    hear(me);
    expect_failing_receive(me);
    tell(me);
    return;
  }
  const size_t size_bytes = kCount * sizeof(int);
  void* const memory =
      mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  std::memset(memory, 1, size_bytes);
  cudaStream_t stream = nullptr;
  REQUIRE(plexusStreamCreate(&stream) == ncclSuccess);
  REQUIRE(ncclSend(memory, kCount, ncclInt32, 0, me.comm, stream) == ncclSuccess);
  REQUIRE(munmap(memory, size_bytes) == 0);
  tell(me);
  hear(me);
  REQUIRE(plexusStreamSynchronize(stream) != ncclSuccess);
  say_error(me);
  REQUIRE(ncclCommAbort(me.comm) == ncclSuccess);
  REQUIRE(plexusStreamDestroy(stream) != ncclSuccess);  // tells it once more
}

/// Rank 1 is gone while its address waits to be read.
void exits(Rank& me, const ncclUniqueId& id) {
  join(me, id);
  REQUIRE(exchange(me) == ncclSuccess);
  if (me.rank == 0) {
    tell(me);  // the exchange has ended here too, so that the other's end cannot end it
    siginfo_t info;
    REQUIRE(waitid(P_PID, static_cast<id_t>(me.child), &info, WEXITED | WNOWAIT) == 0);
    expect_failing_receive(me);
    return;
  }
  hear(me);
  const std::vector<int> mine = values_of(me.rank);
  cudaStream_t stream = nullptr;
  REQUIRE(plexusStreamCreate(&stream) == ncclSuccess);
  REQUIRE(ncclSend(mine.data(), kCount, ncclInt32, 0, me.comm, stream) == ncclSuccess);
  _exit(0);
}

/// Rank 1 gives up its call and uses its buffer for something else, while rank 0 may still read it.
void gives_up(Rank& me, const ncclUniqueId& id) {
  join(me, id);
  REQUIRE(exchange(me) == ncclSuccess);
  if (me.rank == 0) {
    tell(me);  // the exchange has ended here too, so that the abort cannot end it
    hear(me);
    std::vector<int> theirs(kCount, -1);
    const ncclResult_t result = ncclRecv(theirs.data(), kCount, ncclInt32, 1, me.comm, nullptr);
    REQUIRE(result != ncclSuccess || theirs == values_of(1));
    say_error(me);
    REQUIRE(ncclCommAbort(me.comm) == ncclSuccess);
    return;
  }
  hear(me);
  std::vector<int> mine = values_of(me.rank);
  cudaStream_t stream = nullptr;
  REQUIRE(plexusStreamCreate(&stream) == ncclSuccess);
  REQUIRE(ncclSend(mine.data(), kCount, ncclInt32, 0, me.comm, stream) == ncclSuccess);
  tell(me);
  REQUIRE(ncclCommAbort(me.comm) == ncclSuccess);
  std::fill(mine.begin(), mine.end(), 7);
  (void)plexusStreamDestroy(stream);
}

struct Deed {
  const char* name;
  void (*run)(Rank& me, const ncclUniqueId& id);
};
constexpr Deed kDeeds[] = {
    {"plain", plain},
    {"refused", refused},
    {"refused_later", refused_later},
    {"undumpable_later", undumpable_later},
    {"unmapped", unmapped},
    {"exits", exits},
    {"gives_up", gives_up},
};

}  // namespace

int main(int argc, char** argv) {
  const auto* const deed = std::find_if(
      std::begin(kDeeds), std::end(kDeeds),
      [&](const Deed& each) { return argc == 2 && std::strcmp(each.name, argv[1]) == 0; });
  if (deed == std::end(kDeeds)) {
    std::printf("usage: attach_ranks DEED\n");
    return 2;
  }
  alarm(static_cast<unsigned>(bound_seconds(50)));
  int pipes[2][2];
  int id_pipe[2];
  REQUIRE(pipe(pipes[0]) == 0 && pipe(pipes[1]) == 0 && pipe(id_pipe) == 0);
  Rank me;
  const pid_t child = fork();  // before anything of the library
  REQUIRE(child >= 0);
  me.rank = child == 0 ? 1 : 0;
  me.child = child;
  std::copy(pipes[me.rank], pipes[me.rank] + 2, me.to_peer);
  std::copy(pipes[1 - me.rank], pipes[1 - me.rank] + 2, me.from_peer);
  ncclUniqueId id;
  if (me.rank == 0) {
    REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    REQUIRE(write(id_pipe[1], &id, sizeof(id)) == static_cast<ssize_t>(sizeof(id)));
  } else {
    REQUIRE(read(id_pipe[0], &id, sizeof(id)) == static_cast<ssize_t>(sizeof(id)));
  }
  deed->run(me, id);
  std::fflush(stdout);
  if (me.rank == 1) {
    return 0;
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  std::printf("well\n");
  return 0;
}
