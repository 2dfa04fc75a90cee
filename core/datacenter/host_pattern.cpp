// SPDX-License-Identifier: Apache-2.0
#include "core/datacenter/host_pattern.hpp"

#include <algorithm>
#include <charconv>

namespace plexus {
namespace {

constexpr size_t kPatternBytesMax = size_t{64} << 10;  // lists of numbers may be long
constexpr size_t kPiecesMax = 256;
constexpr size_t kNameBytesMax = 256;
constexpr size_t kDigitsMax = 18;

bool is_digit(char character) { return character >= '0' && character <= '9'; }

/// False: the text is not a number of digits only.
bool read_number(std::string_view text, uint64_t* number) {
  const char* const end = text.data() + text.size();
  return !text.empty() && text.size() <= kDigitsMax &&
         std::all_of(text.begin(), text.end(), is_digit) &&
         std::from_chars(text.data(), end, *number).ptr == end;
}

}  // namespace

Result<HostPattern::Range> HostPattern::parse_range(std::string_view text) {
  const auto* const dash = std::find(text.begin(), text.end(), '-');
  const std::string_view low(text.begin(), dash);
  const std::string_view high = dash != text.end() ? std::string_view(dash + 1, text.end()) : low;
  Range range{.low = 0, .high = 0, .digits_min = low.size()};
  if (!read_number(low, &range.low) || !read_number(high, &range.high) || range.low > range.high) {
    return fail(Code::kInvalidUsage, "'{}' is not a range of numbers, as in [01-16,20]", text);
  }
  return range;
}

Result<HostPattern::Piece> HostPattern::parse_number(std::string_view list) {
  Piece piece{.kind = Piece::Kind::kNumber, .character = 0, .ranges = {}};
  for (bool more = true; more;) {
    const size_t comma = std::min(list.find(','), list.size());
    PLEXUS_TRY(range, parse_range(list.substr(0, comma)));
    piece.ranges.push_back(range);
    more = comma < list.size();
    list.remove_prefix(comma + (more ? 1 : 0));
  }
  return piece;
}

Result<HostPattern> HostPattern::parse(std::string_view text) {
  if (text.empty() || text.size() > kPatternBytesMax) {
    return fail(Code::kInvalidUsage, "a pattern must have 1 to {} bytes, not {}", kPatternBytesMax,
                text.size());
  }
  HostPattern pattern;
  while (!text.empty()) {
    const char first = text.front();
    size_t taken = 1;
    if (first == '[') {
      const std::string_view rest = text.substr(1);
      const size_t close = rest.find(']');
      if (close == std::string_view::npos) {
        return fail(Code::kInvalidUsage, "'[' without ']' in a pattern");
      }
      PLEXUS_TRY(piece, parse_number(rest.substr(0, close)));
      pattern.pieces_.push_back(std::move(piece));
      taken = close + 2;
    } else {
      const auto kind = first == '*'   ? Piece::Kind::kAny
                        : first == '?' ? Piece::Kind::kOne
                                       : Piece::Kind::kText;
      pattern.pieces_.push_back({.kind = kind, .character = first, .ranges = {}});
    }
    text.remove_prefix(taken);
  }
  if (pattern.pieces_.size() > kPiecesMax) {
    return fail(Code::kInvalidUsage, "a pattern must have 1 to {} characters and lists of numbers",
                kPiecesMax);
  }
  return pattern;
}

bool HostPattern::matches(std::string_view name) const {
  if (name.size() > kNameBytesMax) {
    return false;
  }
  // reached[i]: the pieces so far match the first i characters of the name.
  std::vector<bool> reached(name.size() + 1, false);
  reached[0] = true;
  for (const Piece& piece : pieces_) {
    std::vector<bool> next(name.size() + 1, false);
    for (size_t at = 0; at <= name.size(); ++at) {
      if (!reached[at]) {
        continue;
      }
      switch (piece.kind) {
        case Piece::Kind::kAny:
          std::fill(next.begin() + static_cast<std::ptrdiff_t>(at), next.end(), true);
          break;
        case Piece::Kind::kText:
        case Piece::Kind::kOne:
          if (at < name.size() &&
              (piece.kind == Piece::Kind::kOne || name[at] == piece.character)) {
            next[at + 1] = true;
          }
          break;
        case Piece::Kind::kNumber:
          for (size_t digits = 1; at + digits <= name.size(); ++digits) {
            uint64_t number = 0;
            if (!read_number(name.substr(at, digits), &number)) {
              break;
            }
            const bool in_list =
                std::any_of(piece.ranges.begin(), piece.ranges.end(), [&](const Range& range) {
                  const bool written_alike =
                      digits == range.digits_min || (digits > range.digits_min && name[at] != '0');
                  return written_alike && number >= range.low && number <= range.high;
                });
            next[at + digits] = next[at + digits] || in_list;
          }
          break;
      }
    }
    reached = std::move(next);
  }
  return reached.back();
}

}  // namespace plexus
