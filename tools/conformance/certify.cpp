// SPDX-License-Identifier: Apache-2.0
#include "tools/conformance/certify.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "tools/conformance/elf_file.hpp"
#include "tools/conformance/repetition.hpp"
#include "tools/conformance/report.hpp"

namespace plexus::conformance {
namespace {

/// Tables of one name, and the newest version that the kit has checks for.
struct Family {
  std::string_view stem;
  const char* kind;
  int newest;  // 0: none
};
constexpr std::array kFamilies = {
    Family{"ncclNetPlugin_v", "net", 12},         Family{"ncclCollNetPlugin_v", "collnet", 12},
    Family{"ncclTunerPlugin_v", "tuner", 6},      Family{"ncclProfiler_v", "profiler", 7},
    Family{"ncclEnvPlugin_v", "env", 0},          Family{"ncclGinPlugin_v", "gin", 0},
    Family{"ncclRmaPlugin_v", "rma", 0},          Family{"ncclLogPlugin_v", "log", 0},
    Family{"plexus_collnet_query", "collnet", 0}, Family{"plexus_plugin_query", "", 0}};

const Family& family_of(const std::string& entry) {
  return *std::find_if(kFamilies.begin(), kFamilies.end(),
                       [&](const Family& each) { return entry.starts_with(each.stem); });
}

/// Of "ncclNetPlugin_v12" 12; of Plexus's own entries 0.
int version_of(const std::string& entry) {
  const size_t digits = family_of(entry).stem.size();
  int version = 0;
  std::from_chars(entry.data() + digits, entry.data() + entry.size(), version);
  return version;
}

Result<std::vector<std::string>> list_entries(const std::filesystem::path& library) {
  PLEXUS_TRY(file, read_elf_file(library));
  std::vector<std::string> entries;
  for (const ElfSymbol& symbol : file.exported) {
    if (is_plugin_entry(symbol.name)) {
      entries.push_back(symbol.name);
    }
  }
  if (entries.empty()) {
    return fail(Code::kInvalidUsage, "{} exports no table of a plugin", library.string());
  }
  std::sort(entries.begin(), entries.end(), [](const std::string& a, const std::string& b) {
    return std::pair(&family_of(a), version_of(a)) > std::pair(&family_of(b), version_of(b));
  });
  return entries;
}

/// Why a table is not checked; "": it is. `seen`: the kinds and ABIs that have been.
std::string find_reason(const Subject& subject,
                        const Section& section,
                        std::set<std::string>& seen) {
  const Family& family = family_of(section.entry);
  const int version = version_of(section.entry);
  const bool is_of_nccl = version > 0;
  if (is_of_nccl && family.newest == 0) {
    return fmt::format("the kit has no checks of {} plugins", family.kind);
  }
  const std::string abi = is_of_nccl ? fmt::format("v{}", version) : "native";
  if (!subject.abi.empty() && subject.abi != abi) {
    return fmt::format("--abi {} was asked for", subject.abi);
  }
  if (version > family.newest && is_of_nccl) {
    return fmt::format("newer than the kit, whose newest is v{}", family.newest);
  }
  // The kit takes a collnet plugin's best table; Plexus's own comes first.
  const std::string what =
      fmt::format("{} {}", family.kind, is_of_nccl && section.kind != "collnet" ? "nccl" : "");
  return seen.insert(what).second ? "" : "not the best of its kind; --abi chooses another";
}

Subject subject_of(const Subject& subject, const Section& section) {
  Subject own = subject;
  const int version = version_of(section.entry);
  own.abi = version > 0 ? fmt::format("v{}", version) : "native";
  own.kind = section.kind;
  return own;
}

/// One program per cause, of the first failures: each takes seconds to find.
void add_programs(const Subject& subject, Section& section) {
  constexpr size_t kMost = 8;
  std::set<std::string> causes;
  for (const Verdict& verdict : section.verdicts) {
    const bool is_wanted = section.identity.kind == PluginKind::kNet &&
                           verdict.outcome == Outcome::kFail && is_repeatable(*verdict.check);
    if (!is_wanted || causes.size() >= kMost || !causes.insert(find_cause(verdict.detail)).second) {
      continue;
    }
    if (auto program = make_repetition(subject, section.identity, verdict); program.has_value()) {
      section.programs.emplace(verdict.check->id, std::move(program).value());
    }
  }
}

/// The selected checks that this kind has.
std::vector<const Check*> select(PluginKind kind, const std::vector<std::string>& only) {
  std::vector<const Check*> checks;
  for (const Check* check : checks_of(kind)) {
    if (only.empty() || is_named(*check, only)) {
      checks.push_back(check);
    }
  }
  return checks;
}

Result<void> run_section(const Subject& subject, const CertifyOptions& options, Section& section) {
  PLEXUS_TRY(identity, identify(subject));
  section.identity = std::move(identity);
  const Identity& found = section.identity;
  section.untested = found.unchecked;
  if (subject.abi == "native" && found.problem.empty() && found.unchecked.empty() &&
      !is_native(found)) {
    section.identity.problem = section.entry + " returned no plugin";
    return ok();
  }
  if (found.kind == PluginKind::kNone || !section.untested.empty()) {
    return ok();
  }
  section.kind = kind_word(found.kind);
  options.begins(section);
  PLEXUS_TRY(verdicts, run_checks(subject, found, select(found.kind, options.only), options.run,
                                  options.progress));
  section.verdicts = std::move(verdicts);
  add_programs(subject, section);
  if (options.endurance > seconds(0) && found.kind == PluginKind::kNet) {
    PLEXUS_TRY(endurance, endure(subject, options.endurance, options.seed));
    section.endurance = std::move(endurance);
  }
  return ok();
}

}  // namespace

std::vector<const Check*> all_checks() {
  std::vector<const Check*> all;
  for (const PluginKind kind : kPluginKinds) {
    const std::vector<const Check*> checks = checks_of(kind);
    all.insert(all.end(), checks.begin(), checks.end());
  }
  return all;
}

Result<std::vector<Section>> certify(const Subject& subject, const CertifyOptions& options) {
  PLEXUS_TRY(select_checks(all_checks(), options.only));
  PLEXUS_TRY(entries, list_entries(subject.file));
  std::set<std::string> seen;
  std::vector<Section> sections;
  for (const std::string& entry : entries) {
    Section& section = sections.emplace_back(Section{entry, family_of(entry).kind, {}, "", {}});
    section.untested = find_reason(subject, section, seen);
    if (section.untested.empty()) {
      PLEXUS_TRY(run_section(subject_of(subject, section), options, section));
    }
  }
  return sections;
}

}  // namespace plexus::conformance
