// SPDX-License-Identifier: Apache-2.0
// `plexus doctor`: what the ranks of a running job do, and who keeps whom waiting. It asks one
// process (core/stall/status_server.hpp), which asks all others over the job's control plane; with
// --ras at the port of NCCL's RAS protocol, which jobs of NCCL have, too.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "core/base/file.hpp"
#include "core/base/text.hpp"
#include "core/os/local_socket.hpp"
#include "guest/file.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/flight_recorder.hpp"
#include "tools/cli/ras_client.hpp"
#include "tools/cli/start_map.hpp"

namespace plexus {
namespace {

using nlohmann::json;

constexpr std::string_view kPrefix = "plexus-doctor-";  // StatusServer::name_of
constexpr auto kAnswerTime = std::chrono::seconds(30);
constexpr auto kListTime = std::chrono::seconds(2);
constexpr size_t kCommandLineMax = 4096;
constexpr size_t kProgramShown = 48;
constexpr size_t kAnswerBytesMax = size_t{64} << 20;
constexpr size_t kRecentShown = 3;

struct Options {
  int pid = 0;
  bool here = false;
  bool watch = false;
  bool as_json = false;
  bool as_metrics = false;
  std::string ras;
  std::string start;
  std::string svg;
  std::string flight_recorder;
  int recent = kRecentShown;
};

/// Processes of this host that can be asked.
std::vector<int> find_processes() {
  std::vector<int> found;
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);) {
    const size_t at = line.find('@');
    const std::string_view name =
        at == std::string::npos ? std::string_view() : std::string_view(line).substr(at + 1);
    int pid = 0;
    if (name.starts_with(kPrefix) &&
        std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), pid).ec ==
            std::errc() &&
        std::find(found.begin(), found.end(), pid) == found.end()) {
      found.push_back(pid);
    }
  }
  return found;
}

/// What the process says of its ranks, and of all others if it is to ask them.
Result<json> ask(int pid, bool asks_others, std::chrono::milliseconds time) {
  auto server = LocalSocket::connect(std::string(kPrefix) + std::to_string(pid));
  if (server.has_error()) {
    return fail(
        server.error().code(),
        "process {} has no communicator of Plexus, has PLEXUS_DOCTOR=0 set, or is in another "
        "network namespace (container): {}",
        pid, server.error().message());
  }
  PLEXUS_TRY(server.value().send_all(asks_others ? "all\n" : "ranks\n", time));
  PLEXUS_TRY(answer, server.value().recv_until('\0', kAnswerBytesMax, time));
  if (answer.empty()) {
    return fail(Code::kRemoteError,
                "process {} did not answer: it ended, or it belongs to another user", pid);
  }
  json found = json::parse(answer, nullptr, false);
  if (found.is_discarded() || !found.contains("ranks")) {
    return fail(Code::kRemoteError,
                "process {} gave no answer that makes sense: it ended, or runs another version of "
                "Plexus",
                pid);
  }
  return found;
}

/// The command line of a process, as far as it fits into a column.
std::string program_of(int pid) {
  std::string line = read_regular_file(fmt::format("/proc/{}/cmdline", pid), kCommandLineMax).text;
  std::replace(line.begin(), line.end(), '\0', ' ');
  line = printable(line.substr(0, line.find_last_not_of(' ') + 1));
  line.erase(0, line.rfind('/', line.find(' ')) + 1);  // the folder of the program
  return line.size() > kProgramShown ? line.substr(0, kProgramShown - 3) + "..." : line;
}

/// A process of this host, as the list shows it.
struct Process {
  int pid;
  std::string program;
  std::string ranks = "?";
  std::string waits = "does not answer";
};

