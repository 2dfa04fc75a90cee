// SPDX-License-Identifier: Apache-2.0
#include "core/stall/status_server.hpp"

#include <chrono>
#include <unistd.h>

#include <fmt/format.h>

#include "core/base/log.hpp"

namespace plexus {
namespace {

constexpr auto kClientTime = std::chrono::seconds(5);
constexpr size_t kRequestBytesMax = 64;

}  // namespace

void StatusServer::start() {
  std::call_once(once_, [this] {
    const auto served =
        serve_local_socket(name_of(getpid()), "plexus doctor", LocalSocket::From::kThisUser,
                           [this](const LocalSocket& client) { answer(client); });
    if (served.has_error()) {
      PLEXUS_INFO(kRas, "plexus doctor cannot ask this process: {}", served.error().message());
    }
  });
}

void StatusServer::answer(const LocalSocket& client) {
  const auto request = client.recv_until('\n', kRequestBytesMax, kClientTime);
  if (request.has_error() || (request.value() != "ranks" && request.value() != "all")) {
    return;
  }
  std::string made = fmt::format(R"({{"pid":{},"ranks":{})", getpid(), watch_.report());
  if (request.value() == "all") {
    made += fmt::format(R"(,"comms":{})", watch_.inquire());
  }
  // The client sees an answer that is cut off.
  (void)client.send_all(made + "}", kClientTime);
}

}  // namespace plexus
