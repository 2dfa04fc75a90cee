// SPDX-License-Identifier: Apache-2.0
// Output of rows: as text (nccl-tests' table on stdout) and in machine formats (a JSON object,
// TSV).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "tools/cli/perf/row.hpp"

namespace plexus::perf {

/// The facts that all rows share.
struct JobFacts {
  std::string version;
  Collective collective;
  int nranks;
  std::string
      mode;  // "procs", "threads", "single", or "joined" for ranks that something else started
  std::string parameters;  // one line for people
};

struct Bandwidth {
  double algbw_gb_per_s;
  double busbw_gb_per_s;
};
[[nodiscard]] Bandwidth compute_bandwidth(const JobFacts& facts, const Row& row) noexcept;

/// The JSON object with a final newline; docs/performance.md describes the fields.
[[nodiscard]] std::string format_json(const JobFacts& facts, const std::vector<Row>& rows);
[[nodiscard]] std::string tsv_header();
[[nodiscard]] std::string format_tsv(const JobFacts& facts, const Row& row);

[[nodiscard]] std::string table_header(const JobFacts& facts);
/// One line: the out-of-place row and, if there is one, the in-place row of the same size.
[[nodiscard]] std::string format_table_line(const JobFacts& facts,
                                            const Row& out_of_place,
                                            const Row* in_place);
[[nodiscard]] std::string table_footer(const JobFacts& facts, const std::vector<Row>& rows);

[[nodiscard]] uint64_t count_wrong_total(const std::vector<Row>& rows) noexcept;

/// Destinations of the output. Empty: none; "-": stdout.
struct Outputs {
  std::string json;
  std::string tsv;
};

/// Prints while the job runs, and writes the files at the end.
class Reporter {
 public:
  /// `nrows`: expected number of rows, for the progress line on stderr, which is shown only on a
  /// terminal.
  static Result<Reporter> create(JobFacts facts, const Outputs& outputs, size_t nrows);
  Reporter(Reporter&& other) noexcept;
  Reporter& operator=(Reporter&& other) noexcept;
  ~Reporter();

  void begin();
  void add(const Row& row);
  /// Writes the remaining output. Returns the number of wrong elements.
  Result<uint64_t> finish();

 private:
  struct State;
  explicit Reporter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace plexus::perf
