// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-ofi/parking.hpp"

#include <map>
#include <mutex>

namespace plexus::net_ofi {
namespace {

struct Parking {
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
  } else {
    places.endpoints.erase(peer);
  }
}

}  // namespace plexus::net_ofi
