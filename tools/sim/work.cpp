// SPDX-License-Identifier: Apache-2.0
#include "tools/sim/work.hpp"

#include <algorithm>

#include "kernels/layout/fifo.hpp"

namespace plexus {
namespace {

// Messages that show what several take one after the other, and how much of a slot is a large one.
constexpr double kFew = 2;

}  // namespace

double SimCurve::at(double call_bytes) const {
  if (bytes.empty()) {
    return 0;
  }
  if (call_bytes >= bytes.back()) {
    return us.back() * call_bytes / bytes.back();
  }
  const auto above = std::lower_bound(bytes.begin(), bytes.end(), call_bytes);
  if (above == bytes.begin()) {
    return us.front();
  }
  const auto place = static_cast<size_t>(above - bytes.begin());
  const double part = (call_bytes - bytes[place - 1]) / (bytes[place] - bytes[place - 1]);
  return us[place - 1] + part * (us[place] - us[place - 1]);
}

double SimCurve::of_message(double message_bytes,
                            double node_bytes,
                            double slot_bytes,
                            bool is_one) const {
  if (bytes.empty()) {
    return 0;
  }
  // a call of several messages with as many bytes in caches
  const double few = kFew * slot_bytes;
  const double slots = connections * static_cast<double>(kSlots) * slot_bytes;
  const double like = std::max(few, (node_bytes - slots) / node_bytes_per_byte);
  const double us_per_byte = at(like) / like;
  if (!is_one && message_bytes * kFew > slot_bytes) {
    return message_bytes * us_per_byte;
  }
  return at(message_bytes) + message_bytes * std::max(0.0, us_per_byte - at(few) / few);
}

double SimCrowd::at(double bytes) const {
  if (node_bytes.empty()) {
    return 0;
  }
  const auto above = std::lower_bound(node_bytes.begin(), node_bytes.end(), bytes);
  if (above == node_bytes.end() || above == node_bytes.begin()) {
    return above == node_bytes.end() ? us_per_byte.back() : us_per_byte.front();
  }
  const auto place = static_cast<size_t>(above - node_bytes.begin());
  const double part = (bytes - node_bytes[place - 1]) / (node_bytes[place] - node_bytes[place - 1]);
  return us_per_byte[place - 1] + part * (us_per_byte[place] - us_per_byte[place - 1]);
}

}  // namespace plexus
