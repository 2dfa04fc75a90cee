// SPDX-License-Identifier: Apache-2.0
// Which format a text has, by its content; and what is said of what was read.
#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/file_kind.hpp"
#include "core/base/split_words.hpp"
#include "core/base/text.hpp"
#include "tools/workload/builder.hpp"

namespace plexus {
namespace {

constexpr const char* kKnown =
    "JSON of ours, a trace of PLEXUS_TRACE, GOAL, SimAI or ASTRA-sim text, AICB's CSV, Chakra, "
    "PyTorch's execution, profiler or flight-recorder trace, NCCL Inspector, nccl-tests or htsim";

/// Where a text stops being JSON, and whether it nests deeper than anyone writes.
class JsonLook : public nlohmann::json_sax<WorkloadJson> {
 public:
  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t /*value*/) override { return true; }
  bool number_unsigned(number_unsigned_t /*value*/) override { return true; }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return true; }
  bool string(string_t& /*value*/) override { return true; }
  bool binary(binary_t& /*value*/) override { return true; }
  bool key(string_t& /*value*/) override { return true; }
  bool start_object(std::size_t /*elements*/) override { return ++depth_ <= kDepthMax; }
  bool end_object() override { return --depth_ >= 0; }
  bool start_array(std::size_t /*elements*/) override { return ++depth_ <= kDepthMax; }
  bool end_array() override { return --depth_ >= 0; }
  bool parse_error(std::size_t position,
                   const std::string& /*last*/,
                   const nlohmann::detail::exception& /*error*/) override {
    position_ = position;
    return false;
  }
  [[nodiscard]] std::string problem() const {
    return depth_ > kDepthMax ? fmt::format("nests more than {} deep", kDepthMax)
                              : fmt::format("is no JSON from byte {} on, or cut off", position_);
  }

 private:
  static constexpr int kDepthMax = 200;
  int depth_ = 0;
  std::size_t position_ = 0;
};

Result<Workload> read_json(const WorkloadJson& json) {
  if (json.is_array()) {
    const bool is_kineto = std::any_of(json.begin(), json.end(), [](const WorkloadJson& event) {
      const std::string kind = text_of(event, "cat");
      return kind == "kernel" || kind == "cpu_op" || kind == "cuda_runtime";
    });
    return is_kineto ? read_kineto(WorkloadJson{{"traceEvents", json}}) : read_plexus(json);
  }
  const auto has_list = [&](const char* key) {
    const WorkloadJson* const at = find_member(json, key);
    return at != nullptr && at->is_array();
  };
  if (has_list("calls")) {
    return read_plexus(json);
  }
  if (has_list("traceEvents")) {
    return read_kineto(json);
  }
  if (has_list("entries")) {
    return read_flight_recorder(json);
  }
  if (has_list("workload_graph")) {
    return read_chakra_json(json);
  }
  if (has_list("nodes")) {
    const bool is_pytorch =
        find_member(json, "start_ts") != nullptr || find_member(json, "schema") != nullptr;
    return is_pytorch ? read_execution_trace(json) : read_chakra_json(json);
  }
  return fail(Code::kInvalidArgument,
              "is neither {{\"calls\": [...]}}, nor has it a member \"traceEvents\", \"entries\", "
              "\"nodes\" or \"workload_graph\": docs/formats.md says what is read");
}

Result<Workload> read_json_text(std::string_view text) {
  JsonLook look;
  if (!WorkloadJson::sax_parse(text, &look)) {
    return fail(Code::kInvalidArgument, "is neither {} nor whole: it {}", kKnown, look.problem());
  }
  auto work = read_json(WorkloadJson::parse(text, nullptr, false));
  if (work.has_error()) {
    PLEXUS_TRY(check_file_kind(text, FileKind::kWorkload));
  }
  return work;
}

struct Foreign {
  std::string_view begins;
  const char* says;
};

/// What others write that is no workload, or not one that is read as it is.
constexpr std::array<Foreign, 7> kForeign = {{
    {"\x1f\x8b", "is compressed by gzip: `gunzip` it first"},
    {"\x28\xb5\x2f\xfd", "is compressed by zstd: `unzstd` it first"},
    {"# collprof",
     "is an MPI trace of liballprof, one rank's: LogGOPSim's Schedgen makes GOAL of "
     "all of them (-ptrn trace), which is read"},
    {"topology:",
     "describes a network of ASTRA-sim and no calls: say it with --ranks, "
     "--gbit-per-s and --latency-us"},
    {"test\nTP:", "has bus bandwidths for SimAI and no calls: give the workload beside it"},
    {"TP:", "has bus bandwidths for SimAI and no calls: give the workload beside it"},
    {"SQLite format 3",
     "is a database (Nsight Systems writes them), which is not read: export a "
     "trace as JSON from PyTorch's profiler instead"},
}};

