// SPDX-License-Identifier: Apache-2.0
// Chakra execution traces: a graph of computing, collectives and messages of one rank; messages of
// protobuf, each behind its length, or JSON. Of protobuf's wire format only the few fields that are
// needed are read: a hundred lines here, where its library would need generated code.
#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "core/base/text.hpp"
#include "tools/workload/builder.hpp"

namespace plexus {
namespace {

// ---- the wire format ----

/// The fields of a message, one after the other.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : bytes_(bytes) {}

  /// False: no further field, or (`is_broken`) none that could be read.
  bool next() {
    if (bytes_.empty() || is_broken) {
      return false;
    }
    const auto key = take_varint();
    if (!key.has_value() || *key >> 3 == 0) {
      return !(is_broken = true);
    }
    field = *key >> 3;
    text = {};
    number = 0;
    switch (*key & 7) {
      case 0:
        is_broken = !take_number();
        break;
      case 1:
        is_broken = !take_bytes(8);
        break;
      case 2: {
        const auto length = take_varint();
        is_broken = !length.has_value() || !take_bytes(*length);
        break;
      }
      case 5:
        is_broken = !take_bytes(4);
        break;
      default:
        is_broken = true;
    }
    return !is_broken;
  }
  std::optional<uint64_t> take_varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && !bytes_.empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(bytes_.front());
      bytes_.remove_prefix(1);
      value |= uint64_t{byte & 0x7fU} << shift;
      if (byte < 0x80) {
        return value;
      }
    }
    return std::nullopt;
  }
  bool take_bytes(uint64_t length) {
    if (length > bytes_.size()) {
      return false;
    }
    text = bytes_.substr(0, length);
    bytes_.remove_prefix(length);
    return true;
  }
  [[nodiscard]] bool is_empty() const { return bytes_.empty(); }

  uint64_t field = 0;
  uint64_t number = 0;    // of a varint
  std::string_view text;  // of other fields
  bool is_broken = false;

 private:
  bool take_number() {
    const auto value = take_varint();
    number = value.value_or(0);
    return value.has_value();
  }
  std::string_view bytes_;
};

// ---- nodes ----

constexpr size_t kDepsMax = 16'000'000;

struct ChakraNode {
  uint64_t id = 0;
  std::string name;
  uint64_t type = 0;
  std::vector<uint64_t> deps;
  double time_us = 0;
  std::optional<uint64_t> comm_type;
  uint64_t comm_bytes = 0;
  std::optional<uint64_t> source;
  std::optional<uint64_t> target;
  uint64_t tag = 0;
  std::string group;
  bool is_host = false;
  bool has_operations = false;
};

void set_attribute(ChakraNode& node,
                   std::string_view name,
                   uint64_t number,
                   std::string_view text) {
  if (name == "comm_type") {
    node.comm_type = number;
  } else if (name == "comm_size") {
    node.comm_bytes = number;
  } else if (name == "comm_src") {
    node.source = number;
  } else if (name == "comm_dst") {
    node.target = number;
  } else if (name == "comm_tag") {
    node.tag = number;
  } else if (name == "is_cpu_op") {
    node.is_host = number != 0;
  } else if (name == "num_ops") {
    node.has_operations = number > 0;
  } else if (name == "pg_name" || name == "comm_group") {
    node.group = text;
  }
}

/// The rank that has these peers: the smallest that is none of them, if messages do not say it.
uint64_t find_own_rank(const std::vector<ChakraNode>& nodes, Workload& work) {
  std::vector<uint64_t> peers;
  for (const ChakraNode& node : nodes) {
    const bool sends = node.type == kSending;
    const auto& self = sends ? node.source : node.target;
    const auto& peer = sends ? node.target : node.source;
    if ((sends || node.type == kReceiving) && peer.has_value()) {
      if (self.has_value() && self != peer) {
        work.rank = static_cast<int>(std::min<uint64_t>(*self, kWorkloadRanksMax));
        return *self;
      }
      peers.push_back(*peer);
    }
  }
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  uint64_t rank = 0;
  while (rank < peers.size() && peers[rank] == rank) {
    ++rank;
  }
  return rank;
}

