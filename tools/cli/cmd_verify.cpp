// SPDX-License-Identifier: Apache-2.0
// `plexus verify`: proves the recorded programs of every algorithm (kernels/program/verify.hpp),
// for each number of ranks, in place and out of place, from several roots. Exit code 1 when a proof
// fails.
#include <algorithm>
#include <charconv>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "kernels/program/verify.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/flags.hpp"

namespace plexus {
namespace {

struct VerifyOptions {
  std::string algorithm;  // empty: all
  int max_nranks = 64;
  std::vector<int> nranks;  // only these; empty: 2 to max_nranks
  std::string json;         // file, "-" or empty
};

/// The proofs of one algorithm for one number of ranks.
struct Verdict {
  const Algorithm* algorithm;
  int nranks;
  VerifyResult result;  // the first proof that failed, or that of root 0 out of place
  int root;
  bool in_place;
  bool joins;
};

/// All roots if there are few; otherwise the ends, the middle and a neighbour, because chains from
/// different roots only differ in the rank at which they wrap around.
std::vector<int> choose_roots(const Algorithm& algorithm, int nranks) {
  constexpr int kFewRanks = 16;
  if (!is_rooted(algorithm.collective)) {
    return {0};
  }
  std::set<int> roots = {0, 1, nranks / 2, nranks - 1};
  for (int root = 0; root < nranks && nranks <= kFewRanks; ++root) {
    roots.insert(root);
  }
  return {roots.begin(), roots.end()};
}

/// The datacenters for which an algorithm for several datacenters is proved, by place: halves,
/// thirds, one rank beside all others, and alternating between two. Empty for other algorithms.
std::vector<std::vector<int>> choose_datacenters(const Algorithm& algorithm, int nranks) {
  std::vector<std::vector<int>> shapes(1);
  if (!algorithm.for_datacenters) {
    return shapes;
  }
  shapes.resize(4, std::vector<int>(static_cast<size_t>(nranks)));
  shapes[0].resize(static_cast<size_t>(nranks));
  for (int place = 0; place < nranks; ++place) {
    const auto at = static_cast<size_t>(place);
    shapes[0][at] = 2 * place / nranks;
    shapes[1][at] = nranks < 3 ? place : 3 * place / nranks;
    shapes[2][at] = place == 0 ? 0 : 1;
    shapes[3][at] = place % 2;
  }
  return shapes;
}

/// All proofs for one number of ranks, out of place and in place, with each chunk as a message and
/// with messages of several. `shapes` (of datacenters) must outlive the result.
std::vector<VerifyInput> list_forms(const Algorithm& algorithm,
                                    int nranks,
                                    const std::vector<std::vector<int>>& shapes) {
  std::vector<VerifyInput> forms;
  for (const std::vector<int>& datacenters : shapes) {
    for (const int root : choose_roots(algorithm, nranks)) {
      for (int variant = 0; variant < algorithm.variants; ++variant) {
        forms.push_back({.algorithm = &algorithm,
                         .nranks = nranks,
                         .root = root,
                         .variant = variant,
                         .datacenters = datacenters});
      }
    }
  }
  const size_t plain = forms.size();
  for (size_t form = 0; form < plain && algorithm.joined.rounds != nullptr; ++form) {
    forms.push_back(forms[form]);
    forms.back().joins = true;
  }
  if (algorithm.network_cost == nullptr) {
    return forms;
  }
  // If the network reduces: numbers of ranks per host (the last host has the rest) and heads per
  // host.
  forms.clear();
  for (const int per_node : {1, 2, 3, 4, 8}) {
    const int on_last = (nranks - 1) % per_node + 1;
    for (int heads = 1; heads <= on_last && per_node <= nranks; ++heads) {
      forms.push_back(
          {.algorithm = &algorithm, .nranks = nranks, .ranks_per_node = per_node, .heads = heads});
    }
  }
  return forms;
}

Verdict verify_all_forms(const Algorithm& algorithm, int nranks) {
  Verdict verdict{.algorithm = &algorithm,
                  .nranks = nranks,
                  .result = {},
                  .root = 0,
                  .in_place = false,
                  .joins = false};
  bool first = true;
  const auto shapes = choose_datacenters(algorithm, nranks);
  for (VerifyInput form : list_forms(algorithm, nranks, shapes)) {
    for (const bool in_place : {false, true}) {
      if (in_place && !has_in_place(algorithm.collective)) {
        continue;
      }
      form.in_place = in_place;
      VerifyResult result = verify(form);
      if (first || !result.proved) {
        verdict.result = std::move(result);
        verdict.root = form.root;
        verdict.in_place = in_place;
        verdict.joins = form.joins;
        first = false;
      }
      if (!verdict.result.proved) {
        return verdict;
      }
    }
  }
  return verdict;
}

/// The requested numbers of ranks that the algorithm supports.
std::vector<int> choose_nranks(const Algorithm& algorithm, const VerifyOptions& options) {
  constexpr int kNranksMin = 2;  // with one rank the program is only a copy
  if (is_point_to_point(algorithm.collective)) {
    return {kNranksMin};
  }
  std::vector<int> chosen = options.nranks;
  if (chosen.empty()) {
    chosen.resize(static_cast<size_t>(options.max_nranks - kNranksMin + 1));
    std::iota(chosen.begin(), chosen.end(), kNranksMin);
  }
  chosen.erase(std::remove_if(chosen.begin(), chosen.end(),
                              [&](int nranks) { return nranks > algorithm.nranks_max; }),
               chosen.end());
  return chosen;
}

nlohmann::ordered_json json_of(const Verdict& verdict) {
  nlohmann::ordered_json json;
  json["algorithm"] = verdict.algorithm->name;
  json["collective"] = name(verdict.algorithm->collective);
  json["nranks"] = verdict.nranks;
  json["steps"] = verdict.result.steps;
  json["lanes"] = verdict.result.lanes;
  if (!verdict.result.proved) {
    json["root"] = verdict.root;
    json["in_place"] = verdict.in_place;
    json["joins"] = verdict.joins;
    json["reason"] = verdict.result.reason;
  }
  return json;
}

std::string format_json(const std::vector<Verdict>& verdicts) {
  nlohmann::ordered_json json;
  json["verified"] = nlohmann::ordered_json::array();
  json["failed"] = nlohmann::ordered_json::array();
  for (const Verdict& verdict : verdicts) {
    json[verdict.result.proved ? "verified" : "failed"].push_back(json_of(verdict));
  }
  return json.dump(1) + "\n";
}

/// "2..64" or "96, 128".
std::string list_nranks(const std::vector<Verdict>& verdicts) {
  std::vector<int> nranks;
  for (const Verdict& verdict : verdicts) {
    nranks.push_back(verdict.nranks);
  }
  const bool is_range = nranks.back() - nranks.front() == static_cast<int>(nranks.size()) - 1;
  return is_range && nranks.size() > 2 ? fmt::format("{}..{}", nranks.front(), nranks.back())
                                       : fmt::format("{}", fmt::join(nranks, ", "));
}

void print_line(const Algorithm& algorithm, const std::vector<Verdict>& verdicts) {
  for (const Verdict& verdict : verdicts) {
    if (!verdict.result.proved) {
      fmt::print("{:<22} FAILED for {} ranks, root {}, {}{}: {}\n", algorithm.name, verdict.nranks,
                 verdict.root, verdict.in_place ? "in place" : "out of place",
                 verdict.joins ? ", messages of several chunks" : "", verdict.result.reason);
      return;
    }
  }
  if (verdicts.empty()) {
    fmt::print("{:<22} {:<15} supports at most {} ranks: nothing to prove\n", algorithm.name,
               name(algorithm.collective), algorithm.nranks_max);
    return;
  }
  const Verdict& last = verdicts.back();
  fmt::print("{:<22} {:<15} proved for {} ranks ({} steps, {} lane{} at {})\n", algorithm.name,
             name(algorithm.collective), list_nranks(verdicts), last.result.steps,
             last.result.lanes, last.result.lanes == 1 ? "" : "s", last.nranks);
}

int run_verify(const VerifyOptions& options) {
  std::vector<Verdict> all;
  const bool progress = isatty(STDERR_FILENO) != 0 && options.json == "-";
  for (const Algorithm& algorithm : algorithms()) {
    if (!options.algorithm.empty() && options.algorithm != algorithm.name) {
      continue;
    }
    if (progress) {
      fmt::print(stderr, "{}\n", algorithm.name);
    }
    std::vector<Verdict> verdicts;
    for (const int nranks : choose_nranks(algorithm, options)) {
      verdicts.push_back(verify_all_forms(algorithm, nranks));
    }
    if (options.json != "-") {
      print_line(algorithm, verdicts);
    }
    all.insert(all.end(), verdicts.begin(), verdicts.end());
  }
  if (!options.json.empty()) {
    const Result<void> written = write_output(options.json, format_json(all));
    if (!written) {
      return report_error(written.error(), kExitUsage);
    }
  }
  const bool proved = std::all_of(all.begin(), all.end(),
                                  [](const Verdict& verdict) { return verdict.result.proved; });
  return proved ? kExitOk : kExitWrong;
}

Result<void> take_algorithm(const std::string& text, std::string* target) {
  if (find_algorithm(text) == nullptr) {
    std::vector<const char*> names;
    for (const Algorithm& algorithm : algorithms()) {
      names.push_back(algorithm.name);
    }
    return fail(Code::kInvalidArgument, "expects {}, not '{}'", fmt::join(names, ", "), text);
  }
  *target = text;
  return ok();
}

constexpr IntRange kNranks = {2, 1024};

/// "96,128"
Result<void> take_nranks(const std::string& text, std::vector<int>* target) {
  std::set<int> named;
  std::string_view rest = text;
  for (bool more = true; more;) {
    const size_t comma = std::min(rest.find(','), rest.size());
    int nranks = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + comma, nranks);
    if (error != std::errc() || end != rest.data() + comma || nranks < kNranks.min ||
        nranks > kNranks.max) {
      return fail(Code::kInvalidArgument,
                  "expects numbers from {} to {}, separated by ',', not '{}'", kNranks.min,
                  kNranks.max, text);
    }
    named.insert(nranks);
    more = comma < rest.size();
    rest.remove_prefix(comma + (more ? 1 : 0));
  }
  target->assign(named.begin(), named.end());
  return ok();
}

}  // namespace

Command add_verify_command(CLI::App& program) {
  CLI::App* app = program.add_subcommand("verify", "Prove the recorded programs of the algorithms");
  const auto options = std::make_shared<VerifyOptions>();
  add_flag(
      *app, "--algorithm",
      [options](const std::string& text) { return take_algorithm(text, &options->algorithm); },
      "only this one");
  add_int(*app, "--max-nranks", &options->max_nranks, kNranks,
          "prove for 2 to this many ranks (default 64)");
  add_flag(
      *app, "--ranks",
      [options](const std::string& text) { return take_nranks(text, &options->nranks); },
      "prove for these numbers of ranks only: 96,128");
  app->add_option("--json", options->json, "write one JSON object to this file (-: stdout)")
      ->type_name("VALUE");
  return {app, [options] { return run_verify(*options); }};
}

}  // namespace plexus
