// SPDX-License-Identifier: Apache-2.0
#include "tools/sim/work.hpp"

#include <algorithm>

#include "kernels/layout/fifo.hpp"

namespace plexus {
namespace {

// Messages that show what several take one after the other, and how much of a slot is a large one.
constexpr double kFew = 2;

/// Linear between the points around `x`; below the first as there. Requires that `x` is at most the
/// last of `xs`, which ascend.
double interpolate(const std::vector<double>& xs, const std::vector<double>& ys, double x) {
  const auto above = std::lower_bound(xs.begin(), xs.end(), x);
  if (above == xs.begin()) {
    return ys.front();
  }
  const auto place = static_cast<size_t>(above - xs.begin());
  const double part = (x - xs[place - 1]) / (xs[place] - xs[place - 1]);
  return ys[place - 1] + part * (ys[place] - ys[place - 1]);
}

}  // namespace

double SimCurve::at(double call_bytes) const {
  if (bytes.empty()) {
    return 0;
  }
  if (call_bytes >= bytes.back()) {
    return us.back() * call_bytes / bytes.back();
  }
  return interpolate(bytes, us, call_bytes);
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

double SimTable::at(double x, double otherwise) const {
  return bytes.empty() ? otherwise : interpolate(bytes, numbers, std::min(x, bytes.back()));
}

}  // namespace plexus
