// SPDX-License-Identifier: Apache-2.0
#include "core/datacenter/slurm.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "core/base/text.hpp"
#include "core/datacenter/fabric_file.hpp"
#include "core/datacenter/host_pattern.hpp"
#include "core/datacenter/location.hpp"

namespace plexus {
namespace {

constexpr size_t kSlurmBytesMax = size_t{4} << 20;
constexpr size_t kNamesMax = 65'536;

struct Switch {
  std::vector<std::string> nodes;  // patterns
  std::vector<std::string> below;  // lower switches
};

/// Splits "a[1-2,4],b" at the commas outside brackets.
std::vector<std::string> split_list(std::string_view list) {
  std::vector<std::string> parts(1);
  bool inside = false;
  for (const char character : list) {
    inside = character == '[' || (inside && character != ']');
    if (character == ',' && !inside) {
      parts.emplace_back();
    } else {
      parts.back() += character;
    }
  }
  std::erase(parts, "");
  return parts;
}

/// Expands a bracket list of switch names: "s[0-2]" is s0, s1, s2.
Result<std::vector<std::string>> expand_switches(const std::string& pattern) {
  const size_t open = pattern.find('[');
  if (open == std::string::npos) {
    return std::vector<std::string>{pattern};
  }
  const size_t close = pattern.find(']', open);
  if (close == std::string::npos) {
    return fail(Code::kInvalidUsage, "'[' without ']' in '{}'", pattern);
  }
  std::vector<std::string> names;
  for (const std::string& range : split_list(pattern.substr(open + 1, close - open - 1))) {
    const size_t dash = std::min(range.find('-'), range.size());
    const std::string low_text = range.substr(0, dash);
    const std::string high_text = dash < range.size() ? range.substr(dash + 1) : low_text;
    const auto is_number = [](const std::string& text) {
      constexpr size_t kRangeDigitsMax = 9;
      return !text.empty() && text.size() <= kRangeDigitsMax &&
             text.find_first_not_of("0123456789") == std::string::npos;
    };
    if (!is_number(low_text) || !is_number(high_text)) {
      return fail(Code::kInvalidUsage, "'{}' is not a range of numbers in '{}'", range, pattern);
    }
    const unsigned long high = std::stoul(high_text);
    for (unsigned long number = std::stoul(low_text); number <= high; ++number) {
      std::string digits = std::to_string(number);
      digits.insert(0, low_text.size() > digits.size() ? low_text.size() - digits.size() : 0, '0');
      names.push_back(pattern.substr(0, open) + digits + pattern.substr(close + 1));
      if (names.size() > kNamesMax) {
        return fail(Code::kInvalidUsage, "'{}' expands to more than {} switches", pattern,
                    kNamesMax);
      }
    }
  }
  return names;
}

Result<void> read_line(std::map<std::string, Switch>& switches, std::string_view line) {
  std::map<std::string, std::string> fields;
  line = line.substr(0, line.find('#'));
  constexpr std::string_view kBlank = " \t\r";
  for (size_t at = line.find_first_not_of(kBlank); at != std::string_view::npos;
       at = line.find_first_not_of(kBlank, at)) {
    const size_t end = std::min(line.find_first_of(kBlank, at), line.size());
    const std::string_view word = line.substr(at, end - at);
    const size_t equals = word.find('=');
    if (equals == std::string_view::npos) {
      return fail(Code::kInvalidUsage, "'{}' is not KEY=VALUE", word);
    }
    fields[lower(word.substr(0, equals))] = word.substr(equals + 1);
    at = end;
  }
  if (fields.empty()) {
    return ok();
  }
  if (fields["switchname"].empty()) {
    return fail(Code::kInvalidUsage,
                "SwitchName= is missing (only Slurm's topology/tree is supported)");
  }
  Switch entry;
  entry.nodes = split_list(fields["nodes"]);
  for (const std::string& node : entry.nodes) {
    PLEXUS_TRY(HostPattern::parse(node));
  }
  for (const std::string& pattern : split_list(fields["switches"])) {
    PLEXUS_TRY(names, expand_switches(pattern));
    entry.below.insert(entry.below.end(), names.begin(), names.end());
  }
  PLEXUS_TRY(own, expand_switches(fields["switchname"]));
  for (const std::string& name : own) {
    if (!switches.emplace(name, entry).second) {
      return fail(Code::kInvalidUsage, "switch '{}' is given twice", name);
    }
  }
  return ok();
}

/// Collects the nodes below a switch. Visits each switch once, so a cycle in the file terminates.
void collect(const std::map<std::string, Switch>& switches,
             const std::string& top,
             std::set<std::string>& nodes) {
  std::set<std::string> seen;
  std::vector<std::string> open = {top};
  while (!open.empty()) {
    const std::string name = std::move(open.back());
    open.pop_back();
    const auto at = switches.find(name);
    if (at == switches.end() || !seen.insert(name).second) {
      continue;
    }
    nodes.insert(at->second.nodes.begin(), at->second.nodes.end());
    open.insert(open.end(), at->second.below.begin(), at->second.below.end());
  }
}

/// The switches that become datacenters.
std::set<std::string> find_tops(const std::map<std::string, Switch>& switches, int depth) {
  std::set<std::string> lower_switches;
  for (const auto& [name, entry] : switches) {
    lower_switches.insert(entry.below.begin(), entry.below.end());
  }
  std::set<std::string> tops;
  for (const auto& [name, entry] : switches) {
    if (lower_switches.count(name) == 0) {
      tops.insert(name);
    }
  }
  for (int at = 0; at < depth; ++at) {
    std::set<std::string> next;
    for (const std::string& name : tops) {
      const auto found = switches.find(name);
      const bool is_lowest = found == switches.end() || found->second.below.empty();
      if (is_lowest) {
        next.insert(name);
      } else {
        next.insert(found->second.below.begin(), found->second.below.end());
      }
    }
    tops = std::move(next);
  }
  return tops;
}

}  // namespace

Result<std::string> fabric_file_of_slurm(std::string_view topology_conf, int depth) {
  if (topology_conf.size() > kSlurmBytesMax) {
    return fail(Code::kInvalidUsage, "the file has {} bytes, at most {} are supported",
                topology_conf.size(), kSlurmBytesMax);
  }
  std::map<std::string, Switch> switches;
  for (int line = 1; !topology_conf.empty(); ++line) {
    const size_t end = std::min(topology_conf.find('\n'), topology_conf.size());
    if (auto read = read_line(switches, topology_conf.substr(0, end)); !read) {
      return std::move(read).error().with_context(fmt::format("line {}", line));
    }
    topology_conf.remove_prefix(std::min(end + 1, topology_conf.size()));
  }
  std::string text = "# from Slurm's topology.conf; add 'link DC DC gbit N ms N'\n";
  const std::set<std::string> tops = find_tops(switches, depth);
  for (const std::string& top : tops) {
    std::set<std::string> nodes;
    collect(switches, top, nodes);
    for (const std::string& node : nodes) {
      text += fmt::format("host {} dc {}\n", node, top);
    }
  }
  if (tops.empty() || tops.size() > kDatacentersMax) {
    return fail(Code::kInvalidUsage,
                "{} switches are {} below the top, each of which would become a datacenter: 1 to "
                "{} are supported",
                tops.size(), depth, kDatacentersMax);
  }
  PLEXUS_TRY(parse_fabric_file(text));  // rejects names that a fabric file cannot contain
  return text;
}

}  // namespace plexus
