// SPDX-License-Identifier: Apache-2.0
// `plexus doctor`: what the ranks of a running job do, and who keeps whom waiting. It asks one
// process (core/stall/status_server.hpp), which asks all others over the job's control plane.
#include <charconv>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "core/base/text.hpp"
#include "core/os/local_socket.hpp"
#include "tools/cli/commands.hpp"

namespace plexus {
namespace {

using nlohmann::json;

constexpr std::string_view kPrefix = "plexus-doctor-";  // StatusServer::name_of
constexpr auto kAnswerTime = std::chrono::seconds(30);
constexpr size_t kAnswerBytesMax = size_t{64} << 20;
constexpr size_t kRecentShown = 3;

struct Options {
  int pid = 0;
  bool here = false;
  bool watch = false;
  bool as_json = false;
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

Result<std::string> ask(const Options& options) {
  auto server = LocalSocket::connect(std::string(kPrefix) + std::to_string(options.pid));
  if (server.has_error()) {
    return fail(
        server.error().code(),
        "process {} has no communicator of Plexus, has PLEXUS_DOCTOR=0 set, or is in another "
        "network namespace (container): {}",
        options.pid, server.error().message());
  }
  PLEXUS_TRY(server.value().send_all(options.here ? "ranks\n" : "all\n", kAnswerTime));
  PLEXUS_TRY(answer, server.value().recv_until('\0', kAnswerBytesMax, kAnswerTime));
  if (answer.empty()) {
    return fail(Code::kRemoteError,
                "process {} did not answer: it ended, or it belongs to another user", options.pid);
  }
  return answer;
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
  const json& calls = rank["recent"];
  const size_t shown = std::min(calls.size(), static_cast<size_t>(recent));
  for (size_t i = calls.size() - shown; i < calls.size(); ++i) {
    fmt::print("    {}\n", calls[i].get<std::string>());
  }
  for (const json& wait : rank["waits"]) {
    fmt::print("  waits for rank {} in {}: {}\n", wait.value("rank", -1), wait.value("call", ""),
               wait.value("where", ""));
  }
}

void print_comm(const json& comm) {
  fmt::print("all {} ranks of comm {}:\n", comm.value("nranks", 0), comm.value("comm", ""));
  for (const json& each : comm["classes"]) {
    std::vector<int> ranks;
    for (const json& example : each["examples"]) {
      ranks.push_back(example.value("rank", -1));
    }
    const json& first = each["examples"][0];
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

int run_once(const Options& options) {
  const auto answer = ask(options);
  if (answer.has_error()) {
    return report_error(answer.error(), kExitWrong);
  }
  const json found = json::parse(answer.value(), nullptr, false);
  if (found.is_discarded() || !found.contains("ranks")) {
    return report_error(fail(Code::kRemoteError,
                             "process {} gave no answer that makes sense: it "
                             "ended, or runs another version of Plexus",
                             options.pid),
                        kExitWrong);
  }
  if (options.as_json) {
    fmt::print("{}\n", found.dump());
    return kExitOk;
  }
  fmt::print("process {}, {}\n", options.pid, counted(found["ranks"].size(), "rank"));
  for (const json& rank : found["ranks"]) {
    print_rank(rank, options.recent);
  }
  for (const json& comm : found.value("comms", json::array())) {
    print_comm(comm);
  }
  (void)std::fflush(stdout);
  return kExitOk;
}

int run_doctor(const Options& options) {
  if (options.pid == 0) {
    const std::vector<int> found = find_processes();
    fmt::print("{}\n", found.empty() ? "no process of this host has a communicator of Plexus"
                                     : fmt::format("{}", fmt::join(found, "\n")));
    return found.empty() ? kExitUnchecked : kExitOk;
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
         "that can be asked are listed")
      ->check(CLI::PositiveNumber);
  app->add_flag("--here", options->here, "Only this process's ranks; do not ask the others");
  app->add_flag("--watch", options->watch, "Again every 2 s, until the process ends");
  app->add_flag("--json", options->as_json, "The answer as one line of JSON");
  app->add_option("--recent", options->recent, "How many of the last calls to show")
      ->check(CLI::Range(0, 256))
      ->capture_default_str();
  return {app, [options] { return run_doctor(*options); }};
}

}  // namespace plexus
