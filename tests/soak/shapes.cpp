// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "tests/soak/generate.hpp"
#include "tests/soak/values.hpp"

namespace plexus::soak {

size_t pick_count(Random& random, ncclDataType_t type, int nblocks) {
  constexpr size_t kTotalBytesMax = size_t{4} << 20;
  const int way = random.below(100);
  size_t bytes_max = 64;  // most calls are small, to have many of them per second
  if (way < 4) {
    return 0;
  }
  if (way >= 50) {
    bytes_max = way < 75   ? 4096
                : way < 90 ? size_t{64} << 10
                : way < 98 ? size_t{512} << 10
                           : kTotalBytesMax;
  }
  const size_t size = size_of(type);
  const size_t most = std::max<size_t>(bytes_max / size, 1);
  const size_t limit = std::max<size_t>(kTotalBytesMax / size / static_cast<size_t>(nblocks), 1);
  return std::min(1 + random.next() % most, limit);
}

void pick_reduction(Random& random, Operation& operation, int nranks) {
  operation.type = static_cast<ncclDataType_t>(random.below(ncclNumTypes));
  operation.reduction =
      random.chance(40) ? Reduction::kSum : static_cast<Reduction>(random.below(6));
  const bool is_power_of_two = (nranks & (nranks - 1)) == 0;
  if (operation.reduction == Reduction::kAvg && !is_integer(operation.type) && !is_power_of_two) {
    operation.reduction = Reduction::kSum;  // a factor of 1/3 is not exact
  }
}

}  // namespace plexus::soak
