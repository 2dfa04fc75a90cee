// SPDX-License-Identifier: Apache-2.0
// Descriptors, sockets and the process id in a child made by fork that continues to run.
#include "core/os/own_fds.hpp"

#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <optional>
#include <poll.h>
#include <string>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/os/host.hpp"
#include "core/os/socket.hpp"
#include "tests/support/forked.hpp"

namespace plexus {
namespace {

using testing_fork::exit_code_of;
using testing_fork::run_in_child;
using testing_fork::start_child;

bool is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

SocketAddress loopback() { return SocketAddress::parse("127.0.0.1:0").value(); }
Patience seconds(int count) { return {.deadline = Deadline::after(std::chrono::seconds(count))}; }

/// A child that lives until it is told to end.
class Orphan {
 public:
  Orphan() {
    EXPECT_EQ(pipe2(ends_, O_CLOEXEC), 0);
    pid_ = start_child([this] {
      close(ends_[1]);
      char byte = 0;
      EXPECT_EQ(read(ends_[0], &byte, 1), 0);  // the parent's end is closed
    });
    close(ends_[0]);
  }
  ~Orphan() {
    close(ends_[1]);
    EXPECT_EQ(exit_code_of(pid_), 0);
  }
  Orphan(const Orphan&) = delete;
  Orphan& operator=(const Orphan&) = delete;

 private:
  int ends_[2] = {-1, -1};
  pid_t pid_ = 0;
};

TEST(OwnFds, AChildHasNoneOfItsParents) {
  const int mine = OwnFds::instance().open([] { return eventfd(0, EFD_CLOEXEC); });
  const int users = eventfd(0, EFD_CLOEXEC);
  const int closed = OwnFds::instance().open([] { return eventfd(0, EFD_CLOEXEC); });
  OwnFds::instance().close(closed);
  const int reused = eventfd(0, EFD_CLOEXEC);
  EXPECT_EQ(reused, closed) << "the number is the user's now";
  run_in_child([&] {
    EXPECT_FALSE(is_open(mine));
    EXPECT_TRUE(is_open(users));
    EXPECT_TRUE(is_open(reused));
    const int own = OwnFds::instance().open([] { return eventfd(0, EFD_CLOEXEC); });
    EXPECT_EQ(own, mine) << "the least free number";
    run_in_child([&] { EXPECT_FALSE(is_open(own)); });
    EXPECT_TRUE(is_open(own));
  });
  EXPECT_TRUE(is_open(mine));
  OwnFds::instance().close(mine);
  close(users);
  close(reused);
}

TEST(OwnFds, ThreadsMayOpenWhileOthersFork) {
  std::atomic<bool> done{false};
  std::thread opener([&] {
    while (!done) {
      OwnFds::instance().close(OwnFds::instance().open([] { return eventfd(0, EFD_CLOEXEC); }));
    }
  });
  for (int round = 0; round < 20; ++round) {
    run_in_child([] {
      const int own = OwnFds::instance().open([] { return eventfd(0, EFD_CLOEXEC); });
      EXPECT_TRUE(is_open(own));
    });
  }
  done = true;
  opener.join();
}

TEST(SocketInAChild, IsNotHeldOpen) {
  auto listener = Socket::listen(loopback(), 0, 0);
  ASSERT_TRUE(listener.has_value());
  const SocketAddress address = listener.value().local_address().value();
  auto near = Socket::connect(address, seconds(10));
  ASSERT_TRUE(near.has_value());
  ASSERT_TRUE(seconds(10).wait(listener.value().fd(), POLLIN, "accept").has_value());
  std::optional<Socket> far = std::move(listener.value().try_accept()).value();
  ASSERT_TRUE(far.has_value());
  const Orphan orphan;

  far->close();  // as when the process ends
  char byte = 0;
  const auto received = near.value().recv_all(&byte, 1, seconds(10));
  ASSERT_TRUE(received.has_error());
  EXPECT_EQ(received.error().code(), Code::kRemoteError) << received.error().message();

  listener.value().close();
  const auto late = Socket::connect(address, seconds(10));
  ASSERT_TRUE(late.has_error());
  EXPECT_THAT(late.error().message(), testing::HasSubstr("refused"));
}

TEST(SocketInAChild, ItsOwnerThereDoesNothing) {
  auto listener = Socket::listen(loopback(), 0, 0);
  ASSERT_TRUE(listener.has_value());
  const int fd = listener.value().fd();
  run_in_child([&] {
    const int users = eventfd(0, EFD_CLOEXEC);
    EXPECT_EQ(users, fd);
    listener.value().close();
    EXPECT_TRUE(is_open(users));
  });
  EXPECT_TRUE(Socket::connect(listener.value().local_address().value(), seconds(10)).has_value());
}

TEST(ProcessId, OfAChildIsAnother) {
  const uint64_t mine = process_id();
  run_in_child([&] {
    EXPECT_NE(process_id(), mine);
    EXPECT_EQ(process_id(), process_id());
  });
  EXPECT_EQ(process_id(), mine);
}

}  // namespace
}  // namespace plexus
