// SPDX-License-Identifier: Apache-2.0
// What tools of NCCL write: records of the Inspector, a JSON object each, and logs of nccl-tests.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/text.hpp"
#include "tools/workload/builder.hpp"
#include "tools/workload/nccl_tests_log.hpp"

namespace plexus {
namespace {

/// The end of the object that the text begins with, brackets in strings apart; npos: cut off.
size_t end_of_object(std::string_view text) {
  int depth = 0;
  bool in_text = false;
  for (size_t at = 0; at < text.size(); ++at) {
    if (in_text) {
      at += text[at] == '\\' ? 1 : 0;
      in_text = at >= text.size() || text[at] != '"';
    } else if (text[at] == '"') {
      in_text = true;
    } else if (text[at] == '{' || text[at] == '[') {
      ++depth;
    } else if (text[at] == '}' || text[at] == ']') {
      if (--depth == 0) {
        return at + 1;
      }
    }
  }
  return std::string_view::npos;
}

/// Of each communicator one rank's records are taken.
using RankOfComm = std::map<std::string, uint64_t>;

Result<void> take_record(const WorkloadJson& record, RankOfComm& taken, WorkloadBuilder& builder) {
  static const WorkloadJson kNothing;
  const WorkloadJson* const header = find_member(record, "header");
  const WorkloadJson& about = header == nullptr ? kNothing : *header;
  const WorkloadJson* perf = find_member(record, "coll_perf");
  if (perf == nullptr) {
    builder.leave_out(find_member(record, "p2p_perf") == nullptr
                          ? "record without coll_perf"
                          : "send or receive (its peers' distance is not recorded)");
    return ok();
  }
  const uint64_t rank = number_of(about, "rank");
  if (taken.size() < kWorkloadCallsMax &&
      taken.emplace(text_of(about, "id"), rank).first->second != rank) {
    builder.leave_out("record of another rank of the communicator");
    return ok();
  }
  const uint64_t nranks = number_of(about, "n_ranks");
  const std::string named = text_of(*perf, "coll");
  const auto collective = find_collective(named);
  uint64_t bytes = number_of(*perf, "coll_msg_size_bytes");
  if (!collective.has_value() || bytes == 0 || nranks == 0 || nranks > kWorkloadRanksMax) {
    builder.leave_out(fmt::format("'{}' without bytes or ranks", printable(named)));
    return ok();
  }
  // the Inspector counts a rank's block of these
  const bool has_blocks = *collective == Collective::kAllGather ||
                          *collective == Collective::kReduceScatter ||
                          *collective == Collective::kAllToAll;
  bytes = has_blocks && bytes <= kWorkloadBytesMax / nranks ? bytes * nranks : bytes;
  const int members = static_cast<int>(nranks);
  builder.work.nranks = std::max(builder.work.nranks, members);
  const uint64_t nodes = number_of(about, "nnodes");
  if (nodes > 0 && nodes <= nranks && members == builder.work.nranks) {
    builder.work.ranks_per_node = static_cast<int>((nranks + nodes - 1) / nodes);
  }
  builder.work.recorded_us += std::max(0.0, real_of(*perf, "coll_exec_time_us"));
  PLEXUS_TRY(builder.add({.collective = *collective,
                          .bytes = bytes,
                          .group = builder.group("communicator", members),
                          .communicator = builder.name(text_of(about, "id"))}));
  return ok();
}

}  // namespace

Result<Workload> read_inspector(std::string_view text) {
  WorkloadBuilder builder("NCCL Inspector");
  RankOfComm taken;
  for (size_t number = 0;; ++number) {
    text.remove_prefix(std::min(text.find('{'), text.size()));
    if (text.empty()) {
      break;
    }
    const size_t end = end_of_object(text);
    const WorkloadJson record = end == std::string_view::npos
                                    ? WorkloadJson()
                                    : WorkloadJson::parse(text.substr(0, end), nullptr, false);
    if (!record.is_object()) {
      if (end == std::string_view::npos && number > 0) {
        builder.leave_out("record that is cut off");
        break;
      }
      return fail(Code::kInvalidArgument, "record {}: is no JSON, or cut off", number);
    }
    PLEXUS_TRY(take_record(record, taken, builder));
    text.remove_prefix(end);
  }
  builder.note(
      "each record is a call of its communicator, one after the other; time between calls is left "
      "out");
  return builder.finish();
}

Result<Workload> read_nccl_tests(std::string_view text) {
  constexpr size_t kRowsMax = 100'000;
  WorkloadBuilder builder("nccl-tests log");
  NcclTestsScanner scanner;
  std::string test;  // wherever the log says it: a command, or the line before the table
  std::vector<std::pair<uint64_t, double>> rows;
  while (!text.empty()) {
    const std::string_view line = take_line(text);
    if (const auto named = nccl_test_in(line);
        test.empty() && (named == "sendrecv" || find_collective(named).has_value())) {
      test = named;
    }
    const auto row = scanner.take(line);
    if (!row.has_value() || !row->time_us.has_value()) {
      continue;  // the library's log, the job's
    }
    if (rows.size() == kRowsMax) {
      return fail(Code::kInvalidArgument, "line {}: more than {} sizes", scanner.line(), kRowsMax);
    }
    rows.emplace_back(row->bytes, std::max(0.0, *row->time_us));
  }
  if (test.empty()) {
    return fail(Code::kInvalidArgument,
                "is a table of nccl-tests that does not say which test it was: put a line "
                "\"# Collective test starting: all_reduce_perf\" before it");
  }
  if (scanner.ranks() >= 2) {
    builder.work.nranks = static_cast<int>(scanner.ranks());
    if (const uint32_t hosts = scanner.hosts(); hosts > 0) {
      builder.work.ranks_per_node = static_cast<int>((scanner.ranks() + hosts - 1) / hosts);
    }
  }
  for (const auto& [bytes, time_us] : rows) {
    WorkloadCall call{.bytes = bytes};
    if (test == "sendrecv") {
      call.exchanges = {{.distance = 1, .wraps = true, .bytes = bytes}};
    } else {
      call.collective = *find_collective(test);
    }
    builder.work.recorded_us += time_us;
    PLEXUS_TRY(builder.add(std::move(call)));
  }
  builder.work.format = fmt::format("nccl-tests log of {}", printable(test));
  builder.note("each size once, out of place");
  return builder.finish();
}

}  // namespace plexus
