// SPDX-License-Identifier: Apache-2.0
#include "core/stall/status_server.hpp"

#include <chrono>
#include <memory>
#include <new>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "core/base/log.hpp"
#include "core/base/thread.hpp"

namespace plexus {
namespace {

constexpr auto kClientTime = std::chrono::seconds(5);
constexpr auto kRetryPause = std::chrono::seconds(1);
constexpr size_t kRequestBytesMax = 64;

}  // namespace

void StatusServer::start() {
  std::call_once(once_, [this] {
    auto listener = LocalSocket::listen(name_of(getpid()));
    if (listener.has_error()) {
      PLEXUS_INFO(kRas, "plexus doctor cannot ask this process: {}", listener.error().message());
      return;
    }
    auto shared = std::make_shared<LocalSocket>(std::move(listener).value());
    auto thread = start_thread("plexus doctor", [this, shared] { serve(*shared); });
    if (thread.has_error()) {
      PLEXUS_INFO(kRas, "plexus doctor cannot ask this process: {}", thread.error().message());
      return;
    }
    thread.value().detach();
  });
}

void StatusServer::serve(const LocalSocket& listener) {
  for (;;) {
    try {
      if (const auto client = listener.accept(); client.has_value()) {
        answer(client.value());
        continue;
      }
    } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): the client sees the end
    }
    std::this_thread::sleep_for(kRetryPause);  // no descriptor is left, or no memory
  }
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
