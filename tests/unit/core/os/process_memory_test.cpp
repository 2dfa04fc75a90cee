// SPDX-License-Identifier: Apache-2.0
// Reading a child's memory, and all the ways in which that must fail instead of giving other bytes.
#include "core/os/process_memory.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <fcntl.h>
#include <numeric>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "core/os/host.hpp"
#include "tests/support/refused_calls.hpp"

namespace plexus {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kBytes = 4 * kPage;

/// A child that shows four pages, of which the third may be unmapped, until it is told to end.
class Child {
 public:
  explicit Child(bool has_hole = false) {
    EXPECT_EQ(pipe2(pipe_to_child_.data(), O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(ends_.data(), O_CLOEXEC), 0);
    pid_ = fork();
    if (pid_ == 0) {
      live(has_hole);
    }
    close(pipe_to_child_[1]);
    close(ends_[0]);
    EXPECT_EQ(::read(pipe_to_child_[0], &facts, sizeof(facts)), ssize_t{sizeof(facts)});
  }
  ~Child() {
    end();
    close(pipe_to_child_[0]);
    close(ends_[1]);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  [[nodiscard]] PeerProcess process() const { return {pid_, facts.id, facts.mark}; }
  [[nodiscard]] pid_t pid() const { return pid_; }
  /// Kills it; it stays a zombie until end().
  void kill_only() {
    kill(pid_, SIGKILL);
    siginfo_t info;
    EXPECT_EQ(waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT), 0);
  }
  void end() {
    if (!ended_) {
      ended_ = true;
      kill(pid_, SIGKILL);
      EXPECT_EQ(waitpid(pid_, nullptr, 0), pid_);
    }
  }

  struct Facts {
    uint64_t id;
    uint64_t mark;
    uint64_t address;
  } facts{};

 private:
  [[noreturn]] void live(bool has_hole) {
    close(ends_[1]);
    auto* const memory = static_cast<uint8_t*>(
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    std::iota(memory, memory + kBytes, uint8_t{1});
    const Facts mine{process_id(), process_mark_address(), reinterpret_cast<uintptr_t>(memory)};
    if (has_hole) {
      munmap(memory + 2 * kPage, kPage);  // last: whatever is mapped next may come here
    }
    if (write(pipe_to_child_[1], &mine, sizeof(mine)) != sizeof(mine)) {
      _exit(1);
    }
    char byte = 0;
    (void)!::read(ends_[0], &byte, 1);  // until the parent ends
    _exit(0);
  }

  pid_t pid_ = -1;
  bool ended_ = false;
  std::array<int, 2> pipe_to_child_{};
  std::array<int, 2> ends_{};
};

class ProcessMemory : public testing::Test {
 protected:
  void SetUp() override {
    const int refused = child.process().probe();
    if (refused == EPERM || refused == ENOSYS) {
      GTEST_SKIP() << "the kernel does not let us read a child: "
                   << describe_refused_attach(refused);
    }
    ASSERT_EQ(refused, 0);
  }
  Child child;
  std::vector<uint8_t> bytes = std::vector<uint8_t>(kBytes, 0xaa);
};

TEST_F(ProcessMemory, IsReadAtAnyOffset) {
  ASSERT_EQ(child.process().read(bytes.data(), child.facts.address + 3, kBytes - 3), 0);
  for (size_t i = 0; i < kBytes - 3; ++i) {
    ASSERT_EQ(bytes[i], static_cast<uint8_t>(i + 4)) << i;
  }
  EXPECT_EQ(bytes[kBytes - 3], 0xaa) << "no byte more than asked for is written";
}

TEST_F(ProcessMemory, OfWhichAPartIsUnmappedIsAnError) {
  const Child holed(true);
  EXPECT_EQ(holed.process().read(bytes.data(), holed.facts.address, kBytes), EFAULT);
  EXPECT_EQ(holed.process().read(bytes.data(), holed.facts.address + 2 * kPage, 8), EFAULT);
  EXPECT_EQ(holed.process().read(bytes.data(), holed.facts.address, 2 * kPage), 0);
}

TEST_F(ProcessMemory, AtAnAddressThatItDoesNotHaveIsAnError) {
  for (const uint64_t address :
       {uint64_t{0}, uint64_t{8}, ~uint64_t{0} - kPage, uint64_t{1} << 63}) {
    EXPECT_EQ(child.process().read(bytes.data(), address, kPage), EFAULT) << address;
  }
}

TEST_F(ProcessMemory, OfAnotherProgramWithThePidIsNotTakenForThePeers) {
  // Its mark is elsewhere, or is another's.
  const PeerProcess other_id(child.pid(), child.facts.id + 1, child.facts.mark);
  EXPECT_EQ(other_id.read(bytes.data(), child.facts.address, kPage), ESRCH);
  const PeerProcess no_mark(child.pid(), child.facts.id, child.facts.address);
  EXPECT_EQ(no_mark.read(bytes.data(), child.facts.address, kPage), ESRCH);
  const PeerProcess unmapped(child.pid(), child.facts.id, 8);
  EXPECT_EQ(unmapped.read(bytes.data(), child.facts.address, kPage), ESRCH);
}

TEST_F(ProcessMemory, OfOneThatHasEndedIsAnErrorBeforeAndAfterItsParentKnows) {
  child.kill_only();
  EXPECT_EQ(child.process().read(bytes.data(), child.facts.address, kPage), ESRCH);
  child.end();
  EXPECT_EQ(child.process().read(bytes.data(), child.facts.address, kPage), ESRCH);
}

/// In a process of its own: 0 if the bytes were right.
int read_after_refusal(const Child& child, bool opens_file) {
  const pid_t reader = fork();
  if (reader == 0) {
    PeerProcess process = child.process();
    if (opens_file) {
      process.open_file();
    }
    std::vector<uint8_t> bytes(kBytes);
    if (!refuse_calls({SYS_process_vm_readv})) {
      _exit(255);
    }
    const int error = process.read(bytes.data(), child.facts.address, kBytes);
    _exit(error == 0 && bytes[kBytes - 1] != static_cast<uint8_t>(kBytes) ? 254 : error);
  }
  int status = 0;
  EXPECT_EQ(waitpid(reader, &status, 0), reader);
  return WEXITSTATUS(status);
}

TEST_F(ProcessMemory, IsReadWhenTheSystemCallIsRefusedLater) {
  EXPECT_EQ(read_after_refusal(child, false), EPERM);
  EXPECT_EQ(read_after_refusal(child, true), 0);
}

TEST_F(ProcessMemory, IsNotReadLaterWhereTheMarkIsAnothers) {
  PeerProcess other(child.pid(), child.facts.id + 1, child.facts.mark);
  other.open_file();
  EXPECT_EQ(other.read(bytes.data(), child.facts.address, kPage), ESRCH);
}

TEST_F(ProcessMemory, OfAChildHasAMarkOfItsOwn) {
  EXPECT_NE(child.facts.id, process_id());
  const PeerProcess with_mine(child.pid(), process_id(), process_mark_address());
  EXPECT_EQ(with_mine.probe(), ESRCH);
}

}  // namespace
}  // namespace plexus
