// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/public_data.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <tuple>

#include <fmt/format.h>

#include "tools/cli/topo/machine_line.hpp"

namespace plexus {
namespace {

std::vector<std::string> split_at_tabs(const std::string& line) {
  std::vector<std::string> cells;
  for (size_t start = 0; start <= line.size();) {
    const size_t tab = std::min(line.find('\t', start), line.size());
    cells.push_back(line.substr(start, tab - start));
    start = tab + 1;
  }
  return cells;
}

std::string cell(const TsvRow& row, const char* column) {
  const auto found = row.find(column);
  return found == row.end() ? "" : found->second;
}

double number(const TsvRow& row, const char* column) {
  return std::strtod(cell(row, column).c_str(), nullptr);  // 0: not stated
}

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

Setup setup_of(const std::string& settings) {
  return has(settings, "PyTorch loop")     ? Setup::kTorch
         : has(settings, "single process") ? Setup::kOneProcess
                                           : Setup::kProcesses;
}

/// In place below 1 KiB, where the first sizes out of place are cold.
double time_of(const TsvRow& row) {
  constexpr double kKib = 1024;
  const double in_place = number(row, "time_us_inplace");
  return in_place > 0 && number(row, "bytes") < kKib ? in_place : number(row, "time_us");
}

void take_nccl_tests(const std::vector<TsvRow>& rows,
                     Machines& machines,
                     std::vector<Sample>* samples,
                     std::map<std::string, int>* left_out) {
  for (const TsvRow& row : rows) {
    const std::string settings = cell(row, "settings");
    const std::string nic = cell(row, "nic");
    const bool tcp = has(nic, "TCP socket");
    Sample sample{.table = cell(row, "table"), .label = cell(row, "machine")};
    const auto call = find_fitted_call(cell(row, "collective"));
    sample.machine = machines.find(sample.label, static_cast<int>(number(row, "gpus")),
                                   static_cast<int>(number(row, "nodes")), tcp);
    sample.time_us = time_of(row);
    if (sample.machine == nullptr || !call || sample.time_us <= 0) {
      ++(*left_out)[sample.label];
      continue;
    }
    sample.call = *call;
    sample.bytes = static_cast<size_t>(number(row, "bytes"));
    sample.setup = setup_of(settings);
    sample.is_fault = has(settings, "FAULT CASE");
    if (has(settings, "NCCL_ALGO=R")) {
      sample.forced = NcclAlgorithm::kRing;
    } else if (has(settings, "NCCL_ALGO=T")) {
      sample.forced = NcclAlgorithm::kTree;
    }
    samples->push_back(std::move(sample));
  }
}

/// The median of the versions of NCCL, half precision.
void take_aiconfigurator(const std::vector<TsvRow>& rows,
                         Machines& machines,
                         std::vector<Sample>* samples,
                         std::map<std::string, int>* left_out) {
  std::map<std::tuple<std::string, int, std::string, size_t>, std::vector<double>> times;
  for (const TsvRow& row : rows) {
    if (cell(row, "type") == "half") {
      times[{cell(row, "machine"), static_cast<int>(number(row, "gpus")), cell(row, "collective"),
             static_cast<size_t>(number(row, "bytes"))}]
          .push_back(number(row, "time_us"));
    }
  }
  for (auto& [key, values] : times) {
    const auto& [label, gpus, collective, bytes] = key;
    const FittedMachine* const machine = machines.find(label, gpus, 1);
    const auto call = find_fitted_call(collective);
    if (machine == nullptr || !call) {
      ++(*left_out)[label];
      continue;
    }
    std::sort(values.begin(), values.end());
    samples->push_back({.table = fmt::format("aic-{}-{}-{}", label, gpus, collective),
                        .label = label,
                        .call = *call,
                        .bytes = bytes,
                        .time_us = values[values.size() / 2],
                        .machine = machine});
  }
}

std::string choice_text(const FittedChoice& way) {
  constexpr std::array kNames = {"TREE", "RING", "NVLS", "NVLS_TREE", "PAT"};
  constexpr std::array kProtocols = {"LL", "LL128", "SIMPLE"};
  return fmt::format("{} {}", kNames.at(static_cast<size_t>(way.algorithm)),
                     kProtocols.at(static_cast<size_t>(way.protocol)));
}

std::optional<FittedCall> call_of_log(const std::string& name) {
  constexpr std::array<std::pair<const char*, FittedCall>, 5> kCalls = {
      {{"AllReduce", FittedCall::kAllReduce},
       {"AllGather", FittedCall::kAllGather},
       {"ReduceScatter", FittedCall::kReduceScatter},
       {"Broadcast", FittedCall::kBroadcast},
       {"Reduce", FittedCall::kReduce}}};
  for (const auto& [text, call] : kCalls) {
    if (name == text) {
      return call;
    }
  }
  return std::nullopt;
}

}  // namespace

Result<std::vector<TsvRow>> read_tsv(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    return fail(Code::kInvalidArgument, "cannot read '{}'", path);
  }
  std::vector<std::string> header;
  std::vector<TsvRow> rows;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.front() == '#') {
      continue;
    }
    const std::vector<std::string> cells = split_at_tabs(line);
    if (header.empty()) {
      header = cells;
      continue;
    }
    if (cells.size() != header.size()) {
      return fail(Code::kInvalidArgument, "{}: a line has {} cells, the header {}: {}", path,
                  cells.size(), header.size(), line);
    }
    TsvRow row;
    for (size_t i = 0; i < cells.size(); ++i) {
      row[header[i]] = cells[i];
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

Result<Machines> Machines::load(const std::string& path) {
  PLEXUS_TRY(rows, read_tsv(path));
  Machines machines;
  for (const TsvRow& row : rows) {
    if (cell(row, "machine") != "-") {
      PLEXUS_TRY(parse_machine_line(cell(row, "machine")));
    }
    machines.lines_[cell(row, "label")] = {.text = cell(row, "machine"),
                                           .is_fitted = cell(row, "fit") != "no"};
  }
  return machines;
}

const Machines::Line* Machines::line_of(const std::string& label) const {
  const Line* found = nullptr;
  size_t longest = 0;
  for (const auto& [prefix, line] : lines_) {
    if (label.starts_with(prefix) && prefix.size() > longest) {
      found = &line;
      longest = prefix.size();
    }
  }
  return found;
}

bool Machines::is_fitted(const std::string& label) const {
  const Line* const line = line_of(label);
  return line != nullptr && line->is_fitted;
}

const FittedMachine* Machines::find(const std::string& label, int gpus, int nodes, bool tcp) {
  const Line* const found = line_of(label);
  if (found == nullptr || found->text == "-" || gpus < 1 || nodes < 1) {
    return nullptr;
  }
  const std::string& text = found->text;
  MachineLine line = parse_machine_line(text).value();
  const int in_one = line.gpus >= gpus ? 1 : nodes;
  line.gpus = gpus / in_one;
  line.network = tcp ? Network::kTcp : line.network;
  auto& planned = planned_[fmt::format("{}|{}|{}|{}", text, gpus, in_one, tcp)];
  if (planned == nullptr) {
    ClusterRequest request;
    request.machines = in_one;
    auto cluster = plan_cluster(describe_machine(line), request);
    if (!cluster) {
      fmt::print(stderr, "public_accuracy: {}: {}\n", text, cluster.error().message());
      std::exit(1);
    }
    planned = std::make_unique<FittedMachine>(describe_fitted(cluster.value(), line.network));
  }
  return planned.get();
}

Result<std::vector<Sample>> read_samples(const std::string& folder,
                                         Machines& machines,
                                         std::map<std::string, int>* left_out) {
  std::vector<Sample> samples;
  PLEXUS_TRY(tests, read_tsv(folder + "/tables/nccl-tests.tsv"));
  take_nccl_tests(tests, machines, &samples, left_out);
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder + "/tables")) {
    if (entry.path().filename().string().starts_with("aiconfigurator-")) {
      files.push_back(entry.path().string());
    }
  }
  std::sort(files.begin(), files.end());
  for (const std::string& file : files) {
    PLEXUS_TRY(rows, read_tsv(file));
    take_aiconfigurator(rows, machines, &samples, left_out);
  }
  for (Sample& sample : samples) {
    sample.is_fitted = machines.is_fitted(sample.label);
    sample.way = sample.machine->choose(sample.call, sample.bytes, sample.forced);
  }
  return samples;
}

