// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/plugin_check.hpp"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include "core/base/config.hpp"
#include "tools/cli/flags.hpp"
#include "tools/conformance/bench.hpp"
#include "tools/conformance/report.hpp"
#include "tools/conformance/runner.hpp"

namespace plexus {
namespace {

namespace fs = std::filesystem;
using conformance::Identity;
using conformance::PluginKind;
using conformance::Subject;
using conformance::Verdict;

struct CheckFlags {
  std::string library;
  std::string json;
  std::string abi;
  std::string kind;
  std::vector<std::string> only;
  std::string known;  // a file
  int jobs = 2;
  int patience = 1;
};

Result<Subject> make_subject(const CheckFlags& flags) {
  PLEXUS_TRY(file, find_plugin_file(flags.library));
  return Subject{file, flags.abi, static_cast<uint32_t>(flags.patience), flags.kind};
}

void print_head(const Subject& subject, const Identity& identity, size_t count) {
  const std::string kind = identity.kind == PluginKind::kNone
                               ? "no plugin that can be used"
                               : fmt::format("{} plugin", kind_word(identity.kind));
  fmt::print("{}: {} {} ({}), {} checks\n", subject.file.string(), kind, identity.name,
             identity.abi.empty() ? identity.problem : identity.abi, count);
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
    return fail(Code::kInvalidUsage, "--known names {}, which cannot be read", path);
  }
  return conformance::parse_known_limits(text.str(), all);
}

Result<int> check(const CheckFlags& flags) {
  PLEXUS_TRY(subject, make_subject(flags));
  PLEXUS_TRY(identity, conformance::identify(subject));
  const std::vector<const conformance::Check*> all = conformance::checks_of(identity.kind);
  PLEXUS_TRY(known, read_known_limits(flags.known, all));
  PLEXUS_TRY(checks, conformance::select_checks(all, flags.only));
  const bool is_table = flags.json != "-";
  if (is_table) {
    print_head(subject, identity, checks.size());
  }
  size_t done = 0;
  const bool shows_progress = isatty(STDERR_FILENO) != 0;
  const auto progress = [&](const Verdict& verdict) {
    ++done;
    if (shows_progress) {
      fmt::print(stderr, "\r{}/{} {:<32}{}", done, checks.size(), verdict.check->id,
                 done == checks.size() ? "\n" : "");
    }
  };
  PLEXUS_TRY(verdicts, conformance::run_checks(subject, identity, checks,
                                               static_cast<uint32_t>(flags.jobs), progress));
  conformance::apply_known_limits(known, verdicts);
  const conformance::Counts counts = conformance::count(verdicts);
  if (is_table) {
    for (const Verdict& verdict : verdicts) {
      fmt::print("{}\n", format_verdict(verdict));
    }
    fmt::print("{} passed, {} failed, {} skipped{}\n", counts.passed, counts.failed, counts.skipped,
               counts.known == 0 ? "" : fmt::format(", {} known", counts.known));
  }
  if (!flags.json.empty()) {
    PLEXUS_TRY(write_json(flags.json, format_json(subject.file.string(), identity, verdicts)));
  }
  const bool is_plugin = identity.kind != PluginKind::kNone;
  if (is_table && !is_plugin) {
    fmt::print("it is no plugin that can be used: {}\n", identity.problem);
  }
  return counts.failed == 0 && is_plugin ? kExitOk : kExitWrong;
}

int run_check(const CheckFlags& flags) {
  Result<int> result = check(flags);
  return result ? result.value() : report_error(result.error(), kExitUsage);
}

int run_list() {
  for (const PluginKind kind : conformance::kPluginKinds) {
    for (const conformance::Check* each : conformance::checks_of(kind)) {
      fmt::print("{:<8} {:<26} {}\n         {}\n", kind_word(kind), each->id, each->title,
                 each->rule);
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
        fail(Code::kInvalidUsage, "{} is no net plugin: {}", subject.value().file.string(),
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
        write_json(flags.json, conformance::format_bench_json(subject.value().file.string(),
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

Result<fs::path> find_plugin_file(const std::string& name) {
  std::error_code ignored;
  if (name.find('/') != std::string::npos || fs::is_regular_file(name, ignored)) {
    return fs::absolute(name, ignored);
  }
  std::vector<fs::path> folders = {find_library_folder()};
  const std::string more = setting_value("PLEXUS_PLUGIN_PATH").value_or("");
  for (size_t at = 0; at < more.size();) {
    const size_t end = std::min(more.find(':', at), more.size());
    folders.emplace_back(more.substr(at, end - at));
    at = end + 1;
  }
  for (const fs::path& folder : folders) {
    for (const std::string& file :
         {name, "libplexus-" + name + ".so", "libplexus-net-" + name + ".so",
          "libnccl-net-" + name + ".so", "libnccl-tuner-" + name + ".so"}) {
      if (fs::is_regular_file(folder / file, ignored)) {
        return folder / file;
      }
    }
  }
  return fail(Code::kInvalidUsage,
              "LIB takes a file or the name of a plugin beside libplexus.so or in "
              "PLEXUS_PLUGIN_PATH, and '{}' is neither",
              name);
}

std::vector<Command> add_plugin_check_commands(CLI::App& plugin) {
  const auto flags = std::make_shared<CheckFlags>();
  CLI::App* check = add_common(plugin, "check", "Hold a plugin to its contract", flags);
  check
      ->add_option("--only", flags->only,
                   "these checks: ids, or their first words (message.empty, message)")
      ->delimiter(',')
      ->type_name("ID");
  check
      ->add_option("--known", flags->known,
                   "a file of known limits, a line each: id of a check, reason; such a failure is "
                   "\"known\"")
      ->type_name("FILE");
  check
      ->add_option("--kind", flags->kind,
                   "what to check a library of several kinds as (default: the first it is of)")
      ->check(CLI::IsMember({"net", "tuner", "profiler", "collnet"}))
      ->type_name("KIND");
  constexpr IntRange kJobs = {1, 64};
  constexpr IntRange kPatience = {1, 100};
  add_int(*check, "--jobs", &flags->jobs, kJobs, "checks that run at once (default 2)");
  add_int(*check, "--patience", &flags->patience, kPatience,
          "wait this many times longer, on a slow machine (default 1)");
  const auto bench_flags = std::make_shared<CheckFlags>();
  CLI::App* bench =
      add_common(plugin, "bench",
                 "Latency and bandwidth of a net plugin, two processes of this host", bench_flags);
  CLI::App* list = plugin.add_subcommand("checks", "All checks with the rules they stand for");
  return {{check, [flags] { return run_check(*flags); }},
          {bench, [bench_flags] { return run_bench(*bench_flags); }},
          {list, [] { return run_list(); }}};
}

}  // namespace plexus
