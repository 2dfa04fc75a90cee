// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/plugin_check.hpp"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include "core/base/config.hpp"
#include "tools/cli/flags.hpp"
#include "tools/conformance/bench.hpp"
#include "tools/conformance/elf_file.hpp"
#include "tools/conformance/repetition.hpp"
#include "tools/conformance/report.hpp"
#include "tools/conformance/runner.hpp"

namespace plexus {
namespace {

namespace fs = std::filesystem;
using conformance::Identity;
using conformance::PluginKind;
using conformance::Subject;
using conformance::Verdict;

struct CheckFlags : SubjectFlags {
  std::string json;
  std::string junit;
  std::string summary;
  std::string programs;  // a folder
  std::vector<std::string> only;
  std::string known;  // a file
  bool is_strict = false;
};

/// The runtime's stub for the version that the plugin is linked with, or the one without a version.
std::string name_cudart_stub(const fs::path& plugin) {
  constexpr std::string_view kStem = "libcudart.so.";
  std::string name = "cudart-stub";
  if (const auto file = conformance::read_elf_file(plugin)) {
    for (const std::string& needed : file.value().needed) {
      name = needed.starts_with(kStem) ? "cudart-stub-" + needed.substr(kStem.size()) : name;
    }
  }
  return name;
}

Result<fs::path> find_stub(const std::string& name) {
  fs::path stub = find_library_folder() / "plexus" / ("libplexus-" + name + ".so");
  if (!fs::exists(stub)) {
    return fail(Code::kInvalidUsage,
                "the stub {} was not found; there are stubs of CUDA 11, 12 and 13 where the "
                "package plexus-tools, or all of Plexus, is installed",
                stub.string());
  }
  return stub;
}

void print_head(const Subject& subject, const Identity& identity, size_t count) {
  const std::string kind = identity.kind == PluginKind::kNone
                               ? "not a usable plugin"
                               : fmt::format("{} plugin", kind_word(identity.kind));
  fmt::print("{}: {} {} ({}), {} checks\n", subject.file.string(), kind, identity.name,
             identity.abi.empty() ? identity.problem : identity.abi, count);
  // Flush, so that readers of a pipe see which check runs.
  std::fflush(stdout);
}

/// Prints each verdict as it comes or, where stdout has another format, shows progress on stderr:
/// on a terminal in one line, otherwise one line per several checks.
class Progress {
 public:
  Progress(size_t all, bool is_table)
      : all_(all), is_table_(is_table), is_terminal_(isatty(STDERR_FILENO) != 0) {}
  void take(const Verdict& verdict) {
    constexpr size_t kEvery = 25;
    if (is_table_) {
      fmt::print("{}\n", format_verdict(verdict));
      std::fflush(stdout);
      return;
    }
    ++done_;
    failed_ += verdict.outcome == conformance::Outcome::kFail ? 1 : 0;
    if (is_terminal_) {
      fmt::print(stderr, "\r\033[K{}/{} {}, {} failed{}", done_, all_, verdict.check->id, failed_,
                 done_ == all_ ? "\n" : "");
    } else if (done_ % kEvery == 0) {
      fmt::print(stderr, "{} of {} checks, {} failed\n", done_, all_, failed_);
    }
  }

