// SPDX-License-Identifier: Apache-2.0
// `plexus explain`: every way to do a call, the tuner's time for it, the one that is chosen, and
// why each other one is not; with --measure also the time that each really takes on this machine.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "core/base/config.hpp"
#include "core/os/host.hpp"
#include "core/schedule/choose_algorithm.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/flags.hpp"
#include "tools/cli/measure.hpp"

namespace plexus {
namespace {

using Json = nlohmann::ordered_json;

struct ExplainOptions {
  Collective collective = Collective::kAllReduce;
  size_t size_bytes = 0;
  int nranks = 2;
  int nodes = 1;
  std::string mode = "procs";
  bool measure = false;
  std::string json;
};

constexpr uint32_t kSlotBytes = 128 * 1024;  // the default of NCCL_BUFFSIZE, in 8 slots

/// A communicator of `nranks` spread evenly over `nodes` machines like this one.
plexus_tuner_comm_t describe_comm(const ExplainOptions& options) {
  const auto nranks = static_cast<uint32_t>(options.nranks);
  const auto nodes = static_cast<uint32_t>(options.nodes);
  plexus_tuner_comm_t comm{};
  comm.struct_size = sizeof(comm);
  comm.nranks = nranks;
  comm.nnodes = nodes;
  comm.ndatacenters = 1;
  comm.ranks_per_node_max = (nranks + nodes - 1) / nodes;
  comm.cores_per_node_min = static_cast<uint32_t>(cores_available());
  comm.comm_id = 1;
  comm.slot_bytes = kSlotBytes;
  uint32_t near = 0;
  for (uint32_t node = 0; node < nodes; ++node) {
    const uint32_t members = nranks / nodes + (node < nranks % nodes ? 1 : 0);
    near += members * (members - 1) / 2;
  }
  comm.links[options.mode == "procs" ? PLEXUS_LINK_HOST : PLEXUS_LINK_PROCESS].count = near;
  comm.links[PLEXUS_LINK_NET].count = nranks * (nranks - 1) / 2 - near;
  return comm;
}

struct Line {
  Candidate candidate;
  bool chosen;
  std::string reason;
  std::optional<double> measured_us;
  int rounds;
};

/// Nothing when it failed.
std::optional<double> measure(const ExplainOptions& options, const Choice& choice) {
  const auto time = measure_time({.collective = options.collective,
                                  .algorithm = choice.algorithm->family,
                                  .protocol = choice.protocol,
                                  .nranks = options.nranks,
                                  .mode = options.mode,
                                  .size_bytes = options.size_bytes});
  return time.has_error() ? std::nullopt : std::optional(time.value().median_us);
}

std::string why_not(const Candidate& candidate, const Candidate& chosen, bool by_tuner) {
  if (!candidate.possible) {
    return candidate.reason;
  }
  if (!by_tuner) {
    return "the built-in rules prefer another";
  }
  if (candidate.predicted_us < 0) {
    return "the tuner does not want it";
  }
  return fmt::format("{:.2f}x the chosen time",
                     candidate.predicted_us / std::max(chosen.predicted_us, 1e-3));
}

void print_lines(const ExplainOptions& options,
                 const std::vector<Line>& lines,
                 std::string_view by) {
  fmt::print("{} of {} bytes, {} ranks{}, chosen by {}\n", name(options.collective),
             options.size_bytes, options.nranks,
             options.nodes > 1 ? fmt::format(" on {} nodes", options.nodes) : "", by);
  fmt::print("  {:<10} {:<8} {:>8} {:>8} {:>13}{}  {}\n", "algorithm", "protocol", "channels",
             "rounds", "predicted us", options.measure ? fmt::format(" {:>12}", "measured us") : "",
             "why");
  for (const Line& line : lines) {
    const Choice& choice = line.candidate.choice;
    const std::string measured = !options.measure ? ""
                                 : line.measured_us.has_value()
                                     ? fmt::format(" {:>12.2f}", *line.measured_us)
                                     : fmt::format(" {:>12}", "-");
    fmt::print(
        "{} {:<10} {:<8} {:>8} {:>8} {:>13}{}  {}\n", line.chosen ? '*' : ' ',
        choice.algorithm->family, name(choice.protocol), choice.channels, line.rounds,
        line.candidate.predicted_us < 0 ? "-" : fmt::format("{:.2f}", line.candidate.predicted_us),
        measured, line.chosen ? "chosen" : line.reason);
  }
}

Json json_of(const Line& line) {
  const Choice& choice = line.candidate.choice;
  Json json;
  json["algorithm"] = choice.algorithm->family;
  json["protocol"] = name(choice.protocol);
  json["channels"] = choice.channels;
  json["predicted_us"] =
      line.candidate.predicted_us < 0 ? Json(nullptr) : Json(line.candidate.predicted_us);
  if (line.measured_us.has_value()) {
    json["measured_us"] = *line.measured_us;
  }
  json["status"] = line.chosen ? "chosen" : line.candidate.possible ? "slower" : "excluded";
  json["reason"] = line.reason;
  return json;
}

Result<int> explain(const ExplainOptions& options) {
  PLEXUS_TRY(config, read_config());
  PLEXUS_TRY(filter, AlgorithmFilter::parse(config.algo, config.proto));
  PLEXUS_TRY(tuner, Tuner::open({.plugin = config.tuner_plugin,
                                 .folders = config.plugin_path,
                                 .net_plugins = config.net_plugin,
                                 .own_folder = find_library_folder()},
                                describe_comm(options)));
  constexpr int kChannelsMax = 64;
  const CollnetAbility collnet{.missing = "NCCL_COLLNET_ENABLE is not 1"};
  const ChoiceInput input{
      .collective = options.collective,
      .size_bytes = options.size_bytes,
      .nranks = options.nranks,
      .channels_min = 1,
      .channels_max = kChannelsMax,
      .slot_bytes = kSlotBytes,
      .deterministic = config.deterministic,
      .nodes = options.nodes,
      .ranks_per_node_max = (options.nranks + options.nodes - 1) / options.nodes,
      .collnet = &collnet};
  PLEXUS_TRY(decision, decide(input, filter, tuner.get()));
  std::vector<Line> lines;
  for (size_t i = 0; i < decision.candidates.size(); ++i) {
    const Candidate& candidate = decision.candidates[i];
    const bool chosen = i == decision.chosen;
    lines.push_back(
        {.candidate = candidate,
         .chosen = chosen,
         .reason =
             chosen ? ""
                    : why_not(candidate, decision.candidates[decision.chosen], decision.by_tuner),
         .measured_us = options.measure && candidate.possible ? measure(options, candidate.choice)
                                                              : std::nullopt,
         .rounds = cost_of(candidate.choice, input).rounds});
  }
  const std::string by = decision.by_tuner ? tuner->name() : "the built-in rules";
  if (options.json != "-") {
    print_lines(options, lines, by);
  }
  if (!options.json.empty()) {
    Json json;
    json["chosen"] = json_of(lines[decision.chosen]);
    json["by"] = by;
    json["candidates"] = Json::array();
    for (const Line& line : lines) {
      json["candidates"].push_back(json_of(line));
    }
    PLEXUS_TRY(write_json(options.json, json.dump(1) + "\n"));
  }
  return kExitOk;
}

Result<void> take_collective(const std::string& text, Collective* target) {
  std::vector<const char*> names;
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    if (is_point_to_point(collective)) {
      continue;
    }
    names.push_back(name(collective));
    if (text == names.back()) {
      *target = collective;
      return ok();
    }
  }
  return fail(Code::kInvalidArgument, "takes {}, not '{}'", fmt::join(names, ", "), text);
}

Result<void> take_mode(const std::string& text, std::string* target) {
  if (text != "procs" && text != "threads") {
    return fail(Code::kInvalidArgument, "takes procs or threads, not '{}'", text);
  }
  *target = text;
  return ok();
}

}  // namespace