bool has_line_with(std::string_view text, std::string_view first, std::string_view second) {
  for (int lines = 0; lines < 10'000 && !text.empty(); ++lines) {
    const std::string_view line = take_line(text);
    if (line.find(first) != std::string_view::npos && line.find(second) != std::string_view::npos) {
      return true;
    }
  }
  return false;
}

Result<Workload> read_lines(std::string_view text) {
  std::string_view rest = text;
  std::vector<std::string_view> first;
  while (!rest.empty() && (first.empty() || first[0].starts_with("//"))) {
    first = split_words(take_line(rest));
  }
  if (first.empty()) {
    return fail(Code::kInvalidArgument, "is neither {}: it is empty", kKnown);
  }
  const std::vector<std::string_view> second = split_words(take_line(rest));
  if (first[0] == "num_ranks") {
    return read_goal(text);
  }
  if (first[0] == "Nodes" && !second.empty() && second[0] == "Tiers") {
    return fail(Code::kInvalidArgument,
                "describes a network (of htsim or ASTRA-sim) and no calls: a fabric model "
                "(docs/topology.md) says the same for --fabric");
  }
  if (first[0] == "Nodes") {
    return read_htsim(text);
  }
  if (has_line_with(text.substr(0, 4096), "comm_type", ",")) {
    return read_aicb(text);
  }
  const bool is_policy = std::all_of(first[0].begin(), first[0].end(),
                                     [](char c) { return (c >= 'A' && c <= 'Z') || c == '_'; });
  if (is_policy && second.size() == 1 && whole_number(second[0]).has_value()) {
    return read_simai(text);
  }
  if (has_line_with(text, "size", "time") || has_line_with(text, "size", "busbw")) {
    return read_nccl_tests(text);
  }
  PLEXUS_TRY(check_file_kind(text, FileKind::kWorkload));
  return fail(Code::kInvalidArgument, "is neither {}: docs/formats.md says what is read", kKnown);
}

/// Tensor-parallel groups are within nodes, those of the pipeline farthest apart.
int usual_place(std::string_view name) {
  constexpr std::array<std::string_view, 5> kNames = {"tp", "cp", "ep", "dp", "pp"};
  for (size_t place = 0; place < kNames.size(); ++place) {
    if (name.starts_with(kNames.at(place))) {
      return static_cast<int>(place);
    }
  }
  return 0;
}

std::string text_of_bytes(double bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  size_t at = 0;
  for (; bytes >= 1024 && at + 1 < kUnits.size(); ++at) {
    bytes /= 1024;
  }
  return fmt::format("{:.{}f} {}", bytes, at == 0 ? 0 : 1, kUnits.at(at));
}

}  // namespace

Result<Workload> parse_workload(std::string_view text) {
  if (is_delimited_protobuf(text)) {
    return read_chakra(text);
  }
  if (text.starts_with('\x80')) {
    PLEXUS_TRY(json, read_pickle(text));
    return read_json(json);
  }
  for (const Foreign& foreign : kForeign) {
    if (text.starts_with(foreign.begins)) {
      return fail(Code::kInvalidArgument, "{}", foreign.says);
    }
  }
  if (text.starts_with("\xef\xbb\xbf")) {
    text.remove_prefix(3);  // a mark of UTF-8
  }
  const size_t first = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  if (text.substr(first).starts_with('{') || text.substr(first).starts_with('[')) {
    const bool is_inspector = text.find("\"coll_perf\"") != std::string_view::npos ||
                              text.find("\"p2p_perf\"") != std::string_view::npos;
    const bool is_rank_range = text.substr(first).starts_with("[rank");  // AICB's first line
    return is_inspector    ? read_inspector(text)
           : is_rank_range ? read_lines(text)
                           : read_json_text(text.substr(first));
  }
  if (text.substr(0, 4096).find('\0') != std::string_view::npos) {
    return fail(Code::kInvalidArgument,
                "is neither {}: it has bytes that are no text, and as messages of Chakra it is cut "
                "off or broken",
                kKnown);
  }
  return read_lines(text);
}

