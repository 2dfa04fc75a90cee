// SPDX-License-Identifier: Apache-2.0
#include "tools/workload/nccl_tests_log.hpp"

#include <algorithm>
#include <vector>

#include "core/base/split_words.hpp"
#include "core/base/text.hpp"
#include "tools/workload/builder.hpp"

namespace plexus {

std::optional<NcclTestsRow> NcclTestsScanner::take(std::string_view line) {
  ++line_;
  std::vector<std::string_view> words = split_words(line);
  // a launcher may put the rank's name in front ("host0: ", "[1,0]<stdout>:")
  while (!words.empty() && words[0] != "#" && words[0] != "size" && words[0].ends_with(':')) {
    words.erase(words.begin());
  }
  if (!words.empty() && words[0].starts_with("#")) {
    words[0].remove_prefix(1);
    if (words[0].empty()) {
      words.erase(words.begin());
    }
  }
  if (words.size() >= 3 && lower(words[0]) == "rank" && whole_number(words[1]).has_value()) {
    ++ranks_;
    if (words.size() >= 4 && words[2] == "Group" && words[3] != "0") {
      other_group_ = words[3];
    }
    const auto on = std::find(words.begin(), words.end(), "on");
    if (on != words.end() && on + 1 != words.end()) {
      hosts_.emplace(*(on + 1));
    }
    return std::nullopt;
  }
  const auto time = std::find(words.begin(), words.end(), "time");
  if (words.size() > 4 && words[0] == "size" && time != words.end()) {
    time_at_ = static_cast<size_t>(time - words.begin());
    return std::nullopt;
  }
  const auto bytes = time_at_ > 0 && !words.empty() ? whole_number(words[0]) : std::nullopt;
  if (!bytes.has_value()) {
    return std::nullopt;
  }
  return NcclTestsRow{*bytes,
                      time_at_ < words.size() ? real_number(words[time_at_]) : std::nullopt};
}

std::string_view nccl_test_in(std::string_view line) {
  constexpr size_t kLineMax = 4096;
  line = line.substr(0, kLineMax);
  const size_t end = line.find("_perf");
  if (end == std::string_view::npos) {
    return {};
  }
  size_t begin = end;
  while (begin > 0 &&
         ((line[begin - 1] >= 'a' && line[begin - 1] <= 'z') || line[begin - 1] == '_')) {
    --begin;
  }
  return line.substr(begin, end - begin);
}

}  // namespace plexus
