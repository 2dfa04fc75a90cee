// SPDX-License-Identifier: Apache-2.0
#include "tools/sim/trace.hpp"

#include <fmt/format.h>

namespace plexus {
namespace {

/// The verb's name in prims.hpp.
std::string verb_of(const Step& step) {
  if (only_waits(step)) {
    return "wait";
  }
  std::string verb = step.receives > 0 ? "recv" : "";
  const auto add = [&verb](const char* part) {
    verb += (verb.empty() ? "" : "_") + std::string(part);
  };
  if (step.accumulates || (step.receives > 0 && step.source != Buffer::kNone)) {
    add("reduce");
  }
  if (step.target != Buffer::kNone &&
      !(step.receives > 0 && step.sends == 0 && step.source == Buffer::kNone)) {
    add("copy");
  }
  if (step.sends > 0) {
    add("send");
  }
  return verb;
}

}  // namespace

SimTrace::SimTrace(const SimNetwork& network, const Fabric* fabric)
    : network_(network), fabric_(fabric) {
  for (const SimRank& rank : network.ranks) {
    add(fmt::format(R"({{"ph":"M","name":"process_name","pid":{0},"args":{{"name":"rank {0}"}}}})",
                    rank.rank));
  }
}

void SimTrace::add(const std::string& event) {
  events_ += events_.empty() ? "" : ",\n";
  events_ += event;
}

SimWatch SimTrace::watch() {
  return {
      .on_slice =
          [this](const SimSlice& slice) {
            const SimRank& rank = network_.ranks[slice.rank];
            const SimLane& lane = rank.lanes[slice.lane];
            add(fmt::format(R"({{"ph":"X","name":"{}","pid":{},"tid":{},"ts":{:.6f},"dur":{:.6f},)"
                            R"("args":{{"channel":{},"step":{},"loop":{}}}}})",
                            verb_of(lane.steps->steps[slice.step]), rank.rank, slice.lane,
                            slice.begin_us, slice.end_us - slice.begin_us, lane.channel, slice.step,
                            slice.loop));
          },
      .on_rate =
          [this](const SimRate& rate) {
            const FabricLink& link = fabric_->links()[static_cast<size_t>(rate.link)];
            add(fmt::format(
                R"({{"ph":"C","name":"{} > {}","pid":-1,"ts":{:.6f},"args":{{"GB/s":{:.6f}}}}})",
                fabric_->vertex_name(link.from), fabric_->vertex_name(link.to), rate.at_us,
                rate.gb_per_s));
          }};
}

std::string SimTrace::format() const {
  return "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n" + events_ + "\n]}\n";
}

}  // namespace plexus
