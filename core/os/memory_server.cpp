// SPDX-License-Identifier: Apache-2.0
#include "core/os/memory_server.hpp"

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <string>
#include <sys/random.h>

#include <fmt/format.h>

#include "core/base/log.hpp"
#include "core/os/host.hpp"

namespace plexus {
namespace {

constexpr auto kClientTime = std::chrono::seconds(5);  // on a host that is very busy
constexpr auto kServerTime = std::chrono::seconds(20);
constexpr size_t kDigits = 16;
constexpr int kHex = 16;

std::string name_of(uint64_t process) { return fmt::format("plexus-memory-{:016x}", process); }

}  // namespace

Result<uint64_t> MemoryServer::new_id() {
  uint64_t id = 0;
  while (id == 0) {
    if (getrandom(&id, sizeof(id), 0) != sizeof(id)) {
      return fail(Code::kSystemError, "getrandom failed: {}", std::strerror(errno));
    }
  }
  return id;
}

void MemoryServer::start() {
  std::call_once(once_, [this] {
    const auto served =
        serve_local_socket(name_of(process_id()), "shared memory", LocalSocket::From::kAnyUser,
                           [this](const LocalSocket& client) { answer(client); });
    if (served.has_error()) {
      PLEXUS_INFO(kShm, "{}", served.error().message());
    }
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
