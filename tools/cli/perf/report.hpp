// SPDX-License-Identifier: Apache-2.0
// Output of rows: as a table on stdout (nccl-tests', nccl_tests_report.hpp, or ours) and in machine
// formats (a JSON object, TSV).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "tools/cli/perf/options.hpp"

namespace plexus::perf {

/// The facts that all rows share.
struct JobFacts {
  std::string version;
  int nccl_version;  // NCCL_VERSION_CODE
  PerfOptions options;
  std::string mode;     // start_name(), or "joined" for ranks that something else started
  std::string printer;  // the name of the rank that prints, where a launcher started it
};

/// Where a rank is.
struct RankPlace {
  int rank;
  int pid;
  int index;  // among the ranks of its process
  std::array<char, 64> host;
};

struct Bandwidth {
  double algbw_gb_per_s;
  double busbw_gb_per_s;
};
[[nodiscard]] Bandwidth compute_bandwidth(const JobFacts& facts, const Row& row) noexcept;

/// The JSON object with a final newline; docs/perf.md describes the fields.
[[nodiscard]] std::string format_json(const JobFacts& facts, const std::vector<Row>& rows);
[[nodiscard]] std::string tsv_header();
[[nodiscard]] std::string format_tsv(const JobFacts& facts, const Row& row);

[[nodiscard]] std::string table_header(const JobFacts& facts);
/// One line: the out-of-place row and, if there is one, the in-place row of the same size.
[[nodiscard]] std::string format_table_line(const JobFacts& facts,
                                            const Row& out_of_place,
                                            const Row* in_place);

/// What the rows come to.
struct Totals {
  uint64_t wrong = 0;
  bool checked = false;
  double busbw_sum = 0;
  uint64_t nrows = 0;

  void add(const JobFacts& facts, const Row& row) noexcept;
  [[nodiscard]] double busbw_mean() const noexcept {
    return nrows == 0 ? 0 : busbw_sum / static_cast<double>(nrows);
  }
  /// As nccl-tests: at least nine tenths of what was wanted (NCCL_TESTS_MIN_BW).
  [[nodiscard]] bool is_fast_enough(const PerfOptions& options) const noexcept;
};
[[nodiscard]] std::string table_footer(const Totals& totals);

/// Prints while the job runs, and writes the files at the end.
class Reporter {
 public:
  /// `nrows`: expected number of rows, for the progress line on stderr, which is shown only on a
  /// terminal.
  static Result<Reporter> create(JobFacts facts, size_t nrows);
  Reporter(Reporter&& other) noexcept;
  Reporter& operator=(Reporter&& other) noexcept;
  ~Reporter();

  void begin(const std::vector<RankPlace>& places);
  void add(const Row& row);
  /// Writes the remaining output. Returns whether all went as wanted.
  Result<bool> finish();

 private:
  struct State;
  explicit Reporter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace plexus::perf