 private:
  size_t all_;
  bool is_table_;
  bool is_terminal_;
  size_t done_ = 0;
  size_t failed_ = 0;
};

/// Writes all report files.
Result<void> write_reports(const CheckFlags& flags,
                           const conformance::ReportHead& head,
                           const std::vector<Verdict>& verdicts) {
  if (!flags.json.empty()) {
    PLEXUS_TRY(write_output(flags.json, format_json(head, verdicts)));
  }
  if (!flags.junit.empty()) {
    PLEXUS_TRY(write_output(flags.junit, format_junit(head, verdicts)));
  }
  if (!flags.summary.empty()) {
    PLEXUS_TRY(write_output(flags.summary, format_summary(head, verdicts)));
  }
  return ok();
}

/// Writes a program for each failure of the data path, and says where it is or why there is none.
Result<void> write_programs(const CheckFlags& flags,
                            const Subject& subject,
                            const Identity& identity,
                            const std::vector<Verdict>& verdicts) {
  std::error_code error;
  fs::create_directories(flags.programs, error);
  for (const Verdict& verdict : verdicts) {
    const bool is_failure = verdict.outcome == conformance::Outcome::kFail;
    if (!is_failure || identity.kind != PluginKind::kNet) {
      continue;
    }
    const char* const id = verdict.check->id;
    if (!conformance::is_repeatable(*verdict.check)) {
      fmt::print(stderr, "{}: no program: it is not a check of messages\n", id);
      continue;
    }
    const auto program = conformance::make_repetition(subject, identity, verdict);
    if (program.has_error()) {
      fmt::print(stderr, "{}: no program: {}\n", id, program.error().message());
      continue;
    }
    const fs::path file = fs::path(flags.programs) / fmt::format("{}.c", id);
    PLEXUS_TRY(write_output(file.string(), program.value()));
    fmt::print(stderr, "{}: {} repeats it\n", id, file.string());
  }
  return ok();
}

/// Prints one line and the library's own lines.
Result<int> say_unchecked(const CheckFlags& flags, const conformance::ReportHead& head) {
  if (flags.json != "-") {
    fmt::print("{}: not checked: {}\n", head.library, head.identity.unchecked);
    if (!head.identity.log.empty()) {
      fmt::print("its log lines:\n");
    }
    std::istringstream lines(head.identity.log);
    for (std::string line; std::getline(lines, line);) {
      fmt::print("  {}\n", line);
    }
  }
  PLEXUS_TRY(write_reports(flags, head, {}));
  return kExitUnchecked;
}

Result<int> check(const CheckFlags& flags) {
  PLEXUS_TRY(subject, make_subject(flags));
  PLEXUS_TRY(identity, conformance::identify(subject));
  const conformance::ReportHead head{subject.file.string(), identity, flags.is_strict};
  if (!identity.unchecked.empty()) {
    return say_unchecked(flags, head);
  }
  const std::vector<const conformance::Check*> all = conformance::checks_of(identity.kind);
  PLEXUS_TRY(known, read_known_limits(flags.known, all));
  PLEXUS_TRY(checks, conformance::select_checks(all, flags.only));
  const bool is_table = flags.json != "-";
  if (is_table) {
    print_head(subject, identity, checks.size());
  }
  Progress progress(checks.size(), is_table);
  PLEXUS_TRY(verdicts, conformance::run_checks(
                           subject, identity, checks, {static_cast<uint32_t>(flags.jobs), known},
                           [&](const Verdict& verdict) { progress.take(verdict); }));
  const conformance::Counts counts = conformance::count(verdicts);
  if (is_table) {
    fmt::print("{}{}\n", format_failures(verdicts), format_counts(counts));
  }
  PLEXUS_TRY(write_reports(flags, head, verdicts));
  if (!flags.programs.empty()) {
    PLEXUS_TRY(write_programs(flags, subject, identity, verdicts));
  }
  const bool is_plugin = identity.kind != PluginKind::kNone;
  if (is_table && !is_plugin) {
    fmt::print("it is not a usable plugin: {}\n", identity.problem);
  }
  return counts.bad(flags.is_strict) == 0 && is_plugin ? kExitOk : kExitWrong;
}

int run_check(const CheckFlags& flags) {
  Result<int> result = check(flags);
  return result ? result.value() : report_error(result.error(), kExitUsage);
}

int run_list() {
  for (const PluginKind kind : conformance::kPluginKinds) {
    for (const conformance::Check* each : conformance::checks_of(kind)) {
      fmt::print("{:<8} {:<26} {}\n         {}\n         {} when it fails\n", kind_word(kind),
                 each->id, each->title, each->rule,
                 grade_words(conformance::grade_under_nccl(each->id)));
    }
  }
  return kExitOk;
}

int run_bench(const CheckFlags& flags) {
  Result<Subject> subject = make_subject(flags);
  if (!subject) {
    return report_error(subject.error(), kExitUsage);
  }
  const auto identity = conformance::identify(subject.value());
  if (!identity || identity.value().kind != PluginKind::kNet) {
    return report_error(
        fail(Code::kInvalidUsage, "{} is not a net plugin: {}", subject.value().file.string(),
             identity ? identity.value().problem : identity.error().message()),
        kExitWrong);
  }
  const auto rows = conformance::run_bench(subject.value());
  if (!rows) {
    return report_error(rows.error(), kExitWrong);
  }
  if (flags.json != "-") {
    fmt::print("{}", conformance::format_bench(rows.value()));
  }
  if (!flags.json.empty()) {
    const Result<void> written =
        write_output(flags.json, conformance::format_bench_json(subject.value().file.string(),
                                                                identity.value(), rows.value()));
    return written ? kExitOk : report_error(written.error(), kExitUsage);
  }
  return kExitOk;
}

CLI::App* add_common(CLI::App& plugin,
                     const char* name,
                     const char* help,
                     const std::shared_ptr<CheckFlags>& flags) {
  CLI::App* app = plugin.add_subcommand(name, help);
  app->add_option("LIB", flags->library, "a file, or a name such as net-socket")
      ->required()
      ->type_name("");
  app->add_option("--json", flags->json, "write one JSON object to this file (-: stdout)")
      ->type_name("VALUE");
  app->add_option("--abi", flags->abi,
                  "the ABI to check: native, or a version of NCCL's such as v8 (default: the best "
                  "it has)")
      ->type_name("VALUE");
  return app;
}

}  // namespace

Result<Subject> make_subject(const SubjectFlags& flags) {
  PLEXUS_TRY(file, find_plugin_file(flags.library));
  Subject subject{file, flags.abi, static_cast<uint32_t>(flags.patience), flags.kind};
  subject.bench_mebibytes = static_cast<uint32_t>(flags.bench_mebibytes);
  if (flags.has_cudart_stub) {
    PLEXUS_TRY(stub, find_stub(name_cudart_stub(file)));
    subject.preload.push_back(stub);
  }
  if (flags.has_cuda_stub) {
    PLEXUS_TRY(stub, find_stub("cuda-stub"));
    subject.preload.push_back(stub);
  }
  return subject;
}

Result<conformance::KnownLimits> read_known_limits(
    const std::string& path, const std::vector<const conformance::Check*>& all) {
  if (path.empty()) {
    return conformance::KnownLimits();
  }
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) {
    return fail(Code::kInvalidUsage, "--known: cannot read the file {}", path);
  }
  return conformance::parse_known_limits(text.str(), all);
}

