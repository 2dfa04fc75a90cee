// SPDX-License-Identifier: Apache-2.0
// AICB's CSV: a communication or computation a line, in order, of every rank alike.
#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "core/base/text.hpp"
#include "tools/workload/builder.hpp"

namespace plexus {
namespace {

/// Cells of a line; quotes keep commas.
std::vector<std::string> split_cells(std::string_view line) {
  std::vector<std::string> cells(1);
  bool is_quoted = false;
  for (const char c : line) {
    if (c == '"') {
      is_quoted = !is_quoted;
    } else if (c == ',' && !is_quoted) {
      cells.emplace_back();
    } else {
      cells.back() += c;
    }
  }
  return cells;
}

class AicbReader {
 public:
  Result<void> take(std::string_view line) {
    ++line_;
    if (line.starts_with("[rank")) {
      const size_t last = line.rfind("rank");
      const auto rank = whole_number(line.substr(last + 4, line.find(']') - last - 4));
      if (rank.has_value() && *rank < kWorkloadRanksMax) {
        builder_.work.nranks = static_cast<int>(*rank) + 1;
      }
      return ok();
    }
    std::vector<std::string> cells = split_cells(line);
    if (columns_.empty()) {
      if (std::find(cells.begin(), cells.end(), "comm_type") != cells.end()) {
        columns_ = std::move(cells);
      }
      return ok();
    }
    return cells.size() < 2 ? Result<void>(ok()) : take_row(cells);
  }
  Result<Workload> finish() && {
    builder_.work.steps = std::max(builder_.work.steps, epochs_);
    return builder_.finish();
  }

 private:
  [[nodiscard]] std::string cell(const std::vector<std::string>& cells, const char* column) const {
    const auto at = std::find(columns_.begin(), columns_.end(), column);
    const auto place = static_cast<size_t>(at - columns_.begin());
    return place < cells.size() ? cells[place] : "";
  }

  Result<void> take_row(const std::vector<std::string>& cells) {
    std::string kind = lower(cell(cells, "comm_type"));
    kind.erase(0, kind.rfind('.') + 1);
    if (kind == "epoch_end") {
      ++epochs_;
      return ok();
    }
    const uint32_t name = builder_.name(cell(cells, "stage"));
    const uint64_t times =
        std::clamp<uint64_t>(whole_number(cell(cells, "count")).value_or(1), 1, kWorkloadTimesMax);
    if (kind == "computation") {
      constexpr double kUsOfMs = 1000;
      const auto time = real_number(cell(cells, "_elapsed_time"));
      if (!time.has_value() || *time <= 0) {
        builder_.leave_out("computation without an _elapsed_time");
        return ok();
      }
      PLEXUS_TRY(builder_.add(
          {.times = times, .kind = WorkKind::kCompute, .time_us = *time * kUsOfMs, .name = name}));
      return ok();
    }
    const auto bytes = real_number(cell(cells, "msg_size"));
    if (!bytes.has_value() || *bytes < 0 || *bytes > static_cast<double>(kWorkloadBytesMax)) {
      return fail(Code::kInvalidArgument, "line {}: expects msg_size of up to {} bytes, not '{}'",
                  line_, kWorkloadBytesMax, printable(cell(cells, "msg_size")));
    }
    WorkloadCall call{.bytes = static_cast<uint64_t>(*bytes), .times = times, .name = name};
    call.group = group_of(cells);
    const auto collective = find_collective(kind);
    if (kind == "isend" || kind == "irecv" || kind == "send" || kind == "recv") {
      call.kind = kind.ends_with("send") ? WorkKind::kSend : WorkKind::kRecv;
      // the next stage of the pipeline, as AICB has them: ranks of a stage are together
      const WorkloadGroup& group = builder_.work.groups[call.group];
      const int stages = std::max(1, group.nranks);
      const int ahead = std::max(1, builder_.work.nranks / stages);
      call.peer = call.kind == WorkKind::kSend ? ahead : -ahead;
      call.times = 1;
    } else if (collective.has_value()) {
      call.collective = *collective;
    } else {
      builder_.leave_out(printable(kind));
      return ok();
    }
    PLEXUS_TRY(builder_.add(std::move(call)));
    return ok();
  }

  uint32_t group_of(const std::vector<std::string>& cells) {
    std::string name = lower(cell(cells, "comm_group"));
    name.erase(0, name.rfind('.') + 1);
    name = name.substr(0, name.find("_group"));
    const auto size = whole_number(cell(cells, "comm_group_size"));
    if (!size.has_value() || *size == 0 || *size > kWorkloadRanksMax) {
      return 0;
    }
    const int members = static_cast<int>(*size);
    const int all = builder_.work.nranks;
    if (members == all) {
      return 0;
    }
    const bool grows = name.starts_with("dp") && all > 0 && all % members == 0;
    return grows ? builder_.group(name, 0, all / members) : builder_.group(name, members);
  }

  WorkloadBuilder builder_{"AICB workload"};
  size_t line_ = 0;
  uint32_t epochs_ = 0;
  std::vector<std::string> columns_;
};

}  // namespace

Result<Workload> read_aicb(std::string_view text) {
  AicbReader reader;
  while (!text.empty()) {
    PLEXUS_TRY(reader.take(take_line(text)));
  }
  return std::move(reader).finish();
}

}  // namespace plexus
