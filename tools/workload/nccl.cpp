// SPDX-License-Identifier: Apache-2.0
// What tools of NCCL write: records of the Inspector, a JSON object each, and logs of nccl-tests.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/base/split_words.hpp"
#include "core/base/text.hpp"
#include "tools/workload/builder.hpp"

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
                          .group = builder.group("communicator", members)}));
  return ok();
}

class NcclTestsTable {
 public:
  Result<void> take(std::string_view line) {
    ++line_;
    find_test(line);
    std::vector<std::string_view> words = split_words(line);
    // a launcher may put the rank's name in front ("host0: ", "[1,0]<stdout>:")
    while (!words.empty() && words[0] != "#" && words[0] != "size" && words[0].ends_with(':')) {
      words.erase(words.begin());
    }
    if (!words.empty() && words[0].starts_with("#")) {
      words[0].remove_prefix(1);
      if (words[0].empty()) {
        words.erase(words.begin());
      }
    }
    if (words.size() >= 3 && lower(words[0]) == "rank" && whole_number(words[1]).has_value()) {
      ++ranks_;
      const auto on = std::find(words.begin(), words.end(), "on");
      if (on != words.end() && on + 1 != words.end()) {
        hosts_.emplace(*(on + 1));
      }
      return ok();
    }
    const auto time = std::find(words.begin(), words.end(), "time");
    if (words.size() > 4 && words[0] == "size" && time != words.end()) {
      time_at_ = static_cast<size_t>(time - words.begin());
      return ok();
    }
    return time_at_ > 0 && words.size() > time_at_ ? take_row(words) : Result<void>(ok());
  }
  Result<Workload> finish() && {
    if (test_.empty()) {
      return fail(Code::kInvalidArgument,
                  "is a table of nccl-tests that does not say which test it was: put a line "
                  "\"# Collective test starting: all_reduce_perf\" before it");
    }
    const bool is_message = test_ == "sendrecv";
    const auto collective = find_collective(test_);
    if (!is_message && !collective.has_value()) {
      return fail(Code::kInvalidArgument,
                  "is a log of {}_perf, which has no collective of one kind", printable(test_));
    }
    builder_.work.nranks = ranks_ >= 2 ? ranks_ : 0;
    if (ranks_ >= 2 && !hosts_.empty()) {
      const int hosts = static_cast<int>(hosts_.size());
      builder_.work.ranks_per_node = (ranks_ + hosts - 1) / hosts;
    }
    for (const auto& [bytes, time_us] : rows_) {
      WorkloadCall call{.bytes = bytes};
      if (is_message) {
        call.exchanges = {{.distance = 1, .wraps = true, .bytes = bytes}};
      } else {
        call.collective = *collective;
      }
      builder_.work.recorded_us += time_us;
      PLEXUS_TRY(builder_.add(std::move(call)));
    }
    builder_.work.format = fmt::format("nccl-tests log of {}", printable(test_));
    builder_.note("each size once, out of place");
    return builder_.finish();
  }

 private:
  /// The test's name, wherever the log says it: a command, or the line before the table.
  void find_test(std::string_view line) {
    constexpr size_t kLineMax = 4096;
    line = line.substr(0, kLineMax);
    const size_t end = line.find("_perf");
    if (!test_.empty() || end == std::string_view::npos) {
      return;
    }
    size_t begin = end;
    while (begin > 0 &&
           ((line[begin - 1] >= 'a' && line[begin - 1] <= 'z') || line[begin - 1] == '_')) {
      --begin;
    }
    const std::string name(line.substr(begin, end - begin));
    if (name == "sendrecv" || find_collective(name).has_value()) {
      test_ = name;
    }
  }
  Result<void> take_row(const std::vector<std::string_view>& words) {
    constexpr size_t kRowsMax = 100'000;
    const auto bytes = whole_number(words[0]);
    const auto time_us = real_number(words[time_at_]);
    if (!bytes.has_value() || !time_us.has_value()) {
      return ok();  // the library's log, the job's
    }
    if (rows_.size() == kRowsMax) {
      return fail(Code::kInvalidArgument, "line {}: more than {} sizes", line_, kRowsMax);
    }
    rows_.emplace_back(*bytes, std::max(0.0, *time_us));
    return ok();
  }

  WorkloadBuilder builder_{"nccl-tests log"};
  size_t line_ = 0;
  size_t time_at_ = 0;  // the column
  int ranks_ = 0;
  std::string test_;
  std::set<std::string, std::less<>> hosts_;
  std::vector<std::pair<uint64_t, double>> rows_;
};

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
  NcclTestsTable table;
  while (!text.empty()) {
    PLEXUS_TRY(table.take(take_line(text)));
  }
  return std::move(table).finish();
}

}  // namespace plexus
