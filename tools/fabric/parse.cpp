// SPDX-License-Identifier: Apache-2.0
// The text of a fabric model. One thing per line, `#` starts a comment:
//   dc NAME KIND key=value ...            a datacenter and its network
//   between NAME NAME key=value ...       links between two datacenters
#include <algorithm>
#include <charconv>
#include <set>

#include "core/base/file_kind.hpp"
#include "core/base/split_words.hpp"
#include "tools/fabric/fabric.hpp"
#include "tools/fabric/network.hpp"

namespace plexus {
namespace {

constexpr double kLatencyDefaultUs = 1;
constexpr size_t kDatacentersMax = 1024;

std::optional<std::string> take(FabricWords& words, std::string_view key) {
  const auto at = std::find_if(words.begin(), words.end(),
                               [key](const auto& word) { return word.first == key; });
  if (at == words.end()) {
    return std::nullopt;
  }
  std::string value = std::move(at->second);
  words.erase(at);
  return value;
}

Result<int> parse_count(std::string_view text, std::string_view key) {
  int value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (stop != end || error != std::errc() || value < 1 || value > kFabricVerticesMax) {
    return fail(Code::kInvalidUsage, "{}={} is not a number in 1..{}", key, text,
                kFabricVerticesMax);
  }
  return value;
}

struct Kind {
  std::string_view name;
  Result<std::unique_ptr<FabricNetwork>> (*make)(FabricWords& words);
};
constexpr Kind kKinds[] = {
    {"fat-tree", make_fat_tree},   {"rail-optimised", make_rail_tree},
    {"dragonfly", make_dragonfly}, {"dragonfly+", make_dragonfly_plus},
    {"torus", make_torus},         {"hypercube", make_hypercube},
};

Result<FabricWords> parse_words(std::span<const std::string> texts) {
  FabricWords words;
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      return fail(Code::kInvalidUsage, "'{}' is not key=value", text);
    }
    std::string key = text.substr(0, equals);
    const bool twice = std::any_of(words.begin(), words.end(),
                                   [&](const auto& word) { return word.first == key; });
    if (twice) {
      return fail(Code::kInvalidUsage, "{}= is given twice", key);
    }
    words.emplace_back(std::move(key), text.substr(equals + 1));
  }
  return words;
}

Result<void> expect_no_more(const FabricWords& words) {
  if (!words.empty()) {
    return fail(Code::kInvalidUsage, "unknown key {}=", words.front().first);
  }
  return ok();
}

}  // namespace

Result<int> take_count(FabricWords& words, std::string_view key, int otherwise) {
  const std::optional<std::string> text = take(words, key);
  if (!text && otherwise < 0) {
    return fail(Code::kInvalidUsage, "{}= is missing", key);
  }
  return text ? parse_count(*text, key) : Result<int>(otherwise);
}

Result<std::vector<int>> take_counts(FabricWords& words, std::string_view key, char separator) {
  constexpr size_t kCountsMax = 16;
  const std::optional<std::string> text = take(words, key);
  if (!text) {
    return fail(Code::kInvalidUsage, "{}= is missing", key);
  }
  std::vector<int> counts;
  size_t at = 0;
  while (at <= text->size()) {
    const size_t end = std::min(text->find(separator, at), text->size());
    PLEXUS_TRY(count, parse_count(std::string_view(*text).substr(at, end - at), key));
    counts.push_back(count);
    at = end + 1;
  }
  if (counts.size() > kCountsMax) {
    return fail(Code::kInvalidUsage, "{}={} has more than {} numbers", key, *text, kCountsMax);
  }
  return counts;
}

Result<double> take_number(FabricWords& words, std::string_view key, double otherwise) {
  constexpr double kMax = 1e6;
  const std::optional<std::string> text = take(words, key);
  if (!text) {
    if (otherwise < 0) {
      return fail(Code::kInvalidUsage, "{}= is missing", key);
    }
    return otherwise;
  }
  double value = 0;
  const char* const end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, value);
  if (stop != end || error != std::errc() || !(value > 0) || value > kMax) {
    return fail(Code::kInvalidUsage, "{}={} is not a number greater than 0 and up to a million",
                key, *text);
  }
  return value;
}

Result<std::string> take_word(FabricWords& words, std::string_view key, std::string otherwise) {
  return take(words, key).value_or(std::move(otherwise));
}

Result<int> multiply(std::initializer_list<int64_t> factors) {
  int64_t product = 1;
  for (const int64_t factor : factors) {
    if (factor > kFabricVerticesMax || product * factor > kFabricVerticesMax) {
      return fail(Code::kInvalidUsage, "this network would have more than {} vertices or cables",
                  kFabricVerticesMax);
    }
    product *= factor;
  }
  return static_cast<int>(product);
}