/// "0-3 of 8", in the largest communicator.
std::string describe_ranks(const json& ranks) {
  int nranks = 0;
  std::set<int> mine;
  for (const json& rank : ranks) {
    if (const int size = rank.at("nranks"); size > nranks) {
      nranks = size;
      mine.clear();
    }
    if (rank.at("nranks") == nranks) {
      mine.insert(rank.at("rank").get<int>());
    }
  }
  if (mine.empty()) {
    return "none";
  }
  const bool is_row = *mine.rbegin() - *mine.begin() + 1 == static_cast<int>(mine.size());
  return mine.size() > 1 && is_row
             ? fmt::format("{}-{} of {}", *mine.begin(), *mine.rbegin(), nranks)
             : fmt::format("{} of {}", fmt::join(mine, ","), nranks);
}

/// What those ranks do that have waited for a second; "-": none has.
std::string describe_waits(const json& ranks) {
  std::string waits;
  for (const json& rank : ranks) {
    if (const int time = rank.at("seconds"); time > 0) {
      waits += fmt::format("{}rank {}: {}{}, {} s{}{}", waits.empty() ? "" : "; ",
                           rank.at("rank").get<int>(), rank.at("activity").get<std::string>(),
                           rank.contains("waits_for")
                               ? fmt::format(" for rank {}", rank.at("waits_for").get<int>())
                               : "",
                           time, rank.contains("call") ? ", in " : "", rank.value("call", ""));
    }
  }
  return waits.empty() ? "-" : printable(waits);
}

Process look_at(int pid) {
  Process process{.pid = pid, .program = program_of(pid)};
  const auto found = ask(pid, false, kListTime);
  if (found.has_error()) {
    return process;
  }
  try {
    process.ranks = describe_ranks(found.value()["ranks"]);
    process.waits = describe_waits(found.value()["ranks"]);
  } catch (const json::exception&) {
    process.waits = "runs another version of Plexus";
  }
  return process;
}

/// All are asked at once, as one that is stopped takes its time not to answer.
std::vector<Process> look_at_all() {
  std::vector<std::future<Process>> asked;
  for (const int pid : find_processes()) {
    asked.push_back(std::async(std::launch::async, look_at, pid));
  }
  std::vector<Process> found;
  for (std::future<Process>& each : asked) {
    found.push_back(each.get());
  }
  return found;
}

void print_table(const std::vector<Process>& processes) {
  const auto width = [&](std::string Process::*column, size_t least) {
    for (const Process& each : processes) {
      least = std::max(least, (each.*column).size());
    }
    return least;
  };
  const size_t program = width(&Process::program, std::strlen("PROGRAM"));
  const size_t ranks = width(&Process::ranks, std::strlen("RANKS"));
  constexpr const char* kRow = "{:>8}  {:{}}  {:{}}  {}\n";
  fmt::print(kRow, "PID", "PROGRAM", program, "RANKS", ranks, "WAITS");
  for (const Process& each : processes) {
    fmt::print(kRow, each.pid, each.program, program, each.ranks, ranks, each.waits);
  }
}

/// The processes of this host that can be asked.
int list_processes(bool as_json) {
  const std::vector<Process> processes = look_at_all();
  if (as_json) {
    json all = json::array();
    for (const Process& each : processes) {
      all.push_back({{"pid", each.pid},
                     {"program", each.program},
                     {"ranks", each.ranks},
                     {"waits", each.waits}});
    }
    fmt::print("{}\n", all.dump());
  } else if (processes.empty()) {
    fmt::print("no process of this host has a communicator of Plexus\n");
  } else {
    print_table(processes);
  }
  return processes.empty() ? kExitUnchecked : kExitOk;
}

