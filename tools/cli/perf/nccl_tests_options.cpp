// SPDX-License-Identifier: Apache-2.0
// What nccl-tests' command lines and variables have and `plexus perf` would not need.
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include <CLI/CLI.hpp>
#include <boost/algorithm/string/predicate.hpp>
#include <fmt/format.h>

#include "core/base/file.hpp"
#include "tools/cli/flags.hpp"
#include "tools/cli/perf/options.hpp"

namespace plexus::perf {
namespace {

constexpr IntRange kAnyInt = {std::numeric_limits<int>::min(), std::numeric_limits<int>::max()};

/// A whole number, in a variable that says whether it was given.
void add_given_int(CLI::App& app,
                   const std::string& names,
                   std::optional<int>* target,
                   const std::string& help) {
  constexpr IntRange kRange = {1, 4096};
  add_flag(
      app, names,
      [=](const std::string& text) -> Result<void> {
        PLEXUS_TRY(value, parse_int(text, kRange));
        *target = static_cast<int>(value);
        return ok();
      },
      help);
}

/// Something that ranks on host memory do not have: taken, and said unless the value turns it off.
void add_meaningless(CLI::App& app,
                     const std::string& names,
                     const std::string& reason,
                     PerfOptions* options,
                     int off = 0) {
  add_flag(
      app, names,
      [=](const std::string& text) -> Result<void> {
        PLEXUS_TRY(value, parse_int(text, kAnyInt));
        if (value != off) {
          options->notes.push_back(
              fmt::format("{} {} has no meaning here and is ignored: {}", names, value, reason));
        }
        return ok();
      },
      "taken, without meaning here: " + reason);
}

void add_output_file(CLI::App& app, PerfOptions* options) {
  add_flag(
      app, "-J,--output_file",
      [options](const std::string& text) -> Result<void> {
        if (std::filesystem::path(text).extension() == ".json") {
          options->outputs.nccl_tests_json = text;
        } else {
          options->notes.push_back(fmt::format(
              "-J,--output_file {} is ignored: the name of a file to write ends in .json", text));
        }
        return ok();
      },
      "write nccl-tests' JSON to this file, or to FILE.0, FILE.1, ... if it exists");
}

void add_switch(CLI::App& app, const std::string& names, bool* target, const std::string& help) {
  add_choice<bool>(app, names, {{"0", false}, {"1", true}}, target, help);
}

std::string_view without_0x(std::string_view text) {
  return text.starts_with("0x") || text.starts_with("0X") ? text.substr(2) : text;
}

/// "MOD 2", "&0x7", "div 0b100".
Result<Split> parse_split(const char* name, std::string_view text) {
  constexpr std::pair<std::string_view, char> kOperations[] = {
      {"and", '&'}, {"or", '|'}, {"mod", '%'}, {"div", '/'},
      {"&", '&'},   {"|", '|'},  {"%", '%'},   {"/", '/'}};
  for (const auto& [word, operation] : kOperations) {
    if (!boost::algorithm::istarts_with(text, word)) {
      continue;
    }
    std::string_view digits = text.substr(word.size());
    digits.remove_prefix(std::min(digits.find_first_not_of(' '), digits.size()));
    const bool is_hex = without_0x(digits) != digits;
    const bool is_binary = digits.starts_with("0b") || digits.starts_with("0B");
    digits.remove_prefix(is_hex || is_binary ? 2 : 0);
    int value = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value,
                                              is_hex      ? 16
                                              : is_binary ? 2
                                                          : 10);
    const bool divides = operation == '%' || operation == '/';
    if (error == std::errc() && end == digits.data() + digits.size() &&
        value >= (divides ? 1 : 0)) {
      return Split{.operation = operation, .value = value};
    }
    break;
  }
  return fail(Code::kInvalidArgument,
              "{}: expects AND, OR, MOD or DIV (or & | % /) and a number, not '{}'", name, text);
}

Result<double> parse_variable(const char* name, const char* text, double most) {
  Result<double> value = parse_number(text, 0, most);
  if (!value) {
    return std::move(value.error()).with_context(name);
  }
  return value;
}

constexpr const char* kMatrixVariable = "NCCL_TESTS_ALLTOALLV_MATRIX_FILE";

Result<Traffic> read_matrix(const std::string& path, double scale) {
  Result<std::string> text = read_file(path, Traffic::kTextBytesMax);
  if (!text) {
    return std::move(text.error()).with_context(kMatrixVariable);
  }
  Result<Traffic> traffic = Traffic::parse(text.value(), scale);
  if (!traffic) {
    return std::move(traffic.error()).with_context(fmt::format("{}: {}", kMatrixVariable, path));
  }
  return traffic;
}

}  // namespace

