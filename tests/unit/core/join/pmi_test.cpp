// SPDX-License-Identifier: Apache-2.0
// Against a launcher of the test's own, at the other end of a socket pair.
#include "core/join/pmi.hpp"

#include <chrono>
#include <functional>
#include <map>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Answers each line by `answer` (nullopt-like "": closes) until the other end closes.
class Launcher {
 public:
  explicit Launcher(std::function<std::string(const std::string&)> answer) {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    rank_ = fds[0];
    thread_ = std::thread([this, fd = fds[1], answer = std::move(answer)] {
      std::string line;
      for (char next = 0; read(fd, &next, 1) == 1;) {
        if (next != '\n') {
          line += next;
          continue;
        }
        asked_.push_back(line.substr(0, line.find(' ')));
        const std::string reply = answer(line);
        if (reply.empty()) {
          break;
        }
        (void)!write(fd, reply.data(), reply.size());
        line.clear();
      }
      close(fd);
    });
  }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;
  ~Launcher() { (void)end(); }
  [[nodiscard]] std::string fd() const { return std::to_string(rank_); }
  std::vector<std::string> end() {
    if (thread_.joinable()) {
      close(rank_);
      thread_.join();
    }
    return asked_;
  }

 private:
  int rank_ = -1;
  std::thread thread_;
  std::vector<std::string> asked_;
};

/// What Hydra answers; `values` is its store.
std::string hydra(std::map<std::string, std::string>& values, const std::string& line) {
  const auto value = [&](const std::string& name) {
    const size_t at = line.find(name + "=") + name.size() + 1;
    return line.substr(at, line.find(' ', at) - at);
  };
  const std::string command = value("cmd");
  if (command == "init") {
    return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n";
  }
  if (command == "get_my_kvsname") {
    return "cmd=my_kvsname kvsname=kvs_7_0\n";
  }
  if (command == "put") {
    EXPECT_EQ(value("kvsname"), "kvs_7_0");
    values[value("key")] = value("value");
    return "cmd=put_result rc=0 msg=success\n";
  }
  if (command == "barrier_in") {
    return "cmd=barrier_out\n";
  }
  if (command == "get") {
    const auto found = values.find(value("key"));
    return found == values.end() ? "cmd=get_result rc=-1 msg=key_not_found value=unknown\n"
                                 : "cmd=get_result rc=0 msg=success value=" + found->second + "\n";
  }
  return "cmd=finalize_ack\n";
}

TEST(PassOnByPmi, RankZerosValueReachesAnother) {
  std::map<std::string, std::string> values;
  const auto answer = [&](const std::string& line) { return hydra(values, line); };
  Launcher zero(answer);
  EXPECT_EQ(pass_on_by_pmi(zero.fd(), 0, "00ff", Deadline::after(10s)).value(), "00ff");
  EXPECT_THAT(zero.end(), ElementsAre("cmd=init", "cmd=get_my_kvsname", "cmd=put", "cmd=barrier_in",
                                      "cmd=get", "cmd=finalize"));
  Launcher one(answer);
  EXPECT_EQ(pass_on_by_pmi(one.fd(), 1, "", Deadline::after(10s)).value(), "00ff");
}

TEST(PassOnByPmi, AnErrorOfTheLauncherIsOneSentence) {
  std::map<std::string, std::string> values;  // rank 0 has put nothing
  Launcher launcher([&](const std::string& line) { return hydra(values, line); });
  const auto got = pass_on_by_pmi(launcher.fd(), 1, "", Deadline::after(10s));
  ASSERT_TRUE(got.has_error());
  EXPECT_THAT(got.error().message(), HasSubstr("key_not_found"));
}

TEST(PassOnByPmi, ALauncherThatClosesLiesOrSendsTooMuchIsAnError) {
  for (const std::string& reply :
       {std::string(), std::string("\n"), std::string("HTTP/1.1 400\x1b[2J\n"),
        std::string(1 << 20, 'x')}) {
    Launcher launcher([&](const std::string&) { return reply; });
    const auto got = pass_on_by_pmi(launcher.fd(), 0, "00", Deadline::after(10s));
    ASSERT_TRUE(got.has_error());
    EXPECT_EQ(got.error().code(), Code::kSystemError);
    EXPECT_LT(got.error().message().size(), 300u);
    EXPECT_EQ(got.error().message().find('\x1b'), std::string::npos);
  }
}

TEST(PassOnByPmi, ARankThatDoesNotComeIsATimeout) {
  std::map<std::string, std::string> values;
  Launcher launcher([&](const std::string& line) {
    // Half a line: the barrier does not end.
    return line == "cmd=barrier_in" ? "cmd=barrier" : hydra(values, line);
  });
  const auto got = pass_on_by_pmi(launcher.fd(), 1, "", Deadline::after(50ms));
  ASSERT_TRUE(got.has_error());
  EXPECT_EQ(got.error().code(), Code::kTimeout);
}

TEST(PassOnByPmi, ADescriptorThatIsNoSocketIsRefused) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  for (const std::string& fd :
       {std::to_string(ends[1]), std::string("-1"), std::string(""), std::string("9x"),
        std::string("99999"), std::string("9999999999")}) {
    const auto got = pass_on_by_pmi(fd, 0, "00", Deadline::after(10s));
    ASSERT_TRUE(got.has_error()) << fd;
    EXPECT_THAT(got.error().message(), HasSubstr("PMI_FD"));
  }
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace plexus
