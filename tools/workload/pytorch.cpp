// SPDX-License-Identifier: Apache-2.0
// What PyTorch records of one rank: its execution trace (a graph of operators, without times) and
// its flight recorder (the last collectives of each process group).
#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "core/base/text.hpp"
#include "tools/workload/builder.hpp"

namespace plexus {
namespace {

// ---- execution trace ----

/// Of all tensors in a value: [id, storage, offset, elements, bytes of one, device].
double tensor_bytes(const WorkloadJson& value, int depth = 0) {
  constexpr int kDepthMax = 8;
  constexpr size_t kMembers = 6;
  if (!value.is_array() || depth > kDepthMax) {
    return 0;
  }
  if (value.size() >= kMembers && value[3].is_number() && value[4].is_number() &&
      value[5].is_string()) {
    return value[3].get<double>() * value[4].get<double>();
  }
  double sum = 0;
  for (const WorkloadJson& each : value) {
    sum += tensor_bytes(each, depth + 1);
  }
  return sum;
}

class ExecutionTrace {
 public:
  Result<void> take(const WorkloadJson& node) {
    const std::string name = text_of(node, "name");
    const WorkloadJson* const inputs = find_member(node, "inputs");
    const WorkloadJson* values = inputs == nullptr ? nullptr : find_member(*inputs, "values");
    values = values != nullptr && values->is_array() ? values : nullptr;
    if (name.find("process_group:init") != std::string::npos && values != nullptr &&
        !values->empty() && values->front().is_string()) {
      take_groups(values->front().get<std::string>());
    }
    return name == "record_param_comms" && values != nullptr ? take_call(node, *values)
                                                             : Result<void>(ok());
  }
  Result<Workload> finish() {
    builder_.work.nranks = nranks_;
    builder_.work.rank = builder_.work.origin = own_;
    builder_.note("has no times of computing");
    builder_.note_taken_for_all("one rank's trace, taken for all");
    return builder_.finish();
  }

 private:
  struct Group {
    int nranks = 0;
    int stride = 0;
  };

  /// The text of a node that lists process groups, JSON itself.
  void take_groups(const std::string& text) {
    constexpr size_t kTextMax = size_t{16} << 20;
    const WorkloadJson list =
        text.size() > kTextMax ? WorkloadJson() : WorkloadJson::parse(text, nullptr, false);
    for (const WorkloadJson& each : list.is_array() ? list : WorkloadJson::array()) {
      const std::vector<int> ranks = ranks_of(each, "ranks");
      const uint64_t size = number_of(each, "group_size", ranks.size());
      if (size == 0 || size > kWorkloadRanksMax) {
        continue;
      }
      const Group group{.nranks = static_cast<int>(size), .stride = stride_of(ranks)};
      nranks_ = std::max(nranks_, group.nranks);
      groups_[text_of(each, "pg_name")] = group;
      groups_[std::to_string(number_of(each, "backend_id"))] = group;
    }
  }

  /// An attribute of newer traces; nullptr: there is none.
  static const WorkloadJson* attribute(const WorkloadJson& node, std::string_view name) {
    const WorkloadJson* const list = find_member(node, "attrs");
    for (size_t i = 0; list != nullptr && list->is_array() && i < list->size(); ++i) {
      if (text_of((*list)[i], "name") == name) {
        return find_member((*list)[i], "value");
      }
    }
    return nullptr;
  }
  static std::string attribute_text(const WorkloadJson& node, std::string_view name) {
    const WorkloadJson* const value = attribute(node, name);
    return value == nullptr     ? ""
           : value->is_string() ? value->get<std::string>()
           : value->is_number() ? value->dump()
                                : "";
  }