void add_subject_flags(CLI::App& app, const std::shared_ptr<SubjectFlags>& flags) {
  app.add_flag("--with-cudart-stub", flags->has_cudart_stub,
               "load a stand-in for CUDA's runtime before the plugin; its functions all report "
               "that there is no GPU");
  app.add_flag("--with-cuda-stub", flags->has_cuda_stub,
               "the same for CUDA's driver, libcuda.so.1");
  constexpr IntRange kJobs = {1, 64};
  constexpr IntRange kPatience = {1, 100};
  add_int(app, "--jobs", &flags->jobs, kJobs, "checks that run in parallel (default 2)");
  add_int(app, "--patience", &flags->patience, kPatience,
          "wait this many times longer, on a slow machine (default 1)");
}

std::vector<Command> add_plugin_check_commands(CLI::App& plugin) {
  const auto flags = std::make_shared<CheckFlags>();
  CLI::App* check = add_common(plugin, "check", "Check a plugin against its contract", flags);
  check
      ->add_option("--only", flags->only,
                   "only these checks: ids, or their first words (message.empty, message)")
      ->delimiter(',')
      ->type_name("ID");
  check
      ->add_option("--known", flags->known,
                   "a file of known limits, one per line: id of a check, reason; such a failure "
                   "counts as \"known\"")
      ->type_name("FILE");
  check
      ->add_option("--kind", flags->kind,
                   "the kind to check a library of several kinds as (default: its first)")
      ->check(CLI::IsMember({"net", "tuner", "profiler", "collnet"}))
      ->type_name("KIND");
  check->add_flag("--strict", flags->is_strict,
                  "failures under faults and beyond NCCL's contract also set the exit code");
  check->add_option("--junit", flags->junit, "write JUnit's XML to this file (-: stdout)")
      ->type_name("FILE");
  check
      ->add_option("--summary", flags->summary,
                   "write a report in Markdown to this file (-: stdout)")
      ->type_name("FILE");
  check
      ->add_option("--programs", flags->programs,
                   "write a C program that repeats it to this folder, for each failed check of "
                   "messages of a net plugin")
      ->type_name("FOLDER");
  add_subject_flags(*check, flags);
  constexpr IntRange kPatience = {1, 100};
  constexpr IntRange kBenchMebibytes = {1, 65536};
  const auto bench_flags = std::make_shared<CheckFlags>();
  CLI::App* bench =
      add_common(plugin, "bench",
                 "Latency and bandwidth of a net plugin, two processes of this host", bench_flags);
  add_int(*bench, "--patience", &bench_flags->patience, kPatience,
          "wait this many times longer, on a slow machine (default 1)");
  add_int(*bench, "--mebibytes", &bench_flags->bench_mebibytes, kBenchMebibytes,
          "sent per size to measure the bandwidth (default 256); fewer than 300 messages of a size "
          "are also its round trips");
  CLI::App* list = plugin.add_subcommand("checks", "List all checks with the rules that they test");
  return {{check, [flags] { return run_check(*flags); }},
          {bench, [bench_flags] { return run_bench(*bench_flags); }},
          {list, [] { return run_list(); }}};
}

}  // namespace plexus
