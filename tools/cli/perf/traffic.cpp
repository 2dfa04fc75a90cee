// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/perf/traffic.hpp"

#include <algorithm>
#include <charconv>

namespace plexus::perf {
namespace {

constexpr size_t kAlignment = 16;
constexpr double kPartBytesMax = 1ULL << 50U;
constexpr int kMatrixRanksMax = 4096;

size_t align(double bytes) noexcept { return static_cast<size_t>(bytes) / kAlignment * kAlignment; }

bool is_space(char letter) noexcept { return letter == ' ' || letter == '\t' || letter == '\r'; }

/// The next word of `line`, which it leaves; empty at the end.
std::string_view take_word(std::string_view* line) noexcept {
  const auto* const first = std::find_if_not(line->begin(), line->end(), is_space);
  const auto* const last = std::find_if(first, line->end(), is_space);
  const std::string_view word(first, static_cast<size_t>(last - first));
  line->remove_prefix(static_cast<size_t>(last - line->begin()));
  return word;
}

Result<uint64_t> parse_bytes(std::string_view word, double scale) {
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size() || !(value >= 0) ||
      !(value * scale <= kPartBytesMax)) {
    return fail(Code::kInvalidArgument, "expects a number of bytes, not '{}'", word);
  }
  return align(value * scale);
}

}  // namespace

Result<Traffic> Traffic::parse(std::string_view text, double scale) {
  Traffic traffic(1);
  size_t columns = 0;
  size_t rows = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    size_t column = 0;
    for (std::string_view word; !(word = take_word(&line)).empty(); ++column) {
      const Result<uint64_t> bytes = parse_bytes(word, scale);
      if (!bytes) {
        return fail(Code::kInvalidArgument, "row {}, column {}: {}", rows, column,
                    bytes.error().message());
      }
      traffic.matrix_.push_back(bytes.value());
    }
    if (column == 0) {
      continue;
    }
    columns = rows == 0 ? column : columns;
    if (column != columns || column > kMatrixRanksMax) {
      return fail(Code::kInvalidArgument, "row {} has {} numbers, expected {}", rows, column,
                  std::min<size_t>(columns, kMatrixRanksMax));
    }
    if (++rows > columns) {
      break;
    }
  }
  if (rows != columns || rows == 0) {
    return fail(Code::kInvalidArgument, "expected a square matrix, found {}{} rows of {} numbers",
                rows, rows > columns ? " or more" : "", columns);
  }
  traffic.matrix_ranks_ = static_cast<int>(rows);
  return traffic;
}

size_t Traffic::bytes(int source, int target, int nranks, size_t total_bytes) const noexcept {
  if (matrix_ranks_ > 0) {
    return matrix_[static_cast<size_t>(source) * static_cast<size_t>(matrix_ranks_) +
                   static_cast<size_t>(target)];
  }
  const auto total = static_cast<double>(total_bytes);
  if (nranks == 1) {
    return align(total);
  }
  const int distance = (target - source + nranks) % nranks;
  const double distances = static_cast<double>(nranks) * (nranks - 1) / 2;  // their sum
  return align((1 - spread_) * total / nranks + spread_ * distance * total / distances);
}

size_t Traffic::largest_bytes(int nranks, size_t total_bytes) const noexcept {
  size_t largest = 0;
  const int different = matrix_ranks_ > 0 ? nranks : 1;  // without a matrix all ranks are alike
  for (int rank = 0; rank < different; ++rank) {
    size_t sent = 0;
    size_t received = 0;
    for (int peer = 0; peer < nranks; ++peer) {
      sent += bytes(rank, peer, nranks, total_bytes);
      received += bytes(peer, rank, nranks, total_bytes);
    }
    largest = std::max({largest, sent, received});
  }
  return largest;
}

}  // namespace plexus::perf
