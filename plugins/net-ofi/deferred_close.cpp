// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-ofi/deferred_close.hpp"

#include <map>
#include <memory>
#include <mutex>
#include <unistd.h>
#include <utility>

namespace plexus::net_ofi {
namespace {

struct DeferredEndpoints {
  DeferredEndpoints() = default;
  DeferredEndpoints(const DeferredEndpoints&) = delete;
  DeferredEndpoints& operator=(const DeferredEndpoints&) = delete;
  /// When a child made by fork exits, it leaves the endpoints to its parent, because closing one
  /// sends to its peer.
  ~DeferredEndpoints() {
    if (::getpid() != process) {
      static_cast<void>(new auto(std::move(endpoints)));  // NOLINT(*-owning-memory): never freed
    }
  }
  const pid_t process = ::getpid();
  std::mutex mutex;
  std::map<uint32_t, std::vector<Endpoint>> endpoints;
  std::map<AddressBytes, std::weak_ptr<ListenEnd>> listeners;
};

DeferredEndpoints& deferred_endpoints() {
  static DeferredEndpoints deferred;
  return deferred;
}

/// Under the lock, so that nobody finds an endpoint that is half closed.
void close_listen_end(ListenEnd* end) {
  DeferredEndpoints& deferred = deferred_endpoints();
  const std::scoped_lock lock(deferred.mutex);
  deferred.listeners.erase(end->address);
  const std::unique_ptr<ListenEnd> closed(end);
}

}  // namespace

Result<std::shared_ptr<ListenEnd>> share_listen_end(Endpoint endpoint) {
  AddressBytes address{};
  PLEXUS_TRY(endpoint.read_address(address));
  const std::shared_ptr<ListenEnd> end(
      std::make_unique<ListenEnd>(std::move(endpoint), address).release(), close_listen_end);
  DeferredEndpoints& deferred = deferred_endpoints();
  const std::scoped_lock lock(deferred.mutex);
  deferred.listeners[address] = end;
  return end;
}

Result<std::shared_ptr<ListenEnd>> find_listen_end(const AddressBytes& address) {
  DeferredEndpoints& deferred = deferred_endpoints();
  std::shared_ptr<ListenEnd> end;  // outlives the lock, which its deleter takes
  const std::scoped_lock lock(deferred.mutex);
  const auto known = deferred.listeners.find(address);
  if (known == deferred.listeners.end()) {
    return end;
  }
  end = known->second.lock();
  if (end == nullptr || end->has_ended.load()) {
    return fail(PLEXUS_REMOTE_ERROR, "nobody listens there any more");
  }
  return end;
}

void close_with_peer(uint32_t connection,
                     std::vector<Endpoint> endpoints,
                     const std::shared_ptr<ListenEnd>& greeted) {
  DeferredEndpoints& deferred = deferred_endpoints();
  const std::scoped_lock lock(deferred.mutex);
  const auto peer = deferred.endpoints.find(connection);
  if (peer == deferred.endpoints.end()) {
    if (greeted == nullptr || !greeted->has_ended.load()) {
      deferred.endpoints.emplace(connection, std::move(endpoints));
      return;
    }
    greeted->endpoint.drop_unexpected();
    endpoints.clear();
    return;
  }
  for (const std::vector<Endpoint>* const end : {&peer->second, &endpoints}) {
    for (const Endpoint& endpoint : *end) {
      endpoint.drop_unexpected();
    }
  }
  deferred.endpoints.erase(peer);
}

}  // namespace plexus::net_ofi
