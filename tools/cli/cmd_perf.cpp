// SPDX-License-Identifier: Apache-2.0
// `plexus perf COLL`: times and checks one collective. This file maps flags and launcher variables
// to one of the ways to start ranks, and the result to the exit code.
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <stop_token>
#include <sys/prctl.h>
#include <thread>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include "core/job/launched_rank.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/perf/start.hpp"

namespace plexus {
namespace {

using perf::Joined;
using perf::JoinInput;
using perf::PerfOptions;
using perf::Reporter;

constexpr const char* kHelpFooter = R"(
An iteration is a batch of back-to-back operations that lasts about 0.1 ms (1 to 200 operations), with a
barrier before it. Its time is that of the slowest rank, divided by the operations in it; the columns show
the median over the iterations. The check runs after the timed loop: every element of every rank's result,
input that must stay as it was, and guard bytes around the buffers. algbw and busbw are nccl-tests'.
Under mpirun (Open MPI, MPICH), srun or torchrun each process becomes one rank and rank 0 prints, unless
--ranks or --mode is given. Exit code: 0 all well, 1 wrong data or a failed rank, 2 bad usage.)";

void set_environment(const char* name, const std::string& value) {
  setenv(name, value.c_str(), 1);  // NOLINT(concurrency-mt-unsafe): no other thread exists yet
}

/// Forces a flag's choice for the measured collective only. Joined ranks coordinate by all-reduces
/// and all-gathers, which not every choice supports, so these stay free.
void force_choice(const char* variable, std::string value, perf::Collective measured) {
  if (value.empty()) {
    return;
  }
  if (measured != perf::Collective::kAllReduce) {
    value += ";allreduce:^";
  }
  if (measured != perf::Collective::kAllGather) {
    value += ";allgather:^";
  }
  set_environment(variable, value);
}

/// The library reads its settings from the environment, which forked ranks inherit.
void force_choices(const PerfOptions& options) {
  set_environment("PLEXUS_DEVICE", "host");  // the buffers are in host memory
  force_choice("NCCL_ALGO", options.algorithm, options.collective);
  force_choice("NCCL_PROTO", options.protocol, options.collective);
  if (options.channels > 0) {
    set_environment("NCCL_MIN_CTAS", fmt::format("{}", options.channels));
    set_environment("NCCL_MAX_CTAS", fmt::format("{}", options.channels));
  }
}

/// Ends the process when the job exceeds its time limit, which a blocked call cannot do itself.
class Watchdog {
 public:
  explicit Watchdog(int timeout_s) {
    if (timeout_s > 0) {
      thread_ = std::jthread([timeout_s](const std::stop_token& stop) { watch(stop, timeout_s); });
    }
  }

 private:
  static void watch(const std::stop_token& stop, int timeout_s) {
    std::mutex mutex;
    std::condition_variable_any stopped;
    std::unique_lock lock(mutex);
    stopped.wait_for(lock, stop, std::chrono::seconds(timeout_s), [] { return false; });
    if (!stop.stop_requested()) {
      fmt::print(stderr, "plexus: the job did not end within {} s (--timeout)\n", timeout_s);
      std::_Exit(kExitWrong);
    }
  }
  std::jthread thread_;
};

/// Which rank of a job that was started from outside this process is; nullopt: ranks are started
/// here.
Result<std::optional<Joined>> find_job(const PerfOptions& options) {
  if (options.joined && options.joined->nranks > 0) {
    return options.joined;
  }
  if (options.started_here) {
    return std::optional<Joined>();
  }
  PLEXUS_TRY(launched, find_launched_rank(read_launch_variable));
  if (!launched) {
    if (options.joined) {
      return fail(Code::kInvalidUsage,
                  "--rendezvous needs --rank and --nranks, or a launcher that sets them");
    }
    return std::optional<Joined>();
  }
  // If a launcher dies, its ranks must end too.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  return std::optional(Joined{
      .rank = -1, .nranks = 0, .rendezvous = options.joined ? options.joined->rendezvous : ""});
}

/// `printer`: the rank that reports, where a launcher started it.
Result<Reporter> make_reporter(const PerfOptions& options,
                               const char* mode,
                               const std::string& printer = "") {
  perf::JobFacts facts = {.version = PLEXUS_VERSION,
                          .collective = options.collective,
                          .nranks = options.nranks,
                          .mode = mode,
                          .parameters = perf::describe(options)};
  if (!printer.empty()) {
    facts.parameters += fmt::format("; printed by {}", printer);
  }
  return Reporter::create(std::move(facts), options.outputs, perf::count_rows(options));
}

