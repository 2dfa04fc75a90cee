// SPDX-License-Identifier: Apache-2.0
// What a peer of net-socket sends once it has proved itself: headers and payloads, of which parts
// may come over data sockets. Nothing is written outside the buffers of the receives, and a message
// that is done has a size that its buffer holds.
//
// Input: an odd first byte gives the connection two data sockets, on which the same bytes come.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <vector>

#include "plugins/net-socket/transfer.hpp"

namespace plexus::net_socket {
namespace {

constexpr size_t kCapacityBytes = 200;
constexpr int kTags = 2;

void require(bool holds) {
  if (!holds) {
    std::abort();
  }
}

void ignore(plexus_log_sink_t*, int32_t, const char*, int32_t, const char*) {}

/// The end of a connection whose other side has said `bytes` and has closed it.
Socket socket_with(std::span<const std::byte> bytes) {
  std::array<int, 2> ends{};
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
  const UniqueFd other = UniqueFd::open([&] { return ends[1]; });
  require(::send(other.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) >= 0);
  Socket socket;
  socket.session = security::Session(ends[0], security::Role::kListener, {});
  socket.fd = UniqueFd::open([&] { return ends[0]; });
  return socket;
}

void fuzz(std::span<const std::byte> bytes) {
  if (bytes.empty()) {
    return;
  }
  const bool has_helper = (static_cast<unsigned>(bytes.front()) & 1U) != 0;
  bytes = bytes.subspan(1);
  Link link;
  link.threads = has_helper ? 1 : 0;
  link.sockets.resize(has_helper ? 3 : 1);
  std::generate(link.sockets.begin(), link.sockets.end(), [&] { return socket_with(bytes); });
  // On the heap, where ASan sees their ends; a connection that closes may still write to them.
  std::array<std::vector<std::byte>, kTags> targets;
  const auto made =
      RecvConnection::create(std::move(link), Settings{}, plugin::Log(ignore, nullptr));
  require(made.has_value());
  RecvConnection& connection = *made.value();

  std::array<plexus_net_request_t*, kTags> requests{};
  int code = PLEXUS_OK;
  for (int tag = 0; tag < kTags && code == PLEXUS_OK; ++tag) {
    auto& target = targets[static_cast<size_t>(tag)];
    target.resize(kCapacityBytes);
    const plexus_net_buffer_t buffer{.data = target.data(),
                                     .size_bytes = target.size(),
                                     .memory = nullptr,
                                     .tag = tag,
                                     .flags = 0};
    code = connection.irecv(1, &buffer, &requests[static_cast<size_t>(tag)]);
  }
  // A message that matches no receive waits for one, so that an end need not come.
  const size_t tests = has_helper ? 200 : bytes.size() + 2;
  for (size_t i = 0; i < tests && (code == PLEXUS_OK || code == PLEXUS_AGAIN); ++i) {
    auto& request = requests[i % kTags];
    if (request == nullptr) {
      continue;
    }
    uint64_t size_bytes = 0;
    code = connection.test(static_cast<RecvRequest&>(*request), &size_bytes);
    if (code == PLEXUS_OK) {
      require(size_bytes <= kCapacityBytes);
      request = nullptr;
    }
    if (has_helper) {
      std::this_thread::yield();
    }
  }
}

}  // namespace
}  // namespace plexus::net_socket

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  plexus::net_socket::fuzz(std::as_bytes(std::span(data, size)));
  return 0;
}
