// SPDX-License-Identifier: Apache-2.0
// Tags of control messages between two ranks of a communicator (Exchange::post): all of them, so
// that no two kinds are taken for each other.
#pragma once

#include <cstdint>

#include "guest/assert.hpp"

namespace plexus {

enum class ControlTag : uint64_t {
  kHandle,     // of a connection's receiver: where it can be reached. Numbers: ConnectionKey::index
  kNetAnswer,  // of a connection's sender over a network, to that. Likewise
  kNetAccept,  // of its receiver, which has accepted. Likewise
  // a connection between datacenters: life << 28 | 2 * index, + 1 to the receiver
  kXdc,
  kMapping,    // memory that the ranks map from each other. Number 0
  kCollnet,    // of a network that reduces: network << 32 | index
  kLinkFacts,  // what the ranks know of links between datacenters. Number 0
  kOneSided    // puts and signals, and where windows are. Number 0
};

constexpr uint64_t tag_of(ControlTag what, uint64_t number) {
  constexpr int kNumberBits = 60;
  PLEXUS_ASSERT(number >> kNumberBits == 0, what, number);
  return static_cast<uint64_t>(what) << kNumberBits | number;
}

}  // namespace plexus
