// SPDX-License-Identifier: Apache-2.0
// What members that passed the proof may send to an aggregator: bytes in any pieces on four
// connections, in any order. No input may crash, or make it send to a connection that is closed.
//
// Input: commands of two bytes, connection and length, each followed by so many bytes.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "plugins/collnet-aggregator/groups.hpp"

namespace plexus::aggregator {
namespace {

constexpr int kLinks = 4;

void fuzz(std::span<const std::byte> bytes) {
  std::array<bool, kLinks> is_open{};
  Groups groups([&](int link, const std::shared_ptr<const Bytes>& sent) {
    if (link < 0 || link >= kLinks || !is_open[static_cast<size_t>(link)] || sent->empty()) {
      std::abort();
    }
  });
  while (bytes.size() >= 2) {
    const int link = static_cast<int>(bytes[0]) % kLinks;
    const size_t size_bytes = std::min(static_cast<size_t>(bytes[1]), bytes.size() - 2);
    bool& open = is_open[static_cast<size_t>(link)];
    if (!open) {
      open = true;
      groups.open(link, "a member");
    }
    if (size_bytes == 0 || groups.feed(link, bytes.subspan(2, size_bytes)).has_error()) {
      open = false;
      groups.close(link, "it ended");
    }
    bytes = bytes.subspan(2 + size_bytes);
  }
  for (int link = 0; link < kLinks; ++link) {
    if (is_open[static_cast<size_t>(link)]) {
      is_open[static_cast<size_t>(link)] = false;
      groups.close(link, "it ended");
    }
  }
  if (groups.group_count() != 0) {
    std::abort();
  }
}

}  // namespace
}  // namespace plexus::aggregator

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  plexus::aggregator::fuzz(std::as_bytes(std::span(data, size)));
  return 0;
}
