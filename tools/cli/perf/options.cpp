// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/perf/options.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "tools/cli/flags.hpp"

namespace plexus::perf {
namespace {

constexpr size_t kDefaultBytes = size_t{32} << 20U;
constexpr int kRanksMax = 65536;
constexpr int kManyTimes = 1000000;
constexpr double kFactorMax = 1048576;

/// A flag whose value is the name of a row of `table`, or `all`; `value` converts a row.
template <class Row, class Value>
void add_names(CLI::App& app,
               const std::string& flag,
               std::span<const Row> table,
               Value Row::*value,
               std::vector<Value>* target,
               const std::string& help) {
  add_flag(
      app, flag,
      [=](const std::string& text) -> Result<void> {
        std::vector<Value> named;
        for (const Row& row : table) {
          if (text == row.name || text == "all") {
            named.push_back(row.*value);
          }
        }
        if (named.empty()) {
          return fail(Code::kInvalidArgument, "expects {} or all, not '{}'", names_of(table), text);
        }
        *target = std::move(named);
        return ok();
      },
      fmt::format("{}: {} or all", help, names_of(table)));
}

void add_text(CLI::App& app,
              const std::string& flag,
              std::string* target,
              const std::string& what,
              const std::string& help) {
  add_flag(
      app, flag,
      [=](const std::string& text) -> Result<void> {
        if (text.empty()) {
          return fail(Code::kInvalidArgument, "expects {}, not an empty text", what);
        }
        *target = text;
        return ok();
      },
      help);
}

void add_collective(CLI::App& app, PerfOptions* options) {
  add_flag(
      app, "COLL",
      [options](const std::string& text) -> Result<void> {
        const auto found = find_collective(text);
        if (!found) {
          return fail(Code::kInvalidArgument, "expects {}, not '{}'", names_of(collectives()),
                      text);
        }
        options->collective = *found;
        return ok();
      },
      names_of(collectives()))
      ->required();
}

void add_size_flags(CLI::App& app, SizeRange* sizes) {
  const auto bound = [&](const char* flag, std::optional<size_t>* target, const char* help) {
    add_flag(
        app, flag,
        [target](const std::string& text) -> Result<void> {
          PLEXUS_TRY(value, parse_size(text));
          *target = value;
          return ok();
        },
        help);
  };
  bound("-b,--minbytes", &sizes->min_bytes,
        "smallest size (default 32M, or -e when that is smaller)");
  bound("-e,--maxbytes", &sizes->max_bytes,
        "largest size (default 32M, or -b when that is larger)");
  add_flag(
      app, "-i,--stepbytes",
      [sizes](const std::string& text) -> Result<void> {
        PLEXUS_TRY(value, parse_size(text));
        sizes->step_bytes = value;
        return ok();
      },
      "added from size to size (default 1M)");
  add_flag(
      app, "-f,--stepfactor",
      [sizes](const std::string& text) -> Result<void> {
        PLEXUS_TRY(value, parse_number(text, 0, kFactorMax));
        sizes->step_factor = value;
        return ok();
      },
      "multiply from size to size instead (up to 1: do not)");
}

void add_run_flags(CLI::App& app, PerfOptions* options) {
  add_int(app, "-n,--iters", &options->iterations.iterations, {1, kManyTimes},
          "timed iterations per row (default 20, fewer when a row would take longer than 2 s)");
  add_flag(
      app, "--budget-ms",
      [options](const std::string& text) -> Result<void> {
        PLEXUS_TRY(value, parse_number(text, 1, kManyTimes));
        options->iterations.budget_us = value * 1000;
        return ok();
      },
      "instead of -n: as many iterations as fit in this many milliseconds, 5 to 3000");
  add_int(app, "-w,--warmup_iters", &options->warmup, {0, kManyTimes},
          "warm-up iterations (default 5)");
  add_int(app, "-c,--check", &options->check, {0, kManyTimes},
          "operations per row whose every result element is checked (default 1; 0: none)");
  add_names(app, "-o,--op", ops(), &OpInfo::op, &options->ops, "reduction (default sum)");
  add_names(app, "-d,--datatype", types(), &TypeInfo::type, &options->types,
            "data type (default float)");
  add_flag(
      app, "-r,--root",
      [options](const std::string& text) -> Result<void> {
        if (text == "all" || text == "-1") {
          options->root.reset();
          return ok();
        }
        PLEXUS_TRY(value, parse_int(text, {0, kRanksMax - 1}));
        options->root = static_cast<int>(value);
        return ok();
      },
      "root rank of broadcast, reduce, gather and scatter, or all (default 0)");
  add_choice<Blocking>(app, "-z,--blocking",
                       {{"0", Blocking::kNone},
                        {"1", Blocking::kWaitAndBarrier},
                        {"2", Blocking::kWait},
                        {"3", Blocking::kIteration}},
                       &options->blocking,
                       "1: wait after each operation and have a barrier; 2: only wait; 3: an "
                       "iteration is one operation");
  add_int(app, "-T,--timeout", &options->timeout_s, {0, kManyTimes},
          "end the job after this many seconds without a finished row (default 0: never)");
}

void add_start_flags(CLI::App& app, PerfOptions* options) {
  add_flag(
      app, "--mode",
      [options](const std::string& text) -> Result<void> {
        for (const Mode mode : {Mode::kProcs, Mode::kThreads, Mode::kSingle}) {
          if (text == name_of(mode)) {
            options->mode = mode;
            options->started_here = true;
            return ok();
          }
        }
        return fail(Code::kInvalidArgument, "expects procs, threads or single, not '{}'", text);
      },
      "procs: a process per rank (default); threads: a thread per rank; single: one thread drives "
      "all");
  add_choice<Binding>(
      app, "--bind",
      {{"core", Binding::kOwn},
       {"share", Binding::kShared},
       {"one", Binding::kOne},
       {"none", Binding::kNone}},
      &options->binding,
      "core: each rank that is started here is pinned to a core of its own, when there are enough "
      "(default); share: also when there are not, rank by rank around the cores; one: all to one "
      "core; none: not pinned");
}

void add_output_flags(CLI::App& app, Outputs* outputs) {
  add_choice<Columns>(
      app, "--columns", {{"nccl-tests", Columns::kNcclTests}, {"plexus", Columns::kPlexus}},
      &outputs->columns,
      "of the table: nccl-tests' (default), or plexus: with what the library chose");
  add_text(app, "--json", &outputs->json, "a file or -",
           "write one JSON object to this file (-: stdout)");
  add_text(app, "--tsv", &outputs->tsv, "a file or -",
           "write tab-separated rows to this file (-: stdout)");
}

void add_rank_flags(CLI::App& app, PerfOptions* options) {
  add_flag(
      app, "--ranks",
      [options](const std::string& text) -> Result<void> {
        PLEXUS_TRY(value, parse_int(text, {1, kRanksMax}));
        options->nranks = static_cast<int>(value);
        options->started_here = true;
        return ok();
      },
      "ranks started here (default 4, or those of -t and -g)");
}

Joined& joined_of(PerfOptions* options) {
  if (!options->joined) {
    options->joined.emplace(Joined{.rank = -1, .nranks = 0, .rendezvous = {}});
  }
  return *options->joined;
}

void add_joined_flags(CLI::App& app, PerfOptions* options) {
  add_flag(
      app, "--rank",
      [options](const std::string& text) -> Result<void> {
        PLEXUS_TRY(value, parse_int(text, {0, kRanksMax - 1}));
        joined_of(options).rank = static_cast<int>(value);
        return ok();
      },
      "be this rank of a job started elsewhere; needs --nranks and --rendezvous");
  add_flag(
      app, "--nranks",
      [options](const std::string& text) -> Result<void> {
        PLEXUS_TRY(value, parse_int(text, {1, kRanksMax}));
        joined_of(options).nranks = static_cast<int>(value);
        return ok();
      },
      "ranks of that job");
  add_flag(
      app, "--rendezvous",
      [options](const std::string& text) -> Result<void> {
        const size_t colon = text.rfind(':');
        if (colon == std::string::npos || colon == 0 ||
            !parse_int(text.substr(colon + 1), {1, 65535})) {
          return fail(Code::kInvalidArgument,
                      "expects HOST:PORT (an IPv6 address as [ADDRESS]:PORT), not '{}'", text);
        }
        joined_of(options).rendezvous = text;
        return ok();
      },
      "HOST:PORT on which rank 0 listens; with -t or -g, --rank and --nranks count processes");
}

void add_library_flags(CLI::App& app, PerfOptions* options) {
  add_text(app, "--algo", &options->algorithm, "an algorithm's name, such as ring",
           "force for COLL, as NCCL_ALGO does");
  add_text(app, "--proto", &options->protocol, "a protocol's name, such as Simple",
           "force for COLL, as NCCL_PROTO does");
  constexpr int kChannelsMax = 64;
  add_int(app, "--channels", &options->channels, {1, kChannelsMax}, "force the number of channels");
  add_choice<Buffers>(
      app, "--buffers",
      {{"plain", Buffers::kPlain},
       {"registered", Buffers::kRegistered},
       {"window", Buffers::kWindow}},
      &options->buffers,
      "plain: from malloc (default); registered: from ncclMemAlloc, ncclCommRegister; window: from "
      "ncclMemAlloc, in symmetric windows (ncclCommWindowRegister)");
  add_choice<Stream>(app, "--stream", {{"null", Stream::kNull}, {"async", Stream::kAsync}},
                     &options->stream,
                     "null: calls return when complete (default); async: through a host stream");
}

std::string names_of_ops(const PerfOptions& options) {
  std::vector<const char*> names;
  for (const Op op : options.ops) {
    names.push_back(name_of(op));
  }
  return fmt::format("{}", fmt::join(names, ","));
}

const char* name_of(Buffers buffers) {
  switch (buffers) {
    case Buffers::kPlain:
      return "plain";
    case Buffers::kRegistered:
      return "registered";
    case Buffers::kWindow:
      break;
  }
  return "window";
}

}  // namespace

const char* name_of(Mode mode) noexcept {
  return mode == Mode::kProcs ? "procs" : mode == Mode::kThreads ? "threads" : "single";
}

Workers compute_workers(const PerfOptions& options) noexcept {
  if (options.mode == Mode::kThreads) {
    return {.processes = 1, .threads = options.nranks, .ranks_per_thread = 1};
  }
  if (options.mode == Mode::kSingle) {
    return {.processes = 1, .threads = 1, .ranks_per_thread = options.nranks};
  }
  Workers workers = {.processes = 1,
                     .threads = options.threads.value_or(1),
                     .ranks_per_thread = options.ranks_per_thread.value_or(1)};
  workers.processes = options.nranks / workers.ranks_per_process();
  return workers;
}

bool forks(const PerfOptions& options) noexcept {
  const Workers workers = compute_workers(options);
  return options.mode ? options.mode == Mode::kProcs
                      : workers.processes > 1 || workers.ranks_per_process() == 1;
}

const char* start_name(const PerfOptions& options) noexcept {
  const Workers workers = compute_workers(options);
  if (options.mode) {
    return name_of(*options.mode);
  }
  if (workers.ranks_per_process() == 1) {
    return name_of(Mode::kProcs);
  }
  if (workers.processes > 1 || (workers.threads > 1 && workers.ranks_per_thread > 1)) {
    return "mixed";
  }
  return name_of(workers.threads > 1 ? Mode::kThreads : Mode::kSingle);
}

void add_perf_flags(CLI::App& app, PerfOptions* options) {
  add_collective(app, options);
  add_size_flags(app, &options->sizes);
  add_run_flags(app, options);
  add_rank_flags(app, options);
  add_start_flags(app, options);
  add_joined_flags(app, options);
  add_library_flags(app, options);
  add_output_flags(app, &options->outputs);
  add_nccl_tests_flags(app, options);
}

void add_run_flags_of_file(CLI::App& app, PerfOptions* options) {
  add_size_flags(app, &options->sizes);
  add_run_flags(app, options);
  add_start_flags(app, options);
  add_output_flags(app, &options->outputs);
}

namespace {

Result<void> check_sizes(const SizeRange& sizes) {
  const std::optional<size_t>& least = sizes.min_bytes;
  const std::optional<size_t>& most = sizes.max_bytes;
  if (least && most && *least > *most) {
    return fail(Code::kInvalidArgument, "--minbytes expects a size up to --maxbytes ({}), not {}",
                *most, *least);
  }
  if (sizes.step_bytes == 0 && sizes.step_factor <= 1 && least != most) {
    return fail(Code::kInvalidArgument, "--stepbytes expects a size greater than 0, such as 1M");
  }
  return ok();
}

Result<void> check_joined(const PerfOptions& options) {
  if (options.started_here) {
    return fail(Code::kInvalidArgument,
                "--ranks and --mode start ranks here, --rank, --nranks and --rendezvous join a "
                "job: use one set or the other");
  }
  const Joined& joined = *options.joined;
  if (joined.nranks == 0 && joined.rank == -1) {
    return ok();
  }
  if (joined.nranks == 0) {
    return fail(Code::kInvalidArgument, "--rank needs --nranks, the number of ranks of the job");
  }
  if (joined.rank < 0 || joined.rank >= joined.nranks) {
    return fail(Code::kInvalidArgument, "--rank expects a rank from 0 to {} when --nranks is {}",
                joined.nranks - 1, joined.nranks);
  }
  if (joined.rendezvous.empty()) {
    return fail(Code::kInvalidArgument,
                "--rank needs --rendezvous, the HOST:PORT on which rank 0 listens");
  }
  return ok();
}

Result<void> check_workers(const PerfOptions& options) {
  const int wanted = options.threads.value_or(1) * options.ranks_per_thread.value_or(1);
  if (wanted > 1 && options.mode && options.mode != Mode::kProcs) {
    return fail(Code::kInvalidArgument,
                "--mode {} says how the ranks are started, and so do -t and -g: leave one out",
                name_of(*options.mode));
  }
  if (options.nranks % wanted != 0) {
    return fail(Code::kInvalidArgument,
                "--ranks expects a multiple of the {} ranks of a process (-t, -g), not {}", wanted,
                options.nranks);
  }
  return ok();
}

Result<void> complete_collective(PerfOptions* changed) {
  const PerfOptions& options = *changed;
  const auto nranks = static_cast<unsigned>(options.nranks);
  if (options.collective == Collective::kHyperCube && !std::has_single_bit(nranks)) {
    return fail(Code::kInvalidArgument, "hypercube expects 1, 2, 4, 8, ... ranks, not {}", nranks);
  }
  if (info_of(options.collective).is_point_to_point() && !options.algorithm.empty()) {
    return fail(Code::kInvalidArgument,
                "{} is made of sends and receives, which have no algorithm to choose: leave --algo "
                "out",
                info_of(options.collective).name);
  }
  if (options.collective == Collective::kPut) {
    changed->buffers = Buffers::kWindow;  // there is no put from or to other memory
  }
  const int matrix_ranks = options.traffic.matrix_ranks();
  if (matrix_ranks == 0) {
    return ok();
  }
  if (options.nranks > matrix_ranks) {
    return fail(Code::kInvalidArgument,
                "NCCL_TESTS_ALLTOALLV_MATRIX_FILE is a matrix of {} ranks, there are {}",
                matrix_ranks, options.nranks);
  }
  changed->sizes.min_bytes = options.traffic.largest_bytes(options.nranks, 0);
  changed->sizes.max_bytes = changed->sizes.min_bytes;
  return ok();
}

}  // namespace

Result<void> complete_options(PerfOptions* options) {
  constexpr int kRanksDefault = 4;
  if (options->nranks == 0) {
    options->nranks = options->threads || options->ranks_per_thread
                          ? options->threads.value_or(1) * options->ranks_per_thread.value_or(1)
                          : kRanksDefault;
  }
  PLEXUS_TRY(check_sizes(options->sizes));
  PLEXUS_TRY(check_workers(*options));
  PLEXUS_TRY(complete_collective(options));
  if (options->root && *options->root >= options->nranks) {
    return fail(Code::kInvalidArgument, "--root expects a rank from 0 to {} or all, not {}",
                options->nranks - 1, *options->root);
  }
  return options->joined ? check_joined(*options) : ok();
}

bool has_in_place_rows(const PerfOptions& options) noexcept {
  return info_of(options.collective).in_place || options.outputs.is_nccl_tests();
}

Shape make_shape(const PerfOptions& options, const Variant& variant, size_t count) {
  return {.collective = options.collective,
          .type = variant.type,
          .nranks = options.nranks,
          .rank = 0,
          .root = variant.root,
          .count = count,
          .in_place = false,
          .traffic = &options.traffic};
}

std::vector<size_t> compute_sizes(const SizeRange& range) {
  const size_t max_bytes =
      range.max_bytes.value_or(std::max(kDefaultBytes, range.min_bytes.value_or(0)));
  const size_t min_bytes = range.min_bytes.value_or(std::min(kDefaultBytes, max_bytes));
  std::vector<size_t> sizes;
  for (size_t size = min_bytes; size <= max_bytes;) {
    sizes.push_back(size);
    const size_t step = range.step_factor > 1
                            ? static_cast<size_t>(std::max(
                                  1.0, static_cast<double>(size) * (range.step_factor - 1)))
                            : range.step_bytes;
    if (step == 0 || size > std::numeric_limits<size_t>::max() - step) {
      break;
    }
    size += step;
  }
  return sizes;
}

std::vector<Variant> compute_variants(const PerfOptions& options) {
  const CollectiveInfo& info = info_of(options.collective);
  const std::vector<Op> ops_run = info.reduces ? options.ops : std::vector{Op::kSum};
  std::vector<int> roots = {-1};
  if (info.rooted) {
    roots.clear();
    const int first = options.root.value_or(0);
    const int last = options.root.value_or(options.nranks - 1);
    for (int root = first; root <= last; ++root) {
      roots.push_back(root);
    }
  }
  std::vector<Variant> variants;
  for (const Type type : options.types) {
    for (const Op op : ops_run) {
      for (const int root : roots) {
        variants.push_back({.type = type, .op = op, .root = root});
      }
    }
  }
  return variants;
}

size_t count_rows(const PerfOptions& options) {
  const size_t places = has_in_place_rows(options) ? 2 : 1;
  return compute_sizes(options.sizes).size() * compute_variants(options).size() * places *
         static_cast<size_t>(std::max(1, options.cycles));
}

std::string describe(const PerfOptions& options) {
  const std::vector<size_t> sizes = compute_sizes(options.sizes);
  std::string text = fmt::format("size {} .. {} B", sizes.front(), sizes.back());
  if (info_of(options.collective).reduces) {
    text += fmt::format(", op {}", names_of_ops(options));
  }
  text += fmt::format(", {} buffers, check {}", name_of(options.buffers), options.check);
  constexpr const char* kWhose[] = {"rank 0's", "the mean of all ranks", "the fastest rank's",
                                    "the slowest rank's"};
  text += fmt::format("; times are per operation (median), {}",
                      kWhose[static_cast<size_t>(options.average)]);
  return text;
}

}  // namespace plexus::perf