Result<std::vector<Sample>> read_groups(const std::string& folder, Machines& machines) {
  constexpr std::array<std::pair<const char*, FittedCall>, 4> kCalls = {
      {{"all-reduce", FittedCall::kAllReduce},
       {"all-gather", FittedCall::kAllGather},
       {"reduce-scatter", FittedCall::kReduceScatter},
       {"all-to-all", FittedCall::kAllToAll}}};
  std::vector<Sample> samples;
  PLEXUS_TRY(rows, read_tsv(folder + "/tables/xla-sm_90.tsv"));
  for (const TsvRow& row : rows) {
    for (const auto& [text, call] : kCalls) {
      if (cell(row, "collective") != text) {
        continue;
      }
      const int gpus = static_cast<int>(number(row, "devices_per_group"));
      Sample sample{.table = "xla",
                    .label = fmt::format("{} x {} GPUs", cell(row, "groups"), gpus),
                    .call = call,
                    .bytes = static_cast<size_t>(number(row, "bytes")),
                    .time_us = number(row, "time_us"),
                    .machine = machines.find("xla", gpus, 1)};
      if (sample.machine != nullptr && sample.time_us > 0) {
        sample.way = sample.machine->choose(call, sample.bytes);
        samples.push_back(std::move(sample));
      }
    }
  }
  return samples;
}

Result<std::vector<LoggedChoice>> read_choices(const std::string& folder, Machines& machines) {
  std::vector<LoggedChoice> choices;
  PLEXUS_TRY(rows, read_tsv(folder + "/tuning-logs/choices.tsv"));
  for (const TsvRow& row : rows) {
    const auto call = call_of_log(cell(row, "collective"));
    const int nodes = std::max(1, static_cast<int>(number(row, "nodes")));
    const FittedMachine* const machine =
        machines.find(cell(row, "machine"), static_cast<int>(number(row, "gpus")), nodes);
    const std::string algorithm = cell(row, "algo");
    const std::string protocol = cell(row, "proto");
    if (machine == nullptr || !call || cell(row, "forced") != "no" || algorithm.empty() ||
        protocol.empty()) {
      continue;
    }
    const auto last = static_cast<size_t>(number(row, "bytes_to"));
    for (auto bytes = static_cast<size_t>(number(row, "bytes_from")); bytes > 0 && bytes <= last;
         bytes *= 2) {
      choices.push_back({.machine = cell(row, "machine"),
                         .call = *call,
                         .bytes = bytes,
                         .logged = fmt::format("{} {}", algorithm, protocol),
                         .predicted = choice_text(machine->choose(*call, bytes))});
    }
  }
  return choices;
}

}  // namespace plexus
