// SPDX-License-Identifier: Apache-2.0
#include "core/transport/network/net_route.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <numeric>
#include <set>

#include <fmt/ranges.h>

#include "core/base/bytes.hpp"
#include "core/base/text.hpp"
#include "guest/assert.hpp"

namespace plexus {
namespace {

constexpr uint32_t kWordBytesMax = 1U << 20;

std::string encode_words(const std::vector<std::string>& words) {
  ByteWriter writer;
  for (const std::string& word : words) {
    writer.put_text<uint32_t>(word);
  }
  return writer.take();
}

Result<std::vector<std::string>> decode_words(std::string_view bytes) {
  std::vector<std::string> words;
  ByteReader reader(bytes);
  while (!reader.broken() && !reader.rest().empty()) {
    words.emplace_back(reader.take_text<uint32_t>(kWordBytesMax));
  }
  if (reader.broken()) {
    return fail(Code::kRemoteError,
                "a rank's description of its networks is malformed: use the same version of "
                "Plexus on all ranks");
  }
  return words;
}

constexpr size_t kTextMax = 256;  // bytes of a name that another rank sends

// ---- as bytes: a list of words, numbers in decimal, "-" for what is not known ----

template <class T>
std::string to_word(const std::optional<T>& value) {
  return value ? fmt::format("{}", *value) : "-";
}

/// Takes the words of a list in turn. The first that is no good makes all later ones fail.
class Words {
 public:
  explicit Words(std::vector<std::string> words) : words_(std::move(words)) {}
  [[nodiscard]] bool at_end() const { return next_ == words_.size(); }
  [[nodiscard]] bool good() const { return good_; }

  std::string text() {
    if (!good_ || at_end() || words_[next_].size() > kTextMax) {
      good_ = false;
      return {};
    }
    return words_[next_++];
  }
  template <class T>
  std::optional<T> number(T most) {
    const std::string word = text();
    if (!good_ || word == "-") {
      return std::nullopt;
    }
    T value = 0;
    const char* const end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(word.data(), end, value);
    good_ = error == std::errc{} && stop == end && value <= most;
    return good_ ? std::optional(value) : std::nullopt;
  }
  /// A number that cannot be unknown.
  size_t count(size_t most) {
    const auto value = number(most);
    good_ = good_ && value.has_value();
    return value.value_or(0);
  }

