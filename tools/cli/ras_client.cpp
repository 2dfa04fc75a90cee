// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/ras_client.hpp"

#include <poll.h>
#include <vector>

#include "core/os/socket.hpp"

namespace plexus {
namespace {

constexpr auto kReplyTime = std::chrono::seconds(1);
constexpr auto kReportTime = std::chrono::seconds(12);  // NCCL's own waits for 10 s
constexpr size_t kReportBytesMax = size_t{256} << 20;
constexpr size_t kLineBytesMax = 1024;
constexpr int kTries = 8;

/// What comes until `until`, or until the other side closes, which is the end of a report.
Result<std::string> receive(Socket& socket, const Patience& patience, bool is_line) {
  std::string received;
  const size_t bytes_max = is_line ? kLineBytesMax : kReportBytesMax;
  std::vector<char> part(is_line ? 1 : 64 * 1024);
  while (received.size() <= bytes_max) {
    PLEXUS_TRY(patience.wait(socket.fd(), POLLIN, "waiting for an answer"));
    const auto size = socket.try_recv(part.data(), part.size());
    if (size.has_error()) {
      return is_line ? Result<std::string>(fail(Code::kRemoteError, "the connection was closed"))
                     : Result<std::string>(std::move(received));
    }
    received.append(part.data(), size.value());
    if (is_line && received.ends_with('\n')) {
      return received;
    }
  }
  return fail(Code::kRemoteError, "more than {} bytes came", bytes_max);
}

Result<void> exchange(Socket& socket, std::string_view line, std::string_view reply) {
  const Patience patience{.deadline = Deadline::after(kReplyTime)};
  PLEXUS_TRY(socket.send_all(line, patience));
  PLEXUS_TRY(received, receive(socket, patience, true));
  if (!received.starts_with(reply)) {
    return fail(Code::kInvalidUsage, "no RAS server answers there: '{}' came for '{}'",
                received.substr(0, received.size() - 1), line.substr(0, line.size() - 1));
  }
  return ok();
}

Result<std::string> ask_once(const SocketAddress& address, bool is_json, bool is_verbose) {
  PLEXUS_TRY(socket, Socket::connect(address, {.deadline = Deadline::after(kReplyTime)}));
  PLEXUS_TRY(exchange(socket, "CLIENT PROTOCOL 2\n", "SERVER PROTOCOL "));
  if (is_json) {
    PLEXUS_TRY(exchange(socket, "SET FORMAT json\n", "OK\n"));
  }
  const Patience patience{.deadline = Deadline::after(kReportTime)};
  PLEXUS_TRY(socket.send_all(is_verbose ? "VERBOSE STATUS\n" : "STATUS\n", patience));
  return receive(socket, patience, false);
}

}  // namespace

Result<std::string> ask_ras(const std::string& address, bool is_json, bool is_verbose) {
  std::vector<std::string> names = {address};
  constexpr std::string_view kLocal = "localhost:";
  if (address.starts_with(kLocal)) {
    const std::string port = address.substr(kLocal.size() - 1);
    names = {"127.0.0.1" + port, "[::1]" + port};
  }
  std::vector<SocketAddress> found;
  for (const std::string& name : names) {
    PLEXUS_TRY(parsed, SocketAddress::parse(name));
    found.push_back(parsed);
  }
  auto last = Result<std::string>(fail(Code::kRemoteError, "no process answers at {}", address));
  for (int i = 0; i < kTries; ++i) {
    for (const SocketAddress& each : found) {
      auto answer = ask_once(each, is_json, is_verbose);
      if (answer.has_value() || answer.error().code() == Code::kInvalidUsage) {
        return answer;
      }
      const bool refuses = answer.error().code() == Code::kRemoteError;
      last = i > 0 && refuses ? std::move(last) : std::move(answer);
    }
    if (last.error().code() != Code::kTimeout) {
      break;  // nobody listens
    }
  }
  return last;
}

}  // namespace plexus