  Result<void> take_call(const WorkloadJson& node, const WorkloadJson& values) {
    std::string named = attribute_text(node, "collective_name");
    uint64_t rank = kWorkloadRanksMax;  // of a collective the own, of a message the peer's
    for (size_t i = 0; i < values.size() && named.empty(); ++i) {
      if (values[i].is_string()) {
        named = values[i].get<std::string>();
        rank = i > 0 && values[i - 1].is_number_unsigned() ? values[i - 1].get<uint64_t>() : rank;
      }
    }
    named = lower(named);
    if (named == "wait" || named == "init" || named.empty()) {
      return ok();
    }
    const double in = tensor_bytes(values);
    const WorkloadJson* const outputs = find_member(node, "outputs");
    const WorkloadJson* const outs = outputs == nullptr ? nullptr : find_member(*outputs, "values");
    double bytes = std::max(in, outs == nullptr ? 0 : tensor_bytes(*outs));
    const auto element = static_cast<double>(element_bytes_of(attribute_text(node, "dtype")));
    for (const char* const key : {"in_msg_nelems", "out_msg_nelems"}) {
      const auto count = real_number(attribute_text(node, key));
      bytes = std::max(bytes, element * count.value_or(0));
    }
    const Group group = find_group(node, values);
    const auto collective = find_collective(named);
    if (bytes > static_cast<double>(kWorkloadBytesMax) || !(bytes > 0)) {
      builder_.leave_out(printable(named) + " without bytes");
      return ok();
    }
    WorkloadCall call{.bytes = static_cast<uint64_t>(bytes)};
    call.group = group.nranks == 0 || group.nranks >= nranks_
                     ? 0
                     : builder_.group("process group", group.nranks, 1, group.stride);
    call.communicator = builder_.name(attribute_text(node, "pg_name"));
    if (named == "send" || named == "recv") {
      if (rank >= kWorkloadRanksMax || own_ < 0 || static_cast<int>(rank) == own_) {
        builder_.leave_out(named + " without a peer");
        return ok();
      }
      call.kind = named == "send" ? WorkKind::kSend : WorkKind::kRecv;
      call.peer = static_cast<int>(rank) - own_;
    } else if (!collective.has_value()) {
      builder_.leave_out(printable(named.substr(0, 40)));
      return ok();
    } else {
      own_ = rank < kWorkloadRanksMax ? static_cast<int>(rank) : own_;
      call.collective = *collective;
    }
    PLEXUS_TRY(builder_.add(std::move(call)));
    return ok();
  }

  Group find_group(const WorkloadJson& node, const WorkloadJson& values) {
    if (const auto known = groups_.find(attribute_text(node, "pg_name")); known != groups_.end()) {
      return known->second;
    }
    for (size_t i = 1; i < values.size() && i < 4; ++i) {
      const WorkloadJson& value =
          values[i].is_array() && !values[i].empty() ? values[i][0] : values[i];
      const auto known = groups_.find(value.is_string() ? value.get<std::string>() : value.dump());
      if (known != groups_.end() && (i == 2 || value.is_string())) {
        return known->second;
      }
    }
    // else the last number is the group's size
    const WorkloadJson last = values.empty() ? WorkloadJson() : values.back();
    const uint64_t size = last.is_number_unsigned() ? last.get<uint64_t>() : 0;
    if (size > 1 && size <= kWorkloadRanksMax) {
      nranks_ = std::max(nranks_, static_cast<int>(size));
      return {.nranks = static_cast<int>(size)};
    }
    return {};
  }

