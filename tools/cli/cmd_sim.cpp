// SPDX-License-Identifier: Apache-2.0
// `plexus sim`: the time of a call on ranks that are not there: recorded programs on a virtual
// clock (tools/sim, docs/simulator.md).
#include <algorithm>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "core/datacenter/datacenter_map.hpp"
#include "core/programs/program_file.hpp"
#include "core/schedule/candidate.hpp"
#include "core/schedule/partition.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/flags.hpp"
#include "tools/sim/simulate.hpp"
#include "tools/sim/trace.hpp"

namespace plexus {
namespace {

struct SimOptions {
  Collective collective = Collective::kAllReduce;
  int nranks = 8;
  int ranks_per_node = 1;
  size_t bytes_first = 8;
  size_t bytes_last = 0;  // 0: as bytes_first
  int factor = 4;
  std::vector<std::string> families;  // empty: all
  Protocol protocol = Protocol::kSimple;
  int channels = 0;  // 0: as many as the algorithm has different programs
  int root = 0;
  int datacenters = 1;
  size_t slot_bytes = kSlotBytesOfNetwork;
  std::string program;  // a file, in place of algorithms of the table
  // costs
  double latency_us = 2;
  double gbit_per_s = 200;
  double near_latency_us = 0.5;
  double near_gbit_per_s = 1600;
  double wide_latency_us = 5000;
  double wide_gbit_per_s = 100;
  double message_us = 0;
  double reduce_gb_per_s = 0;  // 0: infinitely fast
  std::string fabric_file;
  std::string trace;
  std::string json;
};

constexpr double kBytesPerUsOfGbit = 125;
constexpr double kBytesPerUsOfGb = 1000;

/// By rank: those of the fabric, or equal parts; empty: one.
std::vector<int> datacenters_of(const SimOptions& options, const Fabric* fabric) {
  std::vector<int> datacenters;
  const int nodes = (options.nranks + options.ranks_per_node - 1) / options.ranks_per_node;
  for (int rank = 0; rank < options.nranks; ++rank) {
    const int node = rank / options.ranks_per_node;
    datacenters.push_back(fabric != nullptr
                              ? fabric->datacenter_of(std::min(node, fabric->nodes() - 1))
                              : static_cast<int>(int64_t{node} * options.datacenters / nodes));
  }
  return datacenters.back() == datacenters.front() ? std::vector<int>{} : datacenters;
}

SimJob job_of(const SimOptions& options,
              const Algorithm& algorithm,
              uint64_t bytes,
              const Fabric* fabric) {
  const bool on_fabric = fabric != nullptr;
  SimJob job;
  job.algorithm = &algorithm;
  job.nranks = options.nranks;
  job.ranks_per_node = options.ranks_per_node;
  const uint64_t blocks =
      is_blocked(algorithm.collective) ? static_cast<uint64_t>(options.nranks) : 1;
  job.element_bytes = 4;
  job.count = std::max<uint64_t>(1, bytes / job.element_bytes / blocks);
  job.root = options.root;
  job.channels = options.channels > 0 ? options.channels : algorithm.variants;
  job.slot_bytes = static_cast<uint32_t>(options.slot_bytes);
  job.protocol = options.protocol;
  job.costs.near = {.latency_us = options.near_latency_us,
                    .us_per_byte = 1 / (options.near_gbit_per_s * kBytesPerUsOfGbit),
                    .message_us = options.message_us};
  job.costs.far = {.latency_us = options.latency_us,
                   .us_per_byte = on_fabric ? 0 : 1 / (options.gbit_per_s * kBytesPerUsOfGbit),
                   .message_us = options.message_us};
  // a fabric has the latency of its cables, also between datacenters
  job.costs.wide = {
      .latency_us = on_fabric ? options.latency_us : options.wide_latency_us,
      .us_per_byte = on_fabric ? 0 : 1 / (options.wide_gbit_per_s * kBytesPerUsOfGbit),
      .message_us = options.message_us};
  job.datacenters = datacenters_of(options, fabric);
  if (!job.datacenters.empty()) {
    job.above = find_tree(job.datacenters.back() + 1);
  }
  job.costs.reduce_us_per_byte =
      options.reduce_gb_per_s > 0 ? 1 / (options.reduce_gb_per_s * kBytesPerUsOfGb) : 0;
  return job;
}

struct Row {
  uint64_t bytes;
  std::string algorithm;
  int channels;
  SimResult result;
  size_t simulated;  // ranks
};

Result<Row> simulate_one(const SimOptions& options,
                         const Algorithm& algorithm,
                         uint64_t bytes,
                         const Fabric* fabric) {
  const SimJob job = job_of(options, algorithm, bytes, fabric);
  PLEXUS_TRY(network, fabric == nullptr && options.trace.empty() ? make_symmetric_network(job)
                                                                 : make_network(job));
  SimTrace trace(network, fabric);
  PLEXUS_TRY(result, simulate(network, fabric, options.trace.empty() ? SimWatch{} : trace.watch()));
  if (!options.trace.empty()) {
    PLEXUS_TRY(write_json(options.trace, trace.format()));
  }
  return Row{.bytes = bytes,
             .algorithm = algorithm.family,
             .channels = job.channels,
             .result = std::move(result),
             .simulated = network.ranks.size()};
}

Result<std::vector<const Algorithm*>> choose(const SimOptions& options) {
  std::vector<const Algorithm*> chosen;
  std::vector<std::string> known;
  for (const Algorithm& row : algorithms()) {
    if (row.collective != options.collective || row.network_cost != nullptr) {
      continue;
    }
    known.emplace_back(row.family);
    const bool is_named = std::find(options.families.begin(), options.families.end(), row.family) !=
                          options.families.end();
    if (is_named || (options.families.empty() && options.nranks <= row.nranks_max &&
                     (!row.for_datacenters || options.datacenters > 1))) {
      chosen.push_back(&row);
    }
  }
  for (const std::string& family : options.families) {
    if (std::find(known.begin(), known.end(), family) == known.end()) {
      return fail(Code::kInvalidArgument, "--algo: '{}' is not an algorithm for {}; there are {}",
                  family, name(options.collective), fmt::join(known, ", "));
    }
  }
  return chosen;
}

double algbw(const Row& row) {
  return static_cast<double>(row.bytes) / (row.result.time_us * kBytesPerUsOfGb);
}

std::string format_json(const SimOptions& options, const std::vector<Row>& rows) {
  nlohmann::ordered_json json;
  json["collective"] = name(options.collective);
  json["ranks"] = options.nranks;
  json["rows"] = nlohmann::ordered_json::array();
  for (const Row& row : rows) {
    json["rows"].push_back({{"bytes", row.bytes},
                            {"algorithm", row.algorithm},
                            {"protocol", name(options.protocol)},
                            {"channels", row.channels},
                            {"time_us", row.result.time_us},
                            {"algbw_gb_per_s", algbw(row)},
                            {"ranks_simulated", row.simulated},
                            {"events", row.result.events}});
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
  PLEXUS_TRY(text, read_file(options.program));
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
  made->recorded.programs = std::move(file.programs);
  made->algorithm.name = made->algorithm.family = made->name.c_str();
  made->algorithm.collective = file.collective;
  made->algorithm.recorded = &made->recorded;
  return made;
}

Result<void> sweep(SimOptions options) {
  std::optional<Fabric> fabric;
  if (!options.fabric_file.empty()) {
    PLEXUS_TRY(text, read_file(options.fabric_file));
    auto parsed = Fabric::parse(text);
    if (parsed.has_error()) {
      return std::move(parsed).error().with_context(options.fabric_file);
    }
    fabric = std::move(parsed).value();
  }
  std::unique_ptr<FromFile> from_file;
  std::vector<const Algorithm*> chosen;
  if (options.program.empty()) {
    PLEXUS_TRY(of_table, choose(options));
    chosen = std::move(of_table);
  } else {
    PLEXUS_TRY(loaded, load_program(options));
    from_file = std::move(loaded);
    chosen = {&from_file->algorithm};
  }
  const bool prints = options.json != "-" && options.trace != "-";
  if (prints) {
    fmt::print("{} of {} ranks, {} on a node\n", name(options.collective), options.nranks,
               options.ranks_per_node);
    fmt::print("  {:>12} {:<14} {:>8} {:>14} {:>12} {:>10}\n", "bytes", "algorithm", "channels",
               "time us", "algbw GB/s", "simulated");
  }
  std::vector<Row> rows;
  const size_t last = std::max(options.bytes_first, options.bytes_last);
  for (size_t bytes = options.bytes_first; bytes <= last;
       bytes *= static_cast<size_t>(options.factor)) {
    for (const Algorithm* const algorithm : chosen) {
      PLEXUS_TRY(row,
                 simulate_one(options, *algorithm, bytes, fabric.has_value() ? &*fabric : nullptr));
      if (prints) {
        fmt::print("  {:>12} {:<14} {:>8} {:>14.3f} {:>12.4f} {:>10}\n", row.bytes, row.algorithm,
                   row.channels, row.result.time_us, algbw(row), row.simulated);
      }
      rows.push_back(std::move(row));
    }
  }
  return options.json.empty() ? Result<void>(ok())
                              : write_json(options.json, format_json(options, rows));
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

void add_number(
    CLI::App& app, const std::string& flag, double* target, double low, const std::string& help) {
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
      "collective")
      ->required();
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
  add_size(*app, "--slot-bytes", &options->slot_bytes, "largest message (default 512K)");
  add_cost_flags(*app, *options);
  app->add_option("--fabric", options->fabric_file,
                  "a fabric model (docs/topology.md) whose links messages between nodes share")
      ->type_name("FILE");
  app->add_option("--trace", options->trace,
                  "write the last simulation in Chrome's trace format to this file (-: stdout)")
      ->type_name("FILE");
  app->add_option("--json", options->json, "write the rows to this file (-: stdout)")
      ->type_name("FILE");
  return {app, [options] {
            if (options->root >= options->nranks) {
              return report_error(fail(Code::kInvalidArgument, "--root: {} is not one of {} ranks",
                                       options->root, options->nranks),
                                  kExitUsage);
            }
            const Result<void> done = sweep(*options);
            return done.has_value() ? kExitOk : report_error(done.error(), kExitUsage);
          }};
}

}  // namespace plexus
