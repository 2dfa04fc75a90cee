// SPDX-License-Identifier: Apache-2.0
#include "tools/slurm/yaml.hpp"

#include <charconv>
#include <memory>
#include <utility>
#include <yaml.h>

#include <fmt/format.h>

#include "core/base/text.hpp"

namespace plexus {
namespace {

using Group = SlurmTopology::Group;
using Kind = SlurmTopology::Kind;

constexpr int kDepthMax = 64;  // Slurm's bound
constexpr size_t kShownSizeBytes = 64;

/// A document as a tree.
struct Node {
  enum class Type : uint8_t { kScalar, kList, kMap };
  Type type = Type::kScalar;
  std::string key;  // of a member of a map
  std::string text;
  std::vector<Node> members;
  size_t line = 0;

  [[nodiscard]] const Node* find(std::string_view name) const {
    const Node* found = nullptr;  // the last of equal keys counts
    for (const Node& member : members) {
      found = type == Type::kMap && member.key == name ? &member : found;
    }
    return found;
  }
};

class YamlReader {
 public:
  YamlReader(std::string_view text, const std::string& path) : path_(path) {
    good_ = yaml_parser_initialize(&parser_) != 0;
    if (good_) {
      yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text.data()),
                                   text.size());
    }
  }
  YamlReader(const YamlReader&) = delete;
  YamlReader& operator=(const YamlReader&) = delete;
  ~YamlReader() {
    if (good_) {
      yaml_parser_delete(&parser_);
    }
  }

  /// The first document.
  Result<Node> read() {
    for (;;) {
      PLEXUS_TRY(event, next());
      if (event->type == YAML_STREAM_END_EVENT) {
        return fail(Code::kInvalidUsage, "{}: there is nothing in it", path_);
      }
      if (event->type != YAML_STREAM_START_EVENT && event->type != YAML_DOCUMENT_START_EVENT) {
        return read_node(*event, 0);
      }
    }
  }

  [[nodiscard]] std::string at(size_t line) const {
    return fmt::format("{}: line {}", path_, line);
  }

 private:
  struct Delete {
    void operator()(yaml_event_t* event) const {
      yaml_event_delete(event);
      delete event;  // NOLINT(cppcoreguidelines-owning-memory): this is the owner's
    }
  };
  using Event = std::unique_ptr<yaml_event_t, Delete>;

  Result<Event> next() {
    Event event(new yaml_event_t{});
    if (!good_ || yaml_parser_parse(&parser_, event.get()) == 0) {
      const char* const problem = parser_.problem == nullptr ? "out of memory" : parser_.problem;
      return fail(Code::kInvalidUsage, "{}: {}", at(parser_.problem_mark.line + 1), problem);
    }
    return event;
  }

  Result<Node> read_node(const yaml_event_t& event, int depth) {
    Node node;
    node.line = event.start_mark.line + 1;
    if (depth > kDepthMax || event.type == YAML_ALIAS_EVENT) {
      return fail(Code::kInvalidUsage, "{}: {}", at(node.line),
                  depth > kDepthMax ? "too many levels" : "Slurm takes no aliases (*NAME)");
    }
    if (event.type == YAML_SCALAR_EVENT) {
      node.text.assign(reinterpret_cast<const char*>(event.data.scalar.value),
                       event.data.scalar.length);
      return node;
    }
    const bool is_map = event.type == YAML_MAPPING_START_EVENT;
    node.type = is_map ? Node::Type::kMap : Node::Type::kList;
    for (;;) {
      PLEXUS_TRY(child, next());
      if (child->type == YAML_MAPPING_END_EVENT || child->type == YAML_SEQUENCE_END_EVENT) {
        return node;
      }
      std::string key;
      if (is_map) {
        PLEXUS_TRY(name, read_node(*child, depth + 1));
        key = std::move(name.text);
        PLEXUS_TRY(value, next());
        child = std::move(value);
      }
      PLEXUS_TRY(member, read_node(*child, depth + 1));
      member.key = std::move(key);
      node.members.push_back(std::move(member));
    }
  }

  const std::string& path_;
  yaml_parser_t parser_{};
  bool good_;
};

/// As Slurm converts values to a truth: what says no, and zero, is none.
bool is_true(std::string_view value) {
  const std::string word = lower(value);
  return !word.empty() && word != "false" && word != "no" && word != "n" && word != "off" &&
         word != "0" && word != "null" && word != "~";
}

/// Makes topologies of a document.
class Maker {
 public:
  explicit Maker(const YamlReader& reader) : reader_(reader) {}

