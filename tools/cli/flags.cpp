// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/flags.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>

namespace plexus {
namespace {

/// The whole of `text` as a number, else false.
template <class T>
bool read_number(std::string_view text, T* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

unsigned shift_of_unit(char unit) {
  constexpr unsigned kKibi = 10;
  switch (unit) {
    case 'k':
    case 'K':
      return kKibi;
    case 'm':
    case 'M':
      return 2 * kKibi;
    case 'g':
    case 'G':
      return 3 * kKibi;
    default:
      return 0;
  }
}

}  // namespace

Result<int64_t> parse_int(std::string_view text, IntRange range) {
  int64_t value = 0;
  if (!read_number(text, &value) || value < range.min || value > range.max) {
    return fail(Code::kInvalidArgument, "expects a whole number from {} to {}, not '{}'", range.min,
                range.max, text);
  }
  return value;
}

Result<size_t> parse_size(std::string_view text) {
  std::string_view digits = text;
  for (const std::string_view ending : {"iB", "B"}) {
    const size_t unit = digits.size() - std::min(digits.size(), ending.size() + 1);
    if (digits.ends_with(ending) && unit > 0 && shift_of_unit(digits[unit]) != 0) {
      digits.remove_suffix(ending.size());
    }
  }
  const unsigned shift = digits.empty() ? 0 : shift_of_unit(digits.back());
  digits.remove_suffix(shift != 0 ? 1 : 0);
  uint64_t whole = 0;
  if (read_number(digits, &whole) &&
      whole <= (std::numeric_limits<uint64_t>::max() >> 1U >> shift)) {
    return static_cast<size_t>(whole << shift);
  }
  double value = 0;
  constexpr double kMost = 1ULL << 62U;
  if (!read_number(digits, &value) || !(value >= 0) ||
      !(value * static_cast<double>(1U << shift) <= kMost)) {
    return fail(Code::kInvalidArgument,
                "expects a size in bytes, such as 8, 64K, 1.5M or 1G, not '{}'", text);
  }
  return static_cast<size_t>(value * static_cast<double>(1U << shift));
}

Result<double> parse_number(std::string_view text, double min, double max) {
  double value = 0;
  if (!read_number(text, &value) || !(value >= min && value <= max)) {
    return fail(Code::kInvalidArgument, "expects a number from {} to {}, not '{}'", min, max, text);
  }
  return value;
}

std::vector<std::string_view> split_at_commas(std::string_view text) {
  std::vector<std::string_view> words;
  for (size_t comma = 0; (comma = text.find(',')) != std::string_view::npos;) {
    words.push_back(text.substr(0, comma));
    text.remove_prefix(comma + 1);
  }
  words.push_back(text);
  return words;
}

std::vector<Collective> collectives_with_algorithms() {
  std::vector<Collective> collectives;
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    if (!is_point_to_point(collective)) {
      collectives.push_back(collective);
    }
  }
  return collectives;
}

Result<Collective> parse_collective(std::string_view text) {
  std::vector<const char*> names;
  for (const Collective collective : collectives_with_algorithms()) {
    names.push_back(name(collective));
    if (text == names.back()) {
      return collective;
    }
  }
  return fail(Code::kInvalidArgument, "expects {}, not '{}'", fmt::join(names, ", "), text);
}

CLI::Option* add_flag(CLI::App& app,
                      const std::string& names,
                      TakeFlag take,
                      const std::string& help) {
  // A CLI11 validator returns an error text or ""; it also stores the value.
  return app.add_option(names, help)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->type_name("VALUE")
      ->check(CLI::Validator(
          [take = std::move(take)](std::string& text) {
            const Result<void> taken = take(text);
            return taken ? std::string() : taken.error().message();
          },
          ""));
}

CLI::Option* add_int(
    CLI::App& app, const std::string& names, int* target, IntRange range, const std::string& help) {
  return add_flag(
      app, names,
      [target, range](const std::string& text) -> Result<void> {
        PLEXUS_TRY(value, parse_int(text, range));
        *target = static_cast<int>(value);
        return ok();
      },
      help);
}

CLI::Option* add_size(CLI::App& app,
                      const std::string& names,
                      size_t* target,
                      const std::string& help) {
  return add_flag(
      app, names,
      [target](const std::string& text) -> Result<void> {
        PLEXUS_TRY(value, parse_size(text));
        *target = value;
        return ok();
      },
      help);
}

}  // namespace plexus