class ChakraGraph {
 public:
  explicit ChakraGraph(const char* format) : builder_(format) {}

  int nranks = 0;  // that the file says; 0: nothing

  Result<void> add(ChakraNode node) {
    if (nodes_.size() == kWorkloadCallsMax) {
      return fail(Code::kInvalidArgument, "has more than {} nodes: cut it to a step",
                  kWorkloadCallsMax);
    }
    deps_ += node.deps.size();
    if (deps_ > kDepsMax) {
      return fail(Code::kInvalidArgument, "has more than {} dependencies: cut it to a step",
                  kDepsMax);
    }
    nodes_.push_back(std::move(node));
    return ok();
  }

  Result<Workload> finish() {
    own_ = find_own_rank(nodes_, builder_.work);
    for (const ChakraNode& node : nodes_) {
      PLEXUS_TRY(add_call(node));
    }
    if (highest_ > 0) {
      const int seen = static_cast<int>(std::max(highest_, own_) + 1);
      builder_.work.nranks = std::max(seen, nranks);
      builder_.work.origin = static_cast<int>(own_);
      builder_.note_taken_for_all(
          fmt::format("taken as rank {}'s, each rank doing the same with peers as far away; "
                      "ranks as the highest peer says, else give --ranks",
                      own_));
    } else {
      builder_.note_taken_for_all("one rank's trace, taken for all");
      builder_.work.nranks = nranks;
    }
    std::vector<WorkloadCall>& calls = builder_.work.calls;
    for (size_t place = 0; place < nodes_.size(); ++place) {
      const auto self = numbers_.find(nodes_[place].id);
      if (self == numbers_.end() || self->second.node != place) {
        continue;
      }
      for (const uint64_t id : nodes_[place].deps) {
        const auto other = numbers_.find(id);
        if (other != numbers_.end() && other->second.call != self->second.call) {
          calls[self->second.call].after.push_back(other->second.call);
        }
      }
    }
    return builder_.finish();
  }

 private:
  struct Place {
    uint32_t call;
    size_t node;
  };

  Result<void> add_call(const ChakraNode& node) {
    WorkloadCall call{.bytes = node.comm_bytes,
                      .name = builder_.name(node.name),
                      .tag = node.tag,
                      .stream = kNoStream};
    // a host's call without bytes starts a kernel, which is there as well
    const bool launches = node.is_host && node.comm_bytes == 0;
    if (node.type == kTogether && !launches) {
      const auto known = node.comm_type.value_or(kChakraCollectives.size());
      const auto collective = known < kChakraCollectives.size() ? kChakraCollectives[known].second
                                                                : find_collective(node.name);
      call.collective = collective.value_or(Collective::kAllReduce);
      call.time_us = call.bytes == 0 ? node.time_us : 0;
      call.group = node.group.empty() ? 0 : builder_.group("process group " + node.group, 0);
      call.communicator = builder_.name(node.group);
      if (!collective.has_value()) {
        builder_.leave_out("collective of unknown kind or barrier");
        return ok();
      }
      if (call.bytes == 0) {
        builder_.leave_out("collective without its bytes, taken as long as recorded");
      }
    } else if (node.type == kSending || node.type == kReceiving) {
      const auto& peer = node.type == kSending ? node.target : node.source;
      if (!peer.has_value() || *peer >= kWorkloadRanksMax || *peer == own_) {
        builder_.leave_out("message without a peer");
        return ok();
      }
      highest_ = std::max(highest_, *peer);
      call.kind = node.type == kSending ? WorkKind::kSend : WorkKind::kRecv;
      call.peer = static_cast<int>(*peer) - static_cast<int>(own_);
    } else if (node.type == kMetadata) {
      return ok();
    } else {
      constexpr double kNoTimeUs = 1e-9;  // others wait for it
      if (node.has_operations && node.time_us == 0) {
        builder_.leave_out("computing that has operations and no time");
      }
      call.kind = WorkKind::kCompute;
      call.bytes = 0;
      call.tag = node.is_host ? 1 : 0;
      call.time_us = std::max(node.time_us, kNoTimeUs);
    }
    PLEXUS_TRY(number, builder_.add(std::move(call)));
    numbers_.emplace(node.id, Place{number, static_cast<size_t>(&node - nodes_.data())});
    return ok();
  }

