// SPDX-License-Identifier: Apache-2.0
// `plexus tune`: measures this machine once and writes the calibration file of tuner-default
// (PLEXUS_TUNE_FILE). Each time is the minimum of several passes in turn, because disturbances only
// add.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "core/os/host.hpp"
#include "core/plugin/tuner_plugin.hpp"
#include "core/tuning/candidate.hpp"
#include "guest/file.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/flags.hpp"
#include "tools/cli/host_rates.hpp"
#include "tools/cli/measure.hpp"
#include "tools/cli/tune/choices.hpp"
#include "tools/cli/tune/fit.hpp"
#include "tools/cli/tune/messages.hpp"
#include "tools/cli/tune/nccl_tests.hpp"
#include "tools/cli/tune/stage.hpp"

namespace plexus {
namespace {

namespace fs = std::filesystem;

struct TuneOptions {
  fs::path output;  // empty: the default place; "-": stdout
  int passes = 5;
  int seconds = 0;  // 0: see seconds_of()
  bool net = false;
  bool only_rates = false;
  bool only_messages = false;
  std::vector<int> nranks;              // empty: default_nranks()
  std::vector<Collective> collectives;  // empty: all
  std::vector<std::string> nccl_tests;  // "ring/LL128=FILE", instead of measuring
};

using tune::LinkClass;
constexpr LinkClass kProcess = {"process", "threads", false};
constexpr LinkClass kHost = {"host", "procs", false};
constexpr LinkClass kNet = {"net", "procs", true};

/// Long enough for the scheduler of a busy machine to separate ranks that share a core.
constexpr int kBudgetMs = 150;

// Messages: 5 passes take 47 s, and 113 s with sockets, on 2 idle cores of an AMD EPYC.
constexpr int kSecondsMessages = 60;
constexpr int kSecondsMessagesNet = 120;
constexpr int kSecondsAll = 900;

int seconds_of(const TuneOptions& options) {
  const int by_default = !options.only_messages ? kSecondsAll
                         : options.net          ? kSecondsMessagesNet
                                                : kSecondsMessages;
  return options.seconds > 0 ? options.seconds : by_default;
}

/// A call to measure, and where its time is stored.
struct Probe {
  MeasureInput input;
  double* time_us;
};

Probe probe(const LinkClass& link,
            Collective collective,
            const char* algorithm,
            int nranks,
            size_t size_bytes,
            double* time_us) {
  return {{.collective = collective,
           .algorithm = algorithm,
           .nranks = nranks,
           .mode = link.mode,
           .size_bytes = size_bytes,
           .over_sockets = link.over_sockets,
           .budget_ms = kBudgetMs},
          time_us};
}

void add_link_probes(const LinkClass& link, tune::LinkTimes& times, std::vector<Probe>& probes) {
  constexpr int kPair = 2;
  const auto add = [&](Collective collective, const char* algorithm, size_t size, double* time_us) {
    probes.push_back(probe(link, collective, algorithm, kPair, size, time_us));
  };
  add(Collective::kBroadcast, "ring", tune::kSmallBytes, &times.broadcast_small);
  add(Collective::kAllReduce, "allpairs", tune::kSmallBytes, &times.all_reduce_small);
  add(Collective::kAllReduce, "ring", tune::kLargeBytes, &times.ring_large);
  add(Collective::kAllReduce, "doubling", tune::kLargeBytes, &times.doubling_large);
}

void add_host_probes(tune::HostTimes& times, std::vector<Probe>& probes) {
  if (times.shared_ranks > 0) {
    probes.push_back(probe(kHost, Collective::kAllReduce, "doubling", times.shared_ranks,
                           tune::kSmallBytes, &times.shared_doubling));
  }
  probes.push_back(probe(kHost, Collective::kAllReduce, "ring", tune::kCrowdRanks,
                         tune::kCrowdBytes, &times.crowd_ring_large));
  probes.push_back(probe(kHost, Collective::kAllReduce, "twoshot", tune::kCrowdRanks,
                         tune::kCrowdBytes, &times.crowd_twoshot_large));
}

constexpr const char* kMoreTime =
    "measure while the machine has less to do, or give it more time (--seconds)";

/// Runs all probes in turn, pass after pass; keeps the minimum of each. When the stage is over it
/// ends after the first pass, `deadline` even that. Returns the number of passes.
Result<int> measure_all(const std::vector<Probe>& probes,
                        int passes,
                        tune::Stage stage,
                        const Deadline& deadline) {
  const size_t all = probes.size() * static_cast<size_t>(passes);
  size_t done = 0;
  for (; done < all && (done < probes.size() || !stage.is_over()); ++done) {
    stage.report(done, all);
    const Probe& one = probes[done % probes.size()];
    MeasureInput input = one.input;
    input.deadline = deadline;
    auto time = measure_time(input);
    const bool is_late = time.has_error() && time.error().code() == Code::kTimeout;
    if (is_late || (done + 1 < probes.size() && tune::measurements_ended())) {
      return fail(Code::kTimeout, "{} after {} of the first {} measurements: {}",
                  tune::Stage::why_over(), done, probes.size(), kMoreTime);
    }
    if (time.has_error()) {
      return std::move(time).error();
    }
    const double us = time.value().least_us;
    *one.time_us = done < probes.size() ? us : std::min(*one.time_us, us);
  }
  return static_cast<int>(done / probes.size());
}

/// The measurements by class of link.
struct Measured {
  std::vector<LinkClass> classes;
  std::vector<tune::LinkTimes> times;
  tune::HostTimes host{};
  std::vector<tune::MeasuredCall> calls;
  nlohmann::ordered_json messages;
  std::string missing;  // what there was no time for; empty: nothing
};

void note_missing(Measured& measured, const std::string& what) {
  measured.missing += (measured.missing.empty() ? "" : ", ") + what;
}

/// Notes a part that has fewer passes than it should.
void note_passes(Measured& measured, const char* what, int passes, int wanted) {
  if (passes < wanted) {
    note_missing(measured, fmt::format("{} in {} of {} passes", what, passes, wanted));
  }
}

/// 2 ranks, as many as there are cores, and more than that; only counts that are measured quickly.
std::vector<int> default_nranks() {
  constexpr int kMost = 16;
  const int cores = cores_available();
  std::set<int> nranks = {2};
  for (const int count : {cores, 2 * cores}) {
    nranks.insert(std::clamp(count, 2, kMost));
  }
  return {nranks.begin(), nranks.end()};
}

/// What the simulator needs (tools/cli/tune/messages.hpp).
Result<void> measure_for_simulator(const TuneOptions& options,
                                   const Deadline& deadline,
                                   Measured& into) {
  fmt::print(stderr, "plexus tune: messages, {} passes\n", options.passes);
  tune::Stage stage("messages", deadline);
  PLEXUS_TRY(measured,
             tune::measure_messages(options.net, cores_available(), options.passes, stage));
  note_passes(into, "messages", measured.passes, options.passes);
  if (options.net && measured.links.size() < 2) {
    note_missing(into, "those over sockets not at all");
  }
  if (measured.moved > 0) {
    fmt::print(stderr,
               "plexus tune: the cores were far from each other, or busy, in all runs of {} "
               "measurements, not in others: predictions will be wrong; measure again\n",
               measured.moved);
  }
  const struct {
    const char* name;
    size_t slot_bytes;
  } kinds[] = {{kHost.name, kSlotBytesOfMemory}, {kNet.name, kSlotBytesOfNetwork}};
  std::vector<tune::MessageLink> links;
  for (size_t i = 0; i < measured.links.size(); ++i) {
    links.push_back({.name = kinds[i].name,
                     .slot_bytes = kinds[i].slot_bytes,
                     .times = std::move(measured.links[i])});
  }
  into.messages = tune::format_messages(measured.host, links);
  return ok();
}

Result<Measured> measure(const TuneOptions& options, const Deadline& deadline) {
  const auto part = [&](double share) {
    return deadline.or_after(std::chrono::milliseconds(
        static_cast<int64_t>(share * seconds_of(options) * 1e3)));  // from now on
  };
  constexpr double kNumbersShare = 0.1;
  constexpr double kChoicesShare = 0.7;
  Measured measured;
  measured.classes = {kProcess, kHost};
  if (options.net) {
    measured.classes.push_back(kNet);
  }
  measured.times.resize(measured.classes.size());
  measured.host.cores = cores_available();
  measured.host.shared_ranks = tune::choose_shared_ranks(measured.host.cores);
  std::vector<Probe> probes;
  for (size_t i = 0; i < measured.classes.size(); ++i) {
    add_link_probes(measured.classes[i], measured.times[i], probes);
  }
  add_host_probes(measured.host, probes);
  PLEXUS_TRY(passes,
             measure_all(probes, options.passes,
                         tune::Stage("the model's numbers", part(kNumbersShare)), deadline));
  note_passes(measured, "the model's numbers", passes, options.passes);
  tune::Stage stage("all algorithms", part(kChoicesShare));
  PLEXUS_TRY(choices,
             tune::measure_choices(
                 {.classes = measured.classes,
                  .nranks = options.nranks.empty() ? default_nranks() : options.nranks,
                  .collectives = options.collectives.empty() ? collectives_with_algorithms()
                                                             : options.collectives,
                  .passes = options.passes},
                 stage));
  measured.calls = std::move(choices.calls);
  note_passes(measured, "all algorithms", choices.passes, options.passes);
  auto messages = measure_for_simulator(options, deadline, measured);
  if (messages.has_error() && messages.error().code() == Code::kTimeout) {
    note_missing(measured, "messages not at all");  // those are for the simulator alone
    return measured;
  }
  PLEXUS_TRY(std::move(messages));
  return measured;
}

std::string fit_text(const Measured& measured) {
  std::vector<tune::NamedLink> links;
  tune::HostNumbers host{};
  for (size_t i = 0; i < measured.classes.size(); ++i) {
    const std::string link_name = measured.classes[i].name;
    links.push_back({link_name, tune::fit_link(measured.times[i])});
    if (link_name == kHost.name) {
      host = tune::fit_host(measured.host, measured.times[i], links.back().numbers);
    }
  }
  return tune::format_calibration(
      links, host, measured.calls, measured.messages,
      fmt::format("plexus {} tune, {} cores{}", PLEXUS_VERSION, cores_available(),
                  measured.missing.empty()
                      ? ""
                      : fmt::format("; {}: {}", tune::Stage::why_over(), measured.missing)));
}

/// $XDG_CONFIG_HOME/plexus/tune.json, or the default of that variable.
Result<fs::path> default_output() {
  const auto folder_of = [](const char* variable) {
    const char* const value = std::getenv(variable);
    return fs::path(value == nullptr ? "" : value);
  };
  fs::path config = folder_of("XDG_CONFIG_HOME");
  if (!config.is_absolute()) {
    config = folder_of("HOME") / ".config";
  }
  if (!config.is_absolute()) {
    return fail(Code::kInvalidArgument,
                "neither XDG_CONFIG_HOME nor HOME is set: name a file with --output");
  }
  return config / "plexus" / "tune.json";
}

Result<void> refuse_output(const fs::path& path) {
  return fail(Code::kInvalidArgument, "--output: cannot write to the file '{}'", path.string());
}

/// Called before the measurements, so that a missing permission is found early.
Result<void> make_folder(const fs::path& path) {
  const fs::path folder = fs::absolute(path).parent_path();
  std::error_code ignored;
  fs::create_directories(folder, ignored);
  return access(folder.c_str(), W_OK) == 0 ? Result<void>(ok()) : refuse_output(path);
}

Result<void> write_file(const fs::path& path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  return file ? Result<void>(ok()) : refuse_output(path);
}

/// Checks that the tuner which will read the file accepts it.
Result<void> check_with_tuner(const fs::path& path) {
  setenv("PLEXUS_TUNE_FILE", path.c_str(), 1);
  plexus_tuner_comm_t comm{};
  comm.struct_size = sizeof(comm);
  comm.nranks = 2;
  PLEXUS_TRY(tuner, Tuner::open({.plugin = "tuner-default",
                                 .folders = "",
                                 .net_plugins = "",
                                 .own_folder = find_library_folder()},
                                comm));
  if (tuner == nullptr) {
    return fail(Code::kInternalError, "tuner-default rejects {}: see the warning above",
                path.string());
  }
  return ok();
}

/// Writes it, and says how it is used.
Result<int> finish(fs::path output, const std::string& text) {
  PLEXUS_TRY(write_file(output, text));
  output = fs::absolute(output);
  PLEXUS_TRY(check_with_tuner(output));
  fmt::print(
      "written to {0}; to use it, on all ranks (the same file on all hosts):\n"
      "  export PLEXUS_TUNE_FILE={0}\n",
      output.string());
  return kExitOk;
}

/// A calibration of logs that others measured with stock NCCL.
Result<std::string> convert_logs(const std::vector<std::string>& logs) {
  std::vector<tune::NcclTestsCall> calls;
  for (const std::string& log : logs) {
    const size_t end = log.find('=');
    const std::string pair = log.substr(0, end);
    const std::string file = end == std::string::npos ? "" : log.substr(end + 1);
    if (file.empty()) {
      return fail(
          Code::kInvalidArgument,
          "--nccl-tests: '{}' is not as in ring/LL128=FILE: algorithm and protocol, and the "
          "log of nccl-tests that was made with them",
          log);
    }
    const FileText read = read_regular_file(file);
    if (!read.refusal.empty()) {
      return fail(Code::kInvalidArgument, "--nccl-tests: {} cannot be read: {}", file,
                  read.refusal);
    }
    auto merged = [&]() -> Result<void> {
      PLEXUS_TRY(parsed, tune::parse_nccl_tests(read.text));
      return tune::merge_log(calls, pair, parsed);
    }();
    if (merged.has_error()) {
      return fail(Code::kInvalidArgument, "--nccl-tests: {} {}", file, merged.error().message());
    }
  }
  return tune::format_nccl_times(
      calls, fmt::format("plexus {} tune, of {} logs of nccl-tests", PLEXUS_VERSION, logs.size()));
}

Result<int> run_tune(const TuneOptions& options) {
  fs::path output = options.output;
  if (output.empty()) {
    PLEXUS_TRY(place, default_output());
    output = place;
  }
  if (output != "-") {
    PLEXUS_TRY(make_folder(output));
  }
  if (!options.nccl_tests.empty()) {
    PLEXUS_TRY(text, convert_logs(options.nccl_tests));
    fmt::print("{}", text);
    return output == "-" ? Result<int>(kExitOk) : finish(output, text);
  }
  if (options.only_rates || !options.only_messages) {
    PLEXUS_TRY(config, read_config());
    PLEXUS_TRY(renew_rates(config));
  }
  if (options.only_rates) {
    return kExitOk;
  }
  const Deadline deadline = Deadline::after(std::chrono::seconds(seconds_of(options)));
  tune::end_measurements_on_signals();
  Measured measured;
  if (options.only_messages) {
    PLEXUS_TRY(measure_for_simulator(options, deadline, measured));
  } else {
    PLEXUS_TRY(all, measure(options, deadline));
    measured = std::move(all);
  }
  const std::string text = fit_text(measured);
  fmt::print("{}", text);
  if (!measured.missing.empty() && tune::measurements_ended()) {
    fmt::print(stderr, "plexus tune: ended by a signal: {}; the file says so\n", measured.missing);
  } else if (!measured.missing.empty()) {
    fmt::print(stderr,
               "plexus tune: time was up after {} s: {}; the file says so; --seconds gives more\n",
               seconds_of(options), measured.missing);
  }
  if (output == "-") {
    return kExitOk;
  }
  if (options.only_messages) {
    PLEXUS_TRY(write_file(output, text));
    fmt::print("written to {0}; to use it: plexus sim --calibration {0}\n", output.string());
    return kExitOk;
  }
  return finish(output, text);
}

}  // namespace

Command add_tune_command(CLI::App& program) {
  CLI::App* app = program.add_subcommand(
      "tune", "Measure this machine and write the calibration of the default tuner");
  const auto options = std::make_shared<TuneOptions>();
  add_flag(
      *app, "--output",
      [options](const std::string& text) -> Result<void> {
        if (text.empty()) {
          return fail(Code::kInvalidArgument, "expects a file, not an empty text");
        }
        options->output = text;
        return ok();
      },
      "where to write (default $XDG_CONFIG_HOME/plexus/tune.json; -: stdout only)");
  add_int(*app, "--passes", &options->passes, {1, 100}, "how often all is measured (default 5)");
  constexpr int kSecondsMax = 86400;
  add_int(
      *app, "--seconds", &options->seconds, {1, kSecondsMax},
      "when it ends, with fewer passes if need be (default 900; --only-messages: 60, with --net "
      "120)");
  add_flag(
      *app, "--ranks",
      [options](const std::string& text) -> Result<void> {
        options->nranks.clear();
        for (const std::string_view word : split_at_commas(text)) {
          PLEXUS_TRY(count, parse_int(word, {2, 1024}));
          options->nranks.push_back(static_cast<int>(count));
        }
        return ok();
      },
      "numbers of ranks whose collectives are measured, as in 2,4 (default 2, the cores, twice as "
      "many, at most 16)");
  add_flag(
      *app, "--colls",
      [options](const std::string& text) -> Result<void> {
        options->collectives.clear();
        for (const std::string_view word : split_at_commas(text)) {
          PLEXUS_TRY(collective, parse_collective(word));
          options->collectives.push_back(collective);
        }
        return ok();
      },
      "collectives that are measured, as in all_reduce,broadcast (default all)");
  app->add_flag("--only-rates", options->only_rates,
                "only the rates of this host (PLEXUS_RATES_FILE), in some milliseconds");
  app->add_flag("--only-messages", options->only_messages,
                "only what `plexus sim --calibration` needs");
  app->add_option("--nccl-tests", options->nccl_tests,
                  "nothing is measured: of logs of nccl-tests, each made with one NCCL_ALGO and "
                  "NCCL_PROTO, as in ring/LL128=FILE; for tuner-default in stock NCCL");
  app->add_flag("--net", options->net, "also measure sockets, over loopback: the class net");
  return {app, [options] {
            auto code = run_tune(*options);
            return code.has_error() ? report_error(code.error(), kExitWrong) : code.value();
          }};
}

}  // namespace plexus
