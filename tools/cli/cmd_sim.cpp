// SPDX-License-Identifier: Apache-2.0
// `plexus sim`: the time of a call on ranks that are not there: recorded programs on a virtual
// clock (tools/sim, docs/simulator.md).
#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "core/base/file.hpp"
#include "core/programs/program_file.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/flags.hpp"
#include "tools/cli/sim/calibration.hpp"
#include "tools/cli/sim/call.hpp"
#include "tools/cli/sim/heat_map.hpp"
#include "tools/cli/sim/job.hpp"
#include "tools/cli/sim/plot.hpp"
#include "tools/cli/sim/policy.hpp"

namespace plexus {
namespace {

std::string format_json(const SimOptions& options, const std::vector<SimRow>& rows) {
  nlohmann::ordered_json json;
  json["collective"] = name(options.collective);
  json["ranks"] = options.nranks;
  json["rows"] = nlohmann::ordered_json::array();
  for (const SimRow& row : rows) {
    const Result<void> ends = row.check_ends();
    if (ends.has_error()) {
      json["rows"].push_back({{"bytes", row.bytes},
                              {"algorithm", row.algorithm},
                              {"never_ends", ends.error().message()}});
      continue;
    }
    json["rows"].push_back({{"bytes", row.bytes},
                            {"algorithm", row.algorithm},
                            {"protocol", name(options.protocol)},
                            {"channels", row.channels},
                            {"time_us", row.result.time_us},
                            {"algbw_gb_per_s", row.algbw_gb_per_s()},
                            {"ranks_simulated", row.simulated},
                            {"node_wide_gbit_per_s", row.node_wide_gbit_per_s()},
                            {"events", row.result.events},
                            {"events_skipped", row.result.events_skipped}});
  }
  return json.dump(1) + "\n";
}

/// An algorithm from a file, and what it borrows.
struct FromFile {
  std::string name;
  RecordedAlgorithm recorded;
  Algorithm algorithm;
};

Result<std::unique_ptr<FromFile>> load_program(SimOptions& options) {
  PLEXUS_TRY(text, read_file(options.program, kFileBytesMax));
  auto parsed = parse_program_file(text);
  if (parsed.has_error()) {
    return std::move(parsed).error().with_context(options.program);
  }
  ProgramFile file = std::move(parsed).value();
  const ProgramProof proof = prove(file);
  if (!proof.proved) {
    return fail(Code::kInvalidArgument, "{}: {}", options.program, proof.reason);
  }
  if (file.collective != options.collective) {
    return fail(Code::kInvalidArgument, "{} is for {}", options.program, name(file.collective));
  }
  options.nranks = file.nranks();
  options.root = proof.root;
  auto made = std::make_unique<FromFile>();
  made->name = file.name;
  made->recorded.message_chunks = static_cast<int>(chunks_of_longest_message(file.programs));
  made->recorded.programs = std::move(file.programs);
  made->recorded.apart = std::move(file.apart);
  made->recorded.cost.chunks = made->recorded.programs.front().chunks;
  made->algorithm.name = made->algorithm.family = made->name.c_str();
  made->algorithm.collective = file.collective;
  made->algorithm.recorded = &made->recorded;
  return made;
}

/// The script of --faults, or of the file that it names.
Result<SimFaults> read_faults(const SimOptions& options) {
  std::string script = options.faults_text;
  if (script.starts_with('@')) {
    PLEXUS_TRY(text, read_file(script.substr(1), kFileBytesMax));
    script = std::move(text);
  }
  auto faults = SimFaults::parse(script, static_cast<uint64_t>(options.seed));
  if (faults.has_error()) {
    return std::move(faults).error().with_context("--faults");
  }
  return faults;
}

/// Calls `use` with each size of the options.
template <class Use>
Result<void> for_sizes(const SimOptions& options, const Use& use) {
  const size_t last = std::max(options.bytes_first, options.bytes_last);
  for (size_t bytes = options.bytes_first; bytes <= last;
       bytes *= static_cast<size_t>(options.factor)) {
    PLEXUS_TRY(use(bytes));
  }
  return ok();
}

/// "8", "64 Ki", "1 Mi".
std::string size_text(uint64_t bytes) {
  constexpr std::array kUnits = {"", " Ki", " Mi", " Gi", " Ti"};
  size_t at = 0;
  for (; bytes >= 1024 && bytes % 1024 == 0 && at + 1 < kUnits.size(); ++at) {
    bytes /= 1024;
  }
  return fmt::format("{}{}", bytes, kUnits[at]);
}

bool prints(const SimOptions& options) {
  const std::array files = {&options.json, &options.trace, &options.svg, &options.links,
                            &options.exported};
  return std::none_of(files.begin(), files.end(), [](const auto* file) { return *file == "-"; });
}

/// Adds a point to the line of the row's algorithm.
void add_point(Plot& plot, double x, const SimRow& row) {
  if (row.check_ends().has_error()) {
    return;  // it takes no time: it never ends
  }
  const auto named = [&](const PlotLine& line) { return line.name == row.algorithm; };
  auto line = std::find_if(plot.lines.begin(), plot.lines.end(), named);
  if (line == plot.lines.end()) {
    line = plot.lines.insert(line, {.name = row.algorithm, .points = {}});
  }
  line->points.emplace_back(x, row.result.time_us);
}

/// Time against size, as in the table, and (except for a file, which has its number) of the
/// smallest size against the number of ranks: 2, 4, 8, ... and that of the table.
Result<void> write_plots(const SimOptions& options,
                         const std::vector<SimRow>& rows,
                         const Fabric* fabric) {
  const std::string call = name(options.collective);
  std::vector<Plot> plots(2);
  plots[0] = {fmt::format("{} of {} ranks", call, options.nranks), "bytes", {}};
  plots[1] = {fmt::format("{} of {} bytes", call, options.bytes_first), "ranks", {}};
  for (const SimRow& row : rows) {
    add_point(plots[0], static_cast<double>(row.bytes), row);
  }
  SimOptions one = options;
  one.trace.clear();
  for (one.nranks = 2; options.program.empty() && one.nranks < options.nranks; one.nranks *= 2) {
    PLEXUS_TRY(chosen, list_algorithms(one));
    for (const Algorithm* const algorithm : chosen) {
      one.root = std::min(options.root, one.nranks - 1);
      PLEXUS_TRY(row, simulate_call(one, *algorithm, options.bytes_first, fabric));
      add_point(plots[1], one.nranks, row);
    }
  }
  for (const SimRow& row : rows) {
    if (row.bytes == options.bytes_first && options.program.empty()) {
      add_point(plots[1], options.nranks, row);
    }
  }
  return write_output(options.svg, draw_plots(plots));
}

/// Four characters or so: "8", "1.5K", "128K", "4M".
std::string short_size(uint64_t bytes) {
  constexpr std::array kUnits = {"", "K", "M", "G", "T"};
  auto value = static_cast<double>(bytes);
  size_t at = 0;
  for (; value >= 1024 && at + 1 < kUnits.size(); ++at) {
    value /= 1024;
  }
  const bool is_whole = value >= 9.95 || value == std::floor(value);
  return fmt::format("{:.{}f}{}", value, is_whole ? 0 : 1, kUnits[at]);
}

/// A map for each algorithm, of the smallest size, in common colors.
Result<void> write_link_maps(const SimOptions& options,
                             const std::vector<const Algorithm*>& chosen,
                             const Fabric* fabric) {
  std::vector<std::vector<std::vector<uint64_t>>> counts;
  uint64_t most = 1;
  for (const Algorithm* const algorithm : chosen) {
    PLEXUS_TRY(sent, count_bytes_by_link(options, *algorithm, options.bytes_first, fabric));
    for (const auto& row : sent) {
      most = std::max(most, *std::max_element(row.begin(), row.end()));
    }
    counts.push_back(std::move(sent));
  }
  std::vector<HeatMap> maps;
  for (size_t i = 0; i < chosen.size(); ++i) {
    const bool by_node = counts[i].size() < static_cast<size_t>(options.nranks);
    HeatMap& map = maps.emplace_back();
    map.title =
        fmt::format("{} by {}: bytes from {} (row) to {}", name(options.collective),
                    chosen[i]->family, by_node ? "node" : "rank", by_node ? "node" : "rank");
    map.row_name = by_node ? "node" : "rank";
    for (const auto& row : counts[i]) {
      map.rows.push_back(std::to_string(map.rows.size()));
      map.columns.push_back(map.rows.back());
      auto& values = map.values.emplace_back();
      auto& texts = map.texts.emplace_back();
      for (const uint64_t bytes : row) {
        values.push_back(static_cast<double>(bytes) / static_cast<double>(most));
        texts.push_back(bytes == 0 ? "" : short_size(bytes));
      }
    }
  }
  return write_output(options.links, draw_heat_maps(maps, 2));
}

Result<void> simulate_algorithms(SimOptions options, const Fabric* fabric) {
  std::unique_ptr<FromFile> from_file;
  std::vector<const Algorithm*> chosen;
  if (options.program.empty()) {
    PLEXUS_TRY(of_table, list_algorithms(options));
    chosen = std::move(of_table);
  } else {
    PLEXUS_TRY(loaded, load_program(options));
    from_file = std::move(loaded);
    chosen = {&from_file->algorithm};
  }
  if (prints(options)) {
    fmt::print("{} of {} ranks, {} on a node\n", name(options.collective), options.nranks,
               options.ranks_per_node);
    fmt::print("  {:>12} {:<14} {:>8} {:>14} {:>12} {:>10}\n", "bytes", "algorithm", "channels",
               "time us", "algbw GB/s", "simulated");
  }
  std::vector<SimRow> rows;
  Result<void> all_end = ok();
  PLEXUS_TRY(for_sizes(options, [&](uint64_t bytes) -> Result<void> {
    for (const Algorithm* const algorithm : chosen) {
      PLEXUS_TRY(row, simulate_call(options, *algorithm, bytes, fabric));
      if (Result<void> ends = row.check_ends(); ends.has_error()) {
        all_end = std::move(ends);
        if (prints(options)) {
          fmt::print("  {:>12} {:<14} {:>8} {:>14}\n", row.bytes, row.algorithm, row.channels,
                     "never ends");
        }
      } else if (prints(options)) {
        fmt::print("  {:>12} {:<14} {:>8} {:>14.3f} {:>12.4f} {:>10}\n", row.bytes, row.algorithm,
                   row.channels, row.result.time_us, row.algbw_gb_per_s(), row.simulated);
      }
      rows.push_back(std::move(row));
    }
    return ok();
  }));
  if (!options.svg.empty()) {
    PLEXUS_TRY(write_plots(options, rows, fabric));
  }
  if (!options.links.empty()) {
    PLEXUS_TRY(write_link_maps(options, chosen, fabric));
  }
  if (!options.json.empty()) {
    PLEXUS_TRY(write_output(options.json, format_json(options, rows)));
  }
  return all_end;
}

/// How much longer than the best a policy's choices took.
struct Regret {
  double sum = 0;
  double most = 0;
  int count = 0;
};

using Regrets = std::map<std::string, Regret>;  // by policy

/// What a policy chose for a call, for pictures.
struct Outcome {
  Collective collective;
  int nranks;
  uint64_t bytes;
  std::string policy;
  double time_us;
  double best_us;
  double regret;
};

/// Time against size: a line per policy, and the best of each size.
std::string plot_policies(const SimOptions& options, const std::vector<Outcome>& outcomes) {
  Plot plot{fmt::format("{} of {} ranks", name(options.collective), options.nranks), "bytes", {}};
  for (const std::string& policy : options.tuners) {
    plot.lines.push_back({.name = policy, .points = {}});
    for (const Outcome& each : outcomes) {
      if (each.policy == policy) {
        plot.lines.back().points.emplace_back(each.bytes, each.time_us);
      }
    }
  }
  PlotLine best{.name = "best", .points = {}};
  for (const Outcome& each : outcomes) {
    if (each.policy == options.tuners.front()) {
      best.points.emplace_back(each.bytes, each.best_us);
    }
  }
  plot.lines.push_back(std::move(best));
  return draw_plots({&plot, 1});
}

/// A table of ranks and sizes for each collective, below each other, and policy, side by side.
std::string map_regrets(const SimOptions& options, const std::vector<Outcome>& outcomes) {
  std::map<std::pair<Collective, std::string>, HeatMap> found;
  for (const Outcome& each : outcomes) {
    HeatMap& map = found[{each.collective, each.policy}];
    map.title = fmt::format("{}, regret of {} in %", name(each.collective), each.policy);
    map.row_name = "ranks";
    const std::string row = std::to_string(each.nranks);
    if (map.rows.empty() || map.rows.back() != row) {
      map.rows.push_back(row);
      map.values.emplace_back();
    }
    if (map.rows.size() == 1) {
      map.columns.push_back(size_text(each.bytes));
    }
    map.values.back().push_back(each.regret);
  }
  std::vector<HeatMap> maps;
  for (const Collective collective : collectives_with_algorithms()) {
    for (const std::string& policy : options.tuners) {
      if (const auto at = found.find({collective, policy}); at != found.end()) {
        maps.push_back(std::move(at->second));
      }
    }
  }
  return draw_heat_maps(maps, options.tuners.size());
}

Result<void> compare_sizes(const SimOptions& options,
                           const Fabric* fabric,
                           nlohmann::ordered_json& json,
                           Regrets& regrets,
                           std::vector<Outcome>& outcomes) {
  PLEXUS_TRY(policies, Policies::open(options, fabric));
  return for_sizes(options, [&](uint64_t bytes) -> Result<void> {
    PLEXUS_TRY(size, policies.compare(options.collective, bytes));
    for (const PolicyRow& row : size.rows) {
      const double regret = size.regret(row);
      Regret& sum = regrets[row.policy];
      sum.sum += regret;
      sum.most = std::max(sum.most, regret);
      ++sum.count;
      outcomes.push_back({.collective = options.collective,
                          .nranks = options.nranks,
                          .bytes = bytes,
                          .policy = row.policy,
                          .time_us = row.chosen.result.time_us,
                          .best_us = size.best.result.time_us,
                          .regret = regret});
      if (prints(options)) {
        fmt::print("  {:<15} {:>6} {:>12} {:<16} {:<14} {:>14.3f}  {:<14} {:>14.3f} {:>8.1f} %\n",
                   name(options.collective), options.nranks, bytes, row.policy,
                   row.chosen.algorithm, row.chosen.result.time_us, size.best.algorithm,
                   size.best.result.time_us, 100 * regret);
      }
      json.push_back({{"collective", name(options.collective)},
                      {"ranks", options.nranks},
                      {"bytes", bytes},
                      {"policy", row.policy},
                      {"chosen", row.chosen.algorithm},
                      {"channels", row.chosen.channels},
                      {"time_us", row.chosen.result.time_us},
                      {"trials", row.trials.size()},
                      {"best", size.best.algorithm},
                      {"best_us", size.best.result.time_us},
                      {"regret", regret}});
    }
    return ok();
  });
}

/// Chosen against best, for one collective and number of ranks or (--sweep) for all.
Result<void> compare_policies(const SimOptions& options, const Fabric* fabric) {
  if (prints(options)) {
    fmt::print("  {:<15} {:>6} {:>12} {:<16} {:<14} {:>14}  {:<14} {:>14} {:>10}\n", "collective",
               "ranks", "bytes", "policy", "chosen", "time us", "best", "time us", "regret");
  }
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  Regrets regrets;
  std::vector<Outcome> outcomes;
  const std::vector<Collective> collectives =
      options.sweeps ? collectives_with_algorithms() : std::vector{options.collective};
  for (const Collective collective : collectives) {
    SimOptions one = options;
    one.collective = collective;
    for (one.nranks = options.sweeps ? 2 : options.nranks; one.nranks <= options.nranks;
         one.nranks *= 2) {
      PLEXUS_TRY(compare_sizes(one, fabric, json, regrets, outcomes));
    }
  }
  for (const auto& [policy, regret] : regrets) {
    if (prints(options)) {
      fmt::print("{}: {} calls, regret {:.1f} % on average, {:.1f} % at most\n", policy,
                 regret.count, 100 * regret.sum / regret.count, 100 * regret.most);
    }
  }
  if (!options.svg.empty()) {
    PLEXUS_TRY(write_output(options.svg, options.sweeps ? map_regrets(options, outcomes)
                                                        : plot_policies(options, outcomes)));
  }
  return options.json.empty() ? Result<void>(ok())
                              : write_output(options.json, json.dump(1) + "\n");
}

Result<void> run_sim(SimOptions& options) {
  if (!options.faults_text.empty()) {
    PLEXUS_TRY(faults, read_faults(options));
    options.faults = std::move(faults);
  }
  std::optional<Fabric> fabric;
  if (!options.fabric_file.empty()) {
    PLEXUS_TRY(text, read_file(options.fabric_file, kFileBytesMax));
    auto parsed = Fabric::parse(text);
    if (parsed.has_error()) {
      return std::move(parsed).error().with_context(options.fabric_file);
    }
    fabric = std::move(parsed).value();
  }
  const Fabric* const shared = fabric.has_value() ? &*fabric : nullptr;
  if (!options.workload.empty() && !options.svg.empty()) {
    return fail(Code::kInvalidArgument, "--svg plots sizes: leave out --workload");
  }
  if (!options.links.empty() && (!options.workload.empty() || !options.tuners.empty())) {
    return fail(Code::kInvalidArgument,
                "--links maps the algorithms of one call: leave out --workload and --tuner");
  }
  if (options.tuners.empty() && options.sweeps) {
    return fail(Code::kInvalidArgument, "--sweep compares policies: add --tuner");
  }
  const bool changes = !options.what_if.empty() || options.sensitivity || !options.order.empty() ||
                       !options.exported.empty();
  if (options.workload.empty() && changes) {
    return fail(Code::kInvalidArgument,
                "--what-if, --sensitivity, --order and --export are of a job: add --workload");
  }
  if (!options.workload.empty()) {
    return run_workload(options, shared);
  }
  return options.tuners.empty() ? simulate_algorithms(options, shared)
                                : compare_policies(options, shared);
}

Result<void> take_protocol(const std::string& text, Protocol* target) {
  for (const Protocol protocol : kProtocols) {
    if (text == name(protocol)) {
      *target = protocol;
      return ok();
    }
  }
  return fail(Code::kInvalidArgument, "expects Simple, LL or LL128, not '{}'", text);
}

template <class Number>
void add_number(
    CLI::App& app, const std::string& flag, Number* target, double low, const std::string& help) {
  constexpr double kMost = 1e9;
  add_flag(
      app, flag,
      [target, low](const std::string& text) -> Result<void> {
        PLEXUS_TRY(value, parse_number(text, low, kMost));
        *target = value;
        return ok();
      },
      help);
}

Result<void> load_calibration(const std::string& file, SimOptions& options) {
  PLEXUS_TRY(text, read_file(file, kFileBytesMax));
  auto parsed = parse_sim_calibration(text);
  if (parsed.has_error()) {
    return std::move(parsed).error().with_context(file);
  }
  options.calibration = std::move(parsed).value();
  return ok();
}

void add_cost_flags(CLI::App& app, SimOptions& options) {
  constexpr double kLeast = 1e-6;
  add_number(app, "--latency-us", &options.latency_us, kLeast, "between nodes (default 2)");
  add_number(app, "--gbit-per-s", &options.gbit_per_s, kLeast,
             "of a rank's port to other nodes (default 200; with --fabric its links)");
  add_number(app, "--near-latency-us", &options.near_latency_us, kLeast,
             "between ranks of a node (default 0.5)");
  add_number(app, "--near-gbit-per-s", &options.near_gbit_per_s, kLeast,
             "of a rank's port to its node (default 1600)");
  add_number(app, "--message-us", &options.message_us, 0,
             "what a message costs its sender, and its receiver (default 0)");
  add_number(app, "--reduce-gb-per-s", &options.reduce_gb_per_s, 0,
             "rate of a reduction (default 0: infinite)");
  add_number(app, "--wide-latency-us", &options.wide_latency_us, kLeast,
             "between datacenters (default 5000)");
  add_number(app, "--wide-gbit-per-s", &options.wide_gbit_per_s, kLeast,
             "of a rank's port to other datacenters (default 100)");
  add_flag(
      app, "--calibration",
      [&options](const std::string& file) { return load_calibration(file, options); },
      "what messages cost processors, by `plexus tune`: ranks are threads that share cores");
  add_choice<bool>(
      app, "--near", {{"host", false}, {"net", true}}, &options.near_is_net,
      "with --calibration: ranks of a node share memory (host, default) or use sockets (net)");
  constexpr int kCoresMax = 65536;
  add_int(app, "--cores", &options.cores, {1, kCoresMax},
          "with --calibration: of a node (default: as many as were measured)");
  add_choice<bool>(
      app, "--bind", {{"share", true}, {"none", false}}, &options.are_bound,
      "with --calibration: ranks that share cores are pinned as by `plexus perf --bind share`, or "
      "where the kernel puts them (none, default)");
}

void add_message_flags(CLI::App& app, SimOptions& options) {
  add_choice<bool>(
      app, "--scatter", {{"on", true}, {"off", false}}, &options.scatters,
      "with --dcs: channels leave a node by different ranks, and cross to other datacenters at "
      "different nodes (on) or at one (off)");
  add_flag(
      app, "--slot-bytes",
      [&options](const std::string& text) -> Result<void> {
        PLEXUS_TRY(bytes, parse_size(text));
        options.slot_bytes = bytes;
        return ok();
      },
      "largest message (default 512K; with --calibration 128K where all ranks share memory)");
  constexpr int kCallsMax = 1000;
  add_int(app, "--calls", &options.calls, {1, kCallsMax},
          "calls one after the other; times are of one of them (default 1)");
}

void add_fault_flags(CLI::App& app, SimOptions& options) {
  app.add_option("--faults", options.faults_text,
                 "slow and cut links, slow ranks: a script as PLEXUS_CHAOS_SCRIPT, with rank=N and "
                 "peer=N, or @FILE (docs/simulator.md)")
      ->type_name("SCRIPT");
  add_int(app, "--seed", &options.seed, {0, std::numeric_limits<int>::max()},
          "of the random delays of --faults (default 1)");
}

void add_policy_flags(CLI::App& app, const std::shared_ptr<SimOptions>& options) {
  add_flag(
      app, "--tuner",
      [options](const std::string& text) -> Result<void> {
        for (const std::string_view word : split_at_commas(text)) {
          options->tuners.emplace_back(word);
        }
        return ok();
      },
      "policies to compare: default, none (built-in rules), names or files as NCCL_TUNER_PLUGIN");
  app.add_flag("--sweep", options->sweeps,
               "with --tuner: all collectives, 2, 4, 8, ... ranks up to --ranks");
  app.add_option("--workload", options->workload,
                 "a job's calls and computing: its time, critical path and exposed communication "
                 "(docs/formats.md says what is read); of a trace for each rank all files")
      ->type_name("FILE");
  app.add_option("--what-if", options->what_if,
                 "with --workload: its time with a change, as rate=2, compute=0.9, slow=1.2, "
                 "order=dp,tp, tuner=none, dcs-lost=1 (several: repeat it)")
      ->type_name("CHANGE")
      ->allow_extra_args(false);
  app.add_flag("--sensitivity", options->sensitivity,
               "with --workload: what would help most, a table of such changes");
  app.add_option("--order", options->order,
                 "with --workload: its groups from the inside of a node, as tp,dp,pp (default: the "
                 "file's)")
      ->type_name("NAMES");
  app.add_option(
         "--export", options->exported,
         "with --workload: write it to this file (-: stdout), as GOAL if it says what each "
         "rank does, else as Chakra's JSON; to NAME.et: Chakra's protobuf, a file NAME.R.et "
         "for each rank R")
      ->type_name("FILE");
}

void add_output_flags(CLI::App& app, SimOptions& options) {
  app.add_option("--trace", options.trace,
                 "write the last simulation in Chrome's trace format to this file (-: stdout)")
      ->type_name("FILE");
  app.add_option("--svg", options.svg,
                 "plot time against size, and against ranks, a line per algorithm; with --tuner "
                 "a line per policy, and with --sweep a map of their regrets (-: stdout)")
      ->type_name("FILE");
  app.add_option("--links", options.links,
                 "map the bytes that each rank sends to each other in a call of the smallest size, "
                 "a map per algorithm (-: stdout)")
      ->type_name("FILE");
  app.add_option("--json", options.json, "write the rows to this file (-: stdout)")
      ->type_name("FILE");
}

}  // namespace

Command add_sim_command(CLI::App& program) {
  CLI::App* const app = program.add_subcommand("sim", "Time of a call on ranks that are not there");
  const auto options = std::make_shared<SimOptions>();
  constexpr int kRanksSimulatedMax = 1 << 20;
  constexpr int kChannelsMax = 64;
  add_flag(
      *app, "COLL",
      [options](const std::string& text) -> Result<void> {
        PLEXUS_TRY(collective, parse_collective(text));
        options->collective = collective;
        return ok();
      },
      "collective (not with --sweep and --workload)");
  add_int(*app, "-r,--ranks", &options->nranks, {2, kRanksSimulatedMax}, "ranks (default 8)");
  add_int(*app, "-g,--ranks-per-node", &options->ranks_per_node, {1, kRanksSimulatedMax},
          "ranks of a node (default 1)");
  add_size(*app, "-b,--min-bytes", &options->bytes_first, "smallest size (default 8)");
  add_size(*app, "-e,--max-bytes", &options->bytes_last, "largest size (default: the smallest)");
  add_int(*app, "-f,--factor", &options->factor, {2, 1 << 20}, "between sizes (default 4)");
  add_flag(
      *app, "--algo",
      [options](const std::string& text) -> Result<void> {
        for (const std::string_view word : split_at_commas(text)) {
          options->families.emplace_back(word);
        }
        return ok();
      },
      "only these, as NCCL_ALGO names them: ring,tree");
  add_flag(
      *app, "--proto",
      [options](const std::string& text) { return take_protocol(text, &options->protocol); },
      "Simple (default), LL or LL128");
  add_int(*app, "--channels", &options->channels, {1, kChannelsMax},
          "channels (default: 1; of a double tree 2)");
  add_int(*app, "--dcs", &options->datacenters, {1, 1024},
          "datacenters, equal parts of the nodes (default 1; with --fabric the model's)");
  app->add_option("--program", options->program,
                  "an algorithm from a file (docs/programs.md), for as many ranks as it has")
      ->type_name("FILE");
  add_int(*app, "--root", &options->root, {0, kRanksSimulatedMax - 1}, "root (default 0)");
  add_message_flags(*app, *options);
  add_cost_flags(*app, *options);
  add_fault_flags(*app, *options);
  add_policy_flags(*app, options);
  app->add_option("--fabric", options->fabric_file,
                  "a fabric model (docs/topology.md) whose links messages between nodes share")
      ->type_name("FILE");
  add_output_flags(*app, *options);
  return {app, [app, options] {
            options->has_ranks = app->count("--ranks") > 0;
            options->has_ranks_per_node = app->count("--ranks-per-node") > 0;
            if (options->root >= options->nranks) {
              return report_error(fail(Code::kInvalidArgument, "--root: {} is not one of {} ranks",
                                       options->root, options->nranks),
                                  kExitUsage);
            }
            const Result<void> done = run_sim(*options);
            if (done.has_value()) {
              return kExitOk;
            }
            const bool ran = done.error().code() == Code::kRemoteError;
            return report_error(done.error(), ran ? kExitWrong : kExitUsage);
          }};
}

}  // namespace plexus