  WorkloadBuilder builder_;
  std::vector<ChakraNode> nodes_;
  size_t deps_ = 0;                              // of all
  std::unordered_map<uint64_t, Place> numbers_;  // by id
  uint64_t own_ = 0;
  uint64_t highest_ = 0;  // peer
};

// ---- protobuf ----

void read_attribute(std::string_view bytes, ChakraNode& node) {
  WireReader wire(bytes);
  std::string_view name;
  std::string_view text;
  uint64_t number = 0;
  while (wire.next()) {
    if (wire.field == 1) {
      name = wire.text;
    } else if (wire.field == 15 || wire.field == 17) {  // sint32, sint64
      number = wire.number >> 1;
    } else if (wire.text.empty()) {
      number = wire.number;
    } else {
      text = wire.text;
    }
  }
  set_attribute(node, name, number, text);
}

void add_ids(const WireReader& wire, ChakraNode& node) {
  if (wire.text.empty()) {
    node.deps.push_back(wire.number);
    return;
  }
  WireReader packed(wire.text);
  while (node.deps.size() <= kDepsMax) {
    const auto id = packed.take_varint();
    if (!id.has_value()) {
      return;
    }
    node.deps.push_back(*id);
  }
}

/// nullopt: it is no message.
std::optional<ChakraNode> read_node(std::string_view bytes) {
  ChakraNode node;
  WireReader wire(bytes);
  while (wire.next()) {
    switch (wire.field) {
      case 1:
        node.id = wire.number;
        break;
      case 2:
        node.name = wire.text;
        break;
      case 3:
        node.type = wire.number;
        break;
      case 4:
      case 5:
        add_ids(wire, node);
        break;
      case 7:
        node.time_us = static_cast<double>(wire.number);
        break;
      case 10:
        read_attribute(wire.text, node);
        break;
      default:
        break;
    }
  }
  return wire.is_broken ? std::nullopt : std::optional(std::move(node));
}

// ---- JSON ----

/// The first of these that is there.
const WorkloadJson* first_of(const WorkloadJson& object, std::initializer_list<const char*> keys) {
  for (const char* const key : keys) {
    if (const WorkloadJson* const at = find_member(object, key); at != nullptr) {
      return at;
    }
  }
  return nullptr;
}

uint64_t number_in(const WorkloadJson& object, std::initializer_list<const char*> keys) {
  for (const char* const key : keys) {
    if (const uint64_t number = number_of(object, key, UINT64_MAX); number != UINT64_MAX) {
      return number;
    }
  }
  return 0;
}

uint64_t type_of(const WorkloadJson& object) {
  const WorkloadJson* const type = first_of(object, {"type", "NodeType", "node_type", "nodeType"});
  if (type == nullptr || !type->is_string()) {
    return number_in(object, {"type", "NodeType", "node_type", "nodeType"});
  }
  const std::string text = type->get<std::string>();
  for (const auto& [name, number] : {std::pair("METADATA_NODE", kMetadata),
                                     {"COMM_SEND_NODE", kSending},
                                     {"COMM_RECV_NODE", kReceiving},
                                     {"COMM_COLL_NODE", kTogether}}) {
    if (text == name) {
      return number;
    }
  }
  return kComputing;
}

