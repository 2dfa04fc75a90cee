// SPDX-License-Identifier: Apache-2.0
#include "core/datacenter/fabric_file.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>

#include "core/base/file_kind.hpp"
#include "core/base/split_words.hpp"

namespace plexus {
namespace {

constexpr size_t kFileBytesMax = size_t{4} << 20;
constexpr size_t kHostLinesMax = 65'536;
constexpr int kFileRailMax = 65'535;
constexpr double kGbitMax = 1e6;
constexpr double kMsMax = 1e6;
constexpr double kCostMax = 1e12;

Result<double> read_number(std::string_view word, std::string_view key, double low, double high) {
  double value = 0;
  const char* const end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, value, std::chars_format::fixed);
  if (error != std::errc() || stop != end || !(value >= low && value <= high)) {
    return fail(Code::kInvalidUsage, "{} must be a number from {} to {}, not '{}'", key, low, high,
                word);
  }
  return value;
}

Result<std::string> read_name(std::string_view word) {
  const bool good = !word.empty() && word.size() <= kDatacenterNameBytesMax &&
                    std::all_of(word.begin(), word.end(), [](char character) {
                      return (character >= 'a' && character <= 'z') ||
                             (character >= 'A' && character <= 'Z') ||
                             (character >= '0' && character <= '9') || character == '-' ||
                             character == '_' || character == '.';
                    });
  if (!good) {
    return fail(
        Code::kInvalidUsage,
        "'{}' is not a valid name of a datacenter: use 1 to {} letters, digits, '-', '_', '.'",
        word, kDatacenterNameBytesMax);
  }
  return std::string(word);
}

/// Reads alternating keys and values; each key at most once.
Result<std::map<std::string_view, std::string_view>> read_pairs(
    const std::vector<std::string_view>& words,
    size_t first,
    const std::set<std::string_view>& known) {
  std::map<std::string_view, std::string_view> pairs;
  for (size_t at = first; at < words.size(); at += 2) {
    if (known.count(words[at]) == 0) {
      return fail(Code::kInvalidUsage, "unknown keyword '{}' in a {} line", words[at], words[0]);
    }
    if (at + 1 == words.size()) {
      return fail(Code::kInvalidUsage, "'{}' needs a value", words[at]);
    }
    if (!pairs.emplace(words[at], words[at + 1]).second) {
      return fail(Code::kInvalidUsage, "'{}' is given twice", words[at]);
    }
  }
  return pairs;
}

Result<FabricFile::Host> read_host(const std::vector<std::string_view>& words, int line) {
  if (words.size() < 2) {
    return fail(Code::kInvalidUsage, "a host line must be 'host PATTERN [device PATTERN] dc NAME'");
  }
  PLEXUS_TRY(host, HostPattern::parse(words[1]));
  PLEXUS_TRY(pairs, read_pairs(words, 2, {"device", "dc", "rail"}));
  if (pairs.count("dc") == 0) {
    return fail(Code::kInvalidUsage, "'dc NAME' is missing in a host line");
  }
  FabricFile::Host row{
      .host = std::move(host), .device = {}, .datacenter = {}, .rail = {}, .line = line};
  PLEXUS_TRY(datacenter, read_name(pairs["dc"]));
  row.datacenter = std::move(datacenter);
  if (pairs.count("device") != 0) {
    PLEXUS_TRY(device, HostPattern::parse(pairs["device"]));
    row.device = std::move(device);
  }
  if (pairs.count("rail") != 0) {
    PLEXUS_TRY(rail, read_number(pairs["rail"], "rail", 0, kFileRailMax));
    if (rail != std::floor(rail)) {
      return fail(Code::kInvalidUsage, "rail must be a whole number, not '{}'", pairs["rail"]);
    }
    row.rail = static_cast<int>(rail);
  }
  return row;
}

Result<FabricFile::Link> read_link(const std::vector<std::string_view>& words) {
  if (words.size() < 3) {
    return fail(Code::kInvalidUsage, "a link line must be 'link DC DC [gbit N] [ms N] [cost N]'");
  }
  FabricFile::Link link;
  PLEXUS_TRY(first, read_name(words[1]));
  PLEXUS_TRY(second, read_name(words[2]));
  if (first == second) {
    return fail(Code::kInvalidUsage, "a link must connect two datacenters, not '{}' with itself",
                first);
  }
  link.first = std::move(first);
  link.second = std::move(second);
  link.path.connected = true;
  PLEXUS_TRY(pairs, read_pairs(words, 3, {"gbit", "ms", "cost"}));
  if (pairs.count("gbit") != 0) {
    PLEXUS_TRY(gbit, read_number(pairs["gbit"], "gbit", 0.001, kGbitMax));
    link.path.mbit_per_s = static_cast<uint64_t>(std::llround(gbit * 1e3));
  }
  if (pairs.count("ms") != 0) {
    PLEXUS_TRY(ms, read_number(pairs["ms"], "ms", 0, kMsMax));
    link.path.latency_ns = static_cast<uint64_t>(std::llround(ms * 1e6));
  }
  if (pairs.count("cost") != 0) {
    PLEXUS_TRY(cost, read_number(pairs["cost"], "cost", 0, kCostMax));
    link.path.cost = static_cast<uint64_t>(std::llround(cost));
  }
  return link;
}

Result<void> read_line(FabricFile& file, std::string_view text, int line) {
  const std::vector<std::string_view> words = split_words(text.substr(0, text.find('#')));
  if (words.empty()) {
    return ok();
  }
  if (words[0] == "host") {
    PLEXUS_TRY(host, read_host(words, line));
    if (file.hosts.size() == kHostLinesMax) {
      return fail(Code::kInvalidUsage, "more than {} host lines", kHostLinesMax);
    }
    file.hosts.push_back(std::move(host));
    return ok();
  }
  if (words[0] == "link") {
    PLEXUS_TRY(link, read_link(words));
    const bool known =
        std::any_of(file.links.begin(), file.links.end(), [&](const FabricFile::Link& other) {
          return (other.first == link.first && other.second == link.second) ||
                 (other.first == link.second && other.second == link.first);
        });
    if (known) {
      return fail(Code::kInvalidUsage, "the link from '{}' to '{}' is given twice", link.first,
                  link.second);
    }
    file.links.push_back(std::move(link));
    return ok();
  }
  return fail(Code::kInvalidUsage, "a line must begin with 'host' or 'link', not '{}'", words[0]);
}

Result<void> check_names(const FabricFile& file) {
  std::set<std::string_view> datacenters;
  for (const FabricFile::Host& host : file.hosts) {
    datacenters.insert(host.datacenter);
  }
  if (datacenters.size() > kDatacentersMax) {
    return fail(Code::kInvalidUsage, "{} datacenters are described, at most {} are supported",
                datacenters.size(), kDatacentersMax);
  }
  for (const FabricFile::Link& link : file.links) {
    for (const std::string& name : {link.first, link.second}) {
      if (datacenters.count(name) == 0) {
        return fail(Code::kInvalidUsage, "a link names datacenter '{}', which no host line defines",
                    name);
      }
    }
  }
  return ok();
}

}  // namespace

