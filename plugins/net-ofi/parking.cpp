// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-ofi/parking.hpp"

#include <map>
#include <mutex>
#include <unistd.h>
#include <utility>

namespace plexus::net_ofi {
namespace {

struct Parking {
  Parking() = default;
  Parking(const Parking&) = delete;
  Parking& operator=(const Parking&) = delete;
  /// When a child made by fork exits, it leaves the endpoints to its parent, because closing one
  /// sends to its peer.
  ~Parking() {
    if (::getpid() != process) {
      static_cast<void>(new auto(std::move(endpoints)));  // NOLINT(*-owning-memory): never freed
    }
  }
  const pid_t process = ::getpid();
  std::mutex mutex;
  std::map<uint32_t, std::vector<Endpoint>> endpoints;
};

Parking& parking() {
  static Parking places;
  return places;
}

}  // namespace

void park(uint32_t connection, std::vector<Endpoint> endpoints) {
  Parking& places = parking();
  const std::scoped_lock lock(places.mutex);
  const auto peer = places.endpoints.find(connection);
  if (peer == places.endpoints.end()) {
    places.endpoints.emplace(connection, std::move(endpoints));
    return;
  }
  for (const std::vector<Endpoint>* const end : {&peer->second, &endpoints}) {
    for (const Endpoint& endpoint : *end) {
      endpoint.drop_unexpected();
    }
  }
  places.endpoints.erase(peer);
}

}  // namespace plexus::net_ofi