Command add_explain_command(CLI::App& program) {
  constexpr IntRange kNranks = {2, 1 << 20};
  CLI::App* app = program.add_subcommand(
      "explain", "Every algorithm for a call, its predicted time, the chosen one and why");
  const auto options = std::make_shared<ExplainOptions>();
  add_flag(
      *app, "collective",
      [options](const std::string& text) { return take_collective(text, &options->collective); },
      "all_reduce, broadcast, ...")
      ->required();
  add_size(*app, "bytes", &options->size_bytes, "bytes of the larger buffer of a rank (K, M, G)")
      ->required();
  add_int(*app, "--ranks", &options->nranks, kNranks, "ranks (default 2)");
  add_int(*app, "--nodes", &options->nodes, {1, 1 << 20},
          "hosts that the ranks are spread over (default 1)");
  add_flag(
      *app, "--mode",
      [options](const std::string& text) { return take_mode(text, &options->mode); },
      "procs or threads: what joins the ranks of a host (default procs)");
  app->add_flag("--measure", options->measure, "also measure each on this machine");
  app->add_option("--json", options->json, "write one JSON object to this file (-: stdout)")
      ->type_name("VALUE");
  return {app, [options] {
            if (options->measure && options->nodes > 1) {
              return report_error(fail(Code::kInvalidArgument,
                                       "--measure runs on this machine: leave --nodes at 1"),
                                  kExitUsage);
            }
            auto code = explain(*options);
            return code.has_error() ? report_error(code.error(), kExitUsage) : code.value();
          }};
}

}  // namespace plexus
