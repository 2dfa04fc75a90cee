// SPDX-License-Identifier: Apache-2.0
// Text in the ASCII of settings and plugin names, whatever locale the program has set.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace plexus {

/// `text` with A to Z in lower case.
[[nodiscard]] inline std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return result;
}

}  // namespace plexus
