// SPDX-License-Identifier: Apache-2.0
// Text in the ASCII of settings, plugin names and the log, whatever locale the program has set.
//
//   const auto parts = split_list("eth0,eth1", ',');  // "eth0", "eth1"
//   // "2 interfaces: ...", in one line of ASCII
//   return counted(parts.size(), "interface") + ": " + printable(from_peer);
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace plexus {

/// `text` with A to Z in lower case.
[[nodiscard]] inline std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return result;
}

/// `text` from another process, fit for a log: one line of ASCII.
[[nodiscard]] inline std::string printable(std::string_view text) {
  std::string result(text);
  std::replace_if(
      result.begin(), result.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return result;
}

/// "1 rank", "2 ranks": a count and the word for one, which takes an s.
[[nodiscard]] inline std::string counted(size_t count, std::string_view one) {
  std::string result = std::to_string(count) + " ";
  result += one;
  return count == 1 ? result : result + "s";
}

/// The non-empty parts of a list.
[[nodiscard]] inline std::vector<std::string_view> split_list(std::string_view text,
                                                              char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t at = std::min(text.find(separator), text.size());
    if (at > 0) {
      parts.push_back(text.substr(0, at));
    }
    text.remove_prefix(std::min(at + 1, text.size()));
  }
  return parts;
}

}  // namespace plexus
