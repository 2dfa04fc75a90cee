// SPDX-License-Identifier: Apache-2.0
#include "tools/slurm/conf.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/base/text.hpp"

namespace plexus {
namespace {

constexpr std::string_view kBlank = " \t\n\v\f\r";
constexpr int kIncludeDepthMax = 16;
constexpr size_t kShownLineBytes = 64;

bool is_blank(std::string_view text) {
  return text.find_first_not_of(kBlank) == std::string_view::npos;
}

void skip_blank(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(kBlank), text.size()));
}

/// What is before the first `#` that has an even number of backslashes before it.
std::string_view without_comment(std::string_view line) {
  bool escaped = false;
  for (size_t at = 0; at < line.size(); ++at) {
    if (line[at] == '#' && !escaped) {
      return line.substr(0, at);
    }
    escaped = line[at] == '\\' && !escaped;
  }
  return line;
}

/// Cuts the backslash that joins a line to the next. False: there is none.
bool cut_continuation(std::string_view& line) {
  const size_t end = line.find_last_not_of(kBlank) + 1;  // 0: a blank line
  size_t backslashes = 0;
  while (backslashes < end && line[end - 1 - backslashes] == '\\') {
    ++backslashes;
  }
  if (backslashes % 2 == 0) {
    return false;
  }
  line = line.substr(0, end - 1);
  return true;
}

/// Takes a line with those that continue it. Comments go first, escapes last, as Slurm has it.
std::string take_line(std::string_view& text, int* nlines) {
  std::string joined;
  bool more = true;
  for (*nlines = 0; more && !text.empty(); ++*nlines) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = without_comment(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    more = cut_continuation(line);
    joined += line;
  }
  std::string line;
  for (size_t at = 0; at < joined.size(); ++at) {
    at += joined[at] == '\\' ? 1 : 0;
    line += at < joined.size() ? joined.substr(at, 1) : "";
  }
  return line;
}

struct Pair {
  std::string key;  // in lower case
  std::string value;
};

/// Takes KEY=VALUE, also KEY+=VALUE, off the line. nullopt, and nothing is taken: it does not begin
/// with one. A value in quotes ends with the second quote if nothing is attached to that; else
/// quotes are characters as others.
std::optional<Pair> take_pair(std::string_view& line) {
  std::string_view rest = line;
  skip_blank(rest);
  const size_t key_end = std::min(
      rest.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_."),
      rest.size());
  Pair pair{.key = lower(rest.substr(0, key_end)), .value = {}};
  rest.remove_prefix(key_end);
  skip_blank(rest);
  if (!rest.empty() && std::string_view("-*+/").find(rest.front()) != std::string_view::npos) {
    rest.remove_prefix(1);
  }
  if (key_end == 0 || rest.empty() || rest.front() != '=') {
    return std::nullopt;
  }
  rest.remove_prefix(1);
  skip_blank(rest);
  size_t end = std::min(rest.find_first_of(kBlank), rest.size());
  const size_t quote = rest.starts_with('"') ? rest.find('"', 1) : std::string_view::npos;
  if (quote != std::string_view::npos && is_blank(rest.substr(quote + 1, 1))) {
    pair.value = rest.substr(1, quote - 1);
    end = quote + 1;
  } else {
    pair.value = rest.substr(0, end);
  }
  if (end == 0) {
    return std::nullopt;
  }
  line = rest.substr(end);
  return pair;
}

/// A number as Slurm takes it for LinkSpeed.
bool is_link_speed(const std::string& value) {
  constexpr unsigned long kKibi = 1024;
  if (lower(value) == "unlimited" || lower(value) == "infinite") {
    return true;
  }
  char* end = nullptr;
  errno = 0;
  unsigned long number = std::strtoul(value.c_str(), &end, 0);
  if (*end == 'k' || *end == 'K') {
    number *= kKibi;
    ++end;
  }
  return *end == '\0' && errno == 0 && !value.starts_with('-') &&
         number <= std::numeric_limits<uint32_t>::max();
}

/// `Include FILE` at the very beginning of a line.
std::optional<std::string_view> find_include(std::string_view line) {
  constexpr std::string_view kWord = "include";
  if (lower(line.substr(0, kWord.size())) != kWord || line.size() == kWord.size() ||
      !is_blank(line.substr(kWord.size(), 1))) {
    return std::nullopt;
  }
  line.remove_prefix(kWord.size());
  skip_blank(line);
  return line;
}

class ConfReader {
 public:
  ConfReader(const std::string& path, const ReadFile& read) : read_(read) {
    topology_.where = path;
  }

  Result<void> read_text(std::string_view text, const std::string& path, int depth) {
    bytes_ += text.size();
    if (bytes_ > kSlurmBytesMax || depth > kIncludeDepthMax) {
      return fail(Code::kInvalidUsage,
                  "{}: at most {} bytes, and files {} deep in each other, are read", path,
                  kSlurmBytesMax, kIncludeDepthMax);
    }
    if (text.find('\0') != std::string_view::npos) {
      return fail(Code::kInvalidUsage, "{}: this is no text", path);
    }
    int nlines = 0;
    for (int number = 1; !text.empty(); number += nlines) {
      const std::string line = take_line(text, &nlines);
      const std::string where = fmt::format("{}: line {}", path, number);
      const auto include = find_include(line);
      auto done = include ? read_include(*include, path, depth) : read_line(line, where);
      if (!done) {
        return std::move(done).error().with_context(where);
      }
    }
    return ok();
  }

