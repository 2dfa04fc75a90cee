// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/measure.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include <nlohmann/json.hpp>

#include "tools/cli/tune/stage.hpp"

namespace plexus {
namespace {

/// "allreduce" for NCCL_ALGO.
std::string nccl_name(Collective collective) {
  std::string text = name(collective);
  text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
  return text;
}

struct Output {
  std::string text;
  bool timed_out;  // `timeout` ended the command
};

Output read_output(const std::string& command) {
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) {
    return {"", false};
  }
  std::string text;
  std::array<char, 4096> buffer{};
  for (size_t size = 1; size > 0;) {
    size = fread(buffer.data(), 1, buffer.size(), pipe);
    text.append(buffer.data(), size);
  }
  constexpr int kEndedByTimeout = 124;
  constexpr int kKilledByTimeout = 128 + SIGKILL;
  const int status = pclose(pipe);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  return {std::move(text), code == kEndedByTimeout || code == kKilledByTimeout};
}

/// What ends a command and its ranks (coreutils).
std::string end_at(const Deadline& deadline) {
  if (deadline.time() == Clock::time_point::max()) {
    return "";
  }
  constexpr double kLeastSeconds = 0.01;  // `timeout 0` would be none
  const std::chrono::duration<double> left = deadline.time() - Clock::now();
  return fmt::format("timeout -k 1 {:.2f} ", std::max(left.count(), kLeastSeconds));
}

}  // namespace

Result<std::vector<MeasuredTime>> measure_times(const MeasureInput& input) {
  std::array<char, 4096> self{};
  if (readlink("/proc/self/exe", self.data(), self.size() - 1) < 0) {
    return fail(Code::kSystemError, "cannot read /proc/self/exe: mount /proc");
  }
  // Passed through the environment, so that no name needs quoting for the shell.
  setenv("PLEXUS_MEASURE_SELF", self.data(), 1);
  const std::string collective = nccl_name(input.collective);
  setenv("NCCL_ALGO", fmt::format("{}:{}", collective, input.algorithm).c_str(), 1);
  setenv("NCCL_PROTO", fmt::format("{}:{}", collective, name(input.protocol)).c_str(), 1);
  const std::string command = fmt::format(
      "{}{}\"$PLEXUS_MEASURE_SELF\" perf {} --ranks {} --mode {} --bind {} --buffers {} -b {} -e "
      "{} "
      "-f {} {} --json - 2>/dev/null",
      input.over_sockets ? "NCCL_SHM_DISABLE=1 NCCL_P2P_DISABLE=1 " : "", end_at(input.deadline),
      name(input.collective), input.nranks, input.mode, input.bind, input.buffers, input.size_bytes,
      std::max(input.size_bytes, input.size_bytes_last), input.factor,
      input.budget_ms == 0 ? "" : fmt::format("-c 0 --budget-ms {}", input.budget_ms));
  const Output output = read_output(command);
  const auto json = nlohmann::json::parse(output.text, nullptr, false);
  const bool has_rows = json.is_object() && json.contains("rows") && !json["rows"].empty();
  if (!has_rows && (output.timed_out || input.deadline.expired() || tune::measurements_ended())) {
    return fail(Code::kTimeout, "measuring {} with {} took too long", name(input.collective),
                input.algorithm);
  }
  if (!has_rows) {
    return fail(Code::kSystemError,
                "measuring {} with {} failed: run `NCCL_ALGO={} plexus perf {} --ranks {} --mode "
                "{}` to see why",
                name(input.collective), input.algorithm, input.algorithm, name(input.collective),
                input.nranks, input.mode);
  }
  std::vector<MeasuredTime> times;
  for (const auto& row : json["rows"]) {
    const auto& time_us = row["time_us"];
    times.push_back({.size_bytes = row["bytes"].get<size_t>(),
                     .in_place = row["in_place"].get<bool>(),
                     .median_us = time_us["median"].get<double>(),
                     .least_us = time_us["min"].get<double>()});
  }
  return times;
}

Result<MeasuredTime> measure_time(const MeasureInput& input) {
  PLEXUS_TRY(times, measure_times(input));
  return times.front();
}

}  // namespace plexus
