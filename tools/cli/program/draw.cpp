// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/program/draw.hpp"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/program/lane_network.hpp"
#include "tools/cli/svg.hpp"

namespace plexus {
namespace {

/// A step that ran, and when.
struct Placed {
  uint32_t lane;  // numbered over all ranks
  size_t step;
  int time;
};

struct Message {
  size_t sent;  // place in Schedule::steps
  size_t taken;
};

/// One execution in which every step takes one unit of time.
class Schedule {
 public:
  explicit Schedule(const ProgramFile& file)
      : network(file.programs),
        lane_times_(network.lanes().size()),
        under_way_(network.connections().size()) {
    network.run(kSlots, [this](uint32_t lane) { return run_step(lane); });
  }

  LaneNetwork network;
  std::vector<Placed> steps;
  std::vector<Message> messages;

 private:
  bool run_step(uint32_t index) {
    const LaneNetwork::LaneState& lane = network.lanes()[index];
    const Step& step = network.next_step(lane);
    int time = lane_times_[index].empty() ? 0 : lane_times_[index].back() + 1;
    if (step.after.lane >= 0) {
      const uint32_t other = network.first_lane(lane.rank) + static_cast<uint32_t>(step.after.lane);
      time = std::max(time, lane_times_[other][static_cast<size_t>(step.after.step)] + 1);
    }
    for (const uint32_t at : network.recv_connections(lane.rank, step)) {
      const size_t sent = under_way_[at][network.connections()[at].taken];
      time = std::max(time, steps[sent].time + 1);
      messages.push_back({.sent = sent, .taken = steps.size()});
    }
    for (const uint32_t at : network.send_connections(lane.rank, step)) {
      under_way_[at].push_back(steps.size());
    }
    lane_times_[index].push_back(time);
    steps.push_back({.lane = index, .step = lane.next, .time = time});
    return true;
  }

