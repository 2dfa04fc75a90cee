// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/flight_recorder.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace plexus {
namespace {

using nlohmann::json;

/// The ranks of the job, by process: "host:pid", or "" if there is one process.
using JobRanks = std::map<std::string, std::vector<int>>;

const char* torch_type(const std::string& name) {
  constexpr std::array<std::pair<const char*, const char*>, 12> kTypes = {{
      {"int8", "Char"},
      {"uint8", "Byte"},
      {"int32", "Int"},
      {"uint32", "UInt32"},
      {"int64", "Long"},
      {"uint64", "UInt64"},
      {"half", "Half"},
      {"float", "Float"},
      {"double", "Double"},
      {"bfloat16", "BFloat16"},
      {"f8e4m3", "Float8_e4m3fn"},
      {"f8e5m2", "Float8_e5m2"},
  }};
  const auto* const known = std::find_if(kTypes.begin(), kTypes.end(),
                                         [&](const auto& each) { return name == each.first; });
  return known == kTypes.end() ? "Byte" : known->second;
}

/// As ProcessGroupNCCL names it; its ranks are those of the group.
std::string torch_name(const std::string& collective, int rank, int root) {
  if (collective == "send") {
    return fmt::format("nccl:send {}->{}", rank, root);
  }
  if (collective == "recv") {
    return fmt::format("nccl:recv {}<-{}", rank, root);
  }
  return "nccl:" + (collective == "all_gather"       ? "_all_gather_base"
                    : collective == "reduce_scatter" ? "_reduce_scatter_base"
                    : collective == "alltoall"       ? "all_to_all"
                                                     : collective);
}

struct Group {
  std::string name;
  int rank;  // in it
  int nranks;
};

/// `place`: among all calls of the rank in the group.
json make_entry(const json& call, const Group& group, uint64_t place) {
  const auto collective = call.at("collective").get<std::string>();
  const auto count = call.at("count").get<uint64_t>();
  const auto sequence = call.at("sequence").get<uint64_t>();
  const int root = call.at("root");
  const bool is_message = collective == "send" || collective == "recv";
  const uint64_t all = count * static_cast<uint64_t>(group.nranks);
  const bool sends_all =
      collective == "reduce_scatter" || collective == "alltoall" || collective == "scatter";
  const bool gets_all =
      collective == "all_gather" || collective == "alltoall" || collective == "gather";
  const json type = {torch_type(call.at("type").get<std::string>())};
  return {{"record_id", place},
          {"pg_id", 0},
          {"process_group", {group.name, "undefined"}},
          {"collective_seq_id", is_message ? 0 : sequence + 1},
          {"p2p_seq_id", is_message ? sequence + 1 : 0},
          {"op_id", place},
          {"profiling_name", torch_name(collective, group.rank, root)},
          {"time_created_ns", 0},
          {"input_sizes", {{sends_all ? all : count}}},
          {"input_dtypes", type},
          {"output_sizes", {{gets_all ? all : count}}},
          {"output_dtypes", type},
          {"state", call.at("state")},
          {"time_discovered_started_ns", nullptr},
          {"time_discovered_completed_ns", nullptr},
          {"retired", call.at("state") == "completed"},
          {"timeout_ms", 0},
          {"is_p2p", is_message},
          {"frames", json::array()}};
}

/// The ranks of the job in a communicator; empty: some are not in the job. The n-th of a process is
/// its n-th in the job.
std::vector<int> ranks_in_job(const std::vector<std::string>& members, const JobRanks& job) {
  std::map<std::string, size_t> found;  // ranks of each process
  std::vector<int> ranks;
  for (const std::string& process : members) {
    const auto known = job.find(process);
    const size_t place = found[process]++;
    if (known == job.end() || place >= known->second.size()) {
      return {};
    }
    ranks.push_back(known->second[place]);
  }
  return ranks;
}

/// Adds a rank's calls in one communicator to its record.
void add_calls(const json& rank, const JobRanks& job, std::map<int, json>& records) {
  const std::vector<int> ranks = ranks_in_job(rank.at("members"), job);
  const auto own = rank.at("rank").get<size_t>();
  if (ranks.empty() || own >= ranks.size()) {
    return;
  }
  const Group group{rank.at("comm"), static_cast<int>(own), static_cast<int>(ranks.size())};
  json& record = records[ranks[own]];
  record["version"] = "2.5";
  const size_t number = record["pg_config"].size();
  record["pg_config"][group.name] = {{"name", group.name},
                                     {"desc", "undefined"},
                                     {"ranks", fmt::format("[{}]", fmt::join(ranks, ", "))}};
  const json& calls = rank.at("records");
  const uint64_t made = rank.at("calls");
  // The analyser leaves out entries before the first that all ranks have: a group's numbers are its
  // own.
  constexpr unsigned kPlaceBits = 40;
  uint64_t place = (uint64_t{number} << kPlaceBits) + made - std::min<uint64_t>(made, calls.size());
  json& entries = record["entries"];
  for (const json& call : calls) {
    entries.push_back(make_entry(call, group, place++));
  }
  entries = entries.is_null() ? json::array() : std::move(entries);
}

void put_word(std::string& bytes, uint64_t value, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    bytes += static_cast<char>(value >> (8 * i));
  }
}

void put_text(std::string& bytes, const std::string& text) {
  bytes += 'X';
  put_word(bytes, text.size(), 4);
  bytes += text;
}

void put_value(std::string& bytes, const json& value) {
  if (value.is_object()) {
    bytes += "}(";
    for (const auto& [key, member] : value.items()) {
      put_text(bytes, key);
      put_value(bytes, member);
    }
    bytes += 'u';
  } else if (value.is_array()) {
    bytes += "](";
    for (const json& element : value) {
      put_value(bytes, element);
    }
    bytes += 'e';
  } else if (value.is_string()) {
    put_text(bytes, value.get<std::string>());
  } else if (value.is_boolean()) {
    bytes += value.get<bool>() ? '\x88' : '\x89';
  } else if (value.is_number_integer()) {
    constexpr size_t kBytes = 9;  // of a signed number
    bytes += '\x8a';
    bytes += static_cast<char>(kBytes);
    const bool is_negative = value.is_number_unsigned() ? false : value.get<int64_t>() < 0;
    put_word(bytes,
             value.is_number_unsigned() ? value.get<uint64_t>()
                                        : static_cast<uint64_t>(value.get<int64_t>()),
             8);
    bytes += is_negative ? '\xff' : '\0';
  } else {
    bytes += 'N';
  }
}

}  // namespace

Result<std::map<int, json>> make_flight_records(const std::vector<json>& answers) {
  try {
    std::vector<std::string> members;  // of the largest communicator
    for (const json& answer : answers) {
      for (const json& rank : answer.at("ranks")) {
        if (rank.at("members").size() > members.size()) {
          members = rank.at("members").get<std::vector<std::string>>();
        }
      }
    }
    JobRanks job;
    for (size_t rank = 0; rank < members.size(); ++rank) {
      job[members[rank]].push_back(static_cast<int>(rank));
    }
    std::map<int, json> records;
    for (const json& answer : answers) {
      for (const json& rank : answer.at("ranks")) {
        add_calls(rank, job, records);
      }
    }
    return records.empty() ? fail(Code::kInvalidArgument, "the process is in no communicator")
                           : Result<std::map<int, json>>(std::move(records));
  } catch (const json::exception&) {
    return fail(Code::kRemoteError, "a process runs another version of Plexus");
  }
}

std::string format_pickle(const json& value) {
  std::string bytes = "\x80\x02";
  put_value(bytes, value);
  return bytes + '.';
}

}  // namespace plexus
