// SPDX-License-Identifier: Apache-2.0
#include "core/os/shared_memory.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/os/host.hpp"
#include "core/os/memory_server.hpp"
#include "tests/support/forked.hpp"
#include "tests/support/refused_calls.hpp"

namespace plexus {
namespace {

using ::testing::HasSubstr;

SharedMemory create(size_t size_bytes) {
  auto memory = SharedMemory::create(size_bytes);
  EXPECT_TRUE(memory.has_value()) << memory.error().message();
  return std::move(memory).value();
}

SharedMemory::Place place_of(const SharedMemory& memory) {
  return {.pid = getpid(), .fd = memory.fd(), .size_bytes = memory.size(), .id = memory.id()};
}

TEST(SharedMemory, StartsZeroedAndAlignedToPages) {
  const SharedMemory memory = create(5000);
  EXPECT_EQ(memory.size(), 8192U);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % 4096, 0U);
  EXPECT_TRUE(std::all_of(memory.data(), memory.data() + memory.size(),
                          [](std::byte b) { return b == std::byte{0}; }));
}

TEST(SharedMemory, IsOnePageAtLeast) { EXPECT_EQ(create(0).size(), 4096U); }

TEST(SharedMemory, ShowsAPeerTheSameBytes) {
  const SharedMemory mine = create(4096);
  auto theirs = SharedMemory::open_peer(place_of(mine));
  ASSERT_TRUE(theirs.has_value()) << theirs.error().message();
  EXPECT_NE(mine.data(), theirs.value().data());
  std::memcpy(mine.data(), "hello", 6);
  EXPECT_STREQ(reinterpret_cast<const char*>(theirs.value().data()), "hello");
  EXPECT_EQ(theirs.value().fd(), -1);
}

TEST(SharedMemory, RefusesAnotherSize) {
  const SharedMemory mine = create(4096);
  SharedMemory::Place place = place_of(mine);
  place.size_bytes = 1 << 30;
  const auto opened = SharedMemory::open_peer(place);
  ASSERT_TRUE(opened.has_error());
  EXPECT_THAT(opened.error().message(), HasSubstr("described"));
}

TEST(SharedMemory, RefusesMemoryWithAnotherMark) {
  const SharedMemory mine = create(4096);
  SharedMemory::Place place = place_of(mine);
  place.id ^= 1;
  const auto opened = SharedMemory::open_peer(place);
  ASSERT_TRUE(opened.has_error());
  EXPECT_THAT(opened.error().message(), HasSubstr("NCCL_SHM_DISABLE=1"));
}

TEST(SharedMemory, RefusesWhatIsNotThere) {
  const auto opened =
      SharedMemory::open_peer({.pid = getpid(), .fd = 100'000, .size_bytes = 4096, .id = 1});
  ASSERT_TRUE(opened.has_error());
  EXPECT_EQ(opened.error().code(), Code::kSystemError);
}

TEST(SharedMemory, IsMadeWhereMemfdIsRefused) {
  testing_fork::run_in_child([] {
    ASSERT_TRUE(refuse_calls({SYS_memfd_create}));
    const SharedMemory memory = create(100'000);
    memory.data()[99'999] = std::byte{7};
    const auto opened = SharedMemory::open_peer(place_of(memory));
    ASSERT_TRUE(opened.has_value()) << opened.error().message();
    EXPECT_EQ(opened.value().data()[99'999], std::byte{7});
  });
}

/// As in another pid namespace, or below a /proc that hides the owner.
TEST(SharedMemory, IsHadFromItsOwnerWhereProcDoesNotShowIt) {
  NEEDS_THREADS_IN_CHILDREN();
  std::array<int, 2> reported{};
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(reported.data()) + pipe(ends.data()), 0);
  const pid_t owner = testing_fork::start_child([&] {
    close(ends[1]);
    MemoryServer::instance().start();
    const SharedMemory mine = create(4096);
    mine.data()[17] = std::byte{7};
    SharedMemory::Place place = place_of(mine);
    place.owner = process_id();
    EXPECT_EQ(write(reported[1], &place, sizeof(place)), ssize_t{sizeof(place)});
    char byte = 0;
    (void)!read(ends[0], &byte, 1);  // until the parent has it
  });
  SharedMemory::Place place{};
  ASSERT_EQ(read(reported[0], &place, sizeof(place)), ssize_t{sizeof(place)});
  for (const int fd : {100'000, STDIN_FILENO}) {  // none, and another file
    place.fd = fd;
    const auto theirs = SharedMemory::open_peer(place);
    ASSERT_TRUE(theirs.has_value()) << theirs.error().message();
    EXPECT_EQ(theirs.value().data()[17], std::byte{7});
    SharedMemory::Place unasked = place;
    unasked.owner = 0;
    EXPECT_TRUE(SharedMemory::open_peer(unasked).has_error());
  }
  place.id ^= 1;  // which it does not have
  const auto refused = SharedMemory::open_peer(place);
  ASSERT_TRUE(refused.has_error());
  EXPECT_THAT(refused.error().message(), HasSubstr("it was not given"));
  close(ends[1]);
  EXPECT_EQ(testing_fork::exit_code_of(owner), 0);
  for (const int fd : {reported[0], reported[1], ends[0]}) {
    close(fd);
  }
}

/// A daemon whose threads print all the same: not into a descriptor that is being opened.
TEST(SharedMemory, IsNotWrittenToByAProgramThatPrintsToClosedDescriptors) {
  NEEDS_THREADS_IN_CHILDREN();
  testing_fork::run_in_child([] {
    constexpr int kTimes = 3000;
    const SharedMemory mine = create(4096);
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
      close(fd);
    }
    std::atomic<bool> stops{false};
    std::thread printing([&] {
      while (!stops) {
        for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
          (void)!write(fd, "a line of the program\n", 22);
        }
      }
    });
    int failures = 0;
    for (int time = 0; time < kTimes; ++time) {
      failures += static_cast<int>(SharedMemory::open_peer(place_of(mine)).has_error());
    }
    stops = true;
    printing.join();
    EXPECT_EQ(failures, 0);
  });
}

TEST(SharedMemory, OfThisProcessNeedsNoProc) {
  const SharedMemory mine = create(4096);
  SharedMemory::Place place = place_of(mine);
  place.pid = 1;  // another process's number below that /proc
  place.owner = process_id();
  const auto again = SharedMemory::open_peer(place);
  ASSERT_TRUE(again.has_value()) << again.error().message();
}

TEST(SharedMemory, AnOwnerThatDiedIsSaidToHaveDied) {
  const pid_t child = fork();
  if (child == 0) {
    _exit(0);
  }
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  for (const bool is_waited_for : {false, true}) {
    if (is_waited_for) {
      ASSERT_EQ(waitpid(child, nullptr, 0), child);
    }
    const auto opened =
        SharedMemory::open_peer({.pid = child, .fd = 5, .size_bytes = 4096, .id = 1});
    ASSERT_TRUE(opened.has_error());
    EXPECT_EQ(opened.error().code(), Code::kRemoteError);
    EXPECT_THAT(opened.error().message(), HasSubstr("has died"));
  }
}

TEST(SharedMemory, MovesItsMapping) {
  SharedMemory one = create(4096);
  std::byte* const data = one.data();
  const SharedMemory two = std::move(one);
  EXPECT_EQ(two.data(), data);
  EXPECT_EQ(one.data(), nullptr);  // NOLINT(bugprone-use-after-move): what the class promises
}

}  // namespace
}  // namespace plexus
