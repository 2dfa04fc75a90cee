// SPDX-License-Identifier: Apache-2.0
// Settings that are numbers. As in NCCL, a number beyond the limits is taken for the nearest within
// them, and the user is told; what is no number is an error.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "plugins/support/result.hpp"

namespace plexus::plugin {

struct NumberRange {
  int64_t initial;  // when it is not set
  int64_t least;
  int64_t most;
};

/// The setting `name` as `read` has it; a line is added to `limited` if it was limited.
template <class Read>
Result<int64_t> read_number(const Read& read,
                            const char* name,
                            NumberRange range,
                            std::vector<std::string>& limited) {
  const char* const text = read(name);
  if (text == nullptr || *text == '\0') {
    return range.initial;
  }
  char* end = nullptr;
  errno = 0;
  const int64_t value = std::strtoll(text, &end, 0);  // ERANGE: the nearest
  if (*end != '\0') {
    return fail(PLEXUS_INVALID_USAGE, "{}={} is not a number in {}..{}; correct or unset it", name,
                text, range.least, range.most);
  }
  const int64_t taken = std::clamp(value, range.least, range.most);
  if (taken != value || errno == ERANGE) {
    limited.push_back(fmt::format("{}={} is limited to {}: expected {}..{}", name, text, taken,
                                  range.least, range.most));
  }
  return taken;
}

}  // namespace plexus::plugin
