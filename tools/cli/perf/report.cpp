// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/perf/report.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "core/base/text.hpp"
#include "tools/cli/perf/nccl_tests_report.hpp"

namespace plexus::perf {
namespace {

constexpr double kGigaPerMicro = 1e-3;  // bytes per us to GB/s

std::string op_name(const JobFacts& facts, const Row& row) {
  return info_of(facts.options.collective).reduces ? name_of(row.variant.op) : "none";
}

/// A bandwidth with three significant digits if there is space.
std::string short_number(double value) {
  return value < 10 ? fmt::format("{:.3f}", value) : fmt::format("{:.2f}", value);
}

std::string measured_columns(const JobFacts& facts, const Row& row) {
  const Bandwidth bandwidth = compute_bandwidth(facts, row);
  const std::string wrong = row.wrong == Row::kUnchecked ? "N/A" : fmt::format("{}", row.wrong);
  return fmt::format(" {:>10.2f} {:>8} {:>8} {:>6}", row.time_us.median,
                     short_number(bandwidth.algbw_gb_per_s), short_number(bandwidth.busbw_gb_per_s),
                     wrong);
}

nlohmann::ordered_json json_of(const JobFacts& facts, const Row& row) {
  const Bandwidth bandwidth = compute_bandwidth(facts, row);
  nlohmann::ordered_json json;
  json["bytes"] = row.size_bytes;
  json["count"] = row.count;
  json["type"] = info_of(row.variant.type).name;
  json["redop"] = op_name(facts, row);
  json["root"] = row.variant.root;
  json["in_place"] = row.in_place;
  json["time_us"] = {
      {"median", row.time_us.median}, {"min", row.time_us.min}, {"p99", row.time_us.p99}};
  json["algbw_gb_per_s"] = bandwidth.algbw_gb_per_s;
  json["busbw_gb_per_s"] = bandwidth.busbw_gb_per_s;
  json["wrong"] =
      row.wrong == Row::kUnchecked ? nlohmann::ordered_json() : nlohmann::ordered_json(row.wrong);
  json["algorithm"] = row.algorithm.data();
  json["protocol"] = row.protocol.data();
  json["channels"] = row.channels;
  json["batch"] = row.batch;
  json["estimated_us"] =
      row.estimated_us < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(row.estimated_us);
  return json;
}

struct CloseFile {
  void operator()(std::FILE* file) const noexcept {
    if (file != stdout) {
      std::fclose(file);  // NOLINT(cppcoreguidelines-owning-memory): this is the owner's end
    }
  }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

Result<File> open_output(const std::string& flag, const std::string& name) {
  File file;
  if (name == "-") {
    file.reset(stdout);
  } else if (!name.empty()) {
    file.reset(
        std::fopen(name.c_str(), "we"));  // NOLINT(cppcoreguidelines-owning-memory): goes to File
    if (!file) {
      return fail(Code::kInvalidArgument, "{}: cannot write to the file '{}': {}", flag, name,
                  std::generic_category().message(errno));
    }
  }
  return file;
}

Result<void> write_all(std::FILE* file, const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), file) != text.size() || std::fflush(file) != 0) {
    return fail(Code::kSystemError, "cannot write the results: {}",
                std::generic_category().message(errno));
  }
  return ok();
}

}  // namespace

Row::Name make_name(const char* text) noexcept {
  Row::Name name{};
  if (text != nullptr) {
    std::memcpy(name.data(), text, std::min(std::strlen(text), name.size() - 1));
  }
  return name;
}

Bandwidth compute_bandwidth(const JobFacts& facts, const Row& row) noexcept {
  if (row.time_us.median <= 0) {
    return {0, 0};
  }
  const double algbw = static_cast<double>(row.size_bytes) / row.time_us.median * kGigaPerMicro *
                       alg_factor(facts.options.collective, facts.options.nranks);
  return {algbw, algbw * bus_factor(facts.options.collective, facts.options.nranks)};
}

std::string format_json(const JobFacts& facts, const std::vector<Row>& rows) {
  nlohmann::ordered_json json;
  json["version"] = facts.version;
  json["collective"] = info_of(facts.options.collective).name;
  json["ranks"] = facts.options.nranks;
  json["mode"] = facts.mode;
  json["rows"] = nlohmann::ordered_json::array();
  Totals totals;
  for (const Row& row : rows) {
    json["rows"].push_back(json_of(facts, row));
    totals.add(facts, row);
  }
  json["wrong_total"] = totals.wrong;
  return json.dump(1) + "\n";
}

