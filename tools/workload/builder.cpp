// SPDX-License-Identifier: Apache-2.0
#include "tools/workload/builder.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "core/base/text.hpp"

namespace plexus {

uint32_t WorkloadBuilder::name(std::string_view text) {
  constexpr size_t kNameMax = 80;
  constexpr size_t kNamesMax = 10'000;
  if (text.empty()) {
    return 0;
  }
  std::string shown = printable(text.substr(0, kNameMax));
  if (const auto known = names_.find(shown); known != names_.end()) {
    return known->second;
  }
  if (work.names.size() == kNamesMax) {
    return 0;
  }
  const auto number = static_cast<uint32_t>(work.names.size());
  names_.emplace(shown, number);
  work.names.push_back(std::move(shown));
  return number;
}

uint32_t WorkloadBuilder::group(std::string_view name, int nranks, int divisor, int stride) {
  constexpr size_t kGroupsMax = 1024;
  const std::string shown = printable(name.substr(0, 80));
  const auto same = [&](const WorkloadGroup& each) {
    return each.nranks == nranks && each.divisor == divisor && each.stride == stride &&
           (each.name == shown || (nranks == 0 && divisor == 1));
  };
  const auto known = std::find_if(work.groups.begin(), work.groups.end(), same);
  if (known != work.groups.end()) {
    return static_cast<uint32_t>(known - work.groups.begin());
  }
  if (work.groups.size() == kGroupsMax) {
    leave_out("group beyond the first 1024, taken as all ranks");
    return 0;
  }
  work.groups.push_back(
      {.name = shown, .nranks = nranks, .divisor = std::max(divisor, 1), .stride = stride});
  return static_cast<uint32_t>(work.groups.size() - 1);
}

Result<uint32_t> WorkloadBuilder::add(WorkloadCall call) {
  const auto last = static_cast<uint32_t>(std::max<size_t>(work.calls.size(), 1) - 1);
  if (work.calls.size() == kWorkloadCallsMax) {
    return fail(Code::kInvalidArgument, "has more than {} calls and computations: cut it to a step",
                kWorkloadCallsMax);
  }
  if (call.bytes > kWorkloadBytesMax || call.times > kWorkloadTimesMax ||
      !(call.time_us <= kWorkloadTimeUsMax)) {
    return fail(Code::kInvalidArgument,
                "call {}: {} bytes, {} times, {} us: expects at most {} bytes, {} times and {} us",
                work.calls.size(), call.bytes, call.times, call.time_us, kWorkloadBytesMax,
                kWorkloadTimesMax, kWorkloadTimeUsMax);
  }
  const bool is_message = call.kind == WorkKind::kSend || call.kind == WorkKind::kRecv;
  if (!is_message && call.bytes == 0 && !(call.time_us > 0) && call.after.empty()) {
    return last;
  }
  work.calls.push_back(std::move(call));
  return static_cast<uint32_t>(work.calls.size() - 1);
}

Result<Workload> WorkloadBuilder::finish() {
  for (const auto& [what, count] : left_out_) {
    note(count == 1 ? what : fmt::format("{} x {}", count, what));
  }
  if (work.calls.empty()) {
    std::string why;
    for (const std::string& each : work.notes) {
      why += (why.empty() ? "" : ", ") + each;
    }
    return fail(Code::kInvalidArgument, "is a {} without a call that could be simulated{}{}",
                work.format, why.empty() ? "" : ": left out: ", why);
  }
  return std::move(work);
}

std::optional<Collective> find_collective(std::string_view text) {
  std::string plain;
  for (const char c : lower(text)) {
    if ((c >= 'a' && c <= 'z') || c == ':') {
      plain += c;
    }
  }
  plain.erase(0, plain.rfind(':') + 1);
  for (const std::string_view kernel : {"nccldevkernel", "ncclkernel", "nccl", "mscclpp", "rccl"}) {
    if (plain.starts_with(kernel)) {
      plain.erase(0, kernel.size());
      break;
    }
  }
  // longer ones before those that they begin with
  constexpr std::array<std::pair<std::string_view, Collective>, 9> kNames = {{
      {"allreduce", Collective::kAllReduce},
      {"allgather", Collective::kAllGather},
      {"reducescatter", Collective::kReduceScatter},
      {"alltoall", Collective::kAllToAll},
      {"broadcast", Collective::kBroadcast},
      {"bcast", Collective::kBroadcast},
      {"reduce", Collective::kReduce},
      {"gather", Collective::kGather},
      {"scatter", Collective::kScatter},
  }};
  for (const auto& [name, collective] : kNames) {
    if (plain.starts_with(name)) {
      return collective;
    }
  }
  return std::nullopt;
}

uint64_t element_bytes_of(std::string_view type) {
  std::string word = lower(type);
  word.erase(0, word.find_last_of(":.") + 1);
  if (word.starts_with("nccl")) {
    word.erase(0, 4);
  }
  constexpr std::array<std::pair<std::string_view, uint64_t>, 30> kTypes = {{
      {"int8", 1},   {"uint8", 1},       {"char", 1},          {"byte", 1},     {"bool", 1},
      {"float8", 1}, {"signed char", 1}, {"unsigned char", 1}, {"bfloat16", 2}, {"float16", 2},
      {"half", 2},   {"short", 2},       {"int16", 2},         {"uint16", 2},   {"bf16", 2},
      {"fp16", 2},   {"float32", 4},     {"int32", 4},         {"uint32", 4},   {"fp32", 4},
      {"int64", 8},  {"uint64", 8},      {"float64", 8},       {"double", 8},   {"long", 8},
      {"fp64", 8},   {"float", 4},       {"int", 4},           {"fp8", 1},      {"complexfloat", 8},
  }};
  for (const auto& [name, bytes] : kTypes) {
    if (word == name ||
        (name == "float8" && (word.starts_with("float8e") || word.starts_with("float8_")))) {
      return bytes;
    }
  }
  return 0;
}

double real_of(const WorkloadJson& object, std::string_view key, double otherwise) {
  const WorkloadJson* const at = find_member(object, key);
  if (at != nullptr && at->is_string()) {
    return real_number(at->get_ref<const std::string&>()).value_or(otherwise);
  }
  const double value = at == nullptr || !at->is_number() ? otherwise : at->get<double>();
  return std::isfinite(value) ? value : otherwise;
}

uint64_t number_of(const WorkloadJson& object, std::string_view key, uint64_t otherwise) {
  const WorkloadJson* const at = find_member(object, key);
  if (at != nullptr && at->is_number_unsigned()) {
    return at->get<uint64_t>();
  }
  constexpr double kExact = 9007199254740992.0;
  const double value = real_of(object, key, -1);
  return value >= 0 && value <= kExact ? static_cast<uint64_t>(value) : otherwise;
}

std::vector<int> ranks_of(const WorkloadJson& object, std::string_view key) {
  std::vector<int> ranks;
  const auto take = [&](uint64_t rank) {
    ranks.push_back(static_cast<int>(std::min<uint64_t>(rank, kWorkloadRanksMax)));
  };
  const WorkloadJson* const at = find_member(object, key);
  if (at == nullptr) {
    return ranks;
  }
  if (at->is_array() && at->size() <= kWorkloadRanksMax) {
    for (const WorkloadJson& rank : *at) {
      if (rank.is_number_unsigned()) {
        take(rank.get<uint64_t>());
      }
    }
  } else if (at->is_string()) {
    std::string text = at->get<std::string>();
    std::replace_if(
        text.begin(), text.end(), [](char c) { return c < '0' || c > '9'; }, ' ');
    for (const std::string_view word : split_list(text, ' ')) {
      if (ranks.size() < kWorkloadRanksMax) {
        take(whole_number(word).value_or(kWorkloadRanksMax));
      }
    }
  }
  return ranks;
}

int stride_of(const std::vector<int>& ranks) {
  if (ranks.size() < 2) {
    return 0;
  }
  const int stride = ranks[1] - ranks[0];
  for (size_t i = 1; i < ranks.size(); ++i) {
    if (ranks[i] - ranks[i - 1] != stride) {
      return 0;
    }
  }
  return std::max(stride, 0);
}

std::string_view take_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r')) {
    line.remove_suffix(1);
  }
  return line;
}

std::optional<uint64_t> whole_number(std::string_view word) {
  uint64_t value = 0;
  const auto [rest, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc() && rest == word.data() + word.size() ? std::optional(value)
                                                                   : std::nullopt;
}

std::optional<double> real_number(std::string_view word) {
  double value = 0;
  const auto [rest, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc() && rest == word.data() + word.size() && std::isfinite(value)
             ? std::optional(value)
             : std::nullopt;
}

}  // namespace plexus