void print_rank(const json& rank, int recent) {
  fmt::print("comm {} rank {} of {}: {}", rank.value("comm", ""), rank.value("rank", -1),
             rank.value("nranks", 0), rank.value("activity", ""));
  if (rank.contains("waits_for")) {
    fmt::print(" for rank {}", rank.value("waits_for", -1));
  }
  if (rank.value("seconds", 0) > 0) {
    fmt::print(" since {} s", rank.value("seconds", 0));
  }
  fmt::print("{}{}, {} made\n", rank.contains("where") ? ": " : "", rank.value("where", ""),
             counted(rank.value("calls", uint64_t{0}), "call"));
  const json& calls = rank.at("recent");
  const size_t shown = std::min(calls.size(), static_cast<size_t>(recent));
  for (size_t i = calls.size() - shown; i < calls.size(); ++i) {
    fmt::print("    {}\n", calls[i].get<std::string>());
  }
  for (const json& wait : rank.at("waits")) {
    fmt::print("  waits for rank {} in {}: {}\n", wait.value("rank", -1), wait.value("call", ""),
               wait.value("where", ""));
  }
}

void print_comm(const json& comm) {
  fmt::print("all {} ranks of comm {}:\n", comm.value("nranks", 0), comm.value("comm", ""));
  for (const json& each : comm.at("classes")) {
    std::vector<int> ranks;
    for (const json& example : each.at("examples")) {
      ranks.push_back(example.value("rank", -1));
    }
    const json& first = each.at("examples").at(0);
    const uint64_t count = each.value("count", uint64_t{0});
    fmt::print(
        "  {}: {}{}{}{}\n", counted(count, "rank"), first.value("activity", ""),
        first.contains("call") ? ", last call " : "", first.value("call", ""),
        fmt::format(" (rank {}{})", fmt::join(ranks, ", "), count > ranks.size() ? ", ..." : ""));
  }
  if (comm.value("not_heard", 0) > 0) {
    const auto missing = comm.value("not_heard", uint64_t{0});
    fmt::print("  {} {} not heard of in time\n", counted(missing, "rank"),
               missing == 1 ? "was" : "were");
  }
  fmt::print("  {}\n", comm.contains("verdict") ? comm.value("verdict", "") : "no rank waits");
}

int ask_at_port(const Options& options) {
  auto report = ask_ras(options.ras, options.as_json || options.as_metrics, false);
  if (report.has_value() && options.as_metrics) {
    report = make_ras_metrics(report.value());
  }
  if (report.has_error()) {
    return report_error(report.error(), kExitWrong);
  }
  fmt::print("{}", report.value());
  (void)std::fflush(stdout);
  return kExitOk;
}

int run_once(const Options& options) {
  if (!options.ras.empty()) {
    return ask_at_port(options);
  }
  const auto answer = ask(options.pid, !options.here, kAnswerTime);
  if (answer.has_error()) {
    return report_error(answer.error(), kExitWrong);
  }
  const json& found = answer.value();
  if (options.as_json) {
    fmt::print("{}\n", found.dump());
    return kExitOk;
  }
  fmt::print("process {}, {}\n", options.pid, counted(found.at("ranks").size(), "rank"));
  for (const json& rank : found.at("ranks")) {
    print_rank(rank, options.recent);
  }
  for (const json& comm : found.value("comms", json::array())) {
    print_comm(comm);
  }
  (void)std::fflush(stdout);
  return kExitOk;
}

/// The communicators that a process is in.
std::set<std::string> comms_of(const json& answer) {
  std::set<std::string> comms;
  for (const json& rank : answer.at("ranks")) {
    comms.insert(rank.value("comm", ""));
  }
  return comms;
}

