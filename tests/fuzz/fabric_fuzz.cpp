// SPDX-License-Identifier: Apache-2.0
// Any bytes as a fabric: refused with a line number, or every route of a small fabric uses
// consecutive links, visits no vertex twice, and has a fair share.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string_view>

#include "tools/fabric/fabric.hpp"

namespace {

constexpr int kPortsMax = 24;
constexpr size_t kTextMax = 512;
constexpr size_t kDigitsMax = 3;

/// Sizes of millions are legal and slow to build, and not the subject of this test.
bool has_long_number(std::string_view text) {
  size_t digits = 0;
  for (const char c : text) {
    digits = c >= '0' && c <= '9' ? digits + 1 : 0;
    if (digits > kDigitsMax) {
      return true;
    }
  }
  return false;
}

void check_route(const plexus::Fabric& fabric, plexus::FabricPort from, plexus::FabricPort to) {
  const auto route = fabric.route(from, to);
  if (!route) {
    if (fabric.datacenter_of(from.node) == fabric.datacenter_of(to.node)) {
      std::abort();
    }
    return;
  }
  if (route->empty() != (from == to)) {
    std::abort();
  }
  std::set<int> seen;
  for (size_t i = 0; i < route->size(); ++i) {
    const plexus::FabricLink& link = fabric.links()[static_cast<size_t>((*route)[i])];
    const bool follows =
        i == 0 || fabric.links()[static_cast<size_t>((*route)[i - 1])].to == link.from;
    if (!follows || !seen.insert(link.to).second || link.from < 0 || link.to >= fabric.vertices()) {
      std::abort();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (size > kTextMax || has_long_number(text)) {
    return 0;
  }
  const plexus::Result<plexus::Fabric> fabric = plexus::Fabric::parse(text);
  if (!fabric || fabric.value().nodes() * fabric.value().rails() > kPortsMax) {
    return 0;
  }
  std::vector<plexus::FabricFlow> flows;
  for (int from = 0; from < fabric.value().nodes(); ++from) {
    for (int to = 0; to < fabric.value().nodes(); ++to) {
      const int rail = (from + to) % fabric.value().rails();
      check_route(fabric.value(), {.node = from, .rail = rail}, {.node = to, .rail = rail});
      flows.push_back({.from = {.node = from, .rail = rail}, .to = {.node = to, .rail = 0}});
    }
  }
  for (const double rate : plexus::share_links(fabric.value(), flows)) {
    if (!(rate >= 0)) {
      std::abort();
    }
  }
  return 0;
}
