// SPDX-License-Identifier: Apache-2.0
#include "plugins/collnet-aggregator/server.hpp"

#include <algorithm>
#include <cerrno>
#include <new>
#include <optional>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <utility>
#include <vector>

#include "guest/assert.hpp"
#include "guest/thread.hpp"
#include "plugins/support/errno_text.hpp"

namespace plexus::aggregator {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr size_t kLinksMax = 4096;
/// Beyond them the oldest pending peer is dropped, when it has had its grace.
constexpr size_t kPendingPeersMax = 256;
constexpr auto kPendingPeerGrace = seconds(1);
constexpr size_t kReadBytes = size_t{256} << 10;
/// A member with this many unsent results is not read from, which bounds their number.
constexpr size_t kOutputMax = size_t{2} * kRequestsMax;
/// From its connection to its hello.
constexpr auto kHelloWithin = seconds(10);
constexpr auto kLeaveWithin = seconds(1);
constexpr int kPollMilliseconds = 500;
/// Limits log lines caused by a port scan.
constexpr uint32_t kRefusalsLogged = 16;

UniqueFd make_event() {
  return UniqueFd::open([] { return ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC); });
}

}  // namespace

Server::Server(UniqueFd listener, const security::Terms& terms, Say say)
    : listener_(std::move(listener)),
      terms_(terms),
      wake_(make_event()),
      reserve_(make_event()),
      say_(std::move(say)),
      groups_([this](int number, std::shared_ptr<const Bytes> bytes) {
        if (Link* const link = find(number); link != nullptr) {
          link->output.push_back(std::move(bytes));
          ++output_;
        }
      }),
      buffer_(kReadBytes) {}

void Server::stop() noexcept {
  stopped_ = true;
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);  // a failure only delays poll() until its timeout
}

Server::Link* Server::find(int number) {
  const auto at = links_.find(number);
  return at == links_.end() ? nullptr : &at->second;
}

bool Server::reads(const Link& link) const {
  return !link.is_leaving && link.output.size() < kOutputMax;
}

void Server::run() {
  try {
    serve();
  } catch (const std::bad_alloc&) {  // the members see that their connections end
    links_.clear();
    listener_.reset();
    output_ = 0;
  }
}

void Server::serve() {
  while (!stopped_) {
    poll_once();
    // Data was summed: send the results at once, without another poll.
    std::vector<int> ready;
    for (const auto& [number, link] : links_) {
      if (link.is_proven && (!link.output.empty() || link.is_leaving)) {
        ready.push_back(number);
      }
    }
    std::for_each(ready.begin(), ready.end(), [this](int number) { write_to(number); });
    drop_late();
    drop_silent();
  }
}

void Server::poll_once() {
  const bool is_full = std::exchange(is_full_, false);
  std::vector<pollfd> polled = {{wake_.get(), POLLIN, 0},
                                {listener_.get(), static_cast<int16_t>(is_full ? 0 : POLLIN), 0}};
  std::vector<int> numbers;
  bool has_more = false;  // that poll() does not know of
  for (const auto& [number, link] : links_) {
    const int proven_events = (reads(link) ? POLLIN : 0) | (link.output.empty() ? 0 : POLLOUT);
    const int events = link.is_proven ? proven_events : link.session.awaits();
    has_more = has_more || (reads(link) && link.session.may_have_more());
    polled.push_back({link.fd.get(), static_cast<int16_t>(events), 0});
    numbers.push_back(number);
  }
  if (::poll(polled.data(), polled.size(), has_more ? 0 : kPollMilliseconds) < 0 &&
      errno != EINTR) {
    say_(fmt::format("poll failed: {}", plugin::errno_text()));
    stopped_ = true;
    return;
  }
  for (size_t i = 0; i < numbers.size(); ++i) {
    const Link& link = links_.at(numbers[i]);
    const int ignored = link.is_proven ? POLLOUT : 0;  // write_to() is called in any case
    if ((polled[i + 2].revents & ~ignored) != 0 || link.session.may_have_more()) {
      progress(numbers[i]);
    }
  }
  if (polled[1].revents != 0) {
    accept_all();
  }
}

// ---- accepting ----

void Server::accept_all() {
  if (!reserve_.is_open()) {
    reserve_ = make_event();
  }
  // Without a reserve, and with too many connections, new ones wait in the listener's queue, and
  // the listener is looked at again after the next wait.
  while (reserve_.is_open() && may_accept()) {
    Address address;
    socklen_t size = sizeof(address.storage);
    UniqueFd fd = UniqueFd::open([&] {
      return ::accept4(listener_.get(), reinterpret_cast<sockaddr*>(&address.storage), &size,
                       SOCK_NONBLOCK | SOCK_CLOEXEC);
    });
    if (!fd.is_open()) {
      if (errno == EMFILE || errno == ENFILE) {
        refuse_for_descriptors();
      }
      return;
    }
    set_options(fd.get());
    const int number = next_link_++;
    Link& link = links_[number];
    link.session = security::Session(fd.get(), security::Role::kListener, terms_);
    link.fd = std::move(fd);
    link.peer = address.to_string();
    link.since = Clock::now();
    link.until = link.since + kHelloWithin;
    progress(number);
  }
  is_full_ = true;
}

