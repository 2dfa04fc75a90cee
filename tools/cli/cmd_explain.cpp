// SPDX-License-Identifier: Apache-2.0
// `plexus explain`: every way to do a call, the tuner's time for it, the chosen one, and why each
// other one was not chosen; with --measure also the measured time of each on this machine.
#include <algorithm>
#include <charconv>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "core/base/config.hpp"
#include "core/datacenter/datacenter_map.hpp"
#include "core/os/host.hpp"
#include "core/programs/program_set.hpp"
#include "core/tuning/choose_algorithm.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/flags.hpp"
#include "tools/cli/host_rates.hpp"
#include "tools/cli/measure.hpp"

namespace plexus {
namespace {

using Json = nlohmann::ordered_json;

/// The link between two datacenters.
struct WideLink {
  uint64_t mbit_per_s = 1000;
  uint64_t latency_ns = 10'000'000;
};

/// Kinds of GPUs to plan for, from their data sheets.
struct GpuKind {
  const char* name;
  uint32_t sm;
  uint32_t blocks;  // Plexus's thread blocks that one GPU holds
  uint32_t memory_gb_per_s;
  uint32_t nvlink_gb_per_s;  // in one direction
};
constexpr GpuKind kGpuKinds[] = {{"a100", 80, 108, 2039, 300},
                                 {"h100", 90, 132, 3350, 450},
                                 {"h200", 90, 132, 4800, 450},
                                 {"b200", 100, 148, 8000, 900}};

struct ExplainOptions {
  Collective collective = Collective::kAllReduce;
  size_t size_bytes = 0;
  int nranks = 2;
  int nodes = 1;
  std::vector<int> datacenters;  // ranks of each datacenter; empty: one
  WideLink inter;
  std::string mode = "procs";
  const GpuKind* cuda = nullptr;  // kind of GPU that the ranks compute on; nullptr: the host
  int share = 1;                  // number of ranks per GPU
  bool in_windows = false;
  bool measure = false;
  std::string json;
};

uint32_t slot_bytes_of(const ExplainOptions& options) {
  return options.nodes > 1 ? kSlotBytesOfNetwork : kSlotBytesOfMemory;
}

/// Whether the ranks of a host are processes that compute on it.
bool shares_host(const ExplainOptions& options) {
  return options.mode == "procs" && options.cuda == nullptr;
}

/// A communicator of `nranks` spread evenly over `nodes` machines like this one.
plexus_tuner_comm_t describe_comm(const ExplainOptions& options,
                                  const HostCopyMethods& copy_methods) {
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
  comm.slot_bytes = slot_bytes_of(options);
  uint32_t near = 0;
  for (uint32_t node = 0; node < nodes; ++node) {
    const uint32_t members = nranks / nodes + (node < nranks % nodes ? 1 : 0);
    near += members * (members - 1) / 2;
  }
  comm.links[options.mode == "procs" ? PLEXUS_LINK_HOST : PLEXUS_LINK_PROCESS].count = near;
  if (shares_host(options) && copy_methods.measured) {
    comm.links[PLEXUS_LINK_HOST].latency_ns = message_latency_ns(copy_methods);
    comm.links[PLEXUS_LINK_HOST].bandwidth_mbit_per_s = bandwidth_mbit_per_s(copy_methods);
  }
  plexus_tuner_link_t& xdc = comm.links[PLEXUS_LINK_XDC];
  for (const int size : options.datacenters) {
    xdc.count += static_cast<uint32_t>(size) * (nranks - static_cast<uint32_t>(size)) / 2;
  }
  if (xdc.count > 0) {
    comm.ndatacenters = static_cast<uint32_t>(options.datacenters.size());
    xdc.latency_ns = options.inter.latency_ns;
    xdc.bandwidth_mbit_per_s = options.inter.mbit_per_s;
  }
  comm.links[PLEXUS_LINK_NET].count = nranks * (nranks - 1) / 2 - near - xdc.count;
  if (options.cuda != nullptr) {
    constexpr uint64_t kMbitOfGb = 8000;
    comm.cuda = {.sm = options.cuda->sm,
                 .ranks_per_device = static_cast<uint32_t>(options.share),
                 .blocks = options.cuda->blocks / static_cast<uint32_t>(options.share),
                 .nvlink = 1,
                 .memory_mbit_per_s = options.cuda->memory_gb_per_s * kMbitOfGb};
    for (const uint32_t kind : {PLEXUS_LINK_PROCESS, PLEXUS_LINK_HOST}) {
      comm.links[kind].bandwidth_mbit_per_s = options.cuda->nvlink_gb_per_s * kMbitOfGb;
    }
  }
  return comm;
}

/// The ranks in order, datacenter after datacenter; hosts as equal blocks.
ChannelOrder order_of(const ExplainOptions& options) {
  ChannelOrder order;
  for (int rank = 0; rank < options.nranks; ++rank) {
    order.ring.push_back(rank);
    if (rank == 0 ||
        rank * options.nodes / options.nranks != (rank - 1) * options.nodes / options.nranks) {
      order.nodes.push_back(rank);
    }
  }
  for (size_t datacenter = 0;
       datacenter < options.datacenters.size() && options.datacenters.size() > 1; ++datacenter) {
    order.datacenters.insert(order.datacenters.end(),
                             static_cast<size_t>(options.datacenters[datacenter]),
                             static_cast<int>(datacenter));
  }
  if (!order.datacenters.empty()) {
    order.above = find_tree(static_cast<int>(options.datacenters.size()));
  }
  return order;
}

/// Bytes sent from one datacenter to another.
double xdc_bytes(const ExplainOptions& options, const LoopCost& cost, size_t pair) {
  return static_cast<double>(cost.xdc_chunks[pair]) * static_cast<double>(options.size_bytes) /
         cost.chunks;
}

double xdc_bytes(const ExplainOptions& options, const LoopCost& cost) {
  double sum = 0;
  for (size_t pair = 0; pair < cost.xdc_chunks.size(); ++pair) {
    sum += xdc_bytes(options, cost, pair);
  }
  return sum;
}

double least_xdc_bytes(const ExplainOptions& options) {
  return least_xdc_share(options.collective, options.datacenters, 0) *
         static_cast<double>(options.size_bytes);
}

struct Line {
  Candidate candidate;
  LoopCost cost;
  bool chosen;
  std::string reason;
  std::optional<double> measured_us;
};

/// nullopt: it failed.
std::optional<double> measure(const ExplainOptions& options, const Choice& choice) {
  const auto time = measure_time({.collective = options.collective,
                                  .algorithm = choice.algorithm->family,
                                  .protocol = choice.protocol,
                                  .nranks = options.nranks,
                                  .mode = options.mode,
                                  .buffers = options.in_windows ? "window" : "plain",
                                  .size_bytes = options.size_bytes});
  return time.has_error() ? std::nullopt : std::optional(time.value().median_us);
}

std::string why_not(const Candidate& candidate, const Candidate& chosen, bool by_tuner) {
  if (!candidate.possible) {
    return candidate.reason;
  }
  if (!by_tuner) {
    return "the built-in rules prefer another algorithm";
  }
  if (candidate.predicted_us < 0) {
    return "the tuner excludes it";
  }
  if (chosen.predicted_us <= 0) {  // how tuners of NCCL's ABI say what they want; no time
    return "the tuner prefers another algorithm";
  }
  return fmt::format("{:.2f}x the chosen time", candidate.predicted_us / chosen.predicted_us);
}

void print_lines(const ExplainOptions& options,
                 const std::vector<Line>& lines,
                 std::string_view by) {
  fmt::print("{} of {} bytes, {} ranks{}, chosen by {}\n", name(options.collective),
             options.size_bytes, options.nranks,
             options.nodes > 1 ? fmt::format(" on {} nodes", options.nodes) : "", by);
  fmt::print("  {:<13} {:<8} {:>8} {:>8} {:>13}{}  {}\n", "algorithm", "protocol", "channels",
             "rounds", "predicted us", options.measure ? fmt::format(" {:>12}", "measured us") : "",
             "why");
  for (const Line& line : lines) {
    const Choice& choice = line.candidate.choice;
    const std::string measured = !options.measure ? ""
                                 : line.measured_us.has_value()
                                     ? fmt::format(" {:>12.2f}", *line.measured_us)
                                     : fmt::format(" {:>12}", "-");
    fmt::print(
        "{} {:<13} {:<8} {:>8} {:>8} {:>13}{}  {}\n", line.chosen ? '*' : ' ',
        choice.algorithm->family, name(choice.protocol), choice.channels, line.cost.rounds,
        line.candidate.predicted_us < 0 ? "-" : fmt::format("{:.2f}", line.candidate.predicted_us),
        measured, line.chosen ? "chosen" : line.reason);
  }
}

/// Once per algorithm: bytes per pair of datacenters, and the ratio to the minimum.
void print_xdc(const ExplainOptions& options, const std::vector<Line>& lines) {
  const size_t datacenters = options.datacenters.size();
  const double least = least_xdc_bytes(options);
  fmt::print(
      "\nbytes between datacenters of {} ranks; no algorithm moves fewer than {:.0f} in all\n",
      fmt::join(options.datacenters, ", "), least);
  fmt::print("  {:<13} {:>14} {:>9} {:>13}  {}\n", "algorithm", "in all", "x least",
             "cross-DC hops", "from > to: bytes");
  for (size_t i = 0; i < lines.size(); ++i) {
    const Line& line = lines[i];
    const Algorithm* const algorithm = line.candidate.choice.algorithm;
    if ((i > 0 && lines[i - 1].candidate.choice.algorithm == algorithm) || line.cost.chunks == 0) {
      continue;
    }
    std::string pairs;
    for (size_t pair = 0; pair < line.cost.xdc_chunks.size(); ++pair) {
      if (line.cost.xdc_chunks[pair] > 0) {
        pairs += fmt::format("{}{} > {}: {:.0f}", pairs.empty() ? "" : ", ", pair / datacenters,
                             pair % datacenters, xdc_bytes(options, line.cost, pair));
      }
    }
    const double sum = xdc_bytes(options, line.cost);
    if (sum == 0) {
      continue;  // A network combines it itself; the bytes that this takes are not known.
    }
    fmt::print("  {:<13} {:>14.0f} {:>9.2f} {:>13}  {}\n", algorithm->family, sum, sum / least,
               line.cost.xdc_rounds, pairs);
  }
}

Json json_of(const ExplainOptions& options, const Line& line) {
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
  if (options.datacenters.size() > 1 && line.cost.chunks > 0) {
    json["xdc_bytes"] = xdc_bytes(options, line.cost);
    json["xdc_bytes_least"] = least_xdc_bytes(options);
    json["xdc_rounds"] = line.cost.xdc_rounds;
    json["xdc_bytes_by_pair"] = Json::array();
    for (size_t pair = 0; pair < line.cost.xdc_chunks.size(); ++pair) {
      json["xdc_bytes_by_pair"].push_back(xdc_bytes(options, line.cost, pair));
    }
  }
  return json;
}

/// Blocks of a rank on its device, as a communicator determines them; 0: on the host.
int blocks_of_rank(const ExplainOptions& options) {
  return options.cuda == nullptr
             ? 0
             : std::max(1, (static_cast<int>(options.cuda->blocks) - 1) / options.share);
}
int most_channels(const ExplainOptions& options) {
  constexpr int kChannelsMax = 64;
  const int blocks = blocks_of_rank(options);
  return blocks == 0 ? kChannelsMax : std::min(blocks, kChannelsMax);
}

Result<int> explain(const ExplainOptions& options) {
  PLEXUS_TRY(config, read_config());
  PLEXUS_TRY(texts, read_program_folders(config.program_path));
  const ProgramSet programs(texts, options.nranks);
  PLEXUS_TRY(filter, AlgorithmFilter::parse(config.algo, config.proto, programs.families()));
  const HostCopyMethods copy_methods =
      shares_host(options) ? find_copy_methods(config) : HostCopyMethods{};
  PLEXUS_TRY(tuner, Tuner::open({.plugin = config.tuner_plugin,
                                 .folders = config.plugin_path,
                                 .net_plugins = config.net_plugin,
                                 .own_folder = find_library_folder()},
                                describe_comm(options, copy_methods)));
  const LoopCosts costs(order_of(options), true);
  const CollnetAbility collnet{.missing = "NCCL_COLLNET_ENABLE is not 1"};
  const ChoiceInput input{
      .collective = options.collective,
      .size_bytes = options.size_bytes,
      .nranks = options.nranks,
      .channels_min = 1,
      .channels_max = most_channels(options),
      .blocks = blocks_of_rank(options),
      .slot_bytes = slot_bytes_of(options),
      .in_windows = options.in_windows,
      .deterministic = config.deterministic,
      .nodes = options.nodes,
      .ranks_per_node_max = (options.nranks + options.nodes - 1) / options.nodes,
      .collnet = &collnet,
      .costs = &costs,
      .recorded = programs.algorithms()};
  PLEXUS_TRY(decision, decide(input, filter, tuner.get()));
  std::vector<Line> lines;
  for (size_t i = 0; i < decision.candidates.size(); ++i) {
    const Candidate& candidate = decision.candidates[i];
    const bool chosen = i == decision.chosen;
    lines.push_back(
        {.candidate = candidate,
         .cost = cost_of(candidate.choice, input),
         .chosen = chosen,
         .reason =
             chosen ? ""
                    : why_not(candidate, decision.candidates[decision.chosen], decision.by_tuner),
         .measured_us = options.measure && candidate.possible ? measure(options, candidate.choice)
                                                              : std::nullopt});
  }
  const std::string by = decision.by_tuner ? tuner->name() : "the built-in rules";
  if (options.json != "-") {
    print_lines(options, lines, by);
    if (options.datacenters.size() > 1) {
      print_xdc(options, lines);
    }
    if (shares_host(options)) {
      print_copy_methods(copy_methods);
    }
  }
  if (!options.json.empty()) {
    Json json;
    json["chosen"] = json_of(options, lines[decision.chosen]);
    json["by"] = by;
    json["candidates"] = Json::array();
    for (const Line& line : lines) {
      json["candidates"].push_back(json_of(options, line));
    }
    if (shares_host(options)) {
      json["host"] = json_of(copy_methods);
    }
    PLEXUS_TRY(write_output(options.json, json.dump(1) + "\n"));
  }
  return kExitOk;
}

/// "4,4": ranks of each datacenter.
Result<void> take_datacenters(const std::string& text, std::vector<int>* target) {
  constexpr int kSizeMax = 1 << 16;
  std::vector<int> sizes;
  std::string_view rest = text;
  for (bool more = true; more;) {
    const size_t comma = std::min(rest.find(','), rest.size());
    int size = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + comma, size);
    if (error != std::errc() || end != rest.data() + comma || size < 1 || size > kSizeMax ||
        sizes.size() == kDatacentersMax) {
      return fail(Code::kInvalidArgument,
                  "expects the ranks of each datacenter, as in 4,4, not '{}'", text);
    }
    sizes.push_back(size);
    more = comma < rest.size();
    rest.remove_prefix(comma + (more ? 1 : 0));
  }
  *target = std::move(sizes);
  return ok();
}

/// "100mbit,20ms": rate (mbit, gbit) and one-way delay (us, ms).
Result<void> take_inter(const std::string& text, WideLink* target) {
  const auto read = [&](std::string_view part, const char* small, const char* large,
                        uint64_t* value) {
    uint64_t number = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    const std::string_view unit(end, static_cast<size_t>(part.data() + part.size() - end));
    constexpr uint64_t kNumberMax = 1'000'000'000;
    *value = number * (unit == large ? 1000 : 1);
    return error == std::errc() && (unit == small || unit == large) && number <= kNumberMax;
  };
  const size_t comma = std::min(text.find(','), text.size());
  uint64_t latency_us = 0;
  WideLink link;
  if (comma == text.size() ||
      !read(std::string_view(text).substr(0, comma), "mbit", "gbit", &link.mbit_per_s) ||
      !read(std::string_view(text).substr(comma + 1), "us", "ms", &latency_us) ||
      link.mbit_per_s == 0) {
    return fail(Code::kInvalidArgument, "expects rate and delay, as in 100mbit,20ms, not '{}'",
                text);
  }
  link.latency_ns = latency_us * 1000;
  *target = link;
  return ok();
}

/// "h200", or "h200:4": four ranks on each.
Result<void> take_cuda(const std::string& text, ExplainOptions* options) {
  const size_t colon = std::min(text.find(':'), text.size());
  const auto* const kind =
      std::find_if(std::begin(kGpuKinds), std::end(kGpuKinds),
                   [&](const GpuKind& row) { return text.substr(0, colon) == row.name; });
  int share = 1;
  if (colon < text.size()) {
    const char* const last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data() + colon + 1, last, share);
    share = error == std::errc() && end == last ? share : 0;
  }
  if (kind == std::end(kGpuKinds) || share < 1 || share > static_cast<int>(kind->blocks)) {
    return fail(Code::kInvalidArgument,
                "expects a100, h100, h200 or b200, optionally with the ranks on each as in h200:4, "
                "not '{}'",
                text);
  }
  options->cuda = kind;
  options->share = share;
  return ok();
}

