// SPDX-License-Identifier: Apache-2.0
#include "core/os/memory_server.hpp"

#include <charconv>
#include <chrono>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/base/log.hpp"
#include "core/base/thread.hpp"
#include "core/os/host.hpp"

namespace plexus {
namespace {

constexpr auto kClientTime = std::chrono::seconds(5);  // on a host that is very busy
constexpr auto kServerTime = std::chrono::seconds(20);
constexpr auto kRetryPause = std::chrono::seconds(1);
constexpr size_t kDigits = 16;
constexpr int kHex = 16;

std::string name_of(uint64_t process) { return fmt::format("plexus-memory-{:016x}", process); }

}  // namespace

void MemoryServer::start() {
  std::call_once(once_, [this] {
    auto listener = LocalSocket::listen(name_of(process_id()));
    if (listener.has_error()) {
      PLEXUS_INFO(kShm, "{}", listener.error().message());
      return;
    }
    auto shared = std::make_shared<LocalSocket>(std::move(listener).value());
    auto thread = start_thread("shared memory", [this, shared] { serve(*shared); });
    if (thread.has_error()) {
      PLEXUS_INFO(kShm, "{}", thread.error().message());
      return;
    }
    thread.value().detach();
  });
}

void MemoryServer::add(uint64_t id, int fd) {
  const std::lock_guard lock(mutex_);
  descriptors_.emplace(id, fd);
}

void MemoryServer::remove(uint64_t id, int fd) noexcept {
  MemoryServer* const server = Immortal<MemoryServer>::find();  // a child's has none of its parent
  if (server != nullptr) {
    const std::lock_guard lock(server->mutex_);
    server->descriptors_.erase({id, fd});
  }
}

void MemoryServer::serve(const LocalSocket& listener) {
  for (;;) {
    try {
      if (const auto client = listener.accept(LocalSocket::From::kAnyUser); client.has_value()) {
        answer(client.value());
        continue;
      }
    } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): the client sees the end
    }
    std::this_thread::sleep_for(kRetryPause);  // no descriptor is left, or no memory
  }
}

void MemoryServer::answer(const LocalSocket& client) {
  const auto request = client.recv_until('\n', kDigits, kClientTime);
  if (request.has_error()) {
    return;
  }
  const std::string& digits = request.value();
  uint64_t id = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), id, kHex);
  if (read.ec != std::errc() || read.ptr != digits.data() + digits.size()) {
    return;
  }
  const std::lock_guard lock(mutex_);  // the descriptor is open as long as it is listed
  const auto at = descriptors_.lower_bound({id, 0});
  if (at != descriptors_.end() && at->first == id) {
    (void)client.send_descriptor(at->second);  // the client sees that none came
  }
}

Result<int> MemoryServer::ask(uint64_t process, uint64_t id) {
  PLEXUS_TRY(server, LocalSocket::connect(name_of(process)));
  PLEXUS_TRY(server.send_all(fmt::format("{:016x}\n", id), kServerTime));
  return server.recv_descriptor(kServerTime);
}

}  // namespace plexus