std::string tsv_header() {
  return "bytes\tcount\ttype\tredop\troot\tin_place\ttime_us_median\ttime_us_min\ttime_us_p99\t"
         "algbw_gb_per_s\tbusbw_gb_per_s\twrong\talgorithm\tprotocol\tchannels\tbatch\n";
}

std::string format_tsv(const JobFacts& facts, const Row& row) {
  const Bandwidth bandwidth = compute_bandwidth(facts, row);
  return fmt::format(
      "{}\t{}\t{}\t{}\t{}\t{}\t{:.3f}\t{:.3f}\t{:.3f}\t{:.4f}\t{:.4f}\t{}\t{}\t{}\t{}\t{}\n",
      row.size_bytes, row.count, info_of(row.variant.type).name, op_name(facts, row),
      row.variant.root, row.in_place ? 1 : 0, row.time_us.median, row.time_us.min, row.time_us.p99,
      bandwidth.algbw_gb_per_s, bandwidth.busbw_gb_per_s,
      row.wrong == Row::kUnchecked ? "" : fmt::format("{}", row.wrong), row.algorithm.data(),
      row.protocol.data(), row.channels, row.batch);
}

std::string table_header(const JobFacts& facts) {
  std::string text = fmt::format(
      "# plexus {} {}: {}, {}\n# {}\n#\n", facts.version, info_of(facts.options.collective).name,
      counted(static_cast<size_t>(facts.options.nranks), "rank"), facts.mode,
      describe(facts.options) + (facts.printer.empty() ? "" : "; printed by " + facts.printer));
  const std::string measured =
      fmt::format(" {:>10} {:>8} {:>8} {:>6}", "time", "algbw", "busbw", "#wrong");
  const std::string units =
      fmt::format(" {:>10} {:>8} {:>8} {:>6}", "(us)", "(GB/s)", "(GB/s)", "");
  text += fmt::format("# {:>10} {:>12} {:>8} {:>7} {:>5}  {:>23}{:13} {:>23}\n", "", "", "", "", "",
                      "out-of-place", "", "in-place");
  text += fmt::format("# {:>10} {:>12} {:>8} {:>7} {:>5} {} {}  {}\n", "size", "count", "type",
                      "redop", "root", measured, measured, "algorithm/protocol/channels");
  text += fmt::format("# {:>10} {:>12} {:>8} {:>7} {:>5} {} {}\n", "(B)", "(elements)", "", "", "",
                      units, units);
  return text;
}

std::string format_table_line(const JobFacts& facts, const Row& out_of_place, const Row* in_place) {
  const Row& row = out_of_place;
  std::string choice = "-";
  if (row.algorithm[0] != '\0') {
    choice = fmt::format("{}/{}/{}", row.algorithm.data(), row.protocol.data(), row.channels);
  }
  const std::string none = fmt::format(" {:>10} {:>8} {:>8} {:>6}", "N/A", "N/A", "N/A", "N/A");
  return fmt::format("  {:>10} {:>12} {:>8} {:>7} {:>5} {} {}  {}\n", row.size_bytes, row.count,
                     info_of(row.variant.type).name, op_name(facts, row), row.variant.root,
                     measured_columns(facts, row),
                     in_place == nullptr ? none : measured_columns(facts, *in_place), choice);
}

void Totals::add(const JobFacts& facts, const Row& row) noexcept {
  wrong += row.wrong > 0 ? static_cast<uint64_t>(row.wrong) : 0;
  checked = checked || row.wrong != Row::kUnchecked;
  busbw_sum += compute_bandwidth(facts, row).busbw_gb_per_s;
  ++nrows;
}

bool Totals::is_fast_enough(const PerfOptions& options) const noexcept {
  constexpr double kTolerance = 0.9;
  return !options.busbw_wanted || busbw_mean() >= *options.busbw_wanted * kTolerance;
}

std::string table_footer(const Totals& totals) {
  const std::string verdict =
      !totals.checked ? "not checked (-c 0)"
                      : fmt::format("{} {}", totals.wrong, totals.wrong == 0 ? "OK" : "FAILED");
  return fmt::format("# Wrong elements    : {}\n# Avg bus bandwidth : {:.3f} GB/s\n", verdict,
                     totals.busbw_mean());
}

struct Reporter::State {
  JobFacts facts;
  File json;
  File tsv;
  NcclTestsJson nccl_tests;
  size_t nrows;
  bool progress;          // stderr shows the progress
  std::vector<Row> rows;  // for the files in JSON; else the last two
  Totals totals;
  Result<void> written = ok();