  [[nodiscard]] SlurmTopology take() { return std::move(topology_); }

 private:
  using Kind = SlurmTopology::Kind;

  Result<void> read_include(std::string_view rest, const std::string& path, int depth) {
    const size_t end = std::min(rest.find_first_of(kBlank), rest.size());
    std::string file(rest.substr(0, end));
    if (file.empty() || file.find_first_of("%*") != std::string::npos ||
        !is_blank(rest.substr(end))) {
      return fail(Code::kInvalidUsage,
                  "Include '{}' is not the name of one file (% and * stand for nothing here)",
                  shown(rest));
    }
    if (file.front() != '/') {
      file.insert(0, path, 0, path.find_last_of('/') + 1);
    }
    PLEXUS_TRY(text, read_(file));
    return read_text(text, file, depth + 1);
  }

  Result<void> read_line(std::string_view line, const std::string& where) {
    if (is_blank(line)) {
      return ok();
    }
    const auto pair = take_pair(line);
    if (!pair) {
      return fail(Code::kInvalidUsage, "'{}' is not KEY=VALUE", shown(line));
    }
    if (pair->key == "blocksizes") {
      PLEXUS_TRY(set_kind(Kind::kBlock, *pair));
      PLEXUS_TRY(read_block_sizes(pair->value));
    } else if (pair->key == "switchname" || pair->key == "blockname") {
      const bool is_switch = pair->key == "switchname";
      PLEXUS_TRY(set_kind(is_switch ? Kind::kTree : Kind::kBlock, *pair));
      PLEXUS_TRY(read_group(pair->value, line, where));
    } else {
      return fail(Code::kInvalidUsage,
                  "a line begins with SwitchName, BlockName, BlockSizes or Include, not '{}'",
                  shown(pair->key));
    }
    if (!is_blank(line)) {
      return fail(Code::kInvalidUsage, "'{}' has no meaning there", shown(line));
    }
    return ok();
  }

  Result<void> set_kind(Kind kind, const Pair& pair) {
    if (any_ && kind != topology_.kind) {
      return fail(Code::kInvalidUsage,
                  "'{}' among {}: a topology.conf has switches (topology/tree) or blocks "
                  "(topology/block)",
                  pair.key, kind == Kind::kTree ? "blocks" : "switches");
    }
    any_ = true;
    topology_.kind = kind;
    return ok();
  }

  /// What follows the name, up to what it does not know. The last of equal keys counts.
  Result<void> read_group(std::string name, std::string_view& line, const std::string& where) {
    SlurmTopology::Group group{.name = std::move(name), .nodes = {}, .below = {}, .where = where};
    const bool is_switch = topology_.kind == Kind::kTree;
    std::string_view rest = line;
    while (const auto pair = take_pair(rest)) {
      if (pair->key == "nodes") {
        group.nodes = pair->value;
      } else if (is_switch && pair->key == "switches") {
        group.below = pair->value;
      } else if (is_switch && pair->key == "linkspeed") {
        if (!is_link_speed(pair->value)) {
          return fail(Code::kInvalidUsage, "LinkSpeed='{}' is not a number up to 2^32 - 1",
                      shown(pair->value));
        }
      } else {
        break;
      }
      line = rest;
    }
    // Later releases of Slurm take a switch without anything below it. It would be no datacenter.
    if (is_switch && group.nodes.has_value() == group.below.has_value()) {
      return fail(Code::kInvalidUsage, "switch '{}' must have Nodes or Switches, and not both",
                  shown(group.name));
    }
    topology_.groups.push_back(std::move(group));
    return ok();
  }

  /// Digits with anything behind them: Slurm reads them with atoi.
  Result<void> read_block_sizes(const std::string& value) {
    topology_.block_sizes.clear();
    for (const std::string_view text : split_list(value, ',')) {
      topology_.block_sizes.push_back(
          static_cast<int32_t>(std::strtol(std::string(text).c_str(), nullptr, 10)));
    }
    if (topology_.block_sizes.empty()) {
      return fail(Code::kInvalidUsage, "BlockSizes='{}' has no number", shown(value));
    }
    return ok();
  }

  static std::string shown(std::string_view text) {
    skip_blank(text);
    return printable(text.substr(0, std::min(text.find_last_not_of(kBlank) + 1, kShownLineBytes)));
  }

  const ReadFile& read_;
  SlurmTopology topology_;
  bool any_ = false;  // the kind is known
  size_t bytes_ = 0;
};

}  // namespace

Result<SlurmTopology> read_topology_conf(std::string_view text,
                                         const std::string& path,
                                         const ReadFile& read) {
  ConfReader reader(path, read);
  PLEXUS_TRY(reader.read_text(text, path, 0));
  return reader.take();
}

}  // namespace plexus
