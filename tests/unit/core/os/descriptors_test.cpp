// SPDX-License-Identifier: Apache-2.0
#include "core/os/descriptors.hpp"

#include <cstdlib>
#include <string>
#include <sys/resource.h>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/os/shared_memory.hpp"
#include "core/os/socket.hpp"
#include "tests/support/no_descriptors.hpp"

namespace plexus {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

auto names_limit_and_remedy() {
  return AllOf(HasSubstr("ulimit -n is 64"), HasSubstr("raise the limit of open files"),
               HasSubstr("PLEXUS_RAISE_NOFILE=1"));
}

TEST(Descriptors, EveryRefusalNamesTheLimitAndTheRemedy) {
  const auto memory = SharedMemory::create(1).value();
  const auto address = SocketAddress::parse("127.0.0.1:0").value();
  std::vector<std::string> refusals;
  // UBSan's first check of an object's type opens a pipe: no new types meanwhile, and no matchers.
  EXPECT_TRUE(Socket::listen(address, 0, 0).has_value());
  {
    const test::NoDescriptors none;
    refusals.push_back(SharedMemory::create(1).error().message());
    refusals.push_back(
        SharedMemory::open_peer(
            {.pid = getpid(), .fd = memory.fd(), .size_bytes = memory.size(), .id = memory.id()})
            .error()
            .message());
    refusals.push_back(Socket::listen(address, 0, 0).error().message());
    refusals.push_back(Socket::start_connect(address).error().message());
    refusals.push_back(find_interface("", "", "NCCL_SOCKET_IFNAME").error().message());
  }
  EXPECT_THAT(refusals, Each(names_limit_and_remedy()));
}

TEST(Descriptors, AnAcceptThatIsRefusedNamesTheLimitToo) {
  auto listener = Socket::listen(SocketAddress::parse("127.0.0.1:0").value(), 0, 0).value();
  const auto caller = Socket::start_connect(listener.local_address().value()).value();
  std::string refusal;
  {
    const test::NoDescriptors none;
    while (refusal.empty()) {  // until the connection has arrived; on loopback it has
      const auto accepted = listener.try_accept();
      refusal = accepted.has_error() ? accepted.error().message() : "";
    }
  }
  EXPECT_THAT(refusal, names_limit_and_remedy());
}

TEST(Descriptors, OtherRefusalsSayWhatTheSystemSays) {
  EXPECT_EQ(describe_refused_descriptor("cannot make a socket", EACCES).message(),
            "cannot make a socket: Permission denied");
  EXPECT_THAT(describe_refused_descriptor("cannot make a socket", ENFILE).message(),
              HasSubstr("fs.file-max"));
}

TEST(Descriptors, TheSoftLimitIsRaisedToTheHardOne) {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit low{before.rlim_max / 2, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &low);
  raise_descriptor_limit();
  rlimit after{};
  getrlimit(RLIMIT_NOFILE, &after);
  EXPECT_EQ(after.rlim_cur, before.rlim_max);
  setrlimit(RLIMIT_NOFILE, &before);
}

}  // namespace
}  // namespace plexus