  WorkloadBuilder builder_{"PyTorch execution trace"};
  std::map<std::string, Group, std::less<>> groups_;  // by name and by id
  int nranks_ = 0;
  int own_ = -1;
};

// ---- flight recorder ----

/// Of tensors, from their sizes and types side by side.
double shaped_bytes(const WorkloadJson& entry, const char* sizes_key, const char* types_key) {
  const WorkloadJson* const sizes = find_member(entry, sizes_key);
  const WorkloadJson* const types = find_member(entry, types_key);
  double sum = 0;
  for (size_t i = 0; sizes != nullptr && sizes->is_array() && i < sizes->size(); ++i) {
    const bool has_type =
        types != nullptr && types->is_array() && i < types->size() && (*types)[i].is_string();
    const std::string type = has_type ? (*types)[i].get<std::string>()
                             : types != nullptr && types->is_string() ? types->get<std::string>()
                                                                      : "";
    auto elements = static_cast<double>(element_bytes_of(type));
    for (const WorkloadJson& extent :
         (*sizes)[i].is_array() ? (*sizes)[i] : WorkloadJson::array()) {
      elements *= extent.is_number() ? extent.get<double>() : 0;
    }
    sum += elements;
  }
  return sum;
}

Result<void> take_entry(const WorkloadJson& entry,
                        const std::map<std::string, uint32_t>& groups,
                        WorkloadBuilder& builder) {
  std::string named = text_of(entry, "profiling_name");
  named = lower(named.substr(named.find(':') + 1));
  const double bytes = std::max(shaped_bytes(entry, "input_sizes", "input_dtypes"),
                                shaped_bytes(entry, "output_sizes", "output_dtypes"));
  const bool is_message = named.starts_with("send ") || named.starts_with("recv ");
  const auto collective = find_collective(named);
  if (!(bytes > 0) || bytes > static_cast<double>(kWorkloadBytesMax) ||
      (!collective.has_value() && !is_message)) {
    builder.leave_out(fmt::format("'{}'{}", printable(named.substr(0, 40)),
                                  bytes > 0 ? "" : " without sizes or of an unknown type"));
    return ok();
  }
  WorkloadCall call{.bytes = static_cast<uint64_t>(bytes)};
  const WorkloadJson* const group = find_member(entry, "process_group");
  if (group != nullptr && group->is_array() && !group->empty() && group->front().is_string()) {
    const auto known = groups.find(group->front().get<std::string>());
    call.group = known == groups.end() ? 0 : known->second;
    call.communicator = builder.name(group->front().get<std::string>());
  }
  if (is_message) {
    // "send 0->1", "recv 1<-0": own rank first
    std::string both = named.substr(5);
    std::replace_if(
        both.begin(), both.end(), [](char c) { return c < '0' || c > '9'; }, ' ');
    const auto ranks = split_list(both, ' ');
    const uint64_t self = ranks.size() == 2 ? whole_number(ranks[0]).value_or(0) : 0;
    const uint64_t peer = ranks.size() == 2 ? whole_number(ranks[1]).value_or(0) : 0;
    if (self == peer || std::max(self, peer) >= kWorkloadRanksMax) {
      builder.leave_out("message without a peer");
      return ok();
    }
    call.kind = named.starts_with("send") ? WorkKind::kSend : WorkKind::kRecv;
    call.peer = static_cast<int>(peer) - static_cast<int>(self);
  } else {
    call.collective = *collective;
  }
  builder.work.recorded_us += std::max(0.0, real_of(entry, "duration_ms")) * 1000;
  PLEXUS_TRY(builder.add(std::move(call)));
  return ok();
}

}  // namespace

Result<Workload> read_execution_trace(const WorkloadJson& json) {
  ExecutionTrace trace;
  for (const WorkloadJson& node : *find_member(json, "nodes")) {
    PLEXUS_TRY(trace.take(node));
  }
  return trace.finish();
}

Result<Workload> read_flight_recorder(const WorkloadJson& json) {
  WorkloadBuilder builder("PyTorch flight recorder");
  std::map<std::string, std::vector<int>> members;
  const WorkloadJson* const config = find_member(json, "pg_config");
  if (config != nullptr && config->is_object()) {
    for (const auto& [name, about] : config->items()) {
      members[name] = ranks_of(about, "ranks");
      builder.work.nranks = std::max(builder.work.nranks, static_cast<int>(members[name].size()));
    }
  }
  std::map<std::string, uint32_t> groups;
  for (const auto& [name, ranks] : members) {
    const int size = static_cast<int>(ranks.size());
    groups[name] = size == 0 || size == builder.work.nranks
                       ? 0
                       : builder.group("process group", size, 1, stride_of(ranks));
  }
  for (const WorkloadJson& entry : *find_member(json, "entries")) {
    PLEXUS_TRY(take_entry(entry, groups, builder));
  }
  builder.note("has no times of computing");
  builder.note_taken_for_all("one rank's last calls, taken for all");
  return builder.finish();
}

}  // namespace plexus