  std::vector<std::vector<int>> lane_times_;
  std::vector<std::vector<size_t>> under_way_;
};

std::string name_of(Buffer buffer, int chunk) {
  constexpr const char* kNames[] = {"", "input", "output", "scratch"};
  return fmt::format("{} {}", kNames[static_cast<int>(buffer)], chunk);
}

/// In the order of a verb's name: receive, reduce, store, send.
std::string describe(const Program& program, const Step& step) {
  std::vector<std::string> parts;
  if (step.receives > 0) {
    parts.push_back(fmt::format("recv from {}", fmt::join(program.recv_peers(step), ", ")));
  }
  if (step.source != Buffer::kNone) {
    const char* const verb = step.receives > 0 || step.accumulates ? "reduce with "
                             : step.target == Buffer::kNone        ? ""
                                                                   : "copy ";
    parts.push_back(verb + name_of(step.source, step.source_chunk));
  }
  if (step.target != Buffer::kNone) {
    parts.push_back("to " + name_of(step.target, step.target_chunk));
  }
  if (step.sends > 0) {
    parts.push_back(fmt::format("send to {}", fmt::join(program.send_peers(step), ", ")));
  }
  if (only_waits(step)) {
    parts.emplace_back("wait");
  }
  std::string text = fmt::format("{}", fmt::join(parts, ", "));
  if (step.after.lane >= 0) {
    text += fmt::format(" (after lane {}, step {})", step.after.lane, step.after.step);
  }
  return text;
}

const Program& program_of(const ProgramFile& file, const Schedule& schedule, const Placed& placed) {
  return file.programs[static_cast<size_t>(schedule.network.lanes()[placed.lane].rank)];
}

const Step& step_of(const Schedule& schedule, const Placed& placed) {
  return schedule.network.lanes()[placed.lane].steps->steps[placed.step];
}

constexpr int kBoxWidth = 46;
constexpr int kBoxHeight = 18;
constexpr int kColumn = 64;
constexpr int kRow = 30;
constexpr int kLeft = 90;

int left_of(const Placed& placed) { return kLeft + placed.time * kColumn; }
int top_of(const Placed& placed) { return kRow / 2 + static_cast<int>(placed.lane) * kRow; }

const char* color_of(const Step& step) {
  return only_waits(step)                                    ? "#dddddd"
         : step.accumulates                                  ? "#f3c38b"
         : step.receives > 0 && step.source != Buffer::kNone ? "#f3c38b"
         : step.receives > 0                                 ? "#a9d6a5"
         : step.sends > 0                                    ? "#a7c4e8"
                                                             : "#e0d0ee";
}

std::string label_of(const Step& step) {
  const auto part = [](Buffer buffer, int chunk) {
    constexpr const char* kShort[] = {"", "i", "o", "s"};
    return buffer == Buffer::kNone ? std::string()
                                   : fmt::format("{}{}", kShort[static_cast<int>(buffer)], chunk);
  };
  const std::string source = part(step.source, step.source_chunk);
  const std::string target = part(step.target, step.target_chunk);
  return target.empty() ? source : source + (source.empty() ? "" : " ") + ">" + target;
}

}  // namespace

std::string draw_text(const ProgramFile& file) {
  Schedule schedule(file);
  std::vector<std::vector<const Placed*>> lanes(schedule.network.lanes().size());
  for (const Placed& placed : schedule.steps) {
    lanes[placed.lane].push_back(&placed);
  }
  std::string text = fmt::format("{}: {} of {} ranks in {} chunks, {} of scratch\n", file.name,
                                 name(file.collective), file.nranks(), file.programs.front().chunks,
                                 file.programs.front().scratch_chunks);
  for (size_t index = 0; index < lanes.size(); ++index) {
    const LaneNetwork::LaneState& lane = schedule.network.lanes()[index];
    text += fmt::format(
        "rank {}, lane {}{}\n", lane.rank, lane.lane,
        lane.steps->connection == 0 ? "" : fmt::format(" (connection {})", lane.steps->connection));
    for (const Placed* const placed : lanes[index]) {
      text +=
          fmt::format("  {:>4}  t={:<4} {}\n", placed->step, placed->time,
                      describe(program_of(file, schedule, *placed), step_of(schedule, *placed)));
    }
    for (size_t left = lanes[index].size(); left < lane.steps->steps.size(); ++left) {
      text += fmt::format(
          "  {:>4}  never  {}\n", left,
          describe(file.programs[static_cast<size_t>(lane.rank)], lane.steps->steps[left]));
    }
  }
  return text;
}

Result<std::string> draw_svg(const ProgramFile& file) {
  constexpr size_t kStepsMax = 20'000;
  Schedule schedule(file);
  if (schedule.steps.size() > kStepsMax) {
    return fail(Code::kInvalidArgument, "{} steps are too many for a picture, at most {}",
                schedule.steps.size(), kStepsMax);
  }
  int last = 0;
  for (const Placed& placed : schedule.steps) {
    last = std::max(last, left_of(placed));
  }
  const int width = last + kColumn;
  const int height = kRow * (static_cast<int>(schedule.network.lanes().size()) + 1);
  Svg svg(width, height,
          R"(<marker id="a" markerWidth="7" markerHeight="7" refX="6" refY="3" orient="auto">)"
          R"(<path d="M0,0 L6,3 L0,6 z" fill="#555"/></marker>)");
  for (uint32_t index = 0; index < schedule.network.lanes().size(); ++index) {
    const LaneNetwork::LaneState& lane = schedule.network.lanes()[index];
    const int top = top_of({.lane = index, .step = 0, .time = 0});
    svg.add_text(4, top + kBoxHeight - 5, fmt::format("rank {}, lane {}", lane.rank, lane.lane));
    if (lane.lane == 0) {
      const double y = top - (kRow - kBoxHeight) / 2;
      svg.add_line({{0, y}, {width, y}}, R"(stroke="#cccccc")");
    }
  }
  for (const Message& message : schedule.messages) {
    const Placed& sent = schedule.steps[message.sent];
    const Placed& taken = schedule.steps[message.taken];
    svg.add_line({{left_of(sent) + kBoxWidth, top_of(sent) + kBoxHeight / 2},
                  {left_of(taken), top_of(taken) + kBoxHeight / 2}},
                 R"x(stroke="#555555" stroke-width="0.8" marker-end="url(#a)")x");
  }
  for (const Placed& placed : schedule.steps) {
    const Step& step = step_of(schedule, placed);
    svg.begin_group(describe(program_of(file, schedule, placed), step));
    svg.add_box(left_of(placed), top_of(placed), kBoxWidth, kBoxHeight,
                fmt::format(R"(rx="3" fill="{}" stroke="#666666")", color_of(step)));
    svg.add_text(left_of(placed) + kBoxWidth / 2, top_of(placed) + kBoxHeight - 5, label_of(step),
                 R"(text-anchor="middle")");
    svg.end_group();
  }
  return svg.finish();
}

}  // namespace plexus
