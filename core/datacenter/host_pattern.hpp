// SPDX-License-Identifier: Apache-2.0
// Patterns of host and device names: `*` is any text, `?` one character, `[01-16,20]` a number in
// the list, written as Slurm writes it: zeros before it fill it up to the digits of the lower
// bound.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"

namespace plexus {

/// A parsed and checked pattern. Threads: any.
class HostPattern {
 public:
  /// kInvalidUsage: the cause, without the position in a file.
  static Result<HostPattern> parse(std::string_view text);
  [[nodiscard]] bool matches(std::string_view name) const;

 private:
  struct Range {
    uint64_t low;
    uint64_t high;
    size_t digits_min;
  };
  /// One piece of the pattern.
  struct Piece {
    enum class Kind : uint8_t { kText, kOne, kAny, kNumber } kind;
    char character;
    std::vector<Range> ranges;
  };
  static Result<Piece> parse_number(std::string_view list);
  static Result<Range> parse_range(std::string_view text);
  std::vector<Piece> pieces_;
};

}  // namespace plexus
