// SPDX-License-Identifier: Apache-2.0
#include "tools/sim/work.hpp"

#include <algorithm>

namespace plexus {

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

double SimCurve::of_message(double message_bytes, double node_bytes, double slot_bytes) const {
  const double like = node_bytes / node_bytes_per_byte;  // a call with as many bytes in caches
  const double slower = like > slot_bytes ? at(like) / like - at(slot_bytes) / slot_bytes : 0;
  return at(message_bytes) + message_bytes * std::max(0.0, slower);
}

}  // namespace plexus