/// A file for each rank of the job in the processes of this host.
int write_flight_records(const Options& options) {
  auto first = ask(options.pid, false, kAnswerTime);
  if (first.has_error()) {
    return report_error(first.error(), kExitWrong);
  }
  const std::set<std::string> comms = comms_of(first.value());
  std::vector<json> answers = {std::move(first).value()};
  for (const int pid : find_processes()) {
    auto other = pid == options.pid ? fail(Code::kInvalidArgument, "asked before")
                                    : ask(pid, false, kListTime);
    if (other.has_value()) {
      const std::set<std::string> theirs = comms_of(other.value());
      if (std::any_of(theirs.begin(), theirs.end(),
                      [&](const std::string& comm) { return comms.count(comm) > 0; })) {
        answers.push_back(std::move(other).value());
      }
    }
  }
  const auto records = make_flight_records(answers);
  if (records.has_error()) {
    return report_error(records.error(), kExitWrong);
  }
  for (const auto& [rank, record] : records.value()) {
    const std::string file = fmt::format("{}{}", options.flight_recorder, rank);
    if (const auto written = write_output(file, format_pickle(record)); written.has_error()) {
      return report_error(written.error(), kExitWrong);
    }
  }
  fmt::print("{} written\n", counted(records.value().size(), "record"));
  return kExitOk;
}

/// What the job found when it tried its links.
int show_start(const Options& options) {
  auto file = read_file(options.start, kAnswerBytesMax);
  if (file.has_error()) {
    return report_error(file.error(), kExitWrong);
  }
  const auto report = read_start_report(file.value());
  if (report.has_error()) {
    return report_error(report.error(), kExitUnchecked);
  }
  if (!options.svg.empty()) {
    const auto written = write_output(options.svg, draw_heat_maps({&report.value().map, 1}, 1));
    if (written.has_error()) {
      return report_error(written.error(), kExitWrong);
    }
  }
  fmt::print("{}", report.value().text);
  return report.value().findings == 0 ? kExitOk : kExitWrong;
}

int run_doctor(const Options& options) {
  if (!options.start.empty()) {
    return show_start(options);
  }
  if (!options.flight_recorder.empty()) {
    return write_flight_records(options);
  }
  if (options.pid == 0 && options.ras.empty()) {
    return list_processes(options.as_json);
  }
  constexpr auto kPause = std::chrono::seconds(2);
  int code = run_once(options);
  while (options.watch && code == kExitOk) {
    std::this_thread::sleep_for(kPause);
    code = run_once(options);
  }
  return code;
}

}  // namespace

Command add_doctor_command(CLI::App& program) {
  CLI::App* app = program.add_subcommand(
      "doctor", "Show what the ranks of a running job do, and who keeps whom waiting");
  const auto options = std::make_shared<Options>();
  app->add_option(
         "PID", options->pid,
         "Any process of the job, on this host, of the same user; without it, the processes "
         "that can be asked are listed with their programs, ranks, and who waits")
      ->check(CLI::PositiveNumber);
  app->add_flag("--here", options->here, "Only this process's ranks; do not ask the others");
  app->add_flag("--watch", options->watch, "Again every 2 s, until the process ends");
  app->add_flag("--json", options->as_json, "The answer as one line of JSON");
  app->add_option("--recent", options->recent, "How many of the last calls to show")
      ->check(CLI::Range(0, 256))
      ->capture_default_str();
  app->add_option("--ras", options->ras,
                  "HOST:PORT where a process of the job answers NCCL's RAS protocol, also one of "
                  "NCCL; on this host localhost:28028")
      ->excludes("PID");
  app->add_flag("--metrics", options->as_metrics, "The answer at --ras in Prometheus' text format")
      ->needs("--ras")
      ->excludes("--json");
  app->add_option("--flight-recorder", options->flight_recorder,
                  "Write the last calls of the job's ranks on this host as PyTorch's flight "
                  "recorder does, to files PREFIX0, PREFIX1, ... by rank")
      ->type_name("PREFIX")
      ->needs("PID");
  app->add_option("--start", options->start,
                  "FILE that PLEXUS_SELFTEST_FILE named in a job with PLEXUS_SELFTEST=1: a map of "
                  "the links that it tried at its start, and what was wrong with them")
      ->excludes("PID")
      ->excludes("--ras");
  app->add_option("--svg", options->svg, "Write the map of --start as a picture to this file")
      ->needs("--start");
  return {app, [options] { return run_doctor(*options); }};
}

}  // namespace plexus