const std::string* FabricFile::datacenter_of(std::string_view host) const {
  const auto at = std::find_if(hosts.begin(), hosts.end(),
                               [&](const Host& row) { return row.host.matches(host); });
  return at == hosts.end() ? nullptr : &at->datacenter;
}

std::optional<int> FabricFile::rail_of(std::string_view host, std::string_view device) const {
  for (const Host& row : hosts) {
    if (row.host.matches(host) && (!row.device || row.device->matches(device))) {
      return row.rail;
    }
  }
  return std::nullopt;
}

Location FabricFile::location_of(std::string_view host) const {
  Location location;
  const std::string* const datacenter = datacenter_of(host);
  if (datacenter == nullptr) {
    return location;
  }
  location.datacenter = *datacenter;
  for (const Link& link : links) {
    if (link.first == *datacenter || link.second == *datacenter) {
      location.links.push_back(
          {.to = link.first == *datacenter ? link.second : link.first, .path = link.path});
    }
  }
  if (links.empty()) {
    std::set<std::string> others;
    for (const Host& row : hosts) {
      others.insert(row.datacenter);
    }
    others.erase(*datacenter);
    for (const std::string& other : others) {
      DatacenterPath path;
      path.connected = true;
      location.links.push_back({.to = other, .path = path});
    }
  }
  return location;
}

Result<FabricFile> parse_fabric_file(std::string_view text) {
  if (text.size() > kFileBytesMax) {
    return fail(Code::kInvalidUsage, "the file has {} bytes, at most {} are supported", text.size(),
                kFileBytesMax);
  }
  PLEXUS_TRY(check_file_kind(text, FileKind::kFabricFile));
  FabricFile file;
  for (int line = 1; !text.empty(); ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    if (auto read = read_line(file, text.substr(0, end), line); !read) {
      return std::move(read).error().with_context(fmt::format("line {}", line));
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  PLEXUS_TRY(check_names(file));
  return file;
}

}  // namespace plexus
