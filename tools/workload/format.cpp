// SPDX-License-Identifier: Apache-2.0
// Workloads as others read them: GOAL, where every rank's messages are known, and Chakra's JSON and
// protobuf.
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "tools/workload/builder.hpp"

namespace plexus {
namespace {

/// What each call waits for, that before it in its stream among it.
std::vector<std::vector<uint32_t>> causes_of(const Workload& work) {
  std::vector<std::vector<uint32_t>> causes;
  std::map<std::pair<int, uint32_t>, uint32_t> last;
  for (uint32_t call = 0; call < work.calls.size(); ++call) {
    std::vector<uint32_t>& mine = causes.emplace_back(work.calls[call].after);
    if (work.calls[call].stream != kNoStream) {
      const auto [at, is_first] =
          last.emplace(std::pair(work.calls[call].rank, work.calls[call].stream), call);
      if (!is_first) {
        mine.push_back(std::exchange(at->second, call));
      }
    }
    std::sort(mine.begin(), mine.end());
    mine.erase(std::unique(mine.begin(), mine.end()), mine.end());
  }
  return causes;
}

const char* chakra_name(Collective collective) {
  const auto* const known =
      std::find_if(kChakraCollectives.begin(), kChakraCollectives.end(),
                   [&](const auto& each) { return each.second == collective; });
  return known == kChakraCollectives.end() ? "ALL_REDUCE" : known->first;
}

nlohmann::ordered_json attribute(const char* name, const char* type, const WorkloadJson& value) {
  return {{"name", name}, {type, value}};
}

/// A rank's part, as Chakra's JSON has it.
nlohmann::ordered_json chakra_nodes(const Workload& work, int rank) {
  const std::vector<std::vector<uint32_t>> causes = causes_of(work);
  nlohmann::ordered_json nodes = nlohmann::ordered_json::array();
  for (size_t number = 0; number < work.calls.size(); ++number) {
    const WorkloadCall& call = work.calls[number];
    if (call.rank >= 0 && call.rank != rank) {
      continue;
    }
    const bool computes = call.kind == WorkKind::kCompute;
    const bool is_together = call.kind == WorkKind::kCall;
    const auto times = static_cast<double>(call.times);
    nlohmann::ordered_json node{{"id", number},
                                {"name", work.names[call.name]},
                                {"type", computes                       ? "COMP_NODE"
                                         : is_together                  ? "COMM_COLL_NODE"
                                         : call.kind == WorkKind::kSend ? "COMM_SEND_NODE"
                                                                        : "COMM_RECV_NODE"},
                                {"data_deps", causes[number]}};
    if (computes || call.bytes == 0) {
      node["duration_micros"] = std::llround(times * call.time_us);
    }
    nlohmann::ordered_json& list = node["attr"] = nlohmann::ordered_json::array();
    list.push_back(attribute("is_cpu_op", "bool_val", false));
    if (!computes) {
      list.push_back(attribute("comm_size", "int64_val", call.bytes * call.times));
    }
    if (is_together) {
      list.push_back(attribute("comm_type", "string_val", chakra_name(call.collective)));
      if (call.group != 0) {
        list.push_back(attribute("pg_name", "string_val", work.groups[call.group].name));
      }
    } else if (!computes) {
      const int peer = call.rank < 0 ? rank + call.peer : call.peer;
      const int ranks = std::max(work.nranks, 1);
      const bool sends = call.kind == WorkKind::kSend;
      list.push_back(attribute(sends ? "comm_src" : "comm_dst", "int32_val", rank));
      list.push_back(
          attribute(sends ? "comm_dst" : "comm_src", "int32_val", (peer % ranks + ranks) % ranks));
      list.push_back(attribute("comm_tag", "int32_val", call.tag));
    }
    nodes.push_back(std::move(node));
  }
  return nodes;
}

// ---- protobuf ----

void put_varint(std::string& bytes, uint64_t value) {
  for (; value >= 0x80; value >>= 7) {
    bytes += static_cast<char>(value | 0x80);
  }
  bytes += static_cast<char>(value);
}

void put_number(std::string& bytes, uint64_t field, uint64_t value) {
  put_varint(bytes, field << 3);
  put_varint(bytes, value);
}

void put_text(std::string& bytes, uint64_t field, std::string_view text) {
  put_varint(bytes, field << 3 | 2);
  put_varint(bytes, text.size());
  bytes += text;
}

/// As the readers of `.et` files expect them: a collective's kind is a number.
std::string attribute_message(const nlohmann::ordered_json& attribute) {
  std::string bytes;
  put_text(bytes, 1, attribute["name"].get<std::string>());
  const auto value = std::prev(attribute.end());
  if (attribute["name"] == "comm_type") {
    const auto* const known = std::find_if(kChakraCollectives.begin(), kChakraCollectives.end(),
                                           [&](const auto& each) { return *value == each.first; });
    put_number(bytes, 9, static_cast<uint64_t>(known - kChakraCollectives.begin()));
  } else if (value.key() == "string_val") {
    put_text(bytes, 29, value->get<std::string>());
  } else if (value.key() == "bool_val") {
    put_number(bytes, 27, value->get<bool>() ? 1 : 0);
  } else {
    put_number(bytes, value.key() == "int32_val" ? 7 : 9, value->get<uint64_t>());
  }
  return bytes;
}

std::string node_message(const nlohmann::ordered_json& node) {
  std::string bytes;
  put_number(bytes, 1, node["id"].get<uint64_t>());
  put_text(bytes, 2, node["name"].get<std::string>());
  const std::string type = node["type"].get<std::string>();
  put_number(bytes, 3,
             type == "COMP_NODE"        ? kComputing
             : type == "COMM_SEND_NODE" ? kSending
             : type == "COMM_RECV_NODE" ? kReceiving
                                        : kTogether);
  for (const nlohmann::ordered_json& cause : node["data_deps"]) {
    put_number(bytes, 5, cause.get<uint64_t>());
  }
  if (const auto time = node.find("duration_micros"); time != node.end()) {
    put_number(bytes, 7, time->get<uint64_t>());
  }
  for (const nlohmann::ordered_json& attribute : node["attr"]) {
    put_text(bytes, 10, attribute_message(attribute));
  }
  return bytes;
}

}  // namespace

Result<std::string> format_goal(const Workload& work) {
  constexpr double kNsOfUs = 1000;
  const std::vector<std::vector<uint32_t>> causes = causes_of(work);
  std::vector<std::string> ranks(static_cast<size_t>(std::max(work.nranks, 1)));
  for (size_t number = 0; number < work.calls.size(); ++number) {
    const WorkloadCall& call = work.calls[number];
    if (call.rank < 0 || call.kind == WorkKind::kCall) {
      return fail(Code::kInvalidArgument,
                  "GOAL has sends and receives of each rank and no collectives, as call {} is one: "
                  "write Chakra's JSON or .et files, or export an algorithm's program as GOAL",
                  number);
    }
    std::string& text = ranks[static_cast<size_t>(call.rank)];
    text +=
        call.kind == WorkKind::kCompute
            ? fmt::format("l{}: calc {}\n", number,
                          std::llround(static_cast<double>(call.times) * call.time_us * kNsOfUs))
            : fmt::format("l{}: {} {}b {} {} tag {}\n", number,
                          call.kind == WorkKind::kSend ? "send" : "recv", call.bytes,
                          call.kind == WorkKind::kSend ? "to" : "from", call.peer, call.tag);
    for (const uint32_t cause : causes[number]) {
      text += fmt::format("l{} requires l{}\n", number, cause);
    }
  }
  std::string goal = fmt::format("num_ranks {}\n", ranks.size());
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    goal += fmt::format("\nrank {} {{\n{}}}\n", rank, ranks[rank]);
  }
  return goal;
}

std::string format_chakra(const Workload& work, int rank) {
  const nlohmann::ordered_json json{{"ngpus", work.nranks}, {"nodes", chakra_nodes(work, rank)}};
  return json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string format_chakra_protobuf(const Workload& work, int rank) {
  std::string about;  // comes first
  put_text(about, 1, "0.0.4");
  std::string bytes;
  put_varint(bytes, about.size());
  bytes += about;
  for (const nlohmann::ordered_json& node : chakra_nodes(work, rank)) {
    const std::string message = node_message(node);
    put_varint(bytes, message.size());
    bytes += message;
  }
  return bytes;
}

}  // namespace plexus
