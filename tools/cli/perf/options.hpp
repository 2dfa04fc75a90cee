// SPDX-License-Identifier: Apache-2.0
// The options of `plexus perf` from its command line. Pure: does not read the environment.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "tools/cli/perf/report.hpp"
#include "tools/cli/perf/row.hpp"
#include "tools/cli/perf/statistics.hpp"

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

struct SizeRange {
  std::optional<size_t> min_bytes;
  std::optional<size_t> max_bytes;
  size_t step_bytes = size_t{1024} * 1024;
  double step_factor = 0;  // above 1: sizes are multiplied by it, and `step_bytes` is ignored
};

/// This process is one rank of a job that was started from outside.
struct Joined {
  int rank = 0;
  int nranks = 0;
  std::string rendezvous;  // HOST:PORT
};

struct PerfOptions {
  Collective collective = Collective::kAllReduce;
  SizeRange sizes;
  IterationWish iterations;
  int warmup = 5;
  int check = 1;  // repetitions
  std::vector<Op> ops = {Op::kSum};
  std::vector<Type> types = {Type::kFloat};
  std::optional<int> root = 0;  // nullopt: each rank in turn
  bool blocking = false;
  int timeout_s = 0;  // 0: none
  int nranks = 4;
  Mode mode = Mode::kProcs;
  Binding binding = Binding::kOwn;
  bool started_here = false;  // --ranks or --mode was given: launcher variables are ignored
  std::optional<Joined> joined;
  std::string algorithm;
  std::string protocol;
  int channels = 0;  // 0: the library chooses
  Buffers buffers = Buffers::kPlain;
  Stream stream = Stream::kNull;
  Outputs outputs;
};

/// Declares the flags of `app`; parsing it fills `options`, which must outlive the parse.
void add_perf_flags(CLI::App& app, PerfOptions* options);
/// Those that are left where a file says collective, ranks and algorithm (`plexus program run`).
void add_run_flags_of_file(CLI::App& app, PerfOptions* options);
/// Checks that concern several flags. To be called after the parse, and again if `nranks` changes.
[[nodiscard]] Result<void> check_options(const PerfOptions& options);

/// The sizes to run, ascending.
[[nodiscard]] std::vector<size_t> compute_sizes(const SizeRange& range);
/// All variants to run with each size. Properties that do not apply to the collective have one
/// value.
[[nodiscard]] std::vector<Variant> compute_variants(const PerfOptions& options);
/// Number of rows of the run.
[[nodiscard]] size_t count_rows(const PerfOptions& options);
/// One line of text that describes the run.
[[nodiscard]] std::string describe(const PerfOptions& options);

}  // namespace plexus::perf
