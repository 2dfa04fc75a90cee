// SPDX-License-Identifier: Apache-2.0
// The words of a line of a text file.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

namespace plexus {

/// What stands between blanks, tabs and carriage returns. Views of `line`.
[[nodiscard]] inline std::vector<std::string_view> split_words(std::string_view line) {
  constexpr std::string_view kSpace = " \t\r";
  std::vector<std::string_view> words;
  for (size_t at = line.find_first_not_of(kSpace); at != std::string_view::npos;) {
    const size_t end = std::min(line.find_first_of(kSpace, at), line.size());
    words.push_back(line.substr(at, end - at));
    at = line.find_first_not_of(kSpace, end);
  }
  return words;
}

}  // namespace plexus
