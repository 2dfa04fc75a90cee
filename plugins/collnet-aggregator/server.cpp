// SPDX-License-Identifier: Apache-2.0
#include "plugins/collnet-aggregator/server.hpp"

#include <algorithm>
#include <cerrno>
#include <poll.h>
#include <sys/eventfd.h>
#include <vector>

#include "plugins/support/errno_text.hpp"

namespace plexus::aggregator {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr size_t kLinksMax = 4096;
constexpr size_t kReadBytes = size_t{256} << 10;
/// A member with this many unsent results is not read from, which bounds their number.
constexpr size_t kOutputMax = 2 * kRequestsMax;
constexpr auto kHelloWithin = seconds(10);
constexpr auto kLeaveWithin = seconds(1);
constexpr int kPollMilliseconds = 500;

}  // namespace

Server::Server(UniqueFd listener, Say say)
    : listener_(std::move(listener)),
      wake_(UniqueFd::open([] { return ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC); })),
      say_(std::move(say)),
      groups_([this](int number, std::shared_ptr<const Bytes> bytes) {
        const auto at = links_.find(number);
        if (at != links_.end()) {
          at->second.output.push_back(std::move(bytes));
          ++output_;
        }
      }),
      buffer_(kReadBytes) {}

void Server::stop() noexcept {
  stopped_ = true;
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);  // a failure only delays poll() until its timeout
}

void Server::run() {
  std::vector<pollfd> polled;
  std::vector<int> numbers;
  while (!stopped_) {
    polled = {{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    numbers.clear();
    for (const auto& [number, link] : links_) {
      const bool reads = !link.is_leaving && link.output.size() < kOutputMax;
      const int events = (reads ? POLLIN : 0) | (link.output.empty() ? 0 : POLLOUT);
      polled.push_back({link.fd.get(), static_cast<int16_t>(events), 0});
      numbers.push_back(number);
    }
    if (::poll(polled.data(), polled.size(), kPollMilliseconds) < 0 && errno != EINTR) {
      say_(fmt::format("poll failed: {}", plugin::errno_text()));
      return;
    }
    if (polled[1].revents != 0) {
      accept_all();
    }
    for (size_t i = 0; i < numbers.size(); ++i) {
      const int events = polled[i + 2].revents;
      if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) {
        read_from(numbers[i]);
      }
    }
    // Data was summed: send the results at once, without another poll.
    std::vector<int> ready;
    for (const auto& [number, link] : links_) {
      if (!link.output.empty() || link.is_leaving) {
        ready.push_back(number);
      }
    }
    std::for_each(ready.begin(), ready.end(), [this](int number) { write_to(number); });
    drop_late();
  }
}

void Server::accept_all() {
  while (links_.size() < kLinksMax) {
    Address address;
    socklen_t size = sizeof(address.storage);
    UniqueFd fd = UniqueFd::open([&] {
      return ::accept4(listener_.get(), reinterpret_cast<sockaddr*>(&address.storage), &size,
                       SOCK_NONBLOCK | SOCK_CLOEXEC);
    });
    if (!fd.is_open()) {
      return;
    }
    set_options(fd.get());
    Link& link = links_[next_link_];
    link.fd = std::move(fd);
    link.peer = address.to_string();
    link.until = Clock::now() + kHelloWithin;
    groups_.open(next_link_, link.peer);
    ++next_link_;
  }
}

void Server::read_from(int number) {
  Link& link = links_.at(number);
  if (link.is_leaving) {
    return;
  }
  const ssize_t got = ::recv(link.fd.get(), buffer_.data(), buffer_.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
    return;
  }
  if (got <= 0) {
    const std::string why =
        got == 0 ? "it closed the connection" : fmt::format("{}", plugin::errno_text());
    leave(number, why, false);
    return;
  }
  const auto fed = groups_.feed(number, std::span(buffer_).first(static_cast<size_t>(got)));
  if (fed.has_error()) {
    leave(number, fed.error().text, true);
  } else if (groups_.is_member(number)) {
    link.until = Clock::time_point::max();
  }
}

/// `tell`: send the reason to the peer, which still listens.
void Server::leave(int number, const std::string& why, bool tell) {
  Link& link = links_.at(number);
  if (tell) {
    say_(fmt::format("refused {}: {}", link.peer, why));
    const std::string text = why.substr(0, kErrorBytesMax);
    link.output.push_back(make_frame({.kind = FrameKind::kError},
                                     std::as_bytes(std::span(text.data(), text.size()))));
    ++output_;
  }
  link.is_leaving = true;
  link.until = Clock::now() + kLeaveWithin;
  groups_.close(number, why);
  if (!tell) {
    drop(number);
  }
}

void Server::write_to(int number) {
  Link& link = links_.at(number);
  while (!link.output.empty()) {
    const Bytes& bytes = *link.output.front();
    const ssize_t sent = ::send(link.fd.get(), bytes.data() + link.sent_bytes,
                                bytes.size() - link.sent_bytes, MSG_NOSIGNAL);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) {
      return;
    }
    if (sent < 0) {
      const std::string why = plugin::errno_text();
      if (link.is_leaving) {
        drop(number);
      } else {
        leave(number, why, false);
      }
      return;
    }
    link.sent_bytes += static_cast<size_t>(sent);
    if (link.sent_bytes == bytes.size()) {
      link.output.pop_front();
      --output_;
      link.sent_bytes = 0;
    }
  }
  if (link.is_leaving) {
    drop(number);
  }
}

void Server::drop(int number) {
  const auto at = links_.find(number);
  output_ -= at->second.output.size();
  links_.erase(at);
}

void Server::drop_late() {
  const auto now = Clock::now();
  std::vector<int> late;
  for (const auto& [number, link] : links_) {
    if (now >= link.until) {
      late.push_back(number);
    }
  }
  for (const int number : late) {
    if (!links_.at(number).is_leaving) {
      groups_.close(number, "it sent nothing in time");
    }
    drop(number);
  }
}

HostedServer::HostedServer(UniqueFd listener, Server::Say say)
    : server_(std::move(listener), std::move(say)), thread_([this] { server_.run(); }) {}

HostedServer::~HostedServer() {
  const auto until = std::chrono::steady_clock::now() + kLeaveWithin;
  while (server_.has_output() && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  server_.stop();
  thread_.join();
}

}  // namespace plexus::aggregator
