// SPDX-License-Identifier: Apache-2.0
#include "core/ras/ras_server.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <new>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>

#include "core/base/log.hpp"
#include "core/base/thread.hpp"
#include "core/ras/ras_report.hpp"

namespace plexus {
namespace {

using std::chrono::milliseconds;

constexpr size_t kClientsMax = 64;  // beyond, who was idle for longest is closed
constexpr size_t kOutBytesMax = 64 * 1024;
constexpr milliseconds kRollTime{400};  // an answer is there within 0.5 s
constexpr milliseconds kRollFresh{50};  // so long a roll call serves all who ask
constexpr milliseconds kIdleMax{60'000};
constexpr milliseconds kSlowMax{30'000};  // without taking a byte of what is for it
constexpr milliseconds kCloseMax{1'000};  // for the other side to close
constexpr milliseconds kMonitorEvery{500};
constexpr milliseconds kRetryPause{1'000};
constexpr double kFactorMin = 0.01;
constexpr double kFactorMax = 1000;

/// NCCL_RAS_ADDR: "localhost" is both of its addresses, since clients try either first.
Result<std::vector<SocketAddress>> find_addresses(const std::string& text) {
  constexpr std::string_view kLocal = "localhost:";
  std::vector<std::string> names = {text};
  if (text.starts_with(kLocal)) {
    const std::string port = text.substr(kLocal.size() - 1);
    names = {"127.0.0.1" + port, "[::1]" + port};
  }
  std::vector<SocketAddress> found;
  for (const std::string& name : names) {
    auto address = SocketAddress::parse(name);
    if (address.has_error()) {
      return fail(Code::kInvalidArgument, "NCCL_RAS_ADDR: {}", address.error().message());
    }
    if (!address.value().is_loopback()) {
      return fail(Code::kInvalidArgument,
                  "NCCL_RAS_ADDR={} is refused: RAS has neither secret nor encryption, so it "
                  "listens at localhost only; from another host use ssh -L PORT:localhost:PORT",
                  text);
    }
    if (address.value().port() == 0) {
      return fail(Code::kInvalidArgument, "NCCL_RAS_ADDR={} has no port that clients could know",
                  text);
    }
    found.push_back(address.value());
  }
  return found;
}

Result<double> parse_factor(const std::string& text) {
  double factor = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), factor);
  if (error != std::errc() || end != text.data() + text.size() || !(factor >= kFactorMin) ||
      factor > kFactorMax) {
    return fail(Code::kInvalidArgument, "NCCL_RAS_TIMEOUT_FACTOR={} is no number from {} to {}",
                text, kFactorMin, kFactorMax);
  }
  return factor;
}

}  // namespace

void RasServer::start(const Config& config) {
  std::call_once(once_, [&] {
    auto started = listen(config);
    if (started.has_value()) {
      auto thread = start_thread("the RAS port", [this] { serve(); });
      if (thread.has_value()) {
        thread.value().detach();
        return;
      }
      started = std::move(thread).error();
      listeners_.clear();
    }
    if (started.error().code() == Code::kInvalidArgument) {
      PLEXUS_WARN("{}", started.error().message());  // of a setting; the job goes on without
    } else {
      PLEXUS_INFO(kRas, "RAS clients cannot ask this process: {}", started.error().message());
    }
  });
}

Result<void> RasServer::listen(const Config& config) {
  PLEXUS_TRY(factor, parse_factor(config.ras_timeout_factor));
  PLEXUS_TRY(addresses, find_addresses(config.ras_addr));
  time_ = milliseconds(
      static_cast<int64_t>(std::ceil(factor * static_cast<double>(kRollTime.count()))));
  std::optional<Error> refusal;
  for (const SocketAddress& address : addresses) {
    auto socket = Socket::listen(address, 0, 0, true);
    if (socket.has_value()) {
      listeners_.push_back(std::move(socket).value());
      PLEXUS_INFO(kRas, "RAS clients are answered at {}", address.to_string());
    } else if (!refusal.has_value()) {
      refusal = std::move(socket).error();
    }
  }
  return listeners_.empty() ? Result<void>(std::move(*refusal)) : Result<void>(ok());
}

void RasServer::serve() {
  for (;;) {
    try {
      serve_round();
    } catch (const std::bad_alloc&) {  // whoever is connected sees the end
      clients_.clear();
      reports_.clear();
      roll_.reset();
    }
  }
}

void RasServer::serve_round() {
  polled_.clear();
  for (const Socket& listener : listeners_) {
    polled_.push_back({.fd = listener.fd(), .events = POLLIN, .revents = 0});
  }
  bool any_monitors = false;
  for (const auto& client : clients_) {
    const bool has_output =
        !client->out.empty() || (client->report != nullptr && !client->is_closing);
    const int in = client->has_ended ? 0 : POLLIN;
    polled_.push_back({.fd = client->socket.fd(),
                       .events = static_cast<short>(in | (has_output ? POLLOUT : 0)),
                       .revents = 0});
    any_monitors = any_monitors || client->has_lifecycle;
  }
  const milliseconds pause = any_monitors ? kMonitorEvery : kCloseMax;
  (void)poll(polled_.data(), polled_.size(),
             clients_.empty() ? -1 : static_cast<int>(pause.count()));
  const size_t first = listeners_.size();
  for (size_t i = 0; i + first < polled_.size(); ++i) {
    Client& client = *clients_[i];
    const short events = polled_[first + i].revents;
    if ((events & (POLLIN | POLLERR | POLLHUP)) != 0) {
      take(client);
    }
    send(client);
  }
  if (any_monitors) {
    tell_monitors();
  }
  end_late();
  std::erase_if(clients_, [](const auto& client) { return client->is_over; });
  accept_all();
}

void RasServer::accept_all() {
  for (Socket& listener : listeners_) {
    for (size_t i = 0; i < kClientsMax; ++i) {
      auto accepted = listener.try_accept();
      if (accepted.has_error()) {  // no descriptor is left
        clients_.clear();
        std::this_thread::sleep_for(kRetryPause);
        return;
      }
      if (!accepted.value().has_value()) {
        break;
      }
      make_room();
      auto client = std::make_unique<Client>();
      client->socket = std::move(*accepted.value());
      client->seen = Clock::now();
      clients_.push_back(std::move(client));
    }
  }
}

/// Those who monitor are silent by nature, and are closed last.
void RasServer::make_room() {
  if (clients_.size() < kClientsMax) {
    return;
  }
  const auto longest =
      std::min_element(clients_.begin(), clients_.end(), [](const auto& a, const auto& b) {
        return std::pair(a->monitors, a->seen) < std::pair(b->monitors, b->seen);
      });
  clients_.erase(longest);
  say_once("more clients than 64 at once");
}

void RasServer::take(Client& client) {
  char bytes[4096];
  const auto received = client.socket.try_recv(bytes, sizeof(bytes));
  if (received.has_error()) {
    client.has_ended = true;
    client.is_over = client.is_closing || (client.report == nullptr && client.out.empty());
    return;
  }
  if (client.report != nullptr) {
    return;  // what comes behind the last command is dropped
  }
  client.seen = received.value() > 0 ? Clock::now() : client.seen;
  client.lines.add({bytes, received.value()});
  while (client.report == nullptr && !client.lines.is_too_long()) {
    const auto line = client.lines.next();
    if (!line.has_value()) {
      return;
    }
    execute(client, parse_ras_command(*line));
    if (client.out.size() > kOutBytesMax) {
      break;
    }
  }
  if (client.report == nullptr) {
    client.is_over = true;
    say_once("a line of more than 1023 bytes, or replies that are not read");
  }
}

void RasServer::execute(Client& client, const RasCommand& command) {
  client.out += command.reply;
  switch (command.verb) {
    case RasVerb::kReply:
      break;
    case RasVerb::kTimeout: {
      constexpr double kSecondsMax = 3600;
      constexpr double kMs = 1000;
      client.time_max = milliseconds(
          static_cast<int64_t>(std::ceil(std::min(command.seconds, kSecondsMax) * kMs)));
      break;
    }
    case RasVerb::kFormat:
      client.is_json = command.is_json;
      break;
    case RasVerb::kStatus:
      client.report = make_report(client, command.is_verbose);
      break;
    case RasVerb::kDiagnostics:
      client.report = make_diagnostics(client);
      break;
    case RasVerb::kMonitor:
      if (std::none_of(clients_.begin(), clients_.end(),
                       [](const auto& each) { return each->has_lifecycle; })) {
        known_.clear();  // what is there now is no news
        looked_ = {};
        tell_monitors();
      }
      client.monitors = true;
      client.has_lifecycle = command.has_lifecycle;
      break;
  }
}

void RasServer::send(Client& client) {
  while (!client.is_over && !client.is_closing) {
    const bool is_reply = !client.out.empty();
    const std::string_view left = is_reply ? std::string_view(client.out)
                                  : client.report == nullptr
                                      ? std::string_view()
                                      : std::string_view(*client.report).substr(client.report_sent);
    if (left.empty()) {
      break;
    }
    const auto sent = client.socket.try_send(left);
    client.is_over = sent.has_error();
    if (sent.has_error() || sent.value() == 0) {
      return;
    }
    client.seen = Clock::now();
    if (is_reply) {
      client.out.erase(0, sent.value());
    } else {
      client.report_sent += sent.value();
    }
  }
  if (client.report != nullptr && !client.is_closing && client.out.empty()) {
    // With bytes of the client unread, close() would destroy what it has not read yet.
    client.is_closing = true;
    client.is_over = client.is_over || client.has_ended;
    (void)shutdown(client.socket.fd(), SHUT_WR);
  }
}

void RasServer::end_late() {
  const auto now = Clock::now();
  for (const auto& client : clients_) {
    const bool owes = !client->out.empty() || client->report != nullptr;
    const milliseconds bound = client->is_closing ? kCloseMax : owes ? kSlowMax : kIdleMax;
    const bool is_late = now - client->seen > bound && (owes || !client->monitors);
    client->is_over = client->is_over || is_late || (client->has_ended && !owes);
  }
}

void RasServer::say_once(std::string_view what) {
  if (!std::exchange(has_logged_, true)) {
    PLEXUS_INFO(kRas, "RAS: clients were closed for {}; that is said once", what);
  }
}

/// Clients that ask at the same time share an answer. That also bounds what they cost the job.
const JobRoll& RasServer::roll(const Client& client) {
  if (!roll_.has_value() || Clock::now() - rolled_ > kRollFresh) {
    reports_.clear();
    roll_ =
        watch_.call_roll(client.time_max.count() > 0 ? std::min(client.time_max, time_) : time_);
    rolled_ = Clock::now();
  }
  return *roll_;
}

RasServer::Text RasServer::make_report(Client& client, bool is_verbose) {
  const JobRoll& answers = roll(client);
  Text& text = reports_[{client.is_json, is_verbose}];
  if (text == nullptr) {
    const RasJob job(answers);
    text = std::make_shared<const std::string>(
        client.is_json ? make_ras_json(job, local_timestamp()) : make_ras_text(job, is_verbose));
  }
  return text;
}

RasServer::Text RasServer::make_diagnostics(Client& client) {
  if (client.is_json) {
    return std::make_shared<const std::string>("ERROR: diagnostics only supports text output\n");
  }
  const JobRoll& answers = roll(client);
  const std::string self =
      answers.processes.empty()
          ? std::to_string(getpid())
          : fmt::format("{}:{}", answers.processes.front().host, answers.processes.front().pid);
  return std::make_shared<const std::string>(make_ras_diagnostics(RasJob(answers), self));
}

/// Processes that have come or died since the last look.
void RasServer::tell_monitors() {
  const auto now = Clock::now();
  if (now - looked_ < kMonitorEvery) {
    return;
  }
  std::vector<RasEvent> events;
  const bool is_first = known_.empty();
  looked_ = now;
  for (const KnownRank& rank : list_known(watch_)) {
    if (rank.place.address.empty()) {
      continue;
    }
    const auto [at, is_new] = known_.emplace(std::pair(rank.place.address, rank.place.pid), false);
    const bool dies = rank.place.is_dead && !at->second;
    at->second = at->second || rank.place.is_dead;
    if (!is_first && (dies || is_new)) {
      events.push_back({.name = dies ? "PEER_DEAD" : "PEER_NEW",
                        .host = rank.place.address,
                        .pid = rank.place.pid,
                        .details = dies ? "has died or lost its connections" : "has joined"});
    }
  }
  for (const auto& client : clients_) {
    for (const RasEvent& event : events) {
      if (client->has_lifecycle) {
        client->out += make_ras_event(event, client->is_json, local_timestamp());
      }
    }
    client->is_over = client->is_over || client->out.size() > kOutBytesMax;
    send(*client);
  }
}

}  // namespace plexus