Result<void> take_mode(const std::string& text, std::string* target) {
  if (text != "procs" && text != "threads") {
    return fail(Code::kInvalidArgument, "expects procs or threads, not '{}'", text);
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
      [options](const std::string& text) -> Result<void> {
        PLEXUS_TRY(collective, parse_collective(text));
        options->collective = collective;
        return ok();
      },
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
      "procs or threads: the ranks of a host are processes or threads of one (default procs)");
  add_flag(
      *app, "--dcs",
      [options](const std::string& text) { return take_datacenters(text, &options->datacenters); },
      "ranks of each datacenter: 4,4 (their sum replaces --ranks)");
  add_flag(
      *app, "--inter",
      [options](const std::string& text) { return take_inter(text, &options->inter); },
      "links between datacenters, rate and one-way delay: 100mbit,20ms (default 1gbit,10ms)");
  add_flag(
      *app, "--cuda", [options](const std::string& text) { return take_cuda(text, options.get()); },
      "ranks on GPUs connected by NVLink, one each: a100, h100, h200, b200; h200:4: four ranks on "
      "each");
  app->add_flag("--window", options->in_windows,
                "of buffers in symmetric windows (ncclCommWindowRegister)");
  app->add_flag("--measure", options->measure, "also measure each on this machine");
  app->add_option("--json", options->json, "write one JSON object to this file (-: stdout)")
      ->type_name("VALUE");
  return {
      app, [options] {
        if (options->measure &&
            (options->nodes > 1 || !options->datacenters.empty() || options->cuda != nullptr)) {
          return report_error(
              fail(
                  Code::kInvalidArgument,
                  "--measure runs host ranks on this machine: leave out --nodes, --dcs and --cuda"),
              kExitUsage);
        }
        if (!options->datacenters.empty()) {
          options->nranks =
              std::accumulate(options->datacenters.begin(), options->datacenters.end(), 0);
          options->nodes = std::max(options->nodes, static_cast<int>(options->datacenters.size()));
        }
        auto code = explain(*options);
        return code.has_error() ? report_error(code.error(), kExitUsage) : code.value();
      }};
}

}  // namespace plexus
