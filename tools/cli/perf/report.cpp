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

namespace plexus::perf {
namespace {

constexpr double kGigaPerMicro = 1e-3;  // bytes per us to GB/s

std::string op_name(const JobFacts& facts, const Row& row) {
  return info_of(facts.collective).reduces ? name_of(row.variant.op) : "none";
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
  const double algbw = static_cast<double>(row.size_bytes) / row.time_us.median * kGigaPerMicro;
  return {algbw, algbw * bus_factor(facts.collective, facts.nranks)};
}

std::string format_json(const JobFacts& facts, const std::vector<Row>& rows) {
  nlohmann::ordered_json json;
  json["version"] = facts.version;
  json["collective"] = info_of(facts.collective).name;
  json["ranks"] = facts.nranks;
  json["mode"] = facts.mode;
  json["rows"] = nlohmann::ordered_json::array();
  for (const Row& row : rows) {
    json["rows"].push_back(json_of(facts, row));
  }
  json["wrong_total"] = count_wrong_total(rows);
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
  std::string text =
      fmt::format("# plexus {} {}: {} ranks, {}\n# {}\n#\n", facts.version,
                  info_of(facts.collective).name, facts.nranks, facts.mode, facts.parameters);
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

std::string table_footer(const JobFacts& facts, const std::vector<Row>& rows) {
  double sum = 0;
  bool checked = false;
  for (const Row& row : rows) {
    sum += compute_bandwidth(facts, row).busbw_gb_per_s;
    checked = checked || row.wrong != Row::kUnchecked;
  }
  const uint64_t wrong = count_wrong_total(rows);
  const std::string verdict =
      !checked ? "not checked (-c 0)" : fmt::format("{} {}", wrong, wrong == 0 ? "OK" : "FAILED");
  return fmt::format("# Wrong elements    : {}\n# Avg bus bandwidth : {:.3f} GB/s\n", verdict,
                     rows.empty() ? 0 : sum / static_cast<double>(rows.size()));
}

uint64_t count_wrong_total(const std::vector<Row>& rows) noexcept {
  uint64_t total = 0;
  for (const Row& row : rows) {
    total += row.wrong > 0 ? static_cast<uint64_t>(row.wrong) : 0;
  }
  return total;
}

struct Reporter::State {
  JobFacts facts;
  File json;
  File tsv;
  size_t nrows;
  bool table;     // stdout shows the table
  bool progress;  // stderr shows the progress
  std::vector<Row> rows;
  Result<void> written = ok();

  void print(std::FILE* file, const std::string& text) {
    if (file && written) {
      written = write_all(file, text);
    }
  }
  void show_progress() const {
    if (progress) {
      fmt::print(stderr, "\r{}/{} rows{}", rows.size(), nrows,
                 rows.size() == nrows ? "\r             \r" : "");
      std::fflush(stderr);
    }
  }
  /// A line is printed with its last row, which is the in-place one if the collective has one.
  void print_line() {
    const Row& last = rows.back();
    if (last.in_place) {
      print(stdout, format_table_line(facts, rows[rows.size() - 2], &last));
    } else if (!info_of(facts.collective).in_place) {
      print(stdout, format_table_line(facts, last, nullptr));
    }
  }
};

Reporter::Reporter(std::unique_ptr<State> state) : state_(std::move(state)) {}
Reporter::Reporter(Reporter&& other) noexcept = default;
Reporter& Reporter::operator=(Reporter&& other) noexcept = default;
Reporter::~Reporter() = default;

Result<Reporter> Reporter::create(JobFacts facts, const Outputs& outputs, size_t nrows) {
  if (outputs.json == "-" && outputs.tsv == "-") {
    return fail(Code::kInvalidArgument,
                "--json and --tsv cannot both go to stdout; give one of them a file");
  }
  PLEXUS_TRY(json, open_output("--json", outputs.json));
  PLEXUS_TRY(tsv, open_output("--tsv", outputs.tsv));
  const bool table = outputs.json != "-" && outputs.tsv != "-";
  const bool progress = isatty(STDERR_FILENO) != 0 && (!table || isatty(STDOUT_FILENO) == 0);
  return Reporter(std::unique_ptr<State>(
      new State{std::move(facts), std::move(json), std::move(tsv), nrows, table, progress, {}}));
}

void Reporter::begin() {
  if (state_->table) {
    state_->print(stdout, table_header(state_->facts));
  }
  state_->print(state_->tsv.get(), tsv_header());
  state_->show_progress();
}

void Reporter::add(const Row& row) {
  state_->rows.push_back(row);
  state_->print(state_->tsv.get(), format_tsv(state_->facts, row));
  if (state_->table) {
    state_->print_line();
  }
  state_->show_progress();
}

Result<uint64_t> Reporter::finish() {
  if (state_->table) {
    state_->print(stdout, table_footer(state_->facts, state_->rows));
  }
  if (state_->json) {
    state_->print(state_->json.get(), format_json(state_->facts, state_->rows));
  }
  if (!state_->written) {
    return std::move(state_->written).as_failure();
  }
  return count_wrong_total(state_->rows);
}

}  // namespace plexus::perf
