// SPDX-License-Identifier: Apache-2.0
// Flags of the subcommands: the texts that are valid, and the error for a wrong one, which names
// the flag (CLI11 puts it in front) and what it accepts. A text is valid only as a whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "core/base/result.hpp"
#include "kernels/layout/collective.hpp"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's name
class App;
class Option;
}  // namespace CLI

namespace plexus {

struct IntRange {
  int64_t min;
  int64_t max;
};
[[nodiscard]] Result<int64_t> parse_int(std::string_view text, IntRange range);
/// A number, also 1.5 or 1e6, with K, M or G (powers of two; KB and KiB are the same) after it, or
/// nothing; rounded down to whole bytes.
[[nodiscard]] Result<size_t> parse_size(std::string_view text);
/// A decimal number in [min, max].
[[nodiscard]] Result<double> parse_number(std::string_view text, double min, double max);

/// The words between the commas; at least one.
[[nodiscard]] std::vector<std::string_view> split_at_commas(std::string_view text);

/// The collectives for which an algorithm is chosen: all but send and receive.
[[nodiscard]] std::vector<Collective> collectives_with_algorithms();
[[nodiscard]] Result<Collective> parse_collective(std::string_view text);

/// Stores the value of the flag's text, or returns why it is wrong.
using TakeFlag = std::function<Result<void>(const std::string& text)>;
CLI::Option* add_flag(CLI::App& app,
                      const std::string& names,
                      TakeFlag take,
                      const std::string& help);

CLI::Option* add_int(
    CLI::App& app, const std::string& names, int* target, IntRange range, const std::string& help);
CLI::Option* add_size(CLI::App& app,
                      const std::string& names,
                      size_t* target,
                      const std::string& help);

/// The names of the rows of a table, as a list.
template <class Table>
std::string names_of(const Table& table) {
  std::vector<std::string_view> names;
  names.reserve(std::size(table));
  for (const auto& row : table) {
    names.emplace_back(row.name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

template <class Value>
struct FlagWord {
  const char* name;
  Value value;
};

/// A flag that takes one of a few words.
template <class Value, class Target>
CLI::Option* add_choice(CLI::App& app,
                        const std::string& names,
                        std::vector<FlagWord<Value>> words,
                        Target* target,
                        const std::string& help) {
  return add_flag(
      app, names,
      [=](const std::string& text) -> Result<void> {
        for (const FlagWord<Value>& word : words) {
          if (text == word.name) {
            *target = word.value;
            return ok();
          }
        }
        return fail(Code::kInvalidArgument, "expects {}, not '{}'", names_of(words), text);
      },
      help);
}

}  // namespace plexus
