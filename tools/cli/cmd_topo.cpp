// SPDX-License-Identifier: Apache-2.0
// `plexus topo`: the topology of this machine or of a file as a tree, as Graphviz or as a file, and
// the channels of a communicator over any number of such machines.
#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include "core/base/file.hpp"
#include "core/os/host.hpp"
#include "core/topo/cluster.hpp"
#include "core/topo/detect.hpp"
#include "core/topo/graph_file.hpp"
#include "core/topo/machine_xml.hpp"
#include "core/topo/paths.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/flags.hpp"
#include "tools/cli/topo/fabric.hpp"
#include "tools/cli/topo/json.hpp"
#include "tools/cli/topo/machine_line.hpp"
#include "tools/cli/topo/nccl_model.hpp"
#include "tools/cli/topo/predicted.hpp"
#include "tools/cli/topo/template.hpp"
#include "tools/cli/topo/text.hpp"
#include "tools/cli/tune/nccl_tests.hpp"
#include "tools/slurm/slurm.hpp"

namespace plexus {
namespace {

struct TopoFlags {
  std::string file;                // empty: this machine
  std::vector<std::string> files;  // of `search`: FILE or FILE:COUNT
  TemplateDevices devices;
  int nodes = 1;
  int ranks = 0;  // on this machine; 0: one per core
  int dcs = 1;
  std::vector<int> dc_of;
  int scatter = 1;
  int cross_nic = 2;
  bool no_p2p = false;
  std::string graph_file;
  std::string graph_dump;
  std::string json;  // file, "-" or empty
  size_t bytes_first = size_t{1} << 10;
  size_t bytes_last = size_t{1} << 30;
  int factor = 4;
  MachineLine machine;  // of `predict`; no GPU: a file
  Network network = Network::kInfiniBand;
  Setup setup = Setup::kProcesses;
  std::vector<FittedCall> calls;
  std::string measured;  // a log of nccl-tests
  std::string svg;
  std::string from;  // start of a route in a fabric: NODE[:RAIL]
  std::string to;
  int shift = 0;  // 0: not requested
  int depth = 0;  // of the switches that become datacenters
  std::string slurm_topology;
};

/// One rank on each GPU.
XmlElement with_ranks_on_gpus(XmlElement element) {
  for (XmlElement& child : element.children) {
    child = with_ranks_on_gpus(std::move(child));
  }
  if (element.tag == "gpu") {
    element.set("rank", *element.find("dev"));
  }
  return element;
}

Result<XmlElement> read_machine(const TopoFlags& flags) {
  if (!flags.file.empty()) {
    PLEXUS_TRY(machine, read_machine_file(flags.file));
    return add_devices(std::move(machine), flags.devices);
  }
  DetectRequest request;
  const int ranks = flags.ranks > 0 ? flags.ranks : cores_available();
  PLEXUS_TRY(machine, Machine::load());
  request.nets = network_interfaces();
  Result<GpuList> gpus = find_gpus();
  if (gpus) {
    request.gpus = std::move(gpus).value();
  } else {
    fmt::print(stderr, "plexus: GPUs are not shown: {}\n", gpus.error().message());
  }
  if (flags.ranks == 0 && !request.gpus.gpus.empty()) {
    return with_ranks_on_gpus(machine.describe(request));
  }
  const std::vector<int> numas = machine.numa_nodes();
  for (int rank = 0; rank < ranks; ++rank) {  // spread over the NUMA nodes
    request.ranks.push_back(
        {.rank = rank, .numa = numas[static_cast<size_t>(rank) % numas.size()]});
  }
  return machine.describe(request);
}

TopoOptions options_of(const TopoFlags& flags) {
  TopoOptions options;
  options.cross_nic = flags.cross_nic;
  options.reach.p2p = !flags.no_p2p;
  return options;
}

Result<System> load_system(const TopoFlags& flags) {
  PLEXUS_TRY(machine, read_machine(flags));
  auto system = build_system(machine);
  if (!system) {
    return in_file(flags.file, std::move(system).error());
  }
  compute_paths(system.value(), options_of(flags));
  return system;
}

Result<void> show(const TopoFlags& flags) {
  PLEXUS_TRY(system, load_system(flags));
  return write_output("-", format_machine(system));
}

Result<void> draw(const TopoFlags& flags) {
  PLEXUS_TRY(system, load_system(flags));
  if (system.count(NodeType::kGpu) == 0) {
    return write_output("-", format_dot(system, nullptr));
  }
  const NodeChannels found = search_node(system, options_of(flags));
  return write_output("-", format_dot(system, &found));
}

Result<void> dump(const TopoFlags& flags) {
  TopoFlags here = flags;
  here.file.clear();
  PLEXUS_TRY(machine, read_machine(here));
  return write_output(flags.file.empty() ? "-" : flags.file, format_xml(machine));
}

Result<std::vector<ClusterMachines>> machines_of(const TopoFlags& flags) {
  std::vector<ClusterMachines> kinds;
  for (const std::string& text : flags.files) {
    PLEXUS_TRY(given, parse_machine_file(text));
    TopoFlags one = flags;
    one.file = given.file;
    PLEXUS_TRY(machine, read_machine(one));
    const bool counts = flags.nodes > 1;
    if (counts && (given.count > 1 || flags.files.size() > 1)) {
      return fail(Code::kInvalidArgument, "--nodes {}: the number is given as FILE:COUNT there",
                  flags.nodes);
    }
    kinds.push_back({.machine = std::move(machine),
                     .count = counts ? flags.nodes : given.count,
                     .from = given.file});
  }
  if (!flags.machine.gpu.empty()) {
    kinds.push_back({.machine = describe_machine(flags.machine), .count = flags.nodes});
  }
  if (kinds.empty()) {
    PLEXUS_TRY(machine, read_machine(flags));
    kinds.push_back({.machine = std::move(machine), .count = flags.nodes});
  }
  return kinds;
}

Result<ClusterRequest> request_of(const TopoFlags& flags, int nodes) {
  ClusterRequest request;
  request.options = options_of(flags);
  request.datacenters.of_node = flags.dc_of;
  request.datacenters.scatter = flags.scatter == 1;
  if (flags.dc_of.empty() && flags.dcs > 1) {
    if (flags.dcs > nodes) {
      return fail(Code::kInvalidArgument, "--dcs {} is greater than the number of nodes, {}",
                  flags.dcs, nodes);
    }
    for (int node = 0; node < nodes; ++node) {
      request.datacenters.of_node.push_back(node * flags.dcs / nodes);
    }
  }
  if (!flags.graph_file.empty()) {
    std::ifstream file(flags.graph_file, std::ios::binary);
    request.graphs.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    if (!file || request.graphs.empty()) {
      return fail(Code::kInvalidArgument, "--graph: cannot read the file '{}'", flags.graph_file);
    }
    request.graphs_from = flags.graph_file;
  }
  return request;
}

Result<ClusterChannels> plan(const TopoFlags& flags) {
  PLEXUS_TRY(kinds, machines_of(flags));
  int nodes = 0;
  for (const ClusterMachines& kind : kinds) {
    nodes += kind.count;
  }
  PLEXUS_TRY(request, request_of(flags, nodes));
  auto cluster = plan_cluster(kinds, request);
  if (cluster) {
    for (const std::string& warning : cluster.value().warnings) {
      fmt::print(stderr, "plexus: {}\n", warning);
    }
  }
  return cluster;
}

Result<void> search(const TopoFlags& flags) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  PLEXUS_TRY(cluster, plan(flags));
  const double search_ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  if (!flags.graph_dump.empty()) {
    PLEXUS_TRY(write_output(flags.graph_dump,
                            format_graphs(cluster.found.front(), cluster.parts.front())));
  }
  if (flags.json != "-") {
    fmt::print("{}search took {:.1f} ms\n", format_cluster(cluster), search_ms);
  }
  return flags.json.empty() ? ok()
                            : write_output(flags.json, format_cluster_json(cluster, search_ms));
}

Result<std::vector<size_t>> sizes_of(const TopoFlags& flags) {
  constexpr size_t kBytesMax = size_t{1} << 50;
  const size_t last = std::max(flags.bytes_first, flags.bytes_last);
  if (flags.bytes_first == 0 || last > kBytesMax) {
    return fail(Code::kInvalidArgument, "-b and -e expect sizes from 1 byte to 1024 TiB, not {}",
                flags.bytes_first == 0 ? 0 : last);
  }
  std::vector<size_t> sizes;
  for (size_t bytes = flags.bytes_first; bytes <= last;
       bytes *= static_cast<size_t>(flags.factor)) {
    sizes.push_back(bytes);
  }
  return sizes;
}

Result<void> show_times(const TopoFlags& flags) {
  PLEXUS_TRY(sizes, sizes_of(flags));
  PLEXUS_TRY(cluster, plan(flags));
  const NcclModel model(describe_for_nccl(cluster));
  if (flags.json != "-") {
    fmt::print("{}", format_nccl_times(model, sizes));
  }
  return flags.json.empty() ? ok() : write_output(flags.json, format_nccl_times_json(model, sizes));
}

Result<PredictedCall> read_measured(const std::string& file) {
  constexpr size_t kLogBytesMax = 64 << 20;
  PLEXUS_TRY(text, read_file(file, kLogBytesMax));
  const Result<tune::NcclTestsLog> parsed = tune::parse_nccl_tests(text);
  if (!parsed) {
    return fail(parsed.error().code(), "--measured: {} {}", file, parsed.error().message());
  }
  const tune::NcclTestsLog& log = parsed.value();
  PredictedCall call{.call = find_fitted_call(log.collective).value()};  // it knows fewer
  for (size_t row = 0; row < log.bytes.size(); ++row) {
    call.measured.emplace_back(static_cast<size_t>(log.bytes[row]), log.time_us[row]);
  }
  return call;
}

Result<void> show_predicted(const TopoFlags& flags) {
  if (!flags.machine.gpu.empty() && !flags.files.empty()) {
    return fail(Code::kInvalidArgument, "--machine and the file '{}' both say what the machine is",
                flags.files.front());
  }
  PLEXUS_TRY(sizes, sizes_of(flags));
  PLEXUS_TRY(cluster, plan(flags));
  const FittedMachine machine =
      describe_fitted(cluster, flags.machine.gpu.empty() ? flags.network : flags.machine.network);
  if (machine.cluster.sm_min == 0) {
    return fail(Code::kInvalidArgument,
                "predict is for GPUs, and this machine has none: name one with --machine");
  }
  if (machine.cluster.nodes > 1 && machine.nics == 0) {
    return fail(Code::kInvalidArgument,
                "{} nodes need NICs, of which the machine has none: as in \"8xH100 8xib400\"",
                machine.cluster.nodes);
  }
  PredictedTable table{.machine = machine, .setup = flags.setup, .sizes = std::move(sizes)};
  for (const FittedCall call : flags.calls) {
    table.calls.push_back({.call = call});
  }
  if (!flags.measured.empty()) {
    PLEXUS_TRY(measured, read_measured(flags.measured));
    table.calls = {std::move(measured)};
  }
  if (table.calls.empty()) {
    table.calls = {{.call = FittedCall::kAllReduce}};
  }
  if (flags.json != "-") {
    fmt::print("{}", format_predicted(table));
  }
  if (!flags.svg.empty()) {
    const Plot plot = plot_predicted(
        table, fmt::format("ranks: {}, nodes: {}", machine.cluster.ranks, machine.cluster.nodes));
    PLEXUS_TRY(write_output(flags.svg, draw_plots({&plot, 1})));
  }
  return flags.json.empty() ? ok() : write_output(flags.json, format_predicted_json(table));
}

Result<void> show_fabric(const TopoFlags& flags) {
  PLEXUS_TRY(text, read_file(flags.file));
  const Result<Fabric> parsed = Fabric::parse(text);
  if (!parsed) {
    return fail(parsed.error().code(), "{}: {}", flags.file, parsed.error().message());
  }
  const Fabric& fabric = parsed.value();
  std::string shown = format_fabric(fabric);
  if (!flags.from.empty() || !flags.to.empty()) {
    const Result<FabricPort> from = parse_port(flags.from, fabric);
    const Result<FabricPort> to = parse_port(flags.to, fabric);
    if (!from || !to) {
      return fail(Code::kInvalidArgument,
                  "--{} expects NODE or NODE:RAIL of the {} nodes x {} rails that there are",
                  from ? "to" : "from", fabric.nodes(), fabric.rails());
    }
    shown += format_route(fabric, from.value(), to.value());
  }
  if (flags.shift > 0) {
    shown += format_shift(fabric, flags.shift);
  }
  return write_output("-", shown);
}

Result<void> import_slurm(const TopoFlags& flags) {
  const auto read = [](const std::string& path) { return read_file(path, kSlurmBytesMax); };
  PLEXUS_TRY(text, read(flags.file));
  PLEXUS_TRY(fabric,
             fabric_file_of_slurm(
                 text, {.path = flags.file, .depth = flags.depth, .topology = flags.slurm_topology},
                 read));
  for (const std::string& warning : fabric.warnings) {
    fmt::print(stderr, "plexus: {}\n", warning);
  }
  return write_output("-", fabric.text);
}

Result<void> take_dc_of(const std::string& text, std::vector<int>* target) {
  constexpr IntRange kDc = {0, 1023};
  size_t start = 0;
  while (start <= text.size()) {
    const size_t comma = std::min(text.find(',', start), text.size());
    PLEXUS_TRY(dc, parse_int(text.substr(start, comma - start), kDc));
    target->push_back(static_cast<int>(dc));
    start = comma + 1;
  }
  return ok();
}

void add_cluster_flags(CLI::App& app, const std::shared_ptr<TopoFlags>& flags) {
  constexpr IntRange kNodes = {1, 65'536};
  add_int(app, "--nodes", &flags->nodes, kNodes, "number of such machines (default 1)");
  app.add_option("--graph", flags->graph_file, "take channels from this file (NCCL_GRAPH_FILE)")
      ->type_name("FILE");
  app.add_option("--json", flags->json, "write one JSON object to this file (-: stdout)")
      ->type_name("FILE");
}

void add_times_flags(CLI::App& app, const std::shared_ptr<TopoFlags>& flags) {
  constexpr IntRange kFactor = {2, 1024};
  add_size(app, "-b", &flags->bytes_first, "smallest size (default 1K)");
  add_size(app, "-e", &flags->bytes_last, "largest size (default 1G)");
  add_int(app, "-f", &flags->factor, kFactor, "from one size to the next (default 4)");
}

void add_predict_flags(CLI::App& app, const std::shared_ptr<TopoFlags>& flags) {
  add_flag(
      app, "--machine",
      [flags](const std::string& text) -> Result<void> {
        PLEXUS_TRY(line, parse_machine_line(text));
        flags->machine = std::move(line);
        return ok();
      },
      "instead of a file: GPUs of a node and its NICs: \"8xH100 8xib400\"");
  add_flag(
      app, "--network",
      [flags](const std::string& text) -> Result<void> {
        const std::optional<Network> network = find_network(text);
        if (!network.has_value()) {
          return fail(Code::kInvalidArgument, "expects {}, not '{}'", network_names(), text);
        }
        flags->network = *network;
        return ok();
      },
      "between the nodes of a file: ib (default), roce, efa, tcpx, tcpxo, slingshot, tcp, staged");
  add_flag(
      app, "--calls",
      [flags](const std::string& text) -> Result<void> {
        for (const std::string_view word : split_at_commas(text)) {
          const std::optional<FittedCall> call = find_fitted_call(word);
          if (!call.has_value()) {
            return fail(Code::kInvalidArgument,
                        "expects names as all_reduce, all_gather, reduce_scatter, broadcast, "
                        "reduce, alltoall, sendrecv, not '{}'",
                        word);
          }
          flags->calls.push_back(*call);
        }
        return ok();
      },
      "what is called (default all_reduce)");
  add_choice<Setup>(app, "--setup",
                    {{"processes", Setup::kProcesses},
                     {"one-process", Setup::kOneProcess},
                     {"torch", Setup::kTorch}},
                    &flags->setup,
                    "who calls: a process for each GPU (default), one for all, a loop in PyTorch");
  app.add_option("--measured", flags->measured, "a log of nccl-tests to hold against it")
      ->type_name("FILE");
  app.add_option("--svg", flags->svg, "draw time against size, measured ones as boxes")
      ->type_name("FILE");
}

void add_search_flags(CLI::App& app, const std::shared_ptr<TopoFlags>& flags) {
  constexpr IntRange kDcs = {1, 1024};
  constexpr IntRange kSwitch = {0, 1};
  add_int(app, "--dcs", &flags->dcs, kDcs, "datacenters, the nodes in equal blocks (default 1)");
  add_flag(
      app, "--dc-of", [flags](const std::string& text) { return take_dc_of(text, &flags->dc_of); },
      "datacenter of each node: n0,n1,...");
  add_int(app, "--scatter", &flags->scatter, kSwitch,
          "1: channels cross between datacenters at different nodes (default)");
  app.add_option("--graph-dump", flags->graph_dump, "write the node's channels to this file")
      ->type_name("FILE");
}

CLI::App* add_fabric_verb(CLI::App& topo, const std::shared_ptr<TopoFlags>& flags) {
  constexpr IntRange kShift = {1, 1 << 24};
  CLI::App* const app =
      topo.add_subcommand("fabric", "a model of the network between nodes: routes, shared links");
  app->add_option("MODEL", flags->file, "a fabric model (docs/topology.md)")
      ->type_name("")
      ->required();
  app->add_option("--from", flags->from, "show a route from this NIC")->type_name("NODE[:RAIL]");
  app->add_option("--to", flags->to, "to this NIC")->type_name("NODE[:RAIL]");
  add_int(*app, "--shift", &flags->shift, kShift,
          "all NICs send at once, each to the same rail this many nodes further");
  return app;
}

CLI::App* add_slurm_verb(CLI::App& topo, const std::shared_ptr<TopoFlags>& flags) {
  CLI::App* const app =
      topo.add_subcommand("slurm", "Slurm's topology as a PLEXUS_FABRIC_FILE, to stdout");
  app->add_option("FILE", flags->file, "topology.conf or topology.yaml")->type_name("")->required();
  app->add_option("--topology", flags->slurm_topology,
                  "the one of topology.yaml of this name (default: the cluster's)")
      ->type_name("NAME");
  constexpr IntRange kDepth = {0, 16};
  add_int(
      *app, "--depth", &flags->depth, kDepth,
      "how many switches are above those that become datacenters (default 0: those at the top)");
  return app;
}

}  // namespace

Command add_topo_command(CLI::App& program) {
  constexpr IntRange kRanks = {0, 512};
  constexpr IntRange kCrossNic = {0, 2};
  constexpr IntRange kGbit = {1, 10'000};
  CLI::App* app = program.add_subcommand(
      "topo", "A machine's topology, and the channels over one or many such machines");
  app->require_subcommand(1);
  const auto flags = std::make_shared<TopoFlags>();
  struct Verb {
    CLI::App* app;
    Result<void> (*run)(const TopoFlags&);
  };
  std::vector<Verb> verbs = {
      {app->add_subcommand("show", "as a tree, with the paths between ranks"), show},
      {app->add_subcommand("dot", "for Graphviz, rings as coloured edges"), draw},
      {app->add_subcommand("dump", "this machine as a topology file"), dump},
      {app->add_subcommand("times", "what NCCL's own model says of these channels: times, choices"),
       show_times},
      {app->add_subcommand("predict", "what nccl-tests would show of NCCL on these machines"),
       show_predicted},
      {app->add_subcommand("search", "channels of a communicator"), search},
  };
  for (const Verb& verb : verbs) {
    const bool writes = verb.run == dump;
    if (verb.run == search || verb.run == show_times || verb.run == show_predicted) {
      add_cluster_flags(*verb.app, flags);
      verb.app
          ->add_option("FILE", flags->files,
                       "NCCL's topology XML, of COUNT nodes if FILE:COUNT (default: this machine)")
          ->type_name("");
    } else {
      verb.app
          ->add_option("FILE", flags->file,
                       writes ? "file to write (default stdout)"
                              : "NCCL's topology XML (default: this machine)")
          ->type_name("");
    }
    add_int(*verb.app, "--ranks", &flags->ranks, kRanks,
            "ranks on this host (default: one for each GPU, without GPUs one for each core)");
    if (!writes) {
      add_int(*verb.app, "--cross-nic", &flags->cross_nic, kCrossNic, "as NCCL_CROSS_NIC");
      add_flag(
          *verb.app, "--gpus",
          [flags](const std::string& text) { return parse_gpus(text, &flags->devices); },
          "of a file without GPUs: compute capability times 10, and NVLinks of each: 80:12");
      add_int(*verb.app, "--nics", &flags->devices.nic_gbit_per_s, kGbit,
              "of a file without NICs: Gbit/s of each network card in it");
      verb.app->add_flag("--no-p2p", flags->no_p2p, "no peer access between GPUs");
    }
  }
  add_search_flags(*verbs.back().app, flags);
  for (const size_t with_sizes : {verbs.size() - 3, verbs.size() - 2}) {
    add_times_flags(*verbs[with_sizes].app, flags);
  }
  add_predict_flags(*verbs[verbs.size() - 2].app, flags);
  verbs.push_back({add_fabric_verb(*app, flags), show_fabric});
  verbs.push_back({add_slurm_verb(*app, flags), import_slurm});
  return {app, [flags, verbs] {
            for (const Verb& verb : verbs) {
              if (verb.app->parsed()) {
                const Result<void> done = verb.run(*flags);
                return done ? kExitOk : report_error(done.error(), kExitUsage);
              }
            }
            return kExitUsage;
          }};
}

}  // namespace plexus
