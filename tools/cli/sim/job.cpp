// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/sim/job.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "core/base/file.hpp"
#include "core/base/text.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/flags.hpp"
#include "tools/cli/sim/policy.hpp"

namespace plexus {
namespace {

/// What of the cluster the members of a group see.
struct Shape {
  int nranks;
  int ranks_per_node;
  int datacenters;
  friend auto operator<=>(const Shape&, const Shape&) = default;
};

/// Times of calls on the cluster of a variant; of each kind of call once.
class JobCalls {
 public:
  JobCalls(const Workload& work, const JobVariant& variant, const Fabric* fabric)
      : work_(work),
        variant_(variant),
        fabric_(fabric),
        strides_(place_groups(work, variant.options.nranks, variant.order)) {}

  /// Of the policy with this number; of the best algorithm if there is none.
  Result<double> time_us(const WorkloadCall& call, std::optional<size_t> policy) {
    const auto times = static_cast<double>(call.times);
    if (variant_.is_hidden || call.bytes == 0) {
      return variant_.is_hidden ? 0 : times * call.time_us;
    }
    if (!call.exchanges.empty()) {
      auto known = exchanges_.find(call.exchanges);
      if (known == exchanges_.end()) {
        PLEXUS_TRY(row, simulate_exchanges(variant_.options, call.exchanges, fabric_));
        PLEXUS_TRY(row.check_ends());
        known = exchanges_.emplace(call.exchanges, row.result.time_us).first;
      }
      return times * known->second;
    }
    const Shape shape = shape_of(call.group);
    if (shape.nranks < 2) {
      return 0;
    }
    const std::tuple key(shape, call.collective, call.bytes);
    auto known = sizes_.find(key);
    if (known == sizes_.end()) {
      PLEXUS_TRY(policies, find_policies(shape));
      PLEXUS_TRY(size, policies->compare(call.collective, call.bytes));
      known = sizes_.emplace(key, Size{.found = std::move(size), .made = {}}).first;
      known->second.made.resize(known->second.found.rows.size());
    }
    Size& size = known->second;
    if (!policy.has_value()) {
      return times * size.found.best.result.time_us;
    }
    // of a policy that learns, with what it learned before
    const PolicyRow& row = size.found.rows[*policy];
    uint64_t& made = size.made[*policy];
    const double before_us = row.time_us(made);
    made += call.times;
    return row.time_us(made) - before_us;
  }

  [[nodiscard]] bool is_near(const WorkloadCall& call) const {
    const Shape shape = shape_of(call.group);
    return shape.nranks <= shape.ranks_per_node;
  }

  [[nodiscard]] WorkLink link(int source, int peer) const {
    const SimOptions& options = variant_.options;
    const SimCosts costs = costs_of(options, fabric_ != nullptr);
    const int per_dc = std::max(1, options.nranks / options.datacenters);
    // where all ranks do the same, those at the end of a node wait longest
    const bool near = source < 0 ? options.nranks <= options.ranks_per_node
                                 : source / options.ranks_per_node == peer / options.ranks_per_node;
    const bool wide = source < 0 ? options.datacenters > 1 : source / per_dc != peer / per_dc;
    const SimLink& link = near ? costs.near : wide ? costs.wide : costs.far;
    return {.latency_us = variant_.is_hidden ? 0 : link.latency_us + link.message_us,
            .us_per_byte = variant_.is_hidden ? 0 : link.us_per_byte,
            .is_near = near};
  }

 private:
  struct Size {
    PolicySize found;
    std::vector<uint64_t> made;  // by policy: calls so far
  };

  [[nodiscard]] Shape shape_of(uint32_t group) const {
    const SimOptions& options = variant_.options;
    const int members = members_of(work_.groups[group], options.nranks);
    if (members == options.nranks) {
      return {members, options.ranks_per_node, options.datacenters};
    }
    const int stride = std::max(1, strides_[group]);
    const int64_t span = int64_t{members} * stride;
    const int per_dc = std::max(1, options.nranks / options.datacenters);
    return {members, std::clamp(options.ranks_per_node / stride, 1, members),
            static_cast<int>(std::clamp<int64_t>((span + per_dc - 1) / per_dc, 1,
                                                 std::min(members, options.datacenters)))};
  }

