// SPDX-License-Identifier: Apache-2.0
// htsim's connection matrices: flows from node to node that begin at once, or after a time in ps.
#include <fmt/format.h>

#include "core/base/split_words.hpp"
#include "core/base/text.hpp"
#include "tools/workload/builder.hpp"

namespace plexus {
namespace {

/// A flow: a send, its receive, and computing before it where it begins later.
Result<void> add_flow(std::string_view line, size_t number, WorkloadBuilder& builder) {
  constexpr double kPsOfUs = 1e6;
  const std::vector<std::string_view> words = split_words(line);
  const size_t arrow = words[0].find("->");
  const auto source = whole_number(words[0].substr(0, arrow));
  const auto target = whole_number(words[0].substr(arrow + 2));
  const auto nodes = static_cast<uint64_t>(builder.work.nranks);
  uint64_t bytes = 0;
  uint64_t start = 0;
  for (size_t i = 1; i + 1 < words.size(); i += 2) {
    bytes = words[i] == "size" ? whole_number(words[i + 1]).value_or(0) : bytes;
    start = words[i] == "start" ? whole_number(words[i + 1]).value_or(0) : start;
  }
  if (!source.has_value() || !target.has_value() || *source >= nodes || *target >= nodes) {
    return fail(Code::kInvalidArgument,
                "line {}: expects \"A->B ... size BYTES\" of nodes below {}", number, nodes);
  }
  if (bytes == 0) {
    builder.leave_out("flow without a size");
    return ok();
  }
  WorkloadCall send{.bytes = bytes,
                    .kind = WorkKind::kSend,
                    .rank = static_cast<int>(*source),
                    .peer = static_cast<int>(*target),
                    .stream = kNoStream};
  WorkloadCall recv = send;
  recv.kind = WorkKind::kRecv;
  std::swap(recv.rank, recv.peer);
  if (start > 0) {
    PLEXUS_TRY(wait, builder.add({.kind = WorkKind::kCompute,
                                  .time_us = static_cast<double>(start) / kPsOfUs,
                                  .name = builder.name("before the flow"),
                                  .rank = send.rank,
                                  .stream = static_cast<uint32_t>(number)}));
    send.after.push_back(wait);
  }
  PLEXUS_TRY(builder.add(std::move(send)));
  PLEXUS_TRY(builder.add(std::move(recv)));
  return ok();
}

}  // namespace

Result<Workload> read_htsim(std::string_view text) {
  WorkloadBuilder builder("htsim connection matrix");
  for (size_t number = 1; !text.empty(); ++number) {
    const std::string_view line = take_line(text);
    const std::vector<std::string_view> words = split_words(line);
    if (words.empty()) {
      continue;
    }
    if (words[0] == "Nodes") {
      const auto nodes = words.size() > 1 ? whole_number(words[1]) : std::nullopt;
      if (!nodes.has_value() || *nodes == 0 || *nodes > kWorkloadRanksMax ||
          builder.work.nranks > 0) {
        return fail(Code::kInvalidArgument, "line {}: expects \"Nodes\" once, of 1 to {}", number,
                    kWorkloadRanksMax);
      }
      builder.work.nranks = static_cast<int>(*nodes);
    } else if (words[0].find("->") != std::string_view::npos) {
      PLEXUS_TRY(add_flow(line, number, builder));
    } else if (words[0] != "Connections") {
      builder.leave_out(fmt::format("line '{}'", printable(words[0].substr(0, 20))));
    }
  }
  return builder.finish();
}

}  // namespace plexus
