// SPDX-License-Identifier: Apache-2.0
// A tuner with a policy from a file, the same on all ranks: the first line of CSV_TUNER_FILE that
// matches the call names the algorithm. # starts a comment; a line is collective,bytes_min,bytes_max,
// nranks_min,nranks_max,algorithm,channels (0: the host's choice).
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include <plexus/plexus_tuner.h>

struct Line {
  std::string collective;
  uint64_t bytes_min, bytes_max, nranks_min, nranks_max;
  std::string algorithm;
  uint64_t channels;
};

struct plexus_tuner_context {
  uint32_t nranks;
  std::vector<Line> lines;
};

namespace {

/// Parses a line. Returns what is wrong with it, or "".
std::string parse(const std::string& text, Line& line) {
  static const std::regex kForm(
      "(all_reduce|broadcast|reduce|all_gather|reduce_scatter|alltoall|gather|scatter),"
      "(\\d{1,18}),(\\d{1,18}),(\\d{1,9}),(\\d{1,9}),(\\w+),(\\d{1,9})");
  std::smatch field;
  if (!std::regex_match(text, field, kForm))
    return "is not collective,bytes_min,bytes_max,nranks_min,nranks_max,algorithm,channels";
  const auto number = [&](size_t i) { return uint64_t{std::stoull(field[i])}; };
  line = {field[1], number(2), number(3), number(4), number(5), field[6], number(7)};
  const bool is_empty = line.bytes_min > line.bytes_max || line.nranks_min > line.nranks_max;
  return is_empty ? "has a least value above the most" : "";
}

int32_t init(plexus_tuner_context_t** context,
             const plexus_tuner_comm_t* comm,
             plexus_log_fn log,
             plexus_log_sink_t* sink) {
  const char* const path = std::getenv("CSV_TUNER_FILE");
  std::ifstream file(path == nullptr ? "" : path);
  std::string error = file ? "" : "CSV_TUNER_FILE names no file that can be read";
  std::vector<Line> lines;
  std::string text;
  for (int number = 1; error.empty() && std::getline(file, text); ++number) {
    if (text.empty() || text.front() == '#') continue;
    if (error = parse(text, lines.emplace_back()); !error.empty())
      error = std::string(path) + ":" + std::to_string(number) + ": the line " + error;
  }
  if (!error.empty()) {
    log(sink, PLEXUS_LOG_ERROR, __FILE__, __LINE__, error.c_str());
    return PLEXUS_INVALID_USAGE;
  }
  *context = new plexus_tuner_context{comm->nranks, std::move(lines)};
  return PLEXUS_OK;
}

int32_t get_times(plexus_tuner_context_t* context,
                  const plexus_tuner_call_t* call,
                  plexus_tuner_candidate_t* candidates,
                  uint32_t count,
                  uint32_t stride) {
  const auto line =
      std::find_if(context->lines.begin(), context->lines.end(), [&](const Line& each) {
        return each.collective == call->collective && each.bytes_min <= call->size_bytes &&
               call->size_bytes <= each.bytes_max && each.nranks_min <= context->nranks &&
               context->nranks <= each.nranks_max;
      });
  for (uint32_t i = 0; i < count; ++i) {  // `stride`: a later host may have longer structs
    auto& candidate = *reinterpret_cast<plexus_tuner_candidate_t*>(
        reinterpret_cast<char*>(candidates) + size_t{i} * stride);
    // Calls that the file does not cover: 1 us per round plus 1 ns per byte.
    const double chunk_bytes =
        static_cast<double>(call->size_bytes) / std::max(candidate.chunks_per_loop, 1U);
    const double ns = 1000.0 * candidate.rounds + chunk_bytes * candidate.chunks_moved;
    candidate.time_ns = static_cast<int64_t>(std::min(1e18, ns));
    if (line != context->lines.end() && line->algorithm == candidate.algorithm) {
      candidate.time_ns = 0;
      if (line->channels > 0)
        candidate.channels =
            static_cast<uint32_t>(std::min(line->channels, uint64_t{candidate.channels_max}));
    }
  }
  return PLEXUS_OK;
}

int32_t finalize(plexus_tuner_context_t* context) { return delete context, PLEXUS_OK; }

constexpr plexus_tuner_ops_t kOps = {sizeof(kOps), 0,        init,
                                      get_times,    finalize, nullptr};
constexpr plexus_plugin_t kPlugin = {PLEXUS_PLUGIN_MAGIC, sizeof(kPlugin), PLEXUS_ABI_MAJOR,
                                     PLEXUS_ABI_MINOR, PLEXUS_KIND_TUNER, 0, "csv", "1.0",
                                     nullptr, &kOps};

}  // namespace

PLEXUS_PLUGIN_EXPORT const plexus_plugin_t* plexus_plugin_query(uint32_t) { return &kPlugin; }