  Result<const Policies*> find_policies(const Shape& shape) {
    std::unique_ptr<Policies>& known = policies_[shape];
    if (known == nullptr) {
      SimOptions& options = *options_.emplace_back(std::make_unique<SimOptions>(variant_.options));
      options.nranks = shape.nranks;
      options.ranks_per_node = shape.ranks_per_node;
      options.datacenters = shape.datacenters;
      options.root = 0;
      PLEXUS_TRY(opened, Policies::open(options, fabric_));
      known = std::make_unique<Policies>(std::move(opened));
    }
    return known.get();
  }

  const Workload& work_;
  const JobVariant& variant_;
  const Fabric* fabric_;
  std::vector<int> strides_;
  std::vector<std::unique_ptr<SimOptions>> options_;  // borrowed by `policies_`
  std::map<Shape, std::unique_ptr<Policies>> policies_;
  std::map<std::tuple<Shape, Collective, uint64_t>, Size> sizes_;
  std::map<std::vector<WorkloadExchange>, double> exchanges_;
};

Result<WorkPrediction> predict_job(const Workload& work,
                                   const JobVariant& variant,
                                   JobCalls& calls,
                                   std::optional<size_t> policy) {
  return predict(work,
                 {.nranks = variant.options.nranks,
                  .compute_factor = variant.compute_factor,
                  .slow_rank = variant.slow_rank,
                  .slow_factor = variant.slow_factor,
                  .call_us = [&](const WorkloadCall& call) { return calls.time_us(call, policy); },
                  .is_near = [&](const WorkloadCall& call) { return calls.is_near(call); },
                  .link = [&](int from, int to) { return calls.link(from, to); }});
}

/// The time of a variant under its first policy, or with the best algorithms.
Result<double> time_of_variant(const Workload& work,
                               const JobVariant& variant,
                               const Fabric* fabric) {
  JobCalls calls(work, variant, fabric);
  PLEXUS_TRY(made, predict_job(work, variant, calls,
                               variant.is_best ? std::nullopt : std::optional<size_t>(0)));
  return made.time_us;
}

// ---- changes ----

bool has_own_ranks(const Workload& work) {
  return std::any_of(work.calls.begin(), work.calls.end(),
                     [](const WorkloadCall& call) { return call.rank >= 0; });
}

/// A rate or latency times a factor; kept where it is the model's own.
void scale(std::optional<double>& flag, double otherwise, double factor) {
  flag = flag.value_or(otherwise) * factor;
}

constexpr const char* kWhatIfKeys =
    "rate, latency, near-rate, near-latency, wide-rate, wide-latency, compute (factors), "
    "slow=FACTOR[@RANK], order=NAME,NAME, tuner=NAME, ranks-per-node=N, dcs-lost=N";

/// False: it is no such key.
bool change_link(const std::string& key, double factor, SimOptions& options) {
  if (key == "rate") {
    scale(options.gbit_per_s, SimOptions::kGbitPerS, factor);
  } else if (key == "latency") {
    scale(options.latency_us, SimOptions::kLatencyUs, factor);
  } else if (key == "near-rate") {
    scale(options.near_gbit_per_s, SimOptions::kNearGbitPerS, factor);
  } else if (key == "near-latency") {
    scale(options.near_latency_us, SimOptions::kNearLatencyUs, factor);
  } else if (key == "wide-rate") {
    options.wide_gbit_per_s *= factor;
  } else if (key == "wide-latency") {
    options.wide_latency_us *= factor;
  } else {
    return false;
  }
  return true;
}

Result<void> lose_datacenters(int lost, const Workload& work, JobVariant& variant) {
  SimOptions& options = variant.options;
  const int left = options.datacenters - lost;
  if (left < 1 || options.nranks * int64_t{left} / options.datacenters < 2 || has_own_ranks(work)) {
    return fail(Code::kInvalidArgument,
                "--what-if dcs-lost={}: expects fewer than the {} of --dcs, and a workload that "
                "all ranks do alike",
                lost, options.datacenters);
  }
  const int before = options.nranks;
  options.nranks = static_cast<int>(int64_t{options.nranks} * left / options.datacenters);
  options.datacenters = left;
  variant.what += fmt::format(" ({} of {} ranks left)", options.nranks, before);
  return ok();
}

// ---- reports ----

/// "computing 60.1 % (most of it attention forward), all_reduce of tp 30.2 % (64 x), ..."
std::string describe_path(const WorkPrediction& made) {
  constexpr size_t kSharesShown = 6;
  const auto percent = [&](double us) { return made.time_us > 0 ? 100 * us / made.time_us : 0; };
  double compute_us = 0;
  std::string most;
  std::vector<std::string> parts;
  for (const WorkShare& share : made.path) {
    if (share.computes) {
      compute_us += share.time_us;
      most = most.empty() ? share.name : most;
    } else if (parts.size() < kSharesShown) {
      parts.push_back(
          fmt::format("{} {:.1f} % ({} x)", share.name, percent(share.time_us), share.count));
    }
  }
  if (compute_us > 0) {
    parts.insert(parts.begin(),
                 fmt::format("computing {:.1f} % (most of it {})", percent(compute_us), most));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

void print_prediction(const std::string& policy,
                      const WorkPrediction& made,
                      double best_us,
                      uint32_t steps) {
  fmt::print("{:<16} {:>16.3f} us, {:.1f} % more than the best of each call\n", policy,
             made.time_us, best_us > 0 ? 100 * (made.time_us / best_us - 1) : 0);
  const auto percent = [&](double us) { return made.time_us > 0 ? 100 * us / made.time_us : 0; };
  fmt::print(
      "  {}computing {:.3f} us, communication {:.3f} us, of which exposed {:.3f} us "
      "({:.1f} %)\n",
      made.rank > 0 ? fmt::format("rank {}, the last: ", made.rank) : "", made.compute_us,
      made.communication_us, made.exposed_us, percent(made.exposed_us));
  if (steps > 1) {
    fmt::print("  a step of {}: {:.3f} us, exposed {:.3f} us\n", steps, made.time_us / steps,
               made.exposed_us / steps);
  }
  fmt::print("  critical path: {}\n", describe_path(made));
  if (made.unmatched > 0) {
    fmt::print("  {} whose send the file does not have count as if sent when asked for\n",
               counted(made.unmatched, "receive"));
  }
}

nlohmann::ordered_json json_of(const WorkPrediction& made) {
  nlohmann::ordered_json json{{"time_us", made.time_us},
                              {"compute_us", made.compute_us},
                              {"communication_us", made.communication_us},
                              {"exposed_us", made.exposed_us},
                              {"critical_path", nlohmann::ordered_json::array()}};
  for (const WorkShare& share : made.path) {
    json["critical_path"].push_back(
        {{"name", share.name}, {"time_us", share.time_us}, {"count", share.count}});
  }
  return json;
}

/// What would help most: standard changes, each on its own.
Result<std::vector<JobVariant>> list_changes(const JobVariant& base,
                                             const Workload& work,
                                             bool is_fixed) {
  std::vector<std::string> texts = {"compute=0.5", "slow=1.2"};
  if (!is_fixed) {
    texts.insert(texts.end(), {"rate=2", "latency=0.5"});
    if (base.options.ranks_per_node > 1) {
      texts.emplace_back("near-rate=2");
    }
    if (base.options.datacenters > 1) {
      texts.insert(texts.end(), {"wide-rate=2", "wide-latency=0.5"});
    }
  }
  std::vector<std::string> names;
  for (const WorkloadGroup& group : work.groups) {
    if (&group != &work.groups.front() &&
        std::find(names.begin(), names.end(), group.name) == names.end()) {
      names.push_back(group.name);
    }
  }
  if (names.size() > 1 && names.size() <= 4) {
    texts.push_back(fmt::format("order={}", fmt::join(names.rbegin(), names.rend(), ",")));
  }
  std::vector<JobVariant> variants;
  for (const std::string& text : texts) {
    PLEXUS_TRY(variant, parse_what_if(text, base, work));
    variants.push_back(std::move(variant));
  }
  variants.push_back(base);
  variants.back().what = "the best algorithm for each call";
  variants.back().is_best = true;
  variants.push_back(base);
  variants.back().what = "communication that costs nothing";
  variants.back().is_hidden = true;
  return variants;
}

/// Those of --what-if and --sensitivity.
Result<std::vector<JobVariant>> list_variants(const JobVariant& base,
                                              const Workload& work,
                                              bool on_fabric) {
  std::vector<JobVariant> variants;
  for (const std::string& text : base.options.what_if) {
    PLEXUS_TRY(variant, parse_what_if(text, base, work));
    variants.push_back(std::move(variant));
  }
  if (base.options.sensitivity) {
    PLEXUS_TRY(standard,
               list_changes(base, work, on_fabric || base.options.calibration.has_value()));
    std::move(standard.begin(), standard.end(), std::back_inserter(variants));
  }
  return variants;
}

Result<void> compare_changes(const Workload& work,
                             const std::vector<JobVariant>& variants,
                             double base_us,
                             const Fabric* fabric,
                             nlohmann::ordered_json& json,
                             bool is_printed) {
  std::vector<std::pair<double, std::string>> rows;
  for (const JobVariant& variant : variants) {
    PLEXUS_TRY(time_us, time_of_variant(work, variant, fabric));
    rows.emplace_back(time_us, variant.what);
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  if (is_printed && !rows.empty()) {
    fmt::print("{:<48} {:>16} {:>10}\n", "what if (shortest first)", "time us", "change");
  }
  for (const auto& [time_us, what] : rows) {
    const double change = base_us > 0 ? time_us / base_us - 1 : 0;
    if (is_printed) {
      fmt::print("{:<48} {:>16.3f} {:>+8.1f} %\n", what, time_us, 100 * change);
    }
    json["what_if"].push_back({{"what", what}, {"time_us", time_us}, {"change", change}});
  }
  return ok();
}

/// Of one file, or of a file for each rank, in the order of the numbers in their names.
Result<Workload> read_workload(std::vector<std::string> files) {
  std::stable_sort(files.begin(), files.end(), [](const std::string& a, const std::string& b) {
    return strverscmp(a.c_str(), b.c_str()) < 0;
  });
  std::vector<Workload> ranks;
  for (const std::string& file : files) {
    PLEXUS_TRY(text, read_file(file, kWorkloadFileBytesMax));
    auto parsed = parse_workload(text);
    if (parsed.has_error()) {
      return std::move(parsed).error().with_context(file);
    }
    ranks.push_back(std::move(parsed).value());
  }
  return ranks.size() == 1 ? std::move(ranks.front()) : join_ranks(std::move(ranks));
}

/// The job's ranks, where the flags leave them to the file.
Result<SimOptions> fit_options(const SimOptions& given, const Workload& work) {
  SimOptions options = given;
  options.trace.clear();
  options.nranks = given.has_ranks || work.nranks == 0 ? given.nranks : std::max(work.nranks, 2);
  if (!given.has_ranks_per_node && work.ranks_per_node > 0 && !given.has_ranks) {
    options.ranks_per_node = work.ranks_per_node;
  }
  if (options.tuners.empty()) {
    options.tuners = {"default"};
  }
  if (has_own_ranks(work) && options.nranks < work.nranks) {
    return fail(Code::kInvalidArgument,
                "--ranks: the workload has calls of {} ranks: expects as many", work.nranks);
  }
  return options;
}

}  // namespace

Result<JobVariant> parse_what_if(const std::string& text,
                                 const JobVariant& base,
                                 const Workload& work) {
  const size_t equals = std::min(text.find('='), text.size());
  const std::string key = text.substr(0, equals);
  const std::string value = text.substr(std::min(equals + 1, text.size()));
  JobVariant variant = base;
  variant.what = fmt::format("{} {}", key, value);
  constexpr double kFactorMax = 1e6;
  constexpr int kCountMax = 1 << 20;
  const size_t at = std::min(value.find('@'), value.size());
  const auto factor = parse_number(std::string_view(value).substr(0, at), 1e-6, kFactorMax);
  const auto count = parse_int(value, {1, kCountMax});
  if (key == "order" && !value.empty()) {
    variant.order = value;
    return variant;
  }
  if (key == "tuner" && !value.empty()) {
    variant.options.tuners = {value};
    return variant;
  }
  if (key == "dcs-lost" && count.has_value()) {
    PLEXUS_TRY(lose_datacenters(static_cast<int>(count.value()), work, variant));
    return variant;
  }
  if (key == "ranks-per-node" && count.has_value()) {
    variant.options.ranks_per_node = static_cast<int>(count.value());
    return variant;
  }
  if (factor.has_error()) {
    return fail(Code::kInvalidArgument, "--what-if: expects {}, not '{}'", kWhatIfKeys, text);
  }
  variant.what = fmt::format("{} x {}", key, value);
  if (key == "compute") {
    variant.compute_factor *= factor.value();
    return variant;
  }
  if (key == "slow") {
    const auto rank = parse_int(at < value.size() ? value.substr(at + 1) : "0", {0, kCountMax});
    if (rank.has_error() || (at < value.size() && !has_own_ranks(work))) {
      return fail(Code::kInvalidArgument,
                  "--what-if slow: expects FACTOR@RANK, and a rank only for a workload that says "
                  "what each does, not '{}'",
                  value);
    }
    variant.what =
        fmt::format("computing of {} x {}",
                    has_own_ranks(work) ? fmt::format("rank {}", rank.value()) : "one rank",
                    value.substr(0, at));
    variant.slow_rank = has_own_ranks(work) ? static_cast<int>(rank.value()) : -1;
    variant.slow_factor = factor.value();
    return variant;
  }
  if (variant.options.calibration.has_value() || !variant.options.fabric_file.empty()) {
    return fail(Code::kInvalidArgument,
                "--what-if {}: with --calibration and --fabric change those files", key);
  }
  return change_link(key, factor.value(), variant.options)
             ? Result<JobVariant>(std::move(variant))
             : fail(Code::kInvalidArgument, "--what-if: expects {}, not '{}'", kWhatIfKeys, text);
}

Result<void> run_workload(const SimOptions& given, const Fabric* fabric) {
  PLEXUS_TRY(work, read_workload(given.workload));
  PLEXUS_TRY(options, fit_options(given, work));
  const bool is_printed = options.json != "-" && options.exported != "-";
  if (options.exported.ends_with(".et")) {
    PLEXUS_TRY(write_rank_files(options.exported, options.nranks,
                                [&](int rank) { return format_chakra_protobuf(work, rank); }));
  } else if (!options.exported.empty()) {
    PLEXUS_TRY(goal, has_own_ranks(work) ? format_goal(work) : format_chakra(work, 0));
    PLEXUS_TRY(write_output(options.exported, goal));
  }
  const JobVariant base{.options = options, .order = options.order};
  PLEXUS_TRY(variants, list_variants(base, work, fabric != nullptr));
  if (is_printed) {
    fmt::print("{}\n{} ranks, {} on a node\n", describe(work), options.nranks,
               options.ranks_per_node);
  }
  JobCalls calls(work, base, fabric);
  auto best = predict_job(work, base, calls, std::nullopt);
  if (best.has_error()) {
    return std::move(best).error().with_context(given.workload.front());
  }
  const double best_us = best.value().time_us;
  nlohmann::ordered_json json{
      {"understood", describe(work)}, {"ranks", options.nranks},
      {"best_us", best_us},           {"policies", nlohmann::ordered_json::object()},
      {"steps", work.steps},          {"predicted", nlohmann::ordered_json::object()}};
  double first_us = 0;
  for (size_t policy = 0; policy < options.tuners.size(); ++policy) {
    PLEXUS_TRY(made, predict_job(work, base, calls, policy));
    json["policies"][options.tuners[policy]] = made.time_us;
    json["predicted"][options.tuners[policy]] = json_of(made);
    first_us = policy == 0 ? made.time_us : first_us;
    if (is_printed) {
      print_prediction(options.tuners[policy], made, best_us, work.steps);
    }
  }
  PLEXUS_TRY(compare_changes(work, variants, first_us, fabric, json, is_printed));
  using Handler = nlohmann::ordered_json::error_handler_t;
  return options.json.empty()
             ? Result<void>(ok())
             : write_output(options.json, json.dump(1, ' ', false, Handler::replace) + "\n");
}

}  // namespace plexus
