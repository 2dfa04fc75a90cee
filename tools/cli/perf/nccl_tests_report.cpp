// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/perf/nccl_tests_report.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <ctime>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>
#include <unistd.h>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "core/base/text.hpp"

namespace plexus::perf {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kTimeWidth = 7;
constexpr int kBandwidthWidth = 6;
constexpr int kStampWidth = 19;
constexpr int kJsonVersion = 3;

std::string now_text() {
  std::tm local{};
  const std::time_t now = std::time(nullptr);
  localtime_r(&now, &local);
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", local);
}

/// With as many decimals, up to two, as there is room for.
std::string fit(double value, int width) {
  for (int decimals = 2; decimals >= 0; --decimals) {
    std::string text = fmt::format("{:>{}.{}f}", value, width, decimals);
    if (static_cast<int>(text.size()) <= width) {
      return text;
    }
  }
  return fmt::format("{:>{}.{}e}", value, width, width >= kTimeWidth ? 1 : 0);
}

/// Six digits, as nccl-tests, but never an exponent, which some readers do not know.
std::string average_text(double value) {
  std::string text = fmt::format("{:g}", value);
  return text.find('e') == std::string::npos ? text : fmt::format("{:.6f}", value);
}

std::string program_name(const JobFacts& facts) {
  return fmt::format("{}_perf", info_of(facts.options.collective).name);
}

/// As nccl-tests, which also says so of sendrecv.
const char* redop_name(const JobFacts& facts, const Row& row) {
  const Collective collective = facts.options.collective;
  const bool named = info_of(collective).reduces || collective == Collective::kSendRecv;
  return named ? name_of(row.variant.op) : "none";
}

double shown_time_us(const JobFacts& facts, const Row& row) {
  return facts.options.outputs.cpu_time ? row.cpu_us : row.time_us.median;
}

double variation_percent(const TimeUs& time_us) {
  constexpr double kPercent = 100;
  return time_us.mean > 0 ? time_us.deviation / time_us.mean * kPercent : 0;
}

std::string row_columns(const JobFacts& facts, const Row& row) {
  const Bandwidth bandwidth = compute_bandwidth(facts, row);
  std::string text =
      fmt::format("  {}  {}  {}  {:>6}", fit(shown_time_us(facts, row), kTimeWidth),
                  fit(bandwidth.algbw_gb_per_s, kBandwidthWidth),
                  fit(bandwidth.busbw_gb_per_s, kBandwidthWidth),
                  row.wrong == Row::kUnchecked ? "N/A" : fmt::format("{}", row.wrong));
  if (facts.options.outputs.per_iteration) {
    for (const double value :
         {row.time_us.min, row.time_us.max, row.time_us.p99, variation_percent(row.time_us)}) {
      text += "  " + fit(value, kTimeWidth);
    }
  }
  return text;
}

std::string describe_run(const PerfOptions& options) {
  const std::vector<size_t> sizes = compute_sizes(options.sizes);
  const Workers workers = compute_workers(options);
  const bool multiplies = options.sizes.step_factor > 1;
  return fmt::format(
      "# nThread {} nGpus {} minBytes {} maxBytes {} step: {}({}) warmup iters: {} iters: {} agg "
      "iters: {} validation: {} graph: 0 unalign: {}\n",
      workers.threads, workers.ranks_per_thread, sizes.front(),
      options.sizes.max_bytes.value_or(sizes.back()),
      multiplies ? options.sizes.step_factor : static_cast<double>(options.sizes.step_bytes),
      multiplies ? "factor" : "bytes", options.warmup,
      options.iterations.iterations > 0 ? options.iterations.iterations : kIterationsDefault,
      options.aggregate, options.check, options.unalign);
}

std::string column_names(const JobFacts& facts) {
  const Outputs& outputs = facts.options.outputs;
  const auto line = [&](const std::array<const char*, 5>& fixed, const char* time,
                        const char* bandwidth1, const char* bandwidth2, const char* wrong,
                        const std::array<const char*, 4>& iterations, const char* stamp) {
    std::string measured =
        fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", time, bandwidth1, bandwidth2, wrong);
    for (const char* const name : iterations) {
      measured += outputs.per_iteration ? fmt::format("  {:>7}", name) : "";
    }
    return fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}{}{} {:>{}}\n", fixed[0], fixed[1],
                       fixed[2], fixed[3], fixed[4], measured, measured, stamp,
                       outputs.timestamps ? kStampWidth : 0);
  };
  const int half = outputs.per_iteration ? 69 : 33;
  return fmt::format("# {:>50}{:^{}}{:^{}}\n", "", "out-of-place", half, "in-place", half) +
         line({"size", "count", "type", "redop", "root"}, outputs.cpu_time ? "cputime" : "time",
              "algbw", "busbw", "#wrong", {"i_min", "i_max", "i_p99", "i_cv%"},
              outputs.timestamps ? "timestamp" : "") +
         line({"(B)", "(elements)", "", "", ""}, "(us)", "(GB/s)", "(GB/s)", "",
              {"(us)", "(us)", "(us)", "(%)"}, outputs.timestamps ? "%Y-%m-%d %H:%M:%S" : "");
}

