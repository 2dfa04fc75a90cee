// SPDX-License-Identifier: Apache-2.0
// What the lines of a log of nccl-tests say, among those of the library and of a launcher. Its
// users judge what they need of it.
//
//   NcclTestsScanner scanner;
//   while (!text.empty()) {
//     if (const auto row = scanner.take(take_line(text))) ...
//   }
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace plexus {

/// A line of the table.
struct NcclTestsRow {
  uint64_t bytes = 0;
  std::optional<double> time_us;  // out of place; nullopt: no number is there
};

class NcclTestsScanner {
 public:
  /// nullopt: the line is none of the table.
  std::optional<NcclTestsRow> take(std::string_view line);

  [[nodiscard]] size_t line() const { return line_; }  // number of the last one, from 1
  [[nodiscard]] uint32_t ranks() const { return ranks_; }
  [[nodiscard]] uint32_t hosts() const { return static_cast<uint32_t>(hosts_.size()); }
  /// One that a rank is in and that is not 0; empty: none.
  [[nodiscard]] const std::string& other_group() const { return other_group_; }

 private:
  size_t line_ = 0;
  size_t time_at_ = 0;  // the column; 0: the table has not begun
  uint32_t ranks_ = 0;
  std::string other_group_;
  std::set<std::string, std::less<>> hosts_;
};

/// "all_reduce" of a line that names the program all_reduce_perf; empty: it names none.
std::string_view nccl_test_in(std::string_view line);

}  // namespace plexus
