// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/top.hpp"

#include <algorithm>
#include <map>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/text.hpp"

namespace plexus {
namespace {

using Json = nlohmann::ordered_json;

/// Collectives that the ranks of a report have called, by communicator.
std::map<std::string, double> count_calls(const Json& report) {
  std::map<std::string, double> calls;
  for (const Json& comm : report.at("communicators")) {
    double& sum = calls[comm.at("hash")];
    for (const Json& rank : comm.at("ranks")) {
      for (const auto& count : rank.at("collective_counts")) {
        sum += count.get<double>();
      }
    }
  }
  return calls;
}

Json describe_comm(const Json& comm, double calls, double calls_before, double seconds) {
  const double ranks = std::max<double>(1, static_cast<double>(comm.at("ranks").size()));
  const double grown = calls - calls_before;
  Json made{{"hash", comm.at("hash")},
            {"size", comm.at("size")},
            {"missing", comm.at("missing_ranks_count")},
            {"calls", static_cast<uint64_t>(calls / ranks)},
            {"calls_per_sec", seconds > 0 && grown > 0 ? grown / ranks / seconds : 0.0},
            {"waiting", 0},
            {"wait_sec", 0},
            {"waits_for", -1}};
  for (const Json& rank : comm.at("ranks")) {
    if (rank.value("activity", "") == "waiting") {
      made["waiting"] = made["waiting"].get<int>() + 1;
      if (const int wait = rank.value("activity_sec", 0); wait >= made["wait_sec"].get<int>()) {
        made["wait_sec"] = wait;
        made["waits_for"] = rank.value("waits_for", -1);
      }
    }
  }
  return made;
}

/// `text` in lines of `columns` at most, cut between words where there are any.
std::vector<std::string> wrap(std::string_view text, size_t columns) {
  std::vector<std::string> lines;
  while (text.size() > columns) {
    const size_t blank = text.rfind(' ', columns);
    const size_t cut = blank == std::string_view::npos || blank == 0 ? columns : blank;
    lines.emplace_back(text.substr(0, cut));
    text.remove_prefix(text[cut] == ' ' ? cut + 1 : cut);
  }
  lines.emplace_back(text);
  return lines;
}

}  // namespace

Result<std::string> make_top(const std::string& before, const std::string& now, double seconds) {
  try {
    const Json report = Json::parse(now);
    const auto calls = count_calls(report);
    const auto calls_before = before.empty() ? calls : count_calls(Json::parse(before));
    Json made{{"timestamp", report.at("timestamp")},
              {"communicators", Json::array()},
              {"verdicts", report.value("verdicts", Json::array())}};
    for (const Json& comm : report.at("communicators")) {
      const std::string hash = comm.at("hash");
      const auto at = calls_before.find(hash);
      const double sum = calls.at(hash);
      made["communicators"].push_back(
          describe_comm(comm, sum, at == calls_before.end() ? sum : at->second, seconds));
    }
    return made.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  } catch (const Json::exception& broken) {
    return fail(Code::kRemoteError, "the answer is no report of NCCL's RAS protocol: {}",
                broken.what());
  }
}

std::string draw_top(const std::string& top, size_t columns, size_t rows) {
  const Json parsed = Json::parse(top);
  std::vector<std::string> lines;
  lines.push_back(fmt::format("plexus top  {}  {}", parsed["timestamp"].get<std::string>(),
                              counted(parsed["communicators"].size(), "communicator")));
  std::vector<std::string> verdicts;
  for (const Json& verdict : parsed["verdicts"]) {
    for (std::string& line : wrap(verdict.value("sentence", ""), columns)) {
      verdicts.push_back(printable(line));
    }
  }
  verdicts.resize(std::min(verdicts.size(), rows / 2));
  lines.push_back(fmt::format("{:<18} {:>6} {:>7} {:>10} {:>9} {:>7} {:>8}  {}", "COMM", "RANKS",
                              "MISSING", "CALLS", "CALLS/S", "WAITING", "SECONDS", "FOR"));
  const size_t room = rows - std::min(rows, lines.size() + verdicts.size());
  for (const Json& comm : parsed["communicators"]) {
    if (lines.size() >= room + 2) {
      break;
    }
    const int peer = comm["waits_for"];
    lines.push_back(fmt::format(
        "{:<18} {:>6} {:>7} {:>10} {:>9.1f} {:>7} {:>8}  {}", comm["hash"].get<std::string>(),
        comm["size"].get<int>(), comm["missing"].get<int>(), comm["calls"].get<uint64_t>(),
        comm["calls_per_sec"].get<double>(), comm["waiting"].get<int>(),
        comm["wait_sec"].get<int>(), peer < 0 ? "" : fmt::format("rank {}", peer)));
  }
  lines.insert(lines.end(), verdicts.begin(), verdicts.end());
  std::string text;
  for (const std::string& line : lines) {
    text += printable(line).substr(0, columns) + "\n";
  }
  return text;
}

}  // namespace plexus