/// Without a fraction where there is none.
Json number_of(double value) {
  return value == std::floor(value) ? Json(static_cast<int64_t>(value)) : Json(value);
}

Json words(bool value) { return value ? "true" : "false"; }

/// The settings of NCCL and Plexus in the environment, but none that names a secret.
Json settings() {
  Json list = Json::array();
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text(*variable);
    const std::string_view name = text.substr(0, text.find('='));
    if ((name.starts_with("NCCL_") || name.starts_with("PLEXUS_")) &&
        name.find("SECRET") == std::string_view::npos) {
      list.push_back(text);
    }
  }
  return list;
}

Json command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  Json list = Json::array();
  for (std::string word; std::getline(file, word, '\0');) {
    list.push_back(word);
  }
  return list;
}

Json report_json(const JobFacts& facts, const std::vector<RankPlace>& places) {
  const PerfOptions& options = facts.options;
  const std::vector<size_t> sizes = compute_sizes(options.sizes);
  const Workers workers = compute_workers(options);
  Json json = {{"nthreads", workers.threads},
               {"ngpus", workers.ranks_per_thread},
               {"minimum_bytes", sizes.front()},
               {"maximum_bytes", options.sizes.max_bytes.value_or(sizes.back())}};
  if (options.sizes.step_factor > 1) {
    json["step_factor"] = number_of(options.sizes.step_factor);
  } else {
    json["step_bytes"] = options.sizes.step_bytes;
  }
  json["warmup_iters"] = options.warmup;
  json["iterations"] =
      options.iterations.iterations > 0 ? options.iterations.iterations : kIterationsDefault;
  json["aggregated_iterations"] = options.aggregate;
  json["validation"] = options.check;
  json["graph"] = 0;
  json["blocking_collectives"] = words(options.blocking != Blocking::kNone);
  json["per_iter_timing"] = words(options.outputs.per_iteration);
  json["per_iter_skip"] = options.skipped;
  json["parallel_init"] = words(true);
  json["devices"] = Json::array();
  for (const RankPlace& place : places) {
    json["devices"].push_back({{"rank", place.rank},
                               {"group", options.group},
                               {"pid", place.pid},
                               {"hostname", place.host.data()},
                               {"device", place.index},
                               {"device_hex", "host"},
                               {"device_info", "CPU"}});
  }
  return json;
}

Json report_json(const JobFacts& facts, const Row& row) {
  const Bandwidth bandwidth = compute_bandwidth(facts, row);
  return {{facts.options.outputs.cpu_time ? "cpu_time" : "time", shown_time_us(facts, row)},
          {"alg_bw", bandwidth.algbw_gb_per_s},
          {"bus_bw", bandwidth.busbw_gb_per_s},
          {"nwrong", row.wrong == Row::kUnchecked ? Json() : Json(row.wrong)}};
}

Json report_json(const JobFacts& facts, const TimeUs& time_us) {
  return {{"skipped_iterations", facts.options.skipped},
          {"min_us", time_us.min},
          {"max_us", time_us.max},
          {"avg_us", time_us.mean},
          {"p50_us", time_us.median},
          {"p95_us", time_us.p95},
          {"p99_us", time_us.p99},
          {"stdev_us", time_us.deviation},
          {"cv_pct", variation_percent(time_us)}};
}

Json report_json(const JobFacts& facts, const Row& out_of_place, const Row& in_place) {
  Json json = {{"size", out_of_place.size_bytes},
               {"count", out_of_place.count},
               {"type", info_of(out_of_place.variant.type).name},
               {"redop", redop_name(facts, out_of_place)},
               {"root", fmt::format("{}", out_of_place.variant.root)}};
  for (const Row* const row : {&out_of_place, &in_place}) {
    const std::string place = row->in_place ? "in_place" : "out_of_place";
    json[place] = report_json(facts, *row);
    if (facts.options.outputs.per_iteration) {
      json[place + "_per_iter"] = report_json(facts, row->time_us);
    }
  }
  json["actual_iterations"] = out_of_place.iterations;
  json["experiment_name"] = "";
  return json;
}

}  // namespace