void read_json_attribute(const WorkloadJson& attribute, ChakraNode& node) {
  const std::string name = text_of(attribute, "name");
  for (const auto& [key, value] : attribute.items()) {
    if (key == "name" || key.starts_with("doc")) {
      continue;
    }
    const std::string text = value.is_string() ? value.get<std::string>() : "";
    uint64_t number =
        value.is_boolean() ? static_cast<uint64_t>(value.get<bool>()) : number_of(attribute, key);
    for (size_t i = 0; name == "comm_type" && i < kChakraCollectives.size(); ++i) {
      number = text == kChakraCollectives[i].first ? i : number;
    }
    set_attribute(node, name, number, text);
  }
}

ChakraNode read_json_node(const WorkloadJson& object) {
  ChakraNode node;
  node.id = number_in(object, {"id", "Id"});
  const WorkloadJson* const name = first_of(object, {"name", "Name"});
  node.name = name != nullptr && name->is_string() ? name->get<std::string>() : "";
  node.type = type_of(object);
  node.time_us = static_cast<double>(
      number_in(object, {"duration_micros", "durationMicros", "runtime", "duration"}));
  node.comm_bytes = number_in(object, {"comm_size", "commSize"});
  const WorkloadJson* const host = find_member(object, "is_cpu_op");
  node.is_host = host != nullptr && host->is_boolean() && host->get<bool>();
  for (const WorkloadJson* const ids :
       {first_of(object, {"ctrl_deps", "ctrlDeps"}), first_of(object, {"data_deps", "dataDeps"})}) {
    for (const WorkloadJson& id :
         ids != nullptr && ids->is_array() ? *ids : WorkloadJson::array()) {
      const std::string text = id.is_string() ? id.get<std::string>() : "";
      node.deps.push_back(id.is_number_unsigned() ? id.get<uint64_t>()
                                                  : whole_number(text).value_or(UINT64_MAX));
    }
  }
  const WorkloadJson* const attributes = first_of(object, {"attr", "attrs", "attribute"});
  if (attributes != nullptr && attributes->is_array()) {
    for (const WorkloadJson& attribute : *attributes) {
      if (attribute.is_object()) {
        read_json_attribute(attribute, node);
      }
    }
  }
  return node;
}

}  // namespace

bool is_delimited_protobuf(std::string_view bytes) {
  WireReader wire(bytes);
  bool is_first = true;
  while (!wire.is_empty()) {
    const auto length = wire.take_varint();
    if (!length.has_value() || !wire.take_bytes(*length)) {
      return false;
    }
    if (is_first) {
      WireReader message(wire.text);
      while (message.next()) {
      }
      if (message.is_broken || wire.text.empty()) {
        return false;
      }
      is_first = false;
    }
  }
  return !is_first;
}

Result<Workload> read_chakra(std::string_view bytes) {
  ChakraGraph graph("Chakra trace (protobuf)");
  WireReader wire(bytes);
  for (size_t number = 0; !wire.is_empty(); ++number) {
    const auto length = wire.take_varint();
    auto node =
        length.has_value() && wire.take_bytes(*length) ? read_node(wire.text) : std::nullopt;
    if (!node.has_value()) {
      return fail(Code::kInvalidArgument, "message {}: is no node of Chakra", number);
    }
    if (number > 0) {  // the first describes the trace
      PLEXUS_TRY(graph.add(std::move(*node)));
    }
  }
  return graph.finish();
}

Result<Workload> read_chakra_json(const WorkloadJson& json) {
  ChakraGraph graph("Chakra trace (JSON)");
  graph.nranks = static_cast<int>(std::min<uint64_t>(number_of(json, "ngpus"), kWorkloadRanksMax));
  for (const WorkloadJson& node : *first_of(json, {"workload_graph", "nodes"})) {
    if (!node.is_object()) {
      return fail(Code::kInvalidArgument, "a node is no object");
    }
    PLEXUS_TRY(graph.add(read_json_node(node)));
  }
  return graph.finish();
}

}  // namespace plexus
