// SPDX-License-Identifier: Apache-2.0
#include "tools/conformance/runner.hpp"

#include <algorithm>
#include <deque>
#include <thread>

#include "tools/conformance/cell.hpp"
#include "tools/conformance/report.hpp"

namespace plexus::conformance {
namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(1);

bool applies(const Check& check, const Identity& identity) {
  switch (check.options.abi) {
    case CheckOptions::Abi::kNative:
      return is_native(identity);
    case CheckOptions::Abi::kVendor:
      return !is_native(identity);
    case CheckOptions::Abi::kAny:
      return true;
  }
  return true;
}

bool names(const std::string& item, const Check& check) {
  const std::string id = check.id;
  return id == item || id.rfind(item + ".", 0) == 0;
}

std::string group_of(const Check& check) {
  const std::string id = check.id;
  return id.substr(0, id.find('.'));
}

bool is_time_out(const Verdict& verdict) {
  return verdict.outcome == Outcome::kFail &&
         (verdict.detail.find("timed out after ") != std::string::npos ||
          verdict.detail.find("did not end in time") != std::string::npos);
}

/// Runs the checks at the given indexes, at most `jobs` at a time.
class Pool {
 public:
  Pool(const Subject& subject,
       const KnownLimits& known,
       const std::function<void(const Verdict&)>& progress,
       std::vector<Verdict>& verdicts)
      : subject_(&subject), known_(&known), progress_(&progress), verdicts_(&verdicts) {}

  Result<void> run(std::deque<size_t> waiting, size_t jobs) {
    while (!waiting.empty() || !running_.empty()) {
      while (!waiting.empty() && running_.size() < jobs) {
        const size_t index = waiting.front();
        waiting.pop_front();
        Verdict& verdict = (*verdicts_)[index];
        if (const auto why = time_outs_.find(*verdict.check, verdict.grade)) {
          verdict.detail = *why;
          (*progress_)(verdict);
          continue;
        }
        PLEXUS_TRY(cell, Cell::start(*subject_, *verdict.check));
        running_.push_back({index, std::move(cell)});
      }
      if (!collect()) {
        std::this_thread::sleep_for(kPollInterval);
      }
    }
    return ok();
  }

 private:
  struct Running {
    size_t index;
    Cell cell;
  };
  bool collect() {
    bool has_collected = false;
    for (auto each = running_.begin(); each != running_.end();) {
      auto verdict = each->cell.poll();
      if (!verdict.has_value()) {
        ++each;
        continue;
      }
      verdict->grade = (*verdicts_)[each->index].grade;
      apply_known_limits(*known_, *verdict);
      time_outs_.add(*verdict);
      (*progress_)(*verdict);
      (*verdicts_)[each->index] = std::move(*verdict);
      each = running_.erase(each);
      has_collected = true;
    }
    return has_collected;
  }

  const Subject* subject_;
  const KnownLimits* known_;
  const std::function<void(const Verdict&)>* progress_;
  std::vector<Verdict>* verdicts_;
  std::vector<Running> running_;
  TimeOuts time_outs_;
};

}  // namespace

bool is_native(const Identity& identity) { return identity.abi.starts_with("plexus"); }

Grade grade_of(const Check& check, const Identity& identity) {
  return is_native(identity) ? Grade::kBreaksJobs : grade_under_nccl(check.id);
}

Result<Verdict> run_alone(const Subject& subject, const Check& check) {
  std::vector<Verdict> verdicts = {{&check, Outcome::kSkip, "", 0, Grade::kBreaksJobs}};
  const std::function<void(const Verdict&)> ignore = [](const Verdict&) {};
  PLEXUS_TRY(Pool(subject, {}, ignore, verdicts).run({0}, 1));
  return verdicts.front();
}

bool is_named(const Check& check, const std::vector<std::string>& items) {
  return std::any_of(items.begin(), items.end(),
                     [&](const std::string& item) { return names(item, check); });
}

