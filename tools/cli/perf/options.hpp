// SPDX-License-Identifier: Apache-2.0
// The options of `plexus perf` from its command line. Pure: does not read the environment.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "tools/cli/perf/layout.hpp"
#include "tools/cli/perf/row.hpp"
#include "tools/cli/perf/statistics.hpp"
#include "tools/cli/perf/traffic.hpp"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's name
class App;
}

namespace plexus::perf {

enum class Mode { kProcs, kThreads, kSingle };
[[nodiscard]] const char* name_of(Mode mode) noexcept;

enum class Buffers { kPlain, kRegistered, kWindow };
/// Which cores ranks that are started here run on: each on one of its own if there are enough, else
/// on any; on the one of the rank's number, modulo the cores, which ranks then share; all on one;
/// on any.
enum class Binding { kOwn, kShared, kOne, kNone };
/// kNull: every call returns when its operation is complete. kAsync: operations are submitted to a
/// host stream, and the end of the batch waits for it.
enum class Stream { kNull, kAsync };
/// -z of nccl-tests, with its numbers: after which operations a worker waits until they are
/// complete, and then for the other workers.
enum class Blocking { kNone, kWaitAndBarrier, kWait, kIteration };
/// -a of nccl-tests, with its numbers: which time of the workers a row shows.
enum class Average { kFirst, kMean, kLeast, kMost };
enum class Columns { kNcclTests, kPlexus };

/// Destinations of the output. Empty: none; "-": stdout.
struct Outputs {
  Columns columns = Columns::kNcclTests;  // of the table on stdout
  std::string json;
  std::string tsv;
  std::string nccl_tests_json;
  bool timestamps = false;     // nccl-tests' columns: when a row was done
  bool cpu_time = false;       // nccl-tests' columns: the time until the calls returned
  bool per_iteration = false;  // nccl-tests' columns: how iterations differ

  [[nodiscard]] bool shows_table() const { return json != "-" && tsv != "-"; }
  /// Whether something is shown in nccl-tests' form, where every row has in-place numbers.
  [[nodiscard]] bool is_nccl_tests() const {
    return (shows_table() && columns == Columns::kNcclTests) || !nccl_tests_json.empty();
  }
};

struct SizeRange {
  std::optional<size_t> min_bytes;
  std::optional<size_t> max_bytes;
  size_t step_bytes = size_t{1024} * 1024;
  double step_factor = 0;  // above 1: sizes are multiplied by it, and `step_bytes` is ignored
};

/// This process is one of a job that was started from outside, with one rank or, by -t and -g,
/// more.
struct Joined {
  int rank = 0;            // of the process
  int nranks = 0;          // processes
  std::string rendezvous;  // HOST:PORT
};

/// NCCL_TESTS_SPLIT: processes of a launcher whose numbers have the same color are a job of their
/// own, and all jobs run at once.
struct Split {
  char operation = '&';  // & | % /
  int value = 0;
  [[nodiscard]] int color_of(int process) const noexcept;
};

struct PerfOptions {
  Collective collective = Collective::kAllReduce;
  SizeRange sizes;
  IterationWish iterations;
  int warmup = 5;
  int aggregate = 1;  // operations of one group
  int cycles = 1;     // of all rows; 0: without end
  int skipped = 0;    // leading iterations that --per_iter_timing leaves out
  Average average = Average::kMost;
  int unalign = 0;  // elements that buffers are shifted by
  int check = 1;    // repetitions
  std::vector<Op> ops = {Op::kSum};
  std::vector<Type> types = {Type::kFloat};
  std::optional<int> root = 0;  // nullopt: each rank in turn
  Blocking blocking = Blocking::kNone;
  int timeout_s = 0;  // without a finished row; 0: none
  int nranks = 0;     // 0: not known yet
  std::optional<Mode> mode;
  std::optional<int> threads;  // of a process
  std::optional<int> ranks_per_thread;
  Binding binding = Binding::kOwn;
  bool started_here = false;  // --ranks or --mode was given: launcher variables are ignored
  std::optional<Joined> joined;
  std::optional<Split> split;
  int group = 0;  // the color of this process
  std::string algorithm;
  std::string protocol;
  int channels = 0;  // 0: the library chooses
  Buffers buffers = Buffers::kPlain;
  Stream stream = Stream::kNull;
  Outputs outputs;
  Traffic traffic = Traffic(1);        // of alltoallv
  std::optional<double> busbw_wanted;  // GB/s, below which the run counts as failed
  std::vector<std::string> notes;      // a sentence on each flag that has no meaning here
};

/// Who drives the ranks: processes, their threads, and the ranks of each thread (a worker).
struct Workers {
  int processes;
  int threads;
  int ranks_per_thread;
  [[nodiscard]] int ranks_per_process() const noexcept { return threads * ranks_per_thread; }
  [[nodiscard]] int count() const noexcept { return processes * threads; }
};
[[nodiscard]] Workers compute_workers(const PerfOptions& options) noexcept;
/// Whether the ranks are in processes that are forked; else they are in this one.
[[nodiscard]] bool forks(const PerfOptions& options) noexcept;
/// How the ranks are started here: a mode's name, or "mixed".
[[nodiscard]] const char* start_name(const PerfOptions& options) noexcept;

/// Declares the flags of `app`; parsing it fills `options`, which must outlive the parse.
void add_perf_flags(CLI::App& app, PerfOptions* options);
/// nccl-tests' flags for which `plexus perf` has no other, and those that have no meaning here.
void add_nccl_tests_flags(CLI::App& app, PerfOptions* options);
/// Those that are left where a file says collective, ranks and algorithm (`plexus program run`).
void add_run_flags_of_file(CLI::App& app, PerfOptions* options);
/// Sets `nranks` if nothing did, and checks what concerns several flags. To be called after the
/// parse, and again if `nranks` changes.
[[nodiscard]] Result<void> complete_options(PerfOptions* options);
/// Takes over what nccl-tests' variables (NCCL_TESTS_*) say. `read`: getenv.
[[nodiscard]] Result<void> take_nccl_tests_variables(PerfOptions* options,
                                                     const char* (*read)(const char* name));

/// The sizes to run, ascending.
[[nodiscard]] std::vector<size_t> compute_sizes(const SizeRange& range);
/// Whether rows are in place too. Of a collective that has no such form these are calls with one
/// buffer for both, which are timed and not checked, as by nccl-tests.
[[nodiscard]] bool has_in_place_rows(const PerfOptions& options) noexcept;
/// The operation of a row, as rank 0 sees it.
[[nodiscard]] Shape make_shape(const PerfOptions& options, const Variant& variant, size_t count);
/// All variants to run with each size. Properties that do not apply to the collective have one
/// value.
[[nodiscard]] std::vector<Variant> compute_variants(const PerfOptions& options);
/// Number of rows of the run, or of a cycle of one without end.
[[nodiscard]] size_t count_rows(const PerfOptions& options);
/// One line of text that describes the run.
[[nodiscard]] std::string describe(const PerfOptions& options);

}  // namespace plexus::perf