 private:
  std::vector<std::string> words_;
  size_t next_ = 0;
  bool good_ = true;
};

Error damaged(const char* what) {
  return fail(Code::kInvalidUsage,
              "the list of {} sent by another rank is malformed: use the same version of Plexus on "
              "all ranks",
              what);
}

// ---- choosing ----

/// Two devices that reach each other.
struct Pair {
  uint32_t source;
  uint32_t target;
  bool same_rail;  // or one of the two has no rail
  NetPath path;
};

std::vector<Pair> find_pairs(const NetOffer& source,
                             const NetOffer& target,
                             const FabricPaths& paths) {
  std::vector<Pair> pairs;
  for (uint32_t i = 0; i < source.devices.size(); ++i) {
    for (uint32_t j = 0; j < target.devices.size(); ++j) {
      const NetDeviceOffer& from = source.devices[i];
      const NetDeviceOffer& to = target.devices[j];
      const bool same_plane = !from.plane_id || !to.plane_id || *from.plane_id == *to.plane_id;
      const bool same_rail = !from.rail_id || !to.rail_id || *from.rail_id == *to.rail_id;
      NetPath path = paths.find(source.name, from.fabric_id, to.fabric_id);
      if (same_plane && path.connected) {
        pairs.push_back({i, j, same_rail, path});
      }
    }
  }
  return pairs;
}

/// What of a path can be compared: each part only when all candidates know it.
struct Known {
  bool level = true;
  bool bandwidth = true;
  bool latency = true;
  void meet(const NetPath& path) {
    level = level && path.level.has_value();
    bandwidth = bandwidth && path.bandwidth_mbit_per_s.has_value();
    latency = latency && path.latency.has_value();
  }
};

/// Smaller is cheaper.
struct Cost {
  uint32_t level;
  bool crosses_rails;
  uint64_t narrowness;
  std::chrono::nanoseconds latency;
  friend auto operator<=>(const Cost&, const Cost&) = default;
};

Cost cost_of(const Pair& pair, const Known& known) {
  return {.level = known.level ? *pair.path.level : 0,
          .crosses_rails = !pair.same_rail,
          .narrowness = known.bandwidth
                            ? std::numeric_limits<uint64_t>::max() - *pair.path.bandwidth_mbit_per_s
                            : 0,
          .latency = known.latency ? *pair.path.latency : std::chrono::nanoseconds(0)};
}

/// A network that both ends have, with the devices that reach each other.
struct Common {
  size_t source_net;
  size_t target_net;
  std::vector<Pair> pairs;
};

std::vector<Common> find_common(const NetOffers& source,
                                const NetOffers& target,
                                const FabricPaths& paths) {
  std::vector<Common> common;
  for (size_t i = 0; i < source.size(); ++i) {
    for (size_t j = 0; j < target.size(); ++j) {
      if (lower(source[i].name) == lower(target[j].name)) {
        auto pairs = find_pairs(source[i], target[j], paths);
        if (!pairs.empty()) {
          common.push_back({i, j, std::move(pairs)});
        }
      }
    }
  }
  return common;
}

const Pair& cheapest(const std::vector<Pair>& pairs, const Known& known) {
  return *std::min_element(pairs.begin(), pairs.end(), [&](const Pair& a, const Pair& b) {
    return cost_of(a, known) < cost_of(b, known);
  });
}

/// `common` has at least one, in the source's order.
const Common& choose_net(const std::vector<Common>& common, const NetOffers& source) {
  Known known;
  for (const Common& each : common) {
    for (const Pair& pair : each.pairs) {
      known.meet(pair.path);
    }
  }
  const auto key = [&](const Common& each) {
    Cost cost = cost_of(cheapest(each.pairs, known), known);
    cost.crosses_rails = false;  // rails are a matter within a network
    const auto place =
        std::count_if(common.begin(), common.end(),
                      [&](const Common& other) { return other.source_net < each.source_net; }) +
        std::count_if(common.begin(), common.end(),
                      [&](const Common& other) { return other.target_net < each.target_net; });
    return std::tuple(cost, place, lower(source[each.source_net].name));
  };
  return *std::min_element(common.begin(), common.end(),
                           [&](const Common& a, const Common& b) { return key(a) < key(b); });
}

/// Those that channels take turns over: as near as the best, on its rail relation, and at least
/// half as wide, so that a narrow way does not hold up the wide ones.
std::vector<Pair> keep_best(std::vector<Pair> pairs) {
  Known known;
  for (const Pair& pair : pairs) {
    known.meet(pair.path);
  }
  PLEXUS_DCHECK(!pairs.empty());
  const Cost best = cost_of(cheapest(pairs, known), known);
  const uint64_t widest = std::numeric_limits<uint64_t>::max() - best.narrowness;
  std::erase_if(pairs, [&](const Pair& pair) {
    const Cost cost = cost_of(pair, known);
    return cost.level != best.level || cost.crosses_rails != best.crosses_rails ||
           (known.bandwidth && *pair.path.bandwidth_mbit_per_s < widest / 2);
  });
  return pairs;
}

}  // namespace

std::string encode_offers(const NetOffers& offers) {
  std::vector<std::string> words = {fmt::format("{}", offers.size())};
  for (const NetOffer& offer : offers) {
    words.push_back(offer.name);
    words.push_back(fmt::format("{}", offer.devices.size()));
    for (const NetDeviceOffer& device : offer.devices) {
      words.insert(words.end(),
                   {device.name, to_word(device.fabric_id), to_word(device.rail_id),
                    to_word(device.plane_id), fmt::format("{}", device.message_bytes_max),
                    device.reads_gpu ? "1" : "0", device.writes_gpu ? "1" : "0"});
    }
  }
  return encode_words(words);
}

Result<NetOffers> decode_offers(std::string_view bytes) {
  PLEXUS_TRY(list, decode_words(bytes));
  constexpr uint32_t kAny32 = std::numeric_limits<uint32_t>::max();
  constexpr uint64_t kAny64 = std::numeric_limits<uint64_t>::max();
  Words words(std::move(list));
  NetOffers offers(words.count(kNetsMax));
  for (NetOffer& offer : offers) {
    offer.name = words.text();
    offer.devices.resize(words.count(kNetDevicesUsed));
    for (NetDeviceOffer& device : offer.devices) {
      device.name = words.text();
      device.fabric_id = words.number(kAny64);
      device.rail_id = words.number(kAny32);
      device.plane_id = words.number(kAny32);
      device.message_bytes_max = words.count(PLEXUS_NET_MESSAGE_BYTES_MAX);
      device.reads_gpu = words.count(1) != 0;
      device.writes_gpu = words.count(1) != 0;
    }
  }
  if (!words.good() || !words.at_end()) {
    return damaged("networks");
  }
  return offers;
}

void FabricPaths::add(std::string_view net, uint64_t source, uint64_t target, const NetPath& path) {
  paths_[{lower(net), source, target}] = path;
}

NetPath FabricPaths::find(std::string_view net,
                          std::optional<uint64_t> source,
                          std::optional<uint64_t> target) const {
  if (!source || !target) {
    return {};
  }
  const auto at = paths_.find({lower(net), *source, *target});
  return at == paths_.end() ? NetPath{} : at->second;
}

std::string FabricPaths::encode() const {
  std::vector<std::string> words;
  for (const auto& [key, path] : paths_) {
    const auto& [net, source, target] = key;
    std::string latency = path.latency ? fmt::format("{}", path.latency->count()) : "-";
    words.insert(words.end(), {net, fmt::format("{}", source), fmt::format("{}", target),
                               path.connected ? "1" : "0", to_word(path.level),
                               to_word(path.bandwidth_mbit_per_s), std::move(latency)});
  }
  return encode_words(words);
}

Result<void> FabricPaths::decode(std::string_view bytes) {
  PLEXUS_TRY(list, decode_words(bytes));
  constexpr uint64_t kAny64 = std::numeric_limits<uint64_t>::max();
  Words words(std::move(list));
  while (words.good() && !words.at_end()) {
    const std::string net = words.text();
    const uint64_t source = words.count(kAny64);
    const uint64_t target = words.count(kAny64);
    NetPath path;
    path.connected = words.count(1) == 1;
    path.level = words.number(std::numeric_limits<uint32_t>::max());
    path.bandwidth_mbit_per_s = words.number(kAny64);
    if (const auto latency = words.number(uint64_t{std::numeric_limits<int64_t>::max()})) {
      path.latency = std::chrono::nanoseconds(static_cast<int64_t>(*latency));
    }
    if (words.good()) {
      add(net, source, target, path);
    }
  }
  return words.good() ? Result<void>(ok()) : Result<void>(damaged("fabric paths"));
}

std::optional<NetRoute> choose_route(const NetOffers& source,
                                     const NetOffers& target,
                                     const FabricPaths& paths,
                                     uint32_t channel) {
  const std::vector<Common> common = find_common(source, target, paths);
  if (common.empty()) {
    return std::nullopt;
  }
  const Common& net = choose_net(common, source);
  const std::vector<Pair> pairs = keep_best(net.pairs);
  std::set<uint32_t> sources;
  std::set<uint32_t> targets;
  for (const Pair& pair : pairs) {
    sources.insert(pair.source);
    targets.insert(pair.target);
  }
  const auto turn = [channel](const std::set<uint32_t>& devices) {
    return *std::next(devices.begin(), static_cast<std::ptrdiff_t>(channel % devices.size()));
  };
  const uint32_t first = turn(sources);
  const uint32_t wish = turn(targets);
  // The wish, else the next device after it that `first` reaches, round from the last to the first.
  const auto distance = [&](const Pair& pair) {
    return std::tuple(pair.source != first, pair.target < wish, pair.target);
  };
  const Pair& chosen =
      *std::min_element(pairs.begin(), pairs.end(),
                        [&](const Pair& a, const Pair& b) { return distance(a) < distance(b); });
  PLEXUS_DCHECK(chosen.source == first, chosen.source, first);
  return NetRoute{net.source_net, net.target_net, chosen.source, chosen.target};
}

std::vector<NetRoute> list_routes(const NetOffers& source,
                                  const NetOffers& target,
                                  const FabricPaths& paths,
                                  uint32_t channel) {
  const auto first = choose_route(source, target, paths, channel);
  if (!first) {
    return {};
  }
  std::vector<NetRoute> routes = {*first};
  for (const Common& net : find_common(source, target, paths)) {
    for (const Pair& pair : net.pairs) {
      const NetRoute route{net.source_net, net.target_net, pair.source, pair.target};
      if (route != *first) {
        routes.push_back(route);
      }
    }
  }
  const auto shared = [&](const NetRoute& route) {
    const bool source_too =
        route.source_net == first->source_net && route.source_device == first->source_device;
    const bool target_too =
        route.target_net == first->target_net && route.target_device == first->target_device;
    return (source_too ? 1 : 0) + (target_too ? 1 : 0);
  };
  std::stable_sort(routes.begin() + 1, routes.end(),
                   [&](const NetRoute& a, const NetRoute& b) { return shared(a) < shared(b); });
  routes.resize(std::min(routes.size(), kRoutesMax));
  return routes;
}

bool travels_apart(const NetRoute& route, const NetOffers& source, const NetOffers& target) {
  return source.at(route.source_net).devices.at(route.source_device).reads_gpu ||
         target.at(route.target_net).devices.at(route.target_device).writes_gpu;
}

std::string describe_route(const NetRoute& route,
                           const NetOffers& source,
                           const NetOffers& target) {
  const NetOffer& from = source.at(route.source_net);
  const NetOffer& to = target.at(route.target_net);
  return fmt::format("{} {} ({}) > {} ({}){}", from.name, route.source_device,
                     from.devices.at(route.source_device).name, route.target_device,
                     to.devices.at(route.target_device).name,
                     travels_apart(route, source, target) ? " GDR" : "");
}

std::string describe_offers(const NetOffers& offers) {
  if (offers.empty()) {
    return "none";
  }
  std::vector<std::string> nets;
  for (const NetOffer& offer : offers) {
    std::vector<std::string_view> devices;
    for (const NetDeviceOffer& device : offer.devices) {
      devices.emplace_back(device.name);
    }
    nets.push_back(fmt::format("{} ({})", offer.name, fmt::join(devices, ", ")));
  }
  return fmt::format("{}", fmt::join(nets, ", "));
}

}  // namespace plexus
