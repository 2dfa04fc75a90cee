// SPDX-License-Identifier: Apache-2.0
// `plexus perf COLL`: times and checks one collective. This file maps flags and launcher variables
// to one of the ways to start ranks, and the result to the exit code.
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <nccl.h>
#include <stop_token>
#include <sys/prctl.h>
#include <thread>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include "core/join/launched_rank.hpp"
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
Under mpirun (Open MPI, MPICH), srun or torchrun each process becomes one rank (with -t or -g several) and
rank 0 prints, unless --ranks or --mode is given. docs/perf.md has all of nccl-tests' options.
Exit code: 0 all well, 1 wrong data or a failed rank, 2 bad usage.)";

void set_environment(const char* name, const std::string& value) {
  setenv(name, value.c_str(), 1);  // NOLINT(concurrency-mt-unsafe): no other thread exists yet
}

/// The collective as NCCL_ALGO names it; empty: it is sends and receives.
std::string setting_name(perf::Collective collective) {
  if (perf::info_of(collective).is_point_to_point()) {
    return "";
  }
  if (collective == perf::Collective::kReduceScatterV) {
    return "reduce";  // which it is made of
  }
  std::string name = perf::info_of(collective).name;
  std::erase(name, '_');
  return name;
}

/// Forces a flag's choice for the measured collective only: it, or an error. Joined ranks
/// coordinate by all-reduces and all-gathers, which not every choice supports, so these stay free.
void force_choice(const char* variable, std::string value, perf::Collective measured) {
  if (value.empty()) {
    return;
  }
  // Without a collective the words are for those that know them, and others choose freely.
  if (const std::string name = setting_name(measured);
      !name.empty() && value.find(':') == std::string::npos) {
    value = name + ":" + value;
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

/// Ends the process when no row is finished for too long, which a blocked call cannot do itself.
class Watchdog {
 public:
  explicit Watchdog(int timeout_s) {
    if (timeout_s > 0) {
      thread_ =
          std::jthread([this, timeout_s](const std::stop_token& stop) { watch(stop, timeout_s); });
    }
  }
  void row_finished() {
    const std::lock_guard lock(mutex_);
    ++nrows_;
    changed_.notify_all();
  }

 private:
  void watch(const std::stop_token& stop, int timeout_s) {
    std::unique_lock lock(mutex_);
    for (uint64_t seen = 0; !stop.stop_requested(); seen = nrows_) {
      const bool moved = changed_.wait_for(lock, stop, std::chrono::seconds(timeout_s),
                                           [&] { return nrows_ != seen; });
      if (!moved && !stop.stop_requested()) {
        fmt::print(stderr, "plexus: no row was finished within {} s (--timeout)\n", timeout_s);
        std::_Exit(kExitWrong);
      }
    }
  }
  std::mutex mutex_;
  std::condition_variable_any changed_;
  uint64_t nrows_ = 0;
  std::jthread thread_;  // last: it uses the others
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

Result<Reporter> make_reporter(const PerfOptions& options,
                               const char* mode,
                               const std::string& printer = "") {
  return Reporter::create({.version = PLEXUS_VERSION,
                           .nccl_version = NCCL_VERSION_CODE,
                           .options = options,
                           .mode = mode,
                           .printer = printer},
                          perf::count_rows(options));
}

/// Says which flags have no meaning here: by the process that prints.
void print_notes(const PerfOptions& options) {
  for (const std::string& note : options.notes) {
    fmt::print(stderr, "plexus: {}\n", note);
  }
}

int exit_code_of(bool good) { return good ? kExitOk : kExitWrong; }
int exit_code_of(const Error& error) {
  return error.code() == Code::kInvalidUsage ? kExitUsage : kExitWrong;
}

/// Prints the rest and converts the result to the exit code.
int finish(Reporter& reporter, const Result<uint64_t>& run) {
  if (!run) {
    return report_error(run.error(), kExitWrong);
  }
  const Result<bool> good = reporter.finish();
  return good ? exit_code_of(good.value()) : report_error(good.error(), kExitWrong);
}

/// Without destructors where threads that cannot be joined still use the objects.
int end(int exit_code, bool broken) {
  if (broken) {
    std::fflush(stdout);
    std::_Exit(exit_code);
  }
  return exit_code;
}

/// `reporter`: nullptr where another process prints.
perf::Hooks make_hooks(Reporter* reporter, Watchdog* watchdog) {
  return {.begin =
              [=](const std::vector<perf::RankPlace>& places) {
                if (reporter != nullptr) {
                  reporter->begin(places);
                }
              },
          .take_row = [=](const perf::Row& row) -> Result<void> {
            if (reporter != nullptr) {
              reporter->add(row);
            }
            if (watchdog != nullptr) {
              watchdog->row_finished();
            }
            return ok();
          }};
}

/// With NCCL_TESTS_SPLIT the part of the job that this process is in. The first process of all
/// prints the table of its own.
Result<JoinInput> join_part(const JoinInput& job, PerfOptions* options) {
  if (!options->split) {
    return job;
  }
  options->group = options->split->color_of(job.process);
  PLEXUS_TRY(part, split_job(job, *options->split));
  options->notes.push_back(
      fmt::format("NCCL_TESTS_SPLIT: the table is of the {} of {} processes with color {}; the "
                  "others run at the same time",
                  part.nprocesses, job.nprocesses, options->group));
  return part;
}

int run_joined(PerfOptions options, const Joined& flags) {
  const int ranks_per_process = options.threads.value_or(1) * options.ranks_per_thread.value_or(1);
  options.nranks = flags.nranks * ranks_per_process;
  if (const Result<void> checked = complete_options(&options); flags.nranks > 0 && !checked) {
    return report_error(checked.error(), kExitUsage);
  }
  Watchdog watchdog(options.timeout_s);
  const Result<JoinInput> found = perf::find_join_input(flags);
  if (!found) {
    return report_error(found.error(), exit_code_of(found.error()));
  }
  const bool prints = found.value().process == 0;
  const Result<JoinInput> part = join_part(found.value(), &options);
  if (!part) {
    return report_error(part.error(), exit_code_of(part.error()));
  }
  const JoinInput& input = part.value();
  options.nranks = input.nprocesses * ranks_per_process;
  if (const Result<void> checked = complete_options(&options); !checked) {
    return report_error(checked.error(), kExitUsage);
  }
  bool broken = false;
  if (!prints) {
    const Result<uint64_t> run = join_job(options, input, make_hooks(nullptr, &watchdog), &broken);
    if (!run) {
      fmt::print(stderr, "plexus: {}: {}\n", input.name, run.error().message());
    }
    return end(exit_code_of(run && run.value() == 0), broken);
  }
  print_notes(options);
  Result<Reporter> reporter = make_reporter(options, "joined", input.name);
  if (!reporter) {
    return report_error(reporter.error(), kExitUsage);
  }
  Result<uint64_t> run =
      join_job(options, input, make_hooks(&reporter.value(), &watchdog), &broken);
  if (!run) {
    run = std::move(run.error()).with_context(input.name);
  }
  return end(finish(reporter.value(), run), broken);
}

int run_procs(const PerfOptions& options, Reporter& reporter) {
  perf::ChildResult child;
  Result<std::optional<uint64_t>> run =
      start_procs(options, make_hooks(&reporter, nullptr), &child);
  if (run && !run.value()) {  // this process has ranks; the parent reports
    return end(exit_code_of(child.succeeded), child.broken);
  }
  return run ? finish(reporter, *run.value()) : report_error(run.error(), kExitWrong);
}

int run_here(const PerfOptions& options, Reporter& reporter) {
  Watchdog watchdog(options.timeout_s);
  bool broken = false;
  const Result<uint64_t> run = start_here(options, make_hooks(&reporter, &watchdog), &broken);
  return end(finish(reporter, run), broken);
}

}  // namespace

int run_perf(PerfOptions options) {
  if (const Result<void> taken = take_nccl_tests_variables(&options, read_launch_variable);
      !taken) {
    return report_error(taken.error(), kExitUsage);
  }
  const Result<std::optional<Joined>> job = find_job(options);
  if (!job) {
    return report_error(job.error(), kExitUsage);
  }
  force_choices(options);
  if (job.value()) {
    return run_joined(std::move(options), *job.value());
  }
  if (const Result<void> checked = complete_options(&options); !checked) {
    return report_error(checked.error(), kExitUsage);
  }
  if (options.split) {
    options.notes.emplace_back(
        "NCCL_TESTS_SPLIT is ignored: it splits the processes of a launcher (mpirun, srun)");
  }
  print_notes(options);
  Result<Reporter> reporter = make_reporter(options, perf::start_name(options));
  if (!reporter) {
    return report_error(reporter.error(), kExitUsage);
  }
  return perf::forks(options) ? run_procs(options, reporter.value())
                              : run_here(options, reporter.value());
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
