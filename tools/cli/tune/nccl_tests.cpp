// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/tune/nccl_tests.hpp"

#include <algorithm>
#include <array>

#include <fmt/ranges.h>

#include "tools/workload/builder.hpp"
#include "tools/workload/nccl_tests_log.hpp"

namespace plexus::tune {
namespace {

// Those that NCCL asks a tuner about.
constexpr std::array<std::string_view, 5> kCollectives = {"broadcast", "reduce", "all_gather",
                                                          "reduce_scatter", "all_reduce"};
constexpr size_t kRowsMax = 10'000;
constexpr double kTimeUsMax = 1e9;
constexpr double kBytesMax = 1e15;

/// Adds what a row says, if that is in order.
Result<void> take_row(const NcclTestsRow& row, size_t line, NcclTestsLog& log) {
  const auto bytes = static_cast<double>(row.bytes);
  if (row.bytes == 0 || bytes > kBytesMax ||
      !(row.time_us.value_or(0) > 0 && *row.time_us <= kTimeUsMax)) {
    return fail(Code::kInvalidArgument, "line {}: no size and time in microseconds", line);
  }
  if (!log.bytes.empty() && bytes <= log.bytes.back()) {
    return fail(Code::kInvalidArgument, "line {}: {} bytes after {}: sizes must ascend", line,
                row.bytes, log.bytes.back());
  }
  if (log.bytes.size() == kRowsMax) {
    return fail(Code::kInvalidArgument, "line {}: more than {} sizes", line, kRowsMax);
  }
  log.bytes.push_back(bytes);
  log.time_us.push_back(*row.time_us);
  return ok();
}

Result<void> take_test(std::string_view name, size_t line, NcclTestsLog& log) {
  if (std::find(kCollectives.begin(), kCollectives.end(), name) == kCollectives.end()) {
    return fail(Code::kInvalidArgument,
                "line {}: a test of something else than {}, which are those that NCCL asks a "
                "tuner about",
                line, fmt::join(kCollectives, ", "));
  }
  if (!log.collective.empty() && name != log.collective) {
    return fail(Code::kInvalidArgument, "line {}: a second test, {}, after {}", line, name,
                log.collective);
  }
  log.collective = name;
  return ok();
}

}  // namespace

Result<NcclTestsLog> parse_nccl_tests(std::string_view text) {
  NcclTestsLog log;
  NcclTestsScanner scanner;
  while (!text.empty()) {
    const std::string_view line = take_line(text);
    const auto row = scanner.take(line);
    if (row.has_value()) {
      PLEXUS_TRY(take_row(*row, scanner.line(), log));
    } else if (line.find("# Collective test starting:") != std::string_view::npos) {
      PLEXUS_TRY(take_test(nccl_test_in(line), scanner.line(), log));
    }
    if (!scanner.other_group().empty()) {
      return fail(Code::kInvalidArgument,
                  "line {}: ranks of group {}: the test ran on several communicators at once",
                  scanner.line(), scanner.other_group());
    }
  }
  if (log.collective.empty()) {
    return fail(Code::kInvalidArgument,
                "has no line \"# Collective test starting: NAME_perf\": it is no log of "
                "nccl-tests, or of a version before 2.14");
  }
  log.nranks = scanner.ranks();
  log.nnodes = scanner.hosts();
  if (log.nranks < 2 || log.nnodes < 1) {
    return fail(Code::kInvalidArgument, "lists {} ranks (\"#  Rank  0 Group  0 ... on HOST\")",
                log.nranks);
  }
  if (log.bytes.empty()) {
    return fail(Code::kInvalidArgument, "has no table with a column \"time\"");
  }
  return log;
}

Result<void> merge_log(std::vector<NcclTestsCall>& calls,
                       const std::string& pair,
                       const NcclTestsLog& log) {
  auto call = std::find_if(calls.begin(), calls.end(), [&](const NcclTestsCall& one) {
    return one.collective == log.collective && one.nranks == log.nranks && one.nnodes == log.nnodes;
  });
  if (call == calls.end()) {
    calls.push_back({.collective = log.collective,
                     .nranks = log.nranks,
                     .nnodes = log.nnodes,
                     .bytes = log.bytes});
    call = calls.end() - 1;
  }
  const std::string what =
      fmt::format("{} of {} ranks on {} nodes", log.collective, log.nranks, log.nnodes);
  if (call->bytes != log.bytes) {
    return fail(Code::kInvalidArgument,
                "has other sizes than the logs before it of {}: measure all with the same -b, -e "
                "and -f",
                what);
  }
  if (!call->time_us.emplace(pair, log.time_us).second) {
    return fail(Code::kInvalidArgument, "is the second log of {} by {}", what, pair);
  }
  return ok();
}

std::string format_nccl_times(const std::vector<NcclTestsCall>& calls, const std::string& about) {
  nlohmann::ordered_json json;
  json["about"] = about;
  for (const NcclTestsCall& call : calls) {
    json["nccl"].push_back({{"ranks", call.nranks},
                            {"nodes", call.nnodes},
                            {"collective", call.collective},
                            {"bytes", call.bytes},
                            {"time_us", call.time_us}});
  }
  return json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace plexus::tune
