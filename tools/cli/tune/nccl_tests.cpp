// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/tune/nccl_tests.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "core/base/split_words.hpp"

namespace plexus::tune {
namespace {

// Those that NCCL asks a tuner about.
constexpr std::array<std::string_view, 5> kCollectives = {"broadcast", "reduce", "all_gather",
                                                          "reduce_scatter", "all_reduce"};
constexpr size_t kRowsMax = 10'000;
constexpr double kTimeUsMax = 1e9;
constexpr double kBytesMax = 1e15;

/// nullopt: it is no number above 0.
std::optional<double> number_of(std::string_view word, double most) {
  double value = 0;
  const auto [rest, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  const bool is_good = error == std::errc() && rest == word.data() + word.size() &&
                       std::isfinite(value) && value > 0 && value <= most;
  return is_good ? std::optional(value) : std::nullopt;
}

class Parser {
 public:
  Result<void> take(std::string_view line) {
    ++line_;
    auto words = split_words(line);
    if (words.empty()) {
      return ok();
    }
    if (words[0] == "#") {
      words.erase(words.begin());
      return take_comment(words);
    }
    if (time_at_.has_value() && number_of(words[0], kBytesMax).has_value()) {
      return take_row(words);
    }
    return ok();  // the library's log, the job's
  }
  Result<NcclTestsLog> finish() && {
    if (log_.collective.empty()) {
      return fail(Code::kInvalidArgument,
                  "has no line \"# Collective test starting: NAME_perf\": it is no log of "
                  "nccl-tests, or of a version before 2.14");
    }
    if (ranks_ < 2) {
      return fail(Code::kInvalidArgument, "lists {} ranks (\"#  Rank  0 Group  0 ...\")", ranks_);
    }
    if (log_.bytes.empty()) {
      return fail(Code::kInvalidArgument, "has no table with a column \"time\"");
    }
    log_.nranks = ranks_;
    log_.nnodes = static_cast<uint32_t>(hosts_.size());
    return std::move(log_);
  }

 private:
  /// `words`: without the sign.
  Result<void> take_comment(const std::vector<std::string_view>& words) {
    constexpr std::string_view kSuffix = "_perf";
    if (words.size() >= 4 && words[0] == "Collective" && words[2] == "starting:") {
      std::string_view name = words[3];
      name = name.ends_with(kSuffix) ? name.substr(0, name.size() - kSuffix.size()) : name;
      if (std::find(kCollectives.begin(), kCollectives.end(), name) == kCollectives.end()) {
        return fail(Code::kInvalidArgument,
                    "line {}: a test of something else than {}, which are those that NCCL asks a "
                    "tuner about",
                    line_, fmt::join(kCollectives, ", "));
      }
      if (!log_.collective.empty() && name != log_.collective) {
        return fail(Code::kInvalidArgument, "line {}: a second test, {}, after {}", line_, name,
                    log_.collective);
      }
      log_.collective = name;
    }
    if (words.size() >= 8 && words[0] == "Rank" && words[2] == "Group" && words[6] == "on") {
      if (words[3] != "0") {
        return fail(Code::kInvalidArgument,
                    "line {}: ranks of group {}: the test ran on several communicators at once",
                    line_, words[3]);
      }
      ++ranks_;
      hosts_.emplace(words[7]);
    }
    const auto time = std::find(words.begin(), words.end(), "time");
    if (!words.empty() && words[0] == "size" && time != words.end()) {
      time_at_ = static_cast<size_t>(time - words.begin());
    }
    return ok();
  }
  Result<void> take_row(const std::vector<std::string_view>& words) {
    const auto bytes = number_of(words[0], kBytesMax);
    const auto time_us = *time_at_ < words.size() ? number_of(words[*time_at_], kTimeUsMax)
                                                  : std::optional<double>();
    if (!bytes.has_value() || !time_us.has_value()) {
      return fail(Code::kInvalidArgument, "line {}: no size and time in microseconds", line_);
    }
    if (!log_.bytes.empty() && *bytes <= log_.bytes.back()) {
      return fail(Code::kInvalidArgument, "line {}: {} bytes after {}: sizes must ascend", line_,
                  *bytes, log_.bytes.back());
    }
    if (log_.bytes.size() == kRowsMax) {
      return fail(Code::kInvalidArgument, "line {}: more than {} sizes", line_, kRowsMax);
    }
    log_.bytes.push_back(*bytes);
    log_.time_us.push_back(*time_us);
    return ok();
  }

  NcclTestsLog log_;
  size_t line_ = 0;
  uint32_t ranks_ = 0;
  std::set<std::string, std::less<>> hosts_;
  std::optional<size_t> time_at_;  // the column
};

}  // namespace

Result<NcclTestsLog> parse_nccl_tests(std::string_view text) {
  Parser parser;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    PLEXUS_TRY(parser.take(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return std::move(parser).finish();
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
