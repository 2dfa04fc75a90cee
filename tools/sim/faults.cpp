// SPDX-License-Identifier: Apache-2.0
#include "tools/sim/faults.hpp"

#include <algorithm>

#include "core/base/hash.hpp"

namespace plexus {
namespace {

double us_of(net_chaos::Nanoseconds time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

net_chaos::Subject subject_of(const SimEnd& end, bool is_send) {
  return {.is_send = is_send,
          .connection = end.number,
          .rank = static_cast<uint32_t>(end.rank),
          .peer = static_cast<uint32_t>(end.peer)};
}

}  // namespace

Result<SimFaults> SimFaults::parse(std::string_view script, uint64_t seed) {
  auto parsed = net_chaos::Script::parse(script);
  if (parsed.has_error()) {
    return fail(Code::kInvalidArgument, "{}", parsed.error().text);
  }
  const std::string_view other =
      parsed.value().find_effect_not_in({"delay", "jitter", "rate", "stall", "cut", "slow"});
  if (!other.empty()) {
    return fail(Code::kInvalidArgument,
                "the simulator has no {}=: it has delay, jitter, rate, stall, cut and slow", other);
  }
  return SimFaults(std::move(parsed).value(), seed);
}

SimLinkFaults SimFaults::of_link(const SimEnd& sender, const SimEnd& receiver) const {
  constexpr double kBitPerByte = 8;
  constexpr double kUsPerS = 1e6;
  const net_chaos::Effects send = script_.effects_of(subject_of(sender, true));
  const net_chaos::Effects recv = script_.effects_of(subject_of(receiver, false));
  const auto rate = static_cast<double>(send.rate_bit_per_s);
  return {.delay_us = us_of(send.delay),
          .jitter_us = us_of(send.jitter),
          .us_per_byte = rate > 0 ? kBitPerByte * kUsPerS / rate : 0,
          .stall_every_bytes = send.stall_every_bytes,
          .stall_us = us_of(send.stall),
          .cut_at_byte = std::min(send.cut_at_byte, recv.cut_at_byte)};
}

double SimFaults::slow_us(int rank) const {
  return us_of(script_.effects_of({.rank = static_cast<uint32_t>(rank)}).slow);
}

double SimFaults::random(uint64_t connection, uint64_t message) const {
  constexpr double kTo1 = 0x1p-53;
  constexpr unsigned kBitsDropped = 11;
  Fnv1a hash;
  hash.mix(seed_);
  hash.mix(connection);
  hash.mix(message);
  // the last bits of an Fnv1a are the best mixed ones of its product
  const uint64_t mixed = (hash.value() ^ (hash.value() >> 32)) * 0x9e3779b97f4a7c15ULL;
  return static_cast<double>(mixed >> kBitsDropped) * kTo1;
}

}  // namespace plexus
