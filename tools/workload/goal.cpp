// SPDX-License-Identifier: Apache-2.0
// GOAL (LogGOPSim, ATLAHS): per rank sends, receives and computing, and what requires what. Times
// of `calc` are nanoseconds, as ATLAHS writes them.
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "core/base/split_words.hpp"
#include "core/base/text.hpp"
#include "tools/workload/builder.hpp"

namespace plexus {
namespace {

class GoalReader {
 public:
  Result<void> take(std::string_view line) {
    ++line_;
    line = line.substr(0, std::min({line.find("//"), line.find('#'), line.size()}));
    std::vector<std::string_view> words = split_words(line);
    if (words.empty()) {
      return ok();
    }
    if (words.back().ends_with(';')) {
      words.back().remove_suffix(1);
    }
    if (words[0] == "num_ranks") {
      const auto count = words.size() > 1 ? whole_number(words[1]) : std::nullopt;
      if (!count.has_value() || *count == 0 || *count > kWorkloadRanksMax ||
          builder_.work.nranks > 0) {
        return wrong(fmt::format("expects \"num_ranks\" once, of 1 to {}", kWorkloadRanksMax));
      }
      builder_.work.nranks = static_cast<int>(*count);
      return ok();
    }
    if (words[0] == "rank" && words.size() > 1) {
      const auto rank = whole_number(words[1].substr(0, words[1].find('{')));
      if (!rank.has_value() || *rank >= static_cast<uint64_t>(builder_.work.nranks)) {
        return wrong("expects a rank below num_ranks");
      }
      PLEXUS_TRY(end_rank());
      rank_ = static_cast<int>(*rank);
      return ok();
    }
    if (words[0] == "}" || words[0] == "{") {
      return words[0] == "{" ? Result<void>(ok()) : end_rank();
    }
    return take_in_rank(words);
  }
  Result<Workload> finish() && {
    PLEXUS_TRY(end_rank());
    builder_.note("calc in ns; a send ends when it has left");
    return builder_.finish();
  }

 private:
  struct Start {
    uint32_t call;
    uint32_t other;
  };

  Result<void> wrong(const std::string& says) const {
    return fail(Code::kInvalidArgument, "line {}: {}", line_, says);
  }

  Result<void> end_rank() {
    // What may begin when another begins waits for what the other waits for.
    for (const Start& start : starts_) {
      const std::vector<uint32_t> same = builder_.work.calls[start.other].after;
      requires_ += same.size();
      if (requires_ > kRequiresMax_) {
        return wrong(fmt::format("calls that wait for more than {} others in all", kRequiresMax_));
      }
      std::vector<uint32_t>& after = builder_.work.calls[start.call].after;
      after.insert(after.end(), same.begin(), same.end());
    }
    starts_.clear();
    labels_.clear();
    rank_ = -1;
    return ok();
  }

  Result<void> take_in_rank(std::vector<std::string_view>& words) {
    if (rank_ < 0) {
      return wrong("expects \"rank N {\" before it");
    }
    if (words.size() == 3 && (words[1] == "requires" || words[1] == "irequires")) {
      const auto call = labels_.find(std::string(words[0]));
      const auto other = labels_.find(std::string(words[2]));
      if (call == labels_.end() || other == labels_.end()) {
        return wrong(fmt::format("'{}' or '{}' is no label of rank {} so far", printable(words[0]),
                                 printable(words[2]), rank_));
      }
      if (++requires_ > kRequiresMax_) {
        return wrong(fmt::format("calls that wait for more than {} others in all", kRequiresMax_));
      }
      if (words[1] == "requires") {
        builder_.work.calls[call->second].after.push_back(other->second);
      } else {
        starts_.push_back({call->second, other->second});
      }
      return ok();
    }
    std::string label;
    if (words[0].ends_with(':')) {
      label = words[0].substr(0, words[0].size() - 1);
      words.erase(words.begin());
    }
    return take_step(label, words);
  }

  Result<void> take_step(const std::string& label, const std::vector<std::string_view>& words) {
    WorkloadCall call{.rank = rank_, .stream = kNoStream};
    const std::string_view kind = words.empty() ? "" : words[0];
    const std::string_view amount = words.size() > 1 ? words[1] : "";
    const auto size = whole_number(amount.substr(0, amount.find_first_not_of("0123456789")));
    if ((kind != "send" && kind != "recv" && kind != "calc") || !size.has_value()) {
      return wrong(
          "expects \"send BYTESb to RANK\", \"recv BYTESb from RANK\", \"calc NS\" or "
          "\"LABEL requires LABEL\"");
    }
    if (kind == "calc") {
      constexpr double kNsOfUs = 1000;
      call.kind = WorkKind::kCompute;
      call.time_us = static_cast<double>(*size) / kNsOfUs;
      call.name = builder_.name("calc");
      for (size_t i = 2; i + 1 < words.size(); i += 2) {
        call.tag = words[i] == "cpu" ? whole_number(words[i + 1]).value_or(0) : call.tag;
      }
    } else {
      const auto peer = words.size() > 3 ? whole_number(words[3]) : std::nullopt;
      if (!peer.has_value() || *peer >= static_cast<uint64_t>(builder_.work.nranks)) {
        return wrong("expects a rank below num_ranks behind \"to\" or \"from\"");
      }
      call.kind = kind == "send" ? WorkKind::kSend : WorkKind::kRecv;
      call.bytes = *size;
      call.peer = static_cast<int>(*peer);
      for (size_t i = 4; i + 1 < words.size(); i += 2) {
        call.tag = words[i] == "tag" ? whole_number(words[i + 1]).value_or(0) : call.tag;
      }
    }
    // one of no time still has a number, since others require it
    if (call.kind == WorkKind::kCompute && call.time_us == 0) {
      call.time_us = 1e-9;
    }
    PLEXUS_TRY(number, builder_.add(std::move(call)));
    if (!label.empty()) {
      labels_[label] = number;
    }
    return ok();
  }

  WorkloadBuilder builder_{"GOAL"};
  size_t line_ = 0;
  int rank_ = -1;
  static constexpr size_t kRequiresMax_ = 16'000'000;
  size_t requires_ = 0;
  std::unordered_map<std::string, uint32_t> labels_;  // of the rank
  std::vector<Start> starts_;
};

}  // namespace

Result<Workload> read_goal(std::string_view text) {
  GoalReader reader;
  while (!text.empty()) {
    PLEXUS_TRY(reader.take(take_line(text)));
  }
  return std::move(reader).finish();
}

}  // namespace plexus
