// SPDX-License-Identifier: Apache-2.0
// Output in the form of nccl-tests, so that what reads theirs reads ours: 13 columns, head, foot,
// and the file of -J. The numbers are those of our own table.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/base/result.hpp"
#include "tools/cli/perf/report.hpp"

namespace plexus::perf {

[[nodiscard]] std::string nccl_tests_header(const JobFacts& facts,
                                            const std::vector<RankPlace>& places);
/// With -S also the present time.
[[nodiscard]] std::string nccl_tests_line(const JobFacts& facts,
                                          const Row& out_of_place,
                                          const Row& in_place);
[[nodiscard]] std::string nccl_tests_footer(const JobFacts& facts, const Totals& totals);

/// The file of -J. It stays empty when the run fails.
class NcclTestsJson {
 public:
  /// Makes the file, or FILE.0, FILE.1, ... when it exists. An empty name: none is made.
  [[nodiscard]] static Result<NcclTestsJson> create(const std::string& name);

  /// The line of the table that names the file.
  [[nodiscard]] std::string notice() const;
  void begin(const JobFacts& facts, const std::vector<RankPlace>& places);
  /// `rows`: all, each out-of-place one before its in-place one.
  [[nodiscard]] Result<void> finish(const JobFacts& facts,
                                    const std::vector<Row>& rows,
                                    const Totals& totals);

 private:
  struct Close {
    void operator()(std::FILE* file) const noexcept;
  };
  NcclTestsJson() = default;
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  nlohmann::ordered_json json_;
};

}  // namespace plexus::perf