std::string describe(const Workload& work) {
  uint64_t calls = 0;
  uint64_t messages = 0;
  uint64_t parts = 0;
  double bytes = 0;
  double compute_us = 0;
  std::set<std::pair<std::string, int>> used;
  for (const WorkloadCall& call : work.calls) {
    const auto times = static_cast<double>(call.times);
    if (call.kind == WorkKind::kCompute) {
      parts += call.times;
      compute_us += times * call.time_us;
      continue;
    }
    (call.kind == WorkKind::kCall && call.exchanges.empty() ? calls : messages) += call.times;
    bytes += call.kind == WorkKind::kRecv ? 0 : times * static_cast<double>(call.bytes);
    const WorkloadGroup& group = work.groups[call.group];
    if (call.group != 0) {
      used.emplace(group.name, group.nranks);
    }
  }
  std::string text = work.format + ":";
  text += calls > 0 ? fmt::format(" {},", counted(calls, "collective call")) : "";
  text += messages > 0 ? fmt::format(" {} sent or received,", counted(messages, "message")) : "";
  text += fmt::format(" {} in buffers,", text_of_bytes(bytes));
  text += parts > 0 ? fmt::format(" {} of computing ({:.3f} ms)", counted(parts, "part"),
                                  compute_us / 1000)
                    : " no computing";
  text += work.nranks > 0 ? fmt::format(", {}", counted(static_cast<size_t>(work.nranks), "rank"))
                          : ", of any number of ranks";
  std::vector<std::string> groups;
  constexpr size_t kGroupsShown = 6;
  for (const auto& [name, nranks] : used) {
    if (groups.size() < kGroupsShown) {
      groups.push_back(nranks > 0 ? fmt::format("{} of {}", name, nranks) : name);
    }
  }
  if (!groups.empty()) {
    text += fmt::format(", groups {}{}", fmt::join(groups, ", "),
                        used.size() > groups.size() ? ", ..." : "");
  }
  text += work.steps > 1 ? fmt::format(", {} steps", work.steps) : "";
  text += work.recorded_us > 0
              ? fmt::format(", recorded {:.3f} ms of calls", work.recorded_us / 1000)
              : "";
  return work.notes.empty()
             ? text
             : fmt::format("{}\n  left out or assumed: {}", text, fmt::join(work.notes, "; "));
}

int members_of(const WorkloadGroup& group, int nranks) {
  return std::clamp(group.nranks > 0 ? group.nranks : nranks / group.divisor, 1, nranks);
}

std::vector<int> place_groups(const Workload& work, int nranks, std::string_view order) {
  std::vector<size_t> placed;
  for (const std::string_view name : split_list(order, ',')) {
    for (size_t i = 1; i < work.groups.size(); ++i) {
      if (work.groups[i].name == name) {
        placed.push_back(i);
      }
    }
  }
  const auto named = static_cast<std::ptrdiff_t>(placed.size());
  for (size_t i = 1; i < work.groups.size(); ++i) {
    if (std::find(placed.begin(), placed.end(), i) == placed.end()) {
      placed.push_back(i);
    }
  }
  std::stable_sort(placed.begin() + named, placed.end(), [&](size_t a, size_t b) {
    return usual_place(work.groups[a].name) < usual_place(work.groups[b].name);
  });
  std::vector<int> strides(work.groups.size(), 1);
  int64_t inside = 1;
  int64_t experts = 1;
  for (const size_t i : placed) {
    const WorkloadGroup& group = work.groups[i];
    const int64_t members = members_of(group, nranks);
    if (group.stride > 0 && order.empty()) {
      strides[i] = group.stride;
      continue;
    }
    // experts are parts of the data-parallel group, whose other dimension is dp_ep
    const int64_t stride = group.name == "dp_ep" ? inside * experts : inside;
    strides[i] =
        static_cast<int>(std::clamp<int64_t>(stride, 1, std::max(nranks / members, int64_t{1})));
    experts = group.name == "ep" ? members : experts;
    inside = group.name == "ep" || group.name == "dp_ep"
                 ? inside
                 : std::min<int64_t>(inside * members, kWorkloadRanksMax);
  }
  return strides;
}

}  // namespace plexus
