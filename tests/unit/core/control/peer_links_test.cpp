// SPDX-License-Identifier: Apache-2.0
// What a process without descriptors says. Connections that rest are tested by rendezvous_test.cpp.
#include "core/control/peer_links.hpp"

#include <chrono>
#include <memory>
#include <string>
#include <sys/resource.h>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/forked.hpp"

namespace plexus {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kJob = 5;
constexpr uint32_t kProcesses = 4;
constexpr security::Terms kTerms{.mode = security::Mode::kAuth, .key = {7}};

Socket listen_here() {
  return Socket::listen(SocketAddress::parse("127.0.0.1:0").value(), 0, 0).value();
}

ProcessTable make_table(const std::vector<SocketAddress>& addresses) {
  std::vector<ProcessEntry> entries;
  for (uint32_t process = 0; process < addresses.size(); ++process) {
    ProcessEntry entry{.process = 100 + process, .host = "node", .ranks = {process}};
    addresses[process].pack(entry.address.data());
    entries.push_back(std::move(entry));
  }
  return ProcessTable::make(std::move(entries)).value();
}

/// The connections of one process, all of whose peers are its neighbours.
class Process {
 public:
  Process(uint32_t self, Socket listener, const ProcessTable& table) {
    auto links =
        LinkSet::make(kTerms, LinkSet::ListenerKey::kOfAddress, std::move(listener), {},
                      {.take = [this](LinkSet::Link link,
                                      Message message) { peers_->take(link, std::move(message)); },
                       .end = [this](LinkSet::Link link, LinkSet::End end,
                                     const std::string& why) { peers_->end(link, end, why); }});
    links_ = std::move(links).value();
    peers_ = std::make_unique<PeerLinks>(
        *links_, kJob, 8,
        PeerLinks::Handler{
            .take = [this](uint32_t process, Message message) -> Result<void> {
              EXPECT_EQ(process, 0U);
              heard_.push_back(message.payload);
              return ok();
            },
            .lose = [](uint32_t, LinkSet::End, const std::string&) {},
            .keeps = [](uint32_t) { return true; },
            .break_down = [this](const Error& error) { errors_.push_back(error.message()); }});
    peers_->set_table(table, self);
  }
  void say(uint32_t process, const std::string& text) {
    peers_->send(process, {.type = MessageType::kFailureNotice, .group = kJob, .payload = text});
  }
  void announce_leave() {
    peers_->announce_leave({.type = MessageType::kLeave, .group = kJob, .payload = "leave"});
    links_->finish_all();
  }
  void step() {
    links_->wait(std::chrono::milliseconds(1));
    links_->progress();
    peers_->progress();
  }
  [[nodiscard]] bool is_done() const { return links_->is_empty() && !peers_->is_holding(); }
  [[nodiscard]] const std::vector<std::string>& heard() const { return heard_; }
  [[nodiscard]] const std::vector<std::string>& errors() const { return errors_; }

 private:
  std::unique_ptr<LinkSet> links_;
  std::unique_ptr<PeerLinks> peers_;
  std::vector<std::string> heard_;
  std::vector<std::string> errors_;
};

std::vector<int> use_up_descriptors() {
  const rlimit tight{64, 64};
  setrlimit(RLIMIT_NOFILE, &tight);
  std::vector<int> made;
  for (int fd = dup(0); fd >= 0; fd = dup(0)) {
    made.push_back(fd);
  }
  return made;
}

/// Process 0 has no descriptor but that in reserve, and has two messages for each of the others. It
/// leaves `early`: before they are sent.
void expect_last_words(bool early) {
  std::vector<Socket> listeners;
  std::vector<SocketAddress> addresses;
  for (uint32_t process = 0; process < kProcesses; ++process) {
    listeners.push_back(listen_here());
    addresses.push_back(listeners.back().local_address().value());
  }
  const ProcessTable table = make_table(addresses);
  const pid_t poor = testing_fork::start_child([&] {
    Socket listener = listen_here();
    addresses[0] = listener.local_address().value();
    const ProcessTable mine = make_table(addresses);
    Process self(0, std::move(listener), mine);
    const std::vector<int> used = use_up_descriptors();
    for (const char* const text : {"first", "second"}) {
      for (uint32_t process = 1; process < kProcesses; ++process) {
        self.say(process, text);
      }
    }
    while (!early && !self.is_done() && self.errors().empty()) {
      self.step();
    }
    self.announce_leave();
    while (!self.is_done() || self.errors().empty()) {
      self.step();
    }
    // UBSan needs a pipe to look at objects with virtual functions, which gtest's matchers are.
    for (const int fd : used) {
      close(fd);
    }
    ASSERT_EQ(self.errors().size(), 1U);
    EXPECT_THAT(self.errors()[0], HasSubstr("Too many open files"));
  });
  std::vector<std::unique_ptr<Process>> others;
  for (uint32_t process = 1; process < kProcesses; ++process) {
    others.push_back(std::make_unique<Process>(process, std::move(listeners[process]), table));
  }
  const Deadline bound = Deadline::after(std::chrono::seconds(testing_fork::bound(20)));
  int status = -1;
  while (waitpid(poor, &status, WNOHANG) == 0 && !bound.expired()) {
    for (const auto& other : others) {
      other->step();
    }
  }
  EXPECT_EQ(status, 0) << "the process without descriptors failed or hung";
  for (const auto& other : others) {
    EXPECT_THAT(other->heard(), ElementsAre("first", "second", "leave"));
  }
}

TEST(PeerLinks, AProcessWithoutDescriptorsTellsAll) { expect_last_words(false); }
TEST(PeerLinks, AProcessWithoutDescriptorsTellsAllWhenItLeavesAtOnce) { expect_last_words(true); }

}  // namespace
}  // namespace plexus