std::string nccl_tests_header(const JobFacts& facts, const std::vector<RankPlace>& places) {
  std::string text = fmt::format("# Plexus {} nccl-library={}, columns of nccl-tests 2.19\n",
                                 facts.version, facts.nccl_version);
  text += fmt::format("# Collective test starting: {}\n", program_name(facts));
  text += describe_run(facts.options);
  text += fmt::format(
      "# {}, {}: {}{}\n", counted(static_cast<size_t>(facts.options.nranks), "rank"), facts.mode,
      describe(facts.options), facts.printer.empty() ? "" : "; printed by " + facts.printer);
  text += "#\n# Using devices\n";
  for (const RankPlace& place : places) {
    text += fmt::format("#  Rank {:2} Group {:2} Pid {:6} on {:>10} device {:2} [host] CPU\n",
                        place.rank, facts.options.group, place.pid, place.host.data(), place.index);
  }
  return text + "#\n" + column_names(facts);
}

std::string nccl_tests_line(const JobFacts& facts, const Row& out_of_place, const Row& in_place) {
  const Row& row = out_of_place;
  return fmt::format("{:>12}  {:>12}  {:>8}  {:>6}  {:>6}{}{}{}\n", row.size_bytes, row.count,
                     info_of(row.variant.type).name, redop_name(facts, row), row.variant.root,
                     row_columns(facts, row), row_columns(facts, in_place),
                     facts.options.outputs.timestamps ? "  " + now_text() : "");
}

std::string nccl_tests_footer(const JobFacts& facts, const Totals& totals) {
  const char* const fast = !facts.options.busbw_wanted            ? ""
                           : totals.is_fast_enough(facts.options) ? "OK"
                                                                  : "FAILED";
  return fmt::format(
      "# {:<20} : {} {}\n# {:<20} : {} {}\n#\n# Collective test concluded: {}\n#\n\n",
      "Out of bounds values", totals.wrong, totals.wrong == 0 ? "OK" : "FAILED",
      "Avg bus bandwidth", average_text(totals.busbw_mean()), fast, program_name(facts));
}

void NcclTestsJson::Close::operator()(std::FILE* file) const noexcept {
  std::fclose(file);  // NOLINT(cppcoreguidelines-owning-memory): this is the owner's end
}

Result<NcclTestsJson> NcclTestsJson::create(const std::string& name) {
  NcclTestsJson made;
  made.path_ = name;
  constexpr int kTriesMax = 10000;
  for (int i = 0; !name.empty() && i < kTriesMax; ++i) {
    // NOLINTNEXTLINE(cppcoreguidelines-owning-memory): file_ owns it
    made.file_.reset(std::fopen(made.path_.c_str(), "wxe"));
    if (made.file_ != nullptr) {
      return made;
    }
    if (errno != EEXIST) {
      break;
    }
    made.path_ = fmt::format("{}.{}", name, i);
  }
  if (!name.empty()) {
    return fail(Code::kInvalidArgument, "-J: cannot write to the file '{}': {}", made.path_,
                std::generic_category().message(errno));
  }
  return made;
}

std::string NcclTestsJson::notice() const {
  return file_ == nullptr ? "" : fmt::format("# Writing JSON output to {}\n", path_);
}

void NcclTestsJson::begin(const JobFacts& facts, const std::vector<RankPlace>& places) {
  if (file_ == nullptr) {
    return;
  }
  json_["version"] = kJsonVersion;
  json_["start_time"] = now_text();
  json_["args"] = command_line();
  json_["env"] = settings();
  json_["nccl_version"] = facts.nccl_version;
  json_["config"] = report_json(facts, places);
}

Result<void> NcclTestsJson::finish(const JobFacts& facts,
                                   const std::vector<Row>& rows,
                                   const Totals& totals) {
  if (file_ == nullptr) {
    return ok();
  }
  json_["results"] = Json::array();
  for (size_t i = 0; i + 1 < rows.size(); i += 2) {
    json_["results"].push_back(report_json(facts, rows[i], rows[i + 1]));
  }
  json_["out_of_bounds"] = {{"count", totals.wrong}, {"okay", words(totals.wrong == 0)}};
  json_["average_bus_bandwidth"] = {
      {"bandwidth", totals.busbw_mean()},
      {"okay", facts.options.busbw_wanted ? words(totals.is_fast_enough(facts.options))
                                          : Json("unchecked")}};
  json_["errors"] = Json::array();
  json_["end_time"] = now_text();
  const std::string text = json_.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  const bool written = std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size() &&
                       std::fflush(file_.get()) == 0;
  file_.reset();
  return written ? ok()
                 : Result<void>(fail(Code::kSystemError, "-J: cannot write to the file '{}': {}",
                                     path_, std::generic_category().message(errno)));
}

}  // namespace plexus::perf
