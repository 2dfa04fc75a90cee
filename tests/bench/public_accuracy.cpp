// SPDX-License-Identifier: Apache-2.0
// How far off predicted times of NCCL on GPUs are, by public measurements: fits the costs of
// tools/cli/topo/fitted_times to them, and scores machines that had no part in the fit.
//
//   public_accuracy DATA            # the tables of docs/simulator.md
//   public_accuracy DATA --costs    # the fitted costs, for fitted_times.cpp
//   public_accuracy DATA --table T  # a table row by row, by the costs of fitted_times.cpp
//   public_accuracy DATA --svg FILE T...   # pictures of tables, measured times as boxes
#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <set>

#include <fmt/core.h>

#include "tests/bench/public_fit.hpp"
#include "tools/cli/topo/predicted.hpp"

namespace plexus {
namespace {

constexpr size_t kSmall = 64 << 10;
constexpr size_t kLarge = 16 << 20;
constexpr std::array kBands = {"< 64 KiB", "to 16 MiB", "> 16 MiB"};

size_t band_of(size_t bytes) { return bytes < kSmall ? 0 : bytes <= kLarge ? 1 : 2; }

struct Scored {
  const Sample* sample;
  double ratio;  // predicted / measured
};

double at_share(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values.empty()
             ? 0
             : values[std::min(values.size() - 1,
                               static_cast<size_t>(share * static_cast<double>(values.size())))];
}

std::vector<double> errors_of(const std::vector<Scored>& rows,
                              const std::function<bool(const Sample&)>& keep) {
  std::vector<double> errors;
  for (const Scored& row : rows) {
    if (keep(*row.sample)) {
      errors.push_back(100 * std::abs(row.ratio - 1));
    }
  }
  return errors;
}

void print_line(const char* what, const std::vector<Scored>& rows, const auto& keep) {
  std::string line = fmt::format("| {} |", what);
  for (size_t band = 0; band < kBands.size(); ++band) {
    const auto errors = errors_of(
        rows, [&](const Sample& sample) { return keep(sample) && band_of(sample.bytes) == band; });
    line += errors.empty() ? " |"
                           : fmt::format(" {:.1f}, {:.0f} ({}) |", at_share(errors, 0.5),
                                         at_share(errors, 0.9), errors.size());
  }
  fmt::print("{}\n", line);
}

void print_scores(const char* title, const std::vector<Scored>& rows) {
  fmt::print("\n{}: |predicted / measured - 1| in %, median, p90 (rows)\n| collective |", title);
  for (const char* const band : kBands) {
    fmt::print(" {} |", band);
  }
  fmt::print("\n| --- | --- | --- | --- |\n");
  for (size_t call = 0; call <= static_cast<size_t>(FittedCall::kSendRecv); ++call) {
    const auto one = static_cast<FittedCall>(call);
    const auto keep = [&](const Sample& sample) { return sample.call == one; };
    if (!errors_of(rows, keep).empty()) {
      print_line(name(one), rows, keep);
    }
  }
  print_line("all", rows, [](const Sample&) { return true; });
}

std::vector<Scored> score(const FittedCosts& costs, const std::vector<Sample>& samples) {
  std::vector<Scored> rows;
  rows.reserve(samples.size());
  for (const Sample& sample : samples) {
    rows.push_back({&sample, predict(costs, sample) / sample.time_us});
  }
  return rows;
}

struct Split {
  std::vector<Sample> in;
  std::vector<Sample> out;
};
Split split(const std::vector<Sample>& samples, const auto& leaves) {
  Split parts;
  for (const Sample& sample : samples) {
    if (leaves(sample)) {
      parts.out.push_back(sample);
    } else if (sample.is_fitted) {
      parts.in.push_back(sample);
    }
  }
  weigh(parts.in);
  return parts;
}

/// A machine is of a known family when others of its generation of GPUs, and of its network if it
/// is of several nodes, were fitted.
bool is_known(const Sample& sample, const std::vector<Sample>& fitted) {
  const auto any = [&](const auto& alike) {
    return std::any_of(fitted.begin(), fitted.end(), alike);
  };
  return any([&](const Sample& other) { return other.machine->gpu == sample.machine->gpu; }) &&
         (sample.machine->cluster.nodes == 1 || any([&](const Sample& other) {
            return other.machine->cluster.nodes > 1 &&
                   other.machine->network == sample.machine->network;
          }));
}

/// Each machine by costs that were fitted without it.
void cross_validate(const std::vector<Sample>& samples) {
  std::set<std::string> labels;
  for (const Sample& sample : samples) {
    labels.insert(sample.label);
  }
  std::vector<Split> folds;
  folds.reserve(labels.size());
  std::vector<Scored> known;
  std::vector<Scored> unknown;
  std::map<std::string, std::vector<double>> tables;
  for (const std::string& label : labels) {
    folds.push_back(split(samples, [&](const Sample& one) { return one.label == label; }));
    const Split& fold = folds.back();
    if (fold.in.empty()) {
      continue;
    }
    for (const Scored& row : score(fit(fold.in), fold.out)) {
      (is_known(*row.sample, fold.in) ? known : unknown).push_back(row);
      tables[row.sample->table].push_back(row.ratio);
    }
  }
  print_scores("Machines of a known family, left out of the fit", known);
  if (!unknown.empty()) {
    print_scores("Machines of which the GPUs or the network are new", unknown);
  }
  fmt::print("\nBy table, left out: median of predicted / measured, least, most (rows)\n");
  for (const auto& [table, ratios] : tables) {
    fmt::print("  {:36} {:5.2f} {:6.2f} {:6.2f} ({})\n", table, at_share(ratios, 0.5),
               at_share(ratios, 0), at_share(ratios, 1), ratios.size());
  }
}

void leave_generations_out(const std::vector<Sample>& samples) {
  std::vector<Split> folds;
  folds.reserve(kGpuFamilies);
  std::vector<Scored> rows;
  for (const GpuFamily kind : {GpuFamily::kAmpere, GpuFamily::kHopper, GpuFamily::kBlackwell}) {
    folds.push_back(split(samples, [&](const Sample& one) { return one.machine->gpu == kind; }));
    if (!folds.back().in.empty() && !folds.back().out.empty()) {
      const auto scored = score(fit(folds.back().in), folds.back().out);
      rows.insert(rows.end(), scored.begin(), scored.end());
    }
  }
  print_scores("A whole generation of GPUs left out (Ampere, Hopper, Blackwell in turn)", rows);
}

/// A table is slower than it should be when the median of its large calls is so by 1.5 times.
/// Smaller calls have no part in it: how they are launched differs as much between sound tables.
void print_flags(const FittedCosts& costs, const std::vector<Sample>& samples) {
  constexpr double kSlower = 1.5;
  std::map<std::string, std::vector<double>> tables;
  std::map<std::string, bool> faults;
  for (const Scored& row : score(costs, samples)) {
    faults[row.sample->table] = row.sample->is_fault;
    if (band_of(row.sample->bytes) == 2) {
      tables[row.sample->table].push_back(1 / row.ratio);
    }
  }
  std::array<std::array<int, 2>, 2> counts = {};  // by fault, flagged
  fmt::print("\nLarge calls, measured / predicted, of tables that are faults or flagged:\n");
  for (const auto& [table, slower] : tables) {
    const double median = at_share(slower, 0.5);
    const bool flagged = median >= kSlower;
    const bool fault = faults[table];
    ++counts.at(fault ? 1 : 0).at(flagged ? 1 : 0);
    if (fault || flagged) {
      fmt::print("  {:36} {:.2f} {}{}\n", table, median, flagged ? "flagged" : "not flagged",
                 fault ? ", FAULT CASE" : "");
    }
  }
  fmt::print("faults flagged {} of {}; sound tables flagged {} of {}\n", counts[1][1],
             counts[1][0] + counts[1][1], counts[0][1], counts[0][0] + counts[0][1]);
}

void print_groups(const FittedCosts& costs, const std::vector<Sample>& groups) {
  std::map<std::string, std::vector<double>> labels;
  for (const Scored& row : score(costs, groups)) {
    if (band_of(row.sample->bytes) == 2) {
      labels[fmt::format("{}, {}", name(row.sample->call), row.sample->label)].push_back(row.ratio);
    }
  }
  fmt::print(
      "\nGroups at once on one node (XLA, > 16 MiB): median of predicted / measured, where the "
      "prediction is that of a group alone\n");
  for (const auto& [label, ratios] : labels) {
    fmt::print("  {:32} {:.2f} (rows {})\n", label, at_share(ratios, 0.5), ratios.size());
  }
}

void print_choices(const std::vector<LoggedChoice>& choices) {
  std::map<std::string, std::array<int, 2>> machines;
  int right = 0;
  for (const LoggedChoice& choice : choices) {
    const bool same = choice.logged == choice.predicted;
    right += same ? 1 : 0;
    ++machines[choice.machine].at(same ? 0 : 1);
    if (!same) {
      fmt::print("  {} {} {}: logged {}, predicted {}\n", choice.machine, name(choice.call),
                 choice.bytes, choice.logged, choice.predicted);
    }
  }
  for (const auto& [machine, counts] : machines) {
    fmt::print("  {}: {} of {}\n", machine, counts[0], counts[0] + counts[1]);
  }
  fmt::print("choices right: {} of {} ({:.0f} %)\n", right, choices.size(),
             choices.empty() ? 0 : 100.0 * right / static_cast<double>(choices.size()));
}

void print_table(const std::vector<Sample>& samples, const std::string& table) {
  for (const Sample& sample : samples) {
    if (sample.table == table) {
      const double us = predict(fitted_costs(), sample);
      fmt::print("{:12} {:9} {:7} {:12.2f} {:12.2f} {:+.0f} %\n", sample.bytes,
                 sample.way.direct ? "direct" : name(sample.way.algorithm),
                 name(sample.way.protocol), sample.time_us, us, 100 * (us / sample.time_us - 1));
    }
  }
}

Result<int> draw(const std::vector<Sample>& samples,
                 const std::string& file,
                 const std::vector<std::string>& names) {
  std::vector<Plot> plots;
  for (const std::string& table : names) {
    PredictedCall call{.call = FittedCall::kAllReduce};
    const Sample* last = nullptr;
    for (const Sample& sample : samples) {
      if (sample.table == table) {
        last = &sample;
        call.call = sample.call;
        call.measured.emplace_back(sample.bytes, sample.time_us);
      }
    }
    if (last == nullptr) {
      return fail(Code::kInvalidArgument, "no table '{}'", table);
    }
    plots.push_back(plot_predicted(
        {.machine = *last->machine, .setup = last->setup, .calls = {std::move(call)}},
        fmt::format("{}: {}", last->label, table)));
  }
  std::ofstream out(file);
  out << draw_plots(plots);
  return out.flush() ? 0 : 1;
}

Result<int> run(const std::string& folder,
                const std::string& mode,
                const std::vector<std::string>& rest) {
  PLEXUS_TRY(machines, Machines::load(PLEXUS_PUBLIC_MACHINES));
  std::map<std::string, int> left_out;
  PLEXUS_TRY(all, read_samples(folder, machines, &left_out));
  if (mode == "--table") {
    print_table(all, rest.front());
    return 0;
  }
  if (mode == "--svg") {
    return draw(all, rest.front(), {rest.begin() + 1, rest.end()});
  }
  // L40S: 8 GPUs reach a fourteenth of the bandwidth of 2; what is between them is not stated.
  std::vector<Sample> sound;
  std::copy_if(all.begin(), all.end(), std::back_inserter(sound),
               [](const Sample& sample) { return !sample.is_fault && sample.label != "l40s"; });
  const Split parts = split(sound, [](const Sample&) { return false; });
  const FittedCosts costs = fit(parts.in);
  if (mode == "--costs") {
    fmt::print("{}", format_costs(costs));
    return 0;
  }
  PLEXUS_TRY(groups, read_groups(folder, machines));
  PLEXUS_TRY(choices, read_choices(folder, machines));
  fmt::print("{} rows, {} of them fitted; besides {} of faults and of the L40S\n", sound.size(),
             parts.in.size(), all.size() - sound.size());
  for (const auto& [label, rows] : left_out) {
    fmt::print("not described: {} ({} rows)\n", label, rows);
  }
  print_scores("All machines, none left out of the fit", score(costs, sound));
  cross_validate(sound);
  leave_generations_out(sound);
  print_flags(fitted_costs(), all);
  print_groups(fitted_costs(), groups);
  fmt::print("\nNCCL's choices:\n");
  print_choices(choices);
  return 0;
}

}  // namespace
}  // namespace plexus

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const std::string mode = words.size() > 1 ? words[1] : "";
  const size_t least = mode == "--table" ? 3 : mode == "--svg" ? 4 : mode == "--costs" ? 2 : 1;
  if (words.size() < least || (mode != "--svg" && words.size() > least)) {
    fmt::print(stderr,
               "usage: public_accuracy DATA [--costs | --table TABLE | --svg FILE TABLE...]\n");
    return 2;
  }
  const auto done =
      plexus::run(words[0], mode, {words.begin() + std::min<long>(2, argc - 1), words.end()});
  if (!done) {
    fmt::print(stderr, "public_accuracy: {}\n", done.error().message());
    return 1;
  }
  return done.value();
}
