// SPDX-License-Identifier: Apache-2.0
#include "tools/slurm/hostlist.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "core/base/text.hpp"

namespace plexus {
namespace {

constexpr uint64_t kRangeMax = 65'536;  // numbers of one range, Slurm's bound
constexpr size_t kDigitsMax = 18;
constexpr size_t kTextBytesMax = 255;
constexpr size_t kNumbersMax = 8;
constexpr size_t kShownListBytes = 32;
constexpr std::string_view kSeparators = "\t, ";

/// Takes the next entry off the list; empty: there is none. Pairs of brackets hide separators.
std::string_view take_entry(std::string_view& list) {
  list.remove_prefix(std::min(list.find_first_not_of(kSeparators), list.size()));
  size_t end = std::min(list.find_first_of(kSeparators), list.size());
  size_t searched = 0;
  for (;;) {
    const size_t open = list.find('[', searched);
    const size_t close = open < end ? list.find(']', searched) : std::string_view::npos;
    if (close == std::string_view::npos || close < open) {
      break;
    }
    if (close >= end) {
      end = std::min(list.find_first_of(kSeparators, close), list.size());
    }
    searched = close + 1;
  }
  const std::string_view entry = list.substr(0, end);
  list.remove_prefix(end);
  return entry;
}

bool read_number(std::string_view text, uint64_t* number) {
  const char* const end = text.data() + text.size();
  return !text.empty() && text.size() <= kDigitsMax &&
         text.find_first_not_of("0123456789") == std::string_view::npos &&
         std::from_chars(text.data(), end, *number).ptr == end;
}

Result<std::vector<HostEntry::Range>> read_ranges(std::string_view list, std::string_view entry) {
  std::vector<HostEntry::Range> ranges;
  for (bool more = true; more;) {
    const size_t comma = std::min(list.find(','), list.size());
    const std::string_view text = list.substr(0, comma);
    const size_t dash = std::min(text.find('-'), text.size());
    const std::string_view low = text.substr(0, dash);
    const std::string_view high = text.substr(std::min(dash + 1, text.size()));
    HostEntry::Range range{.low = 0, .high = 0, .width = static_cast<int>(low.size())};
    if (!read_number(low, &range.low) || !read_number(high.empty() ? low : high, &range.high) ||
        range.low > range.high || range.high - range.low >= kRangeMax) {
      return fail(Code::kInvalidUsage, "'{}' in '{}' is not a range of at most {} numbers", text,
                  entry, kRangeMax);
    }
    ranges.push_back(range);
    more = comma < list.size();
    list.remove_prefix(comma + (more ? 1 : 0));
  }
  return ranges;
}

Result<HostEntry> read_entry(std::string_view entry) {
  HostEntry result;
  const size_t last = entry.rfind('[');
  if (last != std::string_view::npos && entry.find(']', last) == std::string_view::npos) {
    // Not closed: Slurm takes this for a name with a bracket at its end, which no host has.
    result.head = fmt::format("{}]", entry.substr(0, last));
    return result;
  }
  std::string_view rest = entry;  // Slurm matches brackets from the right
  for (size_t open = last; open != std::string_view::npos; open = rest.rfind('[')) {
    const bool is_last = result.numbers.empty();
    const size_t close = is_last ? rest.find(']', open) : rest.rfind(']');
    if (close == std::string_view::npos || close < open) {
      break;
    }
    if (is_last && close + 1 < rest.size()) {
      return fail(Code::kInvalidUsage, "'{}' goes on after its last ']'", printable(entry));
    }
    PLEXUS_TRY(ranges, read_ranges(rest.substr(open + 1, close - open - 1), entry));
    result.numbers.push_back(
        {.ranges = std::move(ranges), .behind = std::string(rest.substr(close + 1))});
    rest = rest.substr(0, open);
  }
  result.head = rest;
  std::reverse(result.numbers.begin(), result.numbers.end());
  return result;
}

/// The bytes of a name without its numbers.
size_t text_bytes(const HostEntry& entry) {
  size_t bytes = entry.head.size();
  for (const HostEntry::Numbers& each : entry.numbers) {
    bytes += each.behind.size();
  }
  return bytes;
}

}  // namespace

std::string HostEntry::to_string() const {
  std::string text = head;
  for (const Numbers& each : numbers) {
    const char* separator = "[";
    for (const Range& range : each.ranges) {
      text += fmt::format("{}{:0{}}", separator, range.low, range.width);
      text += range.high > range.low ? fmt::format("-{:0{}}", range.high, range.width) : "";
      separator = ",";
    }
    text += "]" + each.behind;
  }
  return text;
}

bool HostEntry::expand(std::vector<std::string>& names, size_t names_max) const {
  std::vector<std::string> starts = {head};
  for (const Numbers& each : numbers) {
    std::vector<std::string> longer;
    for (const std::string& start : starts) {
      for (const Range& range : each.ranges) {
        if (range.high - range.low >= names_max - longer.size()) {
          return false;
        }
        for (uint64_t number = range.low; number <= range.high; ++number) {
          longer.push_back(fmt::format("{}{:0{}}{}", start, number, range.width, each.behind));
        }
      }
    }
    starts = std::move(longer);
  }
  names.insert(names.end(), starts.begin(), starts.end());
  return names.size() <= names_max;
}

bool HostEntry::may_name_hosts() const {
  const auto may = [](const std::string& text) {
    return std::all_of(text.begin(), text.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '-' || c == '.' || c == '_';
    });
  };
  return may(head) && std::all_of(numbers.begin(), numbers.end(),
                                  [&](const Numbers& each) { return may(each.behind); });
}

Result<std::vector<HostEntry>> parse_hostlist(std::string_view list) {
  std::vector<HostEntry> entries;
  for (std::string_view text = take_entry(list); !text.empty(); text = take_entry(list)) {
    PLEXUS_TRY(entry, read_entry(text));
    if (text_bytes(entry) > kTextBytesMax || entry.numbers.size() > kNumbersMax) {
      return fail(Code::kInvalidUsage, "'{}...' is longer than a name of {} bytes with {} numbers",
                  printable(text.substr(0, kShownListBytes)), kTextBytesMax, kNumbersMax);
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace plexus
