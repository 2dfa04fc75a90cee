// SPDX-License-Identifier: Apache-2.0
// soak_driver: random legal programs from a seed. tests/soak/README.md.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "tests/soak/container.hpp"
#include "tests/soak/generate.hpp"
#include "tests/soak/launcher.hpp"
#include "tests/soak/worker.hpp"

namespace plexus::soak {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kLookPause = std::chrono::milliseconds(5);
constexpr uint64_t kAnySeed = ~uint64_t{0};

struct Options {
  uint64_t seed = kAnySeed;
  std::string seeds;
  double minutes = 0;
  int njobs = 2;
  uint64_t list = kAnySeed;
  std::vector<std::string> only;
  std::vector<std::string> without;
  std::vector<std::string> faults;
  double still_s = 60;
  long memory_mib = 1536;
  bool has_no_stacks = false;
  bool is_verbose = false;
  int process = -1;
  std::string folder;
};

struct Totals {
  uint64_t njobs = 0;
  uint64_t ncalls = 0;
  uint64_t nchecked = 0;
  uint64_t nperturbed = 0;
  uint64_t nrefused = 0;
  uint64_t nillegal = 0;  // number of seeds with an illegal program
  long memory_kib = 0;
  std::map<std::string, std::vector<uint64_t>> findings;  // by kind and text: seeds
  FaultTally faults;
  std::map<std::string, int> impossible;  // by reason: seeds whose fault cannot be made here
};

void say(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

/// Plugins are in the library's folder, as for all programs.
bool has_ofi() {
  std::error_code ignored;
  const auto here = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  return std::filesystem::exists(here.parent_path() / "lib" / "libplexus-net-ofi.so");
}

Features features_of(Options& options) {
  Features features;
  features.set_all(options.only.empty());
  const auto set = [&](const std::vector<std::string>& names, bool is_on) {
    for (const std::string& name : names) {
      for (size_t i = 0; i < kNumFeatures; ++i) {
        if (name == kFeatureNames[i]) {
          features.set(static_cast<Feature>(i), is_on);
        }
      }
    }
  };
  set(options.only, true);
  if (!has_ofi() && features.has(Feature::kOfi)) {
    options.without.emplace_back("ofi");
  }
  set(options.without, false);
  return features;
}

FaultKinds faults_of(const Options& options) {
  FaultKinds kinds;
  for (const std::string& name : options.faults) {
    kinds.add(name);
  }
  return kinds;
}

/// Why a kind of fault cannot be made here; "": it can.
std::string why_not(FaultKind kind) {
  if (is_of_network(kind)) {
    static const std::string why = Network::why_not();
    return why;
  }
  if (kind == FaultKind::kRefused) {
    return why_not(Container::kNoAttach);
  }
  return kind == FaultKind::kFullShm && geteuid() != 0 ? "filling /dev/shm needs root" : "";
}

/// Likewise of a job.
std::string why_not(const Job& job) {
  std::string why = job.fault.has_value() ? why_not(job.fault->kind) : "";
  for (const Process& process : job.processes) {
    why = why.empty() ? why_not(process.container) : why;
  }
  return why;
}

std::vector<std::string> feature_arguments(const Options& options) {
  std::vector<std::string> arguments;
  for (const std::string& name : options.only) {
    arguments.insert(arguments.end(), {"--only", name});
  }
  for (const std::string& name : options.without) {
    arguments.insert(arguments.end(), {"--without", name});
  }
  for (const std::string& name : options.faults) {
    arguments.insert(arguments.end(), {"--faults", name});
  }
  return arguments;
}

void report(const Running& running, const WatchOptions& watch, bool is_verbose, Totals& totals) {
  const Outcome& outcome = running.outcome();
  ++totals.njobs;
  totals.ncalls += outcome.ncalls;
  totals.nchecked += outcome.nchecked;
  totals.nperturbed += static_cast<uint64_t>(running.job().nperturbed);
  totals.nrefused += static_cast<uint64_t>(running.job().nrefused);
  totals.memory_kib = std::max(totals.memory_kib, outcome.memory_kib);
  const uint64_t seed = running.job().seed;
  if (outcome.fault.has_value()) {
    totals.faults.add(*outcome.fault, seed);
    if (is_verbose) {
      say(fmt::format("seed {}: {}; left {} descriptors, {} threads\n  {}\n", seed,
                      describe(*running.job().fault), outcome.fault->ndescriptors,
                      outcome.fault->nthreads, fmt::join(outcome.fault->errors, "\n  ")));
    }
  }
  std::string environment;
  for (const auto& [name, value] : running.job().environment) {
    environment += fmt::format(" {}={}", name, value);
  }
  for (const Finding& finding : outcome.findings) {
    say(fmt::format("FINDING seed {}: {}: {}\n{}", seed, finding.kind, finding.about,
                    finding.detail));
  }
  if (!outcome.findings.empty()) {
    const Finding& first = outcome.findings.front();
    totals.findings[first.kind + ": " + first.about].push_back(seed);
    if (running.job().fault.has_value()) {
      say(fmt::format("  fault {}\n", describe(*running.job().fault)));
    }
    say(fmt::format("  {} ranks, {} processes, settings:{}\n  repeat: soak_driver --seed {} {}\n",
                    running.job().nranks, running.job().processes.size(), environment, seed,
                    fmt::join(watch.features, " ")));
  }
}

void summarize(const Totals& totals, Clock::duration took) {
  say(fmt::format(
      "{} seeds in {} s: {} calls, {} results checked, {} changes of order ({} refused "
      "by the model), {} seeds passed over, largest process {} MiB, {} distinct findings\n",
      totals.njobs, std::chrono::duration_cast<std::chrono::seconds>(took).count(), totals.ncalls,
      totals.nchecked, totals.nperturbed, totals.nrefused, totals.nillegal,
      totals.memory_kib / 1024, totals.findings.size()));
  if (!totals.faults.is_empty()) {
    say(totals.faults.describe());
  }
  for (const auto& [why, nseeds] : totals.impossible) {
    say(fmt::format("SKIPPED {} seeds: {}\n", nseeds, why));
  }
  for (const auto& [about, seeds] : totals.findings) {
    say(fmt::format(
        "  {} x {}; seeds {}\n", seeds.size(), about.substr(0, 300),
        fmt::join(seeds.begin(), seeds.begin() + std::min<long>(8, static_cast<long>(seeds.size())),
                  ", ")));
  }
}

int run_campaign(const Options& options, const Features& features) {
  const FaultKinds faults = faults_of(options);
  uint64_t first = options.seed == kAnySeed ? 1 : options.seed;
  uint64_t last = options.seed == kAnySeed ? kAnySeed - 1 : options.seed;
  if (!options.seeds.empty()) {
    const size_t dots = options.seeds.find("..");
    first = std::stoull(options.seeds);
    last = dots == std::string::npos ? first : std::stoull(options.seeds.substr(dots + 2));
  }
  WatchOptions watch;
  watch.still_max = std::chrono::seconds(static_cast<int>(options.still_s * time_factor()));
  watch.memory_kib_max = options.memory_mib * 1024;
  watch.has_stacks = !options.has_no_stacks;
  watch.features = feature_arguments(options);
  const auto begin = Clock::now();
  const auto deadline = begin + std::chrono::duration_cast<Clock::duration>(
                                    std::chrono::duration<double, std::ratio<60>>(options.minutes));
  Totals totals;
  std::vector<std::unique_ptr<Running>> running;
  uint64_t next = first;
  for (;;) {
    const bool may_start = next <= last && (options.minutes <= 0 || Clock::now() < deadline);
    if (may_start && running.size() < static_cast<size_t>(options.njobs)) {
      Job job = generate(next, features, faults);
      ++next;
      const std::string impossible = why_not(job);
      if (!impossible.empty()) {
        ++totals.impossible[impossible];
        continue;
      }
      // an error of the generator, since the model defines what is legal
      if (!job.illegal.empty()) {
        ++totals.nillegal;
        say(fmt::format("seed {} is passed over, its program is illegal: {}\n", next - 1,
                        job.illegal));
        continue;
      }
      running.push_back(std::make_unique<Running>(std::move(job), watch));
    } else if (running.empty()) {
      break;
    }
    std::erase_if(running, [&](const std::unique_ptr<Running>& one) {
      one->look();
      if (one->outcome().is_over) {
        report(*one, watch, options.is_verbose, totals);
      }
      return one->outcome().is_over;
    });
    std::this_thread::sleep_for(kLookPause);
  }
  summarize(totals, Clock::now() - begin);
  return totals.findings.empty() ? 0 : 1;
}

int run(int argc, char** argv) {
  CLI::App app{"Runs random legal programs against a plain reference; a seed names a program."};
  Options options;
  const CLI::IsMember is_feature(
      std::vector<std::string>(kFeatureNames.begin(), kFeatureNames.end()));
  app.add_option("--seed", options.seed, "run this one");
  app.add_option("--seeds", options.seeds, "run these: A..B");
  app.add_option("--minutes", options.minutes, "start no job after this time");
  app.add_option("--jobs", options.njobs, "jobs at the same time")->check(CLI::Range(1, 64));
  app.add_option("--list", options.list, "print the program of this seed");
  app.add_option("--only", options.only, "switch all features off but these")->check(is_feature);
  app.add_option("--without", options.without, "switch these off")->check(is_feature);
  std::vector<std::string> fault_names(kFaultNames.begin(), kFaultNames.end());
  fault_names.emplace_back("all");
  app.add_option("--faults", options.faults,
                 "each job has a fault of one of these kinds, or of all")
      ->delimiter(',')
      ->check(CLI::IsMember(fault_names));
  app.add_option("--still", options.still_s, "seconds without progress that are a hang");
  app.add_option("--memory", options.memory_mib,
                 "MiB that a process may use (with net-ofi 4 times as much), 0: any");
  app.add_flag("--no-stacks", options.has_no_stacks, "do not ask gdb where a hanging job is");
  app.add_flag("--verbose", options.is_verbose, "print each fault, and the errors that it causes");
  app.add_option("--process", options.process)->group("");
  app.add_option("--folder", options.folder)->group("");
  CLI11_PARSE(app, argc, argv);
  const Features features = features_of(options);
  if (options.list != kAnySeed) {
    say(describe(generate(options.list, features, faults_of(options))));
    return 0;
  }
  if (options.process >= 0) {
    const Job job = generate(options.seed, features, faults_of(options));
    return static_cast<size_t>(options.process) < job.processes.size()
               ? run_process(job, options.process, options.folder)
               : run_fresh_process(job, options.folder);
  }
  return run_campaign(options, features);
}

}  // namespace
}  // namespace plexus::soak

int main(int argc, char** argv) { return plexus::soak::run(argc, argv); }