/// Accepts with the descriptor in reserve, tells why, and closes.
void Server::refuse_for_descriptors() {
  reserve_.reset();
  const UniqueFd fd = UniqueFd::open(
      [&] { return ::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); });
  if (fd.is_open()) {
    rlimit limit{};
    (void)::getrlimit(RLIMIT_NOFILE, &limit);
    const auto answer = security::refuse_for_descriptors(static_cast<uint32_t>(limit.rlim_cur));
    (void)!::send(fd.get(), &answer, sizeof answer, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (++refusals_ <= kRefusalsLogged) {
      say_(
          fmt::format("refused a connection: no file descriptor is left (ulimit -n is {}); raise "
                      "the limit",
                      limit.rlim_cur));
    }
  }
  is_full_ = true;
}

/// Whether one more connection may be accepted. At the limit of pending peers, the oldest is
/// dropped if it has had its grace. So neither a port scan nor many silent connections keep members
/// out.
bool Server::may_accept() {
  size_t pending_peers = 0;
  std::optional<int> oldest;
  for (const auto& [number, link] : links_) {
    if (link.is_pending && !link.is_leaving) {
      ++pending_peers;
      oldest = oldest.value_or(number);
    }
  }
  if (pending_peers < kPendingPeersMax) {
    return links_.size() < kLinksMax;
  }
  if (links_.at(*oldest).since + kPendingPeerGrace > Clock::now()) {
    return false;
  }
  leave(*oldest, "it had to make room for others", false);
  return true;
}

// ---- receiving ----

void Server::progress(int number) {
  const Link* const link = find(number);
  if (link != nullptr && !link->is_leaving && (link->is_proven || prove(number)) && reads(*link)) {
    read_from(number);
  }
}

bool Server::prove(int number) {
  Link& link = links_.at(number);
  const auto state = link.session.advance();
  if (state == security::Session::State::kFailed) {
    report_pending_peer(link, link.session.error());
    drop(number);
    return false;
  }
  if (state == security::Session::State::kPending) {
    return false;
  }
  link.is_proven = true;
  groups_.open(number, link.peer);
  return true;
}

void Server::read_from(int number) {
  Link& link = links_.at(number);
  const iovec room{buffer_.data(), buffer_.size()};
  const ssize_t got = link.session.receive(std::span(&room, 1));
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
    return;
  }
  if (got <= 0) {
    leave(number,
          got == 0           ? "it closed the connection"
          : errno == EBADMSG ? link.session.error()
                             : plugin::errno_text(),
          false);
    return;
  }
  const auto fed = groups_.feed(number, std::span(buffer_).first(static_cast<size_t>(got)));
  if (fed.has_error()) {
    leave(number, fed.error().text, true);
  } else if (link.is_pending && groups_.is_member(number)) {
    link.is_pending = false;
    link.until = Clock::time_point::max();
  }
}

void Server::report_pending_peer(const Link& link, const std::string& why) {
  if (++refusals_ <= kRefusalsLogged) {
    say_(fmt::format("refused {}: {}{}", link.peer, why,
                     refusals_ == kRefusalsLogged ? " (further ones are not reported)" : ""));
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
    const iovec rest{
        const_cast<std::byte*>(bytes.data()) + link.sent_bytes,  // NOLINT(*-const-cast)
        bytes.size() - link.sent_bytes};                         // send() only reads it
    const ssize_t sent = link.session.send(std::span(&rest, 1));
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
      PLEXUS_DCHECK(output_ > 0, number);
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
  PLEXUS_DCHECK(at != links_.end() && output_ >= at->second.output.size(), number, output_);
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
    if (Link& link = links_.at(number); !link.is_leaving) {
      report_pending_peer(link, "it did not say hello in time");
      groups_.close(number, "it did not say hello in time");
    }
    drop(number);
  }
}

/// The kernel does so where nothing waits to be sent.
void Server::drop_silent() {
  const auto now = Clock::now();
  if (now < next_look_) {
    return;
  }
  next_look_ = now + kSilence / (security::Silence::kLooks + 1);
  std::vector<int> silent;
  for (auto& [number, link] : links_) {
    if (link.silence.look(link.fd.get(), !link.output.empty()) && !link.is_leaving) {
      silent.push_back(number);
    }
  }
  for (const int number : silent) {
    leave(number, kSilent, false);
  }
}

HostedServer::HostedServer(UniqueFd listener, const security::Terms& terms, Server::Say say)
    : server_(std::move(listener), terms, std::move(say)),
      thread_(make_guest_thread([this] { server_.run(); })) {}

HostedServer::~HostedServer() {
  const auto until = std::chrono::steady_clock::now() + kLeaveWithin;
  while (server_.has_output() && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  server_.stop();
  thread_.join();
}

}  // namespace plexus::aggregator