int Split::color_of(int process) const noexcept {
  switch (operation) {
    case '|':
      return process | value;
    case '%':
      return process % value;
    case '/':
      return process / value;
    default:
      return process & value;
  }
}

void add_nccl_tests_flags(CLI::App& app, PerfOptions* options) {
  constexpr int kMost = 1000000;
  constexpr int kAggregateMost = 4096;
  add_given_int(app, "-t,--nthreads", &options->threads, "threads of each process (default 1)");
  add_given_int(app, "-g,--ngpus", &options->ranks_per_thread,
                "ranks that each thread drives (default 1)");
  add_int(app, "-m,--agg_iters", &options->aggregate, {1, kAggregateMost},
          "operations of one group, whose time is divided by them (default 1)");
  add_int(app, "-N,--run_cycles", &options->cycles, {0, kMost},
          "print all rows this many times (default 1; 0: without end)");
  add_choice<Average>(app, "-a,--average",
                      {{"0", Average::kFirst},
                       {"1", Average::kMean},
                       {"2", Average::kLeast},
                       {"3", Average::kMost}},
                      &options->average,
                      "whose time: 0: rank 0's, 1: the mean, 2: the least, 3: the most (default)");
  add_choice<Stream>(app, "-y,--stream_null", {{"0", Stream::kAsync}, {"1", Stream::kNull}},
                     &options->stream, "0: --stream async; 1: --stream null");
  add_choice<Buffers>(
      app, "-R,--local_register",
      {{"0", Buffers::kPlain}, {"1", Buffers::kRegistered}, {"2", Buffers::kWindow}},
      &options->buffers, "0: --buffers plain; 1: registered; 2: window");
  constexpr int kUnalignMost = 4096;
  add_int(app, "-u,--unalign", &options->unalign, {0, kUnalignMost},
          "shift the buffers by this many elements (default 0)");
  add_switch(app, "-C,--report_cputime", &options->outputs.cpu_time,
             "1: show the time until the calls have returned");
  add_switch(app, "-S,--report_timestamps", &options->outputs.timestamps,
             "1: show when each row was done");
  add_switch(app, "-I,--per_iter_timing", &options->outputs.per_iteration,
             "1: an iteration is one operation; show least, most, p99, variation of them");
  add_int(app, "-K,--per_iter_skip", &options->skipped, {0, kMost},
          "leading iterations that -I leaves out (default 0)");
  add_output_file(app, options);
  add_meaningless(app, "-p,--parallel_init", "ranks always initialise in parallel", options);
  add_meaningless(app, "-G,--cudagraph", "there are no CUDA graphs on host ranks", options);
  add_meaningless(app, "-D,--device_implementation", "there are no device kernels on host ranks",
                  options);
  add_meaningless(app, "-V,--device_cta_count", "there are no device kernels on host ranks",
                  options, -1);
  add_meaningless(app, "-x,--cta_policy", "host ranks use no CTAs", options, -1);
  add_meaningless(app, "-M,--memory", "host ranks use no GPU memory", options);
}

Result<void> take_nccl_tests_variables(PerfOptions* options,
                                       const char* (*read)(const char* name)) {
  if (const char* const least = read("NCCL_TESTS_MIN_BW")) {
    PLEXUS_TRY(value, parse_variable("NCCL_TESTS_MIN_BW", least, 1e9));
    options->busbw_wanted = value;
  }
  if (const char* const mask = read("NCCL_TESTS_SPLIT_MASK")) {
    PLEXUS_TRY(split, parse_split("NCCL_TESTS_SPLIT_MASK", fmt::format("&0x{}", without_0x(mask))));
    options->split = split;
  } else if (const char* const text = read("NCCL_TESTS_SPLIT")) {
    PLEXUS_TRY(split, parse_split("NCCL_TESTS_SPLIT", text));
    options->split = split;
  }
  if (options->collective != Collective::kAllToAllV) {
    return ok();
  }
  if (const char* const path = read(kMatrixVariable)) {
    const char* const scale = read("NCCL_TESTS_ALLTOALLV_MATRIX_SCALE");
    PLEXUS_TRY(factor, parse_variable("NCCL_TESTS_ALLTOALLV_MATRIX_SCALE",
                                      scale == nullptr ? "1" : scale, 1e9));
    PLEXUS_TRY(traffic, read_matrix(path, factor));
    options->traffic = std::move(traffic);
  } else if (const char* const spread = read("NCCL_TESTS_ALLTOALLV_SPREAD")) {
    PLEXUS_TRY(value, parse_variable("NCCL_TESTS_ALLTOALLV_SPREAD", spread, 1));
    options->traffic = Traffic(value);
  }
  return ok();
}

}  // namespace plexus::perf
