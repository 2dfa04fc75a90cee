// SPDX-License-Identifier: Apache-2.0
#include "core/comm/stream_order.hpp"

#include <algorithm>

#include "guest/assert.hpp"

namespace plexus {
namespace {

uint64_t number_in(const StreamOrder::Clock& clock, StreamOrder::Name name) {
  const auto at = clock.find(name);
  return at == clock.end() ? 0 : at->second;
}

}  // namespace

void StreamOrder::merge(Clock& into, const Clock& from) {
  for (const auto& [stream, number] : from) {
    uint64_t& known = into[stream];
    known = std::max(known, number);
  }
}

StreamOrder::Clock StreamOrder::clock_of(Name name) const {
  Clock clock;
  if (const auto at = clocks_.find(name); at != clocks_.end()) {
    clock = at->second;
    std::erase_if(clock,
                  [this](const auto& each) { return each.second <= number_in(host_, each.first); });
  }
  return clock;
}

StreamOrder::Work StreamOrder::add(std::span<const Name> streams, Name chain) {
  PLEXUS_DCHECK(!streams.empty(), streams.size());
  Clock joint;
  if (chain != nullptr) {
    joint = clock_of(chain);
  }
  for (const Name stream : streams) {
    merge(joint, clock_of(stream));
  }
  for (const Name stream : streams) {
    joint[stream] = ++numbers_[stream];
  }
  for (const Name stream : streams) {
    clocks_[stream] = joint;
  }
  if (chain != nullptr) {
    clocks_[chain] = joint;
  }
  return {.stream = streams.front(), .number = joint.at(streams.front())};
}

bool StreamOrder::is_over(const Work& work) const {
  return work.number <= number_in(host_, work.stream);
}

bool StreamOrder::comes_before(const Work& work, Name stream) const {
  const auto at = clocks_.find(stream);
  return is_over(work) ||
         (at != clocks_.end() && work.number <= number_in(at->second, work.stream));
}

}  // namespace plexus