class FabricParser {
 public:
  Result<Fabric> parse(std::string_view text) {
    for (int number = 1; !text.empty(); ++number) {
      const size_t end = std::min(text.find('\n'), text.size());
      const std::string_view line = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      const auto words = split_words(line.substr(0, line.find('#')));
      const Result<void> done = parse_line({words.begin(), words.end()});
      if (!done) {
        return fail(done.error().code(), "line {}: {}", number, done.error().message());
      }
    }
    if (fabric_.datacenters_.empty()) {
      return fail(Code::kInvalidUsage, "there is no datacenter: write `dc NAME KIND key=value`");
    }
    return std::move(fabric_);
  }

 private:
  Result<void> parse_line(const std::vector<std::string>& texts) {
    constexpr size_t kHead = 3;
    if (texts.empty()) {
      return ok();
    }
    if (texts.size() < kHead || (texts[0] != "dc" && texts[0] != "between")) {
      return fail(Code::kInvalidUsage,
                  "'{}' is neither `dc NAME KIND key=value` nor `between NAME NAME key=value`",
                  texts[0]);
    }
    PLEXUS_TRY(words, parse_words(std::span(texts).subspan(kHead)));
    PLEXUS_TRY(texts[0] == "dc" ? add_datacenter(texts[1], texts[2], words)
                                : join_datacenters(texts[1], texts[2], words));
    return expect_no_more(words);
  }

  Result<void> add_datacenter(const std::string& name,
                              std::string_view kind_name,
                              FabricWords& words) {
    const auto* const kind = std::find_if(std::begin(kKinds), std::end(kKinds),
                                          [&](const Kind& row) { return row.name == kind_name; });
    if (kind == std::end(kKinds)) {
      return fail(Code::kInvalidUsage,
                  "'{}' is not a network; known are fat-tree, rail-optimised, dragonfly, "
                  "dragonfly+, torus, hypercube",
                  kind_name);
    }
    if (find_datacenter(name) >= 0) {
      return fail(Code::kInvalidUsage, "datacenter {} is given twice", name);
    }
    if (fabric_.datacenters_.size() >= kDatacentersMax) {
      return fail(Code::kInvalidUsage, "more than {} datacenters", kDatacentersMax);
    }
    PLEXUS_TRY(gbit_per_s, take_number(words, "gbit_per_s"));
    PLEXUS_TRY(latency_us, take_number(words, "latency_us", kLatencyDefaultUs));
    PLEXUS_TRY(network, kind->make(words));
    PLEXUS_TRY(expect_no_more(words));
    network->cable = {.gbit_per_s = gbit_per_s, .latency_us = latency_us};
    if (int64_t{fabric_.vertices_} + network->vertices() > kFabricVerticesMax) {
      return fail(Code::kInvalidUsage, "all datacenters together have more than {} vertices",
                  kFabricVerticesMax);
    }
    fabric_.add_datacenter(name, std::move(network));
    return ok();
  }

  Result<void> join_datacenters(const std::string& a, const std::string& b, FabricWords& words) {
    for (const std::string& name : {a, b}) {
      if (find_datacenter(name) < 0) {
        return fail(Code::kInvalidUsage, "there is no datacenter {} above this line", name);
      }
    }
    if (a == b) {
      return fail(Code::kInvalidUsage, "datacenter {} is connected to itself", a);
    }
    if (!joined_.insert(std::minmax(find_datacenter(a), find_datacenter(b))).second) {
      return fail(Code::kInvalidUsage,
                  "{} and {} are already connected: give that line more cables", a, b);
    }
    PLEXUS_TRY(cables, take_count(words, "cables", 1));
    PLEXUS_TRY(gbit_per_s, take_number(words, "gbit_per_s"));
    PLEXUS_TRY(latency_us, take_number(words, "latency_us"));
    fabric_.join_datacenters(
        find_datacenter(a), find_datacenter(b),
        {.cables = cables, .gbit_per_s = gbit_per_s, .latency_us = latency_us});
    return ok();
  }

  [[nodiscard]] int find_datacenter(std::string_view name) const {
    for (size_t i = 0; i < fabric_.datacenters_.size(); ++i) {
      if (fabric_.datacenters_[i].name == name) {
        return static_cast<int>(i);
      }
    }
    return -1;
  }

  Fabric fabric_;
  std::set<std::pair<int, int>> joined_;
};

Result<Fabric> Fabric::parse(std::string_view text) {
  PLEXUS_TRY(check_file_kind(text, FileKind::kFabricModel));
  return FabricParser().parse(text);
}

}  // namespace plexus