int exit_code_of(uint64_t wrong) { return wrong == 0 ? kExitOk : kExitWrong; }

/// Prints the rest and converts the result to the exit code.
int finish(Reporter& reporter, const Result<uint64_t>& run) {
  if (!run) {
    return report_error(run.error(), kExitWrong);
  }
  const Result<uint64_t> written = reporter.finish();
  return written ? exit_code_of(run.value()) : report_error(written.error(), kExitWrong);
}

int run_joined(PerfOptions options, const Joined& flags) {
  options.nranks = flags.nranks > 0 ? flags.nranks : options.nranks;
  if (const Result<void> checked = check_options(options); flags.nranks > 0 && !checked) {
    return report_error(checked.error(), kExitUsage);
  }
  const Watchdog watchdog(options.timeout_s);
  const Result<JoinInput> found = perf::find_join_input(flags);
  if (!found) {
    return report_error(found.error(),
                        found.error().code() == Code::kInvalidUsage ? kExitUsage : kExitWrong);
  }
  const JoinInput& input = found.value();
  options.nranks = input.nranks;
  if (const Result<void> checked = check_options(options); !checked) {
    return report_error(checked.error(), kExitUsage);
  }
  if (input.rank != 0) {
    const Result<uint64_t> run = join_job(options, input, nullptr);
    if (!run) {
      fmt::print(stderr, "plexus: {}: {}\n", input.name, run.error().message());
      return kExitWrong;
    }
    return exit_code_of(run.value());
  }
  Result<Reporter> reporter = make_reporter(options, "joined", input.name);
  if (!reporter) {
    return report_error(reporter.error(), kExitUsage);
  }
  reporter.value().begin();
  Result<uint64_t> run = join_job(options, input, &reporter.value());
  if (!run) {
    run = std::move(run.error()).with_context(input.name);
  }
  return finish(reporter.value(), run);
}

int run_procs(const PerfOptions& options, Reporter& reporter) {
  perf::ChildResult child;
  Result<std::optional<uint64_t>> run = start_procs(options, reporter, &child);
  if (run && !run.value()) {
    return child.succeeded ? kExitOk : kExitWrong;  // this process is a rank; the parent reports
  }
  return run ? finish(reporter, *run.value()) : report_error(run.error(), kExitWrong);
}

int run_threads(const PerfOptions& options, Reporter& reporter) {
  const Watchdog watchdog(options.timeout_s);
  bool broken = false;
  const Result<uint64_t> run = start_threads(options, reporter, &broken);
  const int exit_code = finish(reporter, run);
  if (broken) {
    std::_Exit(
        // exit without destructors, because threads that cannot be joined still use the objects
        exit_code);
  }
  return exit_code;
}

int run_single(const PerfOptions& options, Reporter& reporter) {
  const Watchdog watchdog(options.timeout_s);
  return finish(reporter, start_single(options, reporter));
}

}  // namespace

int run_perf(const PerfOptions& options) {
  const Result<std::optional<Joined>> job = find_job(options);
  if (!job) {
    return report_error(job.error(), kExitUsage);
  }
  force_choices(options);
  if (job.value()) {
    return run_joined(options, *job.value());
  }
  if (const Result<void> checked = check_options(options); !checked) {
    return report_error(checked.error(), kExitUsage);
  }
  Result<Reporter> reporter = make_reporter(options, name_of(options.mode));
  if (!reporter) {
    return report_error(reporter.error(), kExitUsage);
  }
  reporter.value().begin();
  switch (options.mode) {
    case perf::Mode::kProcs:
      return run_procs(options, reporter.value());
    case perf::Mode::kThreads:
      return run_threads(options, reporter.value());
    case perf::Mode::kSingle:
      break;
  }
  return run_single(options, reporter.value());
}

Command add_perf_command(CLI::App& program) {
  CLI::App* app = program.add_subcommand("perf", "Time one collective and check its results");
  app->footer(kHelpFooter);
  // owned by the parser's callbacks and by `run`
  const auto options = std::make_shared<PerfOptions>();
  perf::add_perf_flags(*app, options.get());
  return {app, [options] { return run_perf(*options); }};
}

}  // namespace plexus