Result<std::vector<const Check*>> select_checks(std::vector<const Check*> checks,
                                                const std::vector<std::string>& only) {
  for (const std::string& item : only) {
    if (std::none_of(checks.begin(), checks.end(),
                     [&](const Check* check) { return names(item, *check); })) {
      return fail(Code::kInvalidUsage,
                  "--only expects ids of checks or their first words, and '{}' matches none for "
                  "this kind of plugin",
                  item);
    }
  }
  if (!only.empty()) {
    std::erase_if(checks, [&](const Check* check) { return !is_named(*check, only); });
  }
  return checks;
}

Result<KnownLimits> parse_known_limits(std::string_view text,
                                       const std::vector<const Check*>& all) {
  constexpr std::string_view kBlank = " \t\r";
  KnownLimits known;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line = line.substr(0, line.find('#'));
    line.remove_prefix(std::min(line.find_first_not_of(kBlank), line.size()));
    if (line.empty()) {
      continue;
    }
    const std::string id(line.substr(0, line.find_first_of(kBlank)));
    line.remove_prefix(id.size());
    line.remove_prefix(std::min(line.find_first_not_of(kBlank), line.size()));
    const bool is_there =
        std::any_of(all.begin(), all.end(), [&](const Check* check) { return id == check->id; });
    if (!is_there || line.empty()) {
      return fail(Code::kInvalidUsage,
                  "line {} of the known limits: '{}' {}; write the id of a check and the reason",
                  number, id, is_there ? "has no reason" : "is not a check of this kind of plugin");
    }
    known[id] = line.substr(0, line.find_last_not_of(kBlank) + 1);
  }
  return known;
}

void apply_known_limits(const KnownLimits& known, Verdict& verdict) {
  const auto limit = known.find(verdict.check->id);
  if (verdict.outcome == Outcome::kFail && limit != known.end()) {
    verdict.outcome = Outcome::kKnown;
    verdict.detail = fmt::format("{} (seen: {})", limit->second, verdict.detail);
  }
}

void TimeOuts::add(const Verdict& verdict) {
  if (is_time_out(verdict)) {
    seen_.push_back(
        {group_of(*verdict.check), verdict.grade, find_cause(verdict.detail), verdict.detail});
  }
}

std::optional<std::string> TimeOuts::find(const Check& check, Grade grade) const {
  constexpr auto kMost = 3;
  const std::string group = group_of(check);
  for (const Seen& each : seen_) {
    const auto count = std::count_if(seen_.begin(), seen_.end(), [&](const Seen& other) {
      return other.group == group && other.grade <= grade && other.cause == each.cause;
    });
    if (count >= kMost) {
      return fmt::format("not run: {} checks of this group ended alike: {}", count, each.detail);
    }
  }
  return std::nullopt;
}

Result<std::vector<Verdict>> run_checks(const Subject& subject,
                                        const Identity& identity,
                                        const std::vector<const Check*>& checks,
                                        const RunOptions& options,
                                        const std::function<void(const Verdict&)>& progress) {
  std::vector<Verdict> verdicts;
  std::deque<size_t> together;
  std::deque<size_t> alone;
  for (const Check* check : checks) {
    verdicts.push_back({check, Outcome::kSkip, "", 0, grade_of(*check, identity)});
    if (!applies(*check, identity)) {
      verdicts.back().detail =
          fmt::format("is a rule of the {} ABI",
                      check->options.abi == CheckOptions::Abi::kNative ? "native" : "vendors'");
      progress(verdicts.back());
    } else {
      (check->options.is_alone ? alone : together).push_back(verdicts.size() - 1);
    }
  }
  Pool pool(subject, options.known, progress, verdicts);
  PLEXUS_TRY(pool.run(std::move(together), options.jobs));
  PLEXUS_TRY(pool.run(std::move(alone), 1));
  return verdicts;
}

}  // namespace plexus::conformance