  [[nodiscard]] Result<SlurmTopology> make_topology(const Node& node) const {
    SlurmTopology topology;
    topology.kind = Kind::kOther;
    topology.where = reader_.at(node.line);
    PLEXUS_TRY(name, text_of(node, "topology"));
    topology.name = name.value_or("");
    PLEXUS_TRY(is_default, text_of(node, "cluster_default"));
    topology.is_default = is_true(is_default.value_or(""));
    const Node* const tree = find_config(node, "tree");
    const Node* const block = find_config(node, "block");
    if (tree != nullptr && block != nullptr) {
      return refuse(node, "a topology has a tree or blocks, not both");
    }
    if (tree != nullptr) {
      topology.kind = Kind::kTree;
      PLEXUS_TRY(make_groups(*tree, "switches", "switch", &topology));
    } else if (block != nullptr) {
      topology.kind = Kind::kBlock;
      PLEXUS_TRY(make_groups(*block, "blocks", "block", &topology));
      PLEXUS_TRY(make_sizes(block->find("block_sizes"), &topology));
    }
    return topology;
  }

 private:
  [[nodiscard]] Error refuse(const Node& node, std::string_view what) const {
    return fail(Code::kInvalidUsage, "{}: {}", reader_.at(node.line), what);
  }

  /// nullptr: there is none, or an empty one.
  static const Node* find_config(const Node& topology, std::string_view name) {
    const Node* const config = topology.find(name);
    return config == nullptr || config->members.empty() ? nullptr : config;
  }

  [[nodiscard]] Result<std::optional<std::string>> text_of(const Node& node,
                                                           std::string_view name) const {
    const Node* const member = node.find(name);
    if (node.type != Node::Type::kMap) {
      return refuse(node, fmt::format("'{}: ...' is expected there", name));
    }
    if (member != nullptr && member->type != Node::Type::kScalar) {
      return refuse(*member, fmt::format("'{}' must be one text", name));
    }
    return member == nullptr ? std::nullopt : std::optional(member->text);
  }

  Result<void> make_groups(const Node& config,
                           std::string_view list,
                           std::string_view kind,
                           SlurmTopology* topology) const {
    const Node* const groups = config.find(list);
    if (groups == nullptr || groups->type == Node::Type::kScalar) {
      return refuse(config, fmt::format("'{}', a list, is missing", list));
    }
    if (groups->type == Node::Type::kMap) {  // Slurm takes one that is in no list
      return make_group(*groups, kind, topology);
    }
    for (const Node& group : groups->members) {
      PLEXUS_TRY(make_group(group, kind, topology));
    }
    return ok();
  }

  /// Where a switch has nodes, Slurm leaves its children out.
  Result<void> make_group(const Node& node, std::string_view kind, SlurmTopology* topology) const {
    PLEXUS_TRY(name, text_of(node, kind));
    PLEXUS_TRY(nodes, text_of(node, "nodes"));
    PLEXUS_TRY(below, text_of(node, "children"));
    if (!name.has_value()) {
      return refuse(node, fmt::format("'{}: NAME' is missing", kind));
    }
    topology->groups.push_back(
        {.name = *name, .nodes = nodes, .below = below, .where = reader_.at(node.line)});
    return ok();
  }

  Result<void> make_sizes(const Node* sizes, SlurmTopology* topology) const {
    if (sizes == nullptr) {
      return ok();
    }
    const std::vector<Node> one = {*sizes};
    for (const Node& size : sizes->type == Node::Type::kScalar ? one : sizes->members) {
      int32_t number = 0;
      const char* const end = size.text.data() + size.text.size();
      const auto read = std::from_chars(size.text.data(), end, number);
      if (read.ec != std::errc() || read.ptr != end) {
        return refuse(size, fmt::format("'{}' is not a number of nodes",
                                        printable(size.text.substr(0, kShownSizeBytes))));
      }
      topology->block_sizes.push_back(number);
    }
    return ok();
  }

  const YamlReader& reader_;
};

}  // namespace

Result<std::vector<SlurmTopology>> read_topology_yaml(std::string_view text,
                                                      const std::string& path) {
  if (text.size() > kSlurmBytesMax) {
    return fail(Code::kInvalidUsage, "{}: at most {} bytes are read", path, kSlurmBytesMax);
  }
  YamlReader reader(text, path);
  PLEXUS_TRY(document, reader.read());
  const Maker maker(reader);
  std::vector<SlurmTopology> topologies;
  if (document.type != Node::Type::kList) {  // Slurm takes one that is in no list
    PLEXUS_TRY(topology, maker.make_topology(document));
    topologies.push_back(std::move(topology));
    return topologies;
  }
  for (const Node& node : document.members) {
    PLEXUS_TRY(topology, maker.make_topology(node));
    topologies.push_back(std::move(topology));
  }
  return topologies;
}

}  // namespace plexus