  [[nodiscard]] const Outputs& outputs() const { return facts.options.outputs; }
  [[nodiscard]] bool is_nccl_tests() const { return outputs().columns == Columns::kNcclTests; }
  void print(std::FILE* file, const std::string& text) {
    if (file && written) {
      written = write_all(file, text);
    }
  }
  void print_table(const std::string& text) {
    print(outputs().shows_table() ? stdout : nullptr, text);
  }
  void show_progress() const {
    if (progress) {
      fmt::print(stderr, "\r{}/{} rows{}", totals.nrows, nrows,
                 totals.nrows == nrows ? "\r             \r" : "");
      std::fflush(stderr);
    }
  }
  /// A line is printed with its last row, which is the in-place one if there are any.
  void print_line() {
    const Row& last = rows.back();
    if (last.in_place != has_in_place_rows(facts.options)) {
      return;
    }
    const Row& first = last.in_place ? rows[rows.size() - 2] : last;
    if (is_nccl_tests()) {
      print_table(nccl_tests_line(facts, first, last));
    } else {
      print_table(
          format_table_line(facts, first, has_form(last) && last.in_place ? &last : nullptr));
    }
  }
  /// Whether the collective has the row's form: that of nccl-tests' columns may be no such one.
  [[nodiscard]] bool has_form(const Row& row) const {
    return !row.in_place || info_of(facts.options.collective).in_place;
  }
};

Reporter::Reporter(std::unique_ptr<State> state) : state_(std::move(state)) {}
Reporter::Reporter(Reporter&& other) noexcept = default;
Reporter& Reporter::operator=(Reporter&& other) noexcept = default;
Reporter::~Reporter() = default;

Result<Reporter> Reporter::create(JobFacts facts, size_t nrows) {
  const Outputs& outputs = facts.options.outputs;
  if (outputs.json == "-" && outputs.tsv == "-") {
    return fail(Code::kInvalidArgument,
                "--json and --tsv cannot both go to stdout; give one of them a file");
  }
  PLEXUS_TRY(json, open_output("--json", outputs.json));
  PLEXUS_TRY(tsv, open_output("--tsv", outputs.tsv));
  PLEXUS_TRY(nccl_tests, NcclTestsJson::create(outputs.nccl_tests_json));
  const bool table = outputs.shows_table();
  const bool progress = isatty(STDERR_FILENO) != 0 && (!table || isatty(STDOUT_FILENO) == 0);
  return Reporter(std::unique_ptr<State>(new State{std::move(facts),
                                                   std::move(json),
                                                   std::move(tsv),
                                                   std::move(nccl_tests),
                                                   nrows,
                                                   progress,
                                                   {},
                                                   {}}));
}

void Reporter::begin(const std::vector<RankPlace>& places) {
  state_->nccl_tests.begin(state_->facts, places);
  if (state_->is_nccl_tests()) {
    state_->print_table(state_->nccl_tests.notice());
    state_->print_table(nccl_tests_header(state_->facts, places));
  } else {
    state_->print_table(table_header(state_->facts));
  }
  state_->print(state_->tsv.get(), tsv_header());
  state_->show_progress();
}

void Reporter::add(const Row& row) {
  State& state = *state_;
  const bool all_kept = state.json != nullptr || !state.outputs().nccl_tests_json.empty();
  if (!all_kept && state.rows.size() == 2) {
    state.rows.erase(state.rows.begin());
  }
  state.rows.push_back(row);
  state.totals.add(state.facts, row);
  if (state.has_form(row)) {
    state.print(state.tsv.get(), format_tsv(state.facts, row));
  }
  state.print_line();
  state.show_progress();
}

Result<bool> Reporter::finish() {
  State& state = *state_;
  state.print_table(state.is_nccl_tests() ? nccl_tests_footer(state.facts, state.totals)
                                          : table_footer(state.totals));
  if (state.written) {
    state.written = state.nccl_tests.finish(state.facts, state.rows, state.totals);
  }
  std::erase_if(state.rows, [&](const Row& row) { return !state.has_form(row); });
  if (state.json) {
    state.print(state.json.get(), format_json(state.facts, state.rows));
  }
  if (!state.written) {
    return std::move(state.written).as_failure();
  }
  return state.totals.wrong == 0 && state.totals.is_fast_enough(state.facts.options);
}

}  // namespace plexus::perf
