// SPDX-License-Identifier: Apache-2.0
#include "core/selftest/verdict.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "core/base/median.hpp"
#include "core/base/text.hpp"

namespace plexus {
namespace {

constexpr size_t kDevicesMin = 3;  // of a class that says what is usual
constexpr double kLateAbove = 3;   // times the usual latency
constexpr double kDeviations = 3;  // median deviations

/// What a link must be beyond to be late or slow.
struct Limits {
  double late_us;     // more than is usual
  double slow_below;  // of the usual rate
};
constexpr Limits kQuiet{.late_us = 100, .slow_below = 0.4};
constexpr Limits kBusy{.late_us = 20'000, .slow_below = 0.1};  // late_us: times the share
constexpr double kBusyFrom = 0.02;  // share of the time for which a rank waits for a core

/// A host, and "device eth0 (Socket)"; "": its memory.
using Device = std::pair<uint64_t, std::string>;

Device device_of(const TriedRank& rank, const TriedLink& link, const std::string& device) {
  return {rank.host,
          link.network.empty() ? "" : fmt::format("device {} ({})", device, link.network)};
}

/// All links of one direction between two devices.
struct Edge {
  std::string class_name;
  Device from;
  Device to;
  double latency_us = 0;  // best; 0: none was measured
  double gb_per_s = 0;
  double gb_per_s_most = 0;
  double waited = 0;
  std::vector<size_t> links;
  LinkFault fault = LinkFault::kNone;
  LinkFault suspected = LinkFault::kNone;  // it may as well be that its ranks waited for a core
  bool is_told = false;                    // in a finding
};

std::string class_of(const TriedLink& link, std::span<const TriedRank> ranks) {
  if (link.network.empty()) {
    return "memory";
  }
  const int source = ranks[static_cast<size_t>(link.source)].datacenter;
  const int target = ranks[static_cast<size_t>(link.target)].datacenter;
  return source == target ? link.network
                          : fmt::format("{}, datacenters {} and {}", link.network,
                                        std::min(source, target), std::max(source, target));
}

double best_latency(double one, double other) {
  return one == 0 || other == 0 ? std::max(one, other) : std::min(one, other);
}

std::vector<Edge> list_edges(const std::vector<TriedLink>& links,
                             std::span<const TriedRank> ranks) {
  std::map<std::tuple<std::string, Device, Device>, Edge> edges;
  for (size_t i = 0; i < links.size(); ++i) {
    const TriedLink& link = links[i];
    const Device from = device_of(ranks[static_cast<size_t>(link.source)], link, link.from);
    const Device to = device_of(ranks[static_cast<size_t>(link.target)], link, link.to);
    Edge& edge = edges[{class_of(link, ranks), from, to}];
    edge.class_name = class_of(link, ranks);
    edge.from = from;
    edge.to = to;
    edge.latency_us = best_latency(edge.latency_us, link.latency_us);
    edge.gb_per_s = std::max(edge.gb_per_s, link.gb_per_s);
    edge.gb_per_s_most = std::max(edge.gb_per_s_most, link.gb_per_s_most);
    edge.waited = std::max(edge.waited, link.waited);
    edge.links.push_back(i);
    if (link.corrupt > 0) {
      edge.fault = LinkFault::kCorrupt;
    } else if (link.failed && edge.fault == LinkFault::kNone) {
      edge.fault = LinkFault::kFailed;
    }
  }
  std::vector<Edge> list;
  for (auto& [key, edge] : edges) {
    list.push_back(std::move(edge));
  }
  return list;
}

struct Usual {
  double value = 0;
  double deviation = 0;
};

Usual usual_of(const std::map<std::pair<Device, bool>, double>& best) {
  std::vector<double> values;
  for (const auto& [device, value] : best) {
    values.push_back(value);
  }
  const double middle = median(values);
  std::transform(values.begin(), values.end(), values.begin(),
                 [middle](double value) { return std::abs(value - middle); });
  return {.value = middle, .deviation = median(values)};
}

/// Late or slow, against what is usual in its class. `rate`: as a logarithm.
void judge_edge(Edge& edge, const Usual& rate, const Usual& latency) {
  const Limits& limits = edge.waited < kBusyFrom ? kQuiet : kBusy;
  const double excess_us = edge.latency_us - latency.value;  // not measured: below 0
  const double logarithm = edge.gb_per_s_most > 0 ? std::log(edge.gb_per_s_most) : rate.value;
  const bool is_late = edge.latency_us > kLateAbove * latency.value;
  if (is_late && excess_us > limits.late_us * (edge.waited < kBusyFrom ? 1 : edge.waited) &&
      excess_us > kDeviations * latency.deviation) {
    edge.fault = LinkFault::kLate;
  } else if (rate.value - logarithm >
             std::max(-std::log(limits.slow_below), kDeviations * rate.deviation)) {
    edge.fault = LinkFault::kSlow;
  } else if (is_late && excess_us > kQuiet.late_us) {
    edge.suspected = LinkFault::kLate;
  } else if (edge.gb_per_s == 0 ||  // no burst was through in time
             rate.value - std::log(edge.gb_per_s) > -std::log(kQuiet.slow_below)) {
    edge.suspected = LinkFault::kSlow;
  }
}

/// Finds what is late or slow among the edges of one class.
LinkClass judge_class(const std::string& class_name, std::vector<Edge>& edges) {
  std::map<std::pair<Device, bool>, double> rates;  // device, whether it sends
  std::map<std::pair<Device, bool>, double> latencies;
  std::set<Device> devices;
  for (const Edge& edge : edges) {
    if (edge.class_name != class_name || edge.latency_us == 0) {
      continue;
    }
    for (const bool sends : {true, false}) {
      const Device& device = sends ? edge.from : edge.to;
      devices.insert(device);
      if (edge.gb_per_s > 0) {
        // As a logarithm: what makes rates differ multiplies them.
        const double logarithm = std::log(edge.gb_per_s);
        double& rate = rates.try_emplace({device, sends}, logarithm).first->second;
        rate = std::max(rate, logarithm);
      }
      double& latency = latencies[{device, true}];
      latency = best_latency(latency, edge.latency_us);
    }
  }
  if (devices.size() < kDevicesMin || rates.empty()) {
    return {.devices = devices.size()};
  }
  const Usual rate = usual_of(rates);
  const Usual latency = usual_of(latencies);
  for (Edge& edge : edges) {
    if (edge.class_name == class_name && edge.fault == LinkFault::kNone) {
      judge_edge(edge, rate, latency);
    }
  }
  return {.latency_us = latency.value, .gb_per_s = std::exp(rate.value), .devices = devices.size()};
}

/// Puts findings into words.
class Teller {
 public:
  Teller(Verdict& verdict, std::vector<Edge>& edges, std::span<const TriedRank> ranks)
      : verdict_(verdict), edges_(edges), ranks_(ranks) {}

  void tell(LinkFault fault) {
    std::map<uint64_t, std::set<Device>> all;  // by host
    for (const Edge& edge : edges_) {
      all[edge.from.first].insert(edge.from);
      all[edge.to.first].insert(edge.to);
    }
    for (auto& [host, devices] : all) {
      std::vector<Device> bad;
      std::copy_if(devices.begin(), devices.end(), std::back_inserter(bad),
                   [&](const Device& device) { return directions_of(device, fault) != 0; });
      devices.erase({host, ""});  // a host whose network is bad may have good memory
      if (bad.size() > 1 && bad.size() >= devices.size()) {
        tell_devices("host", bad, fault);
      } else {
        for (const Device& device : bad) {
          tell_devices(device.second.empty() ? "host" : "device", {device}, fault);
        }
      }
    }
    for (Edge& edge : edges_) {
      if (edge.fault == fault && !edge.is_told) {
        tell_link(edge);
      }
    }
  }

 private:
  static constexpr unsigned kSends = 1;
  static constexpr unsigned kReceives = 2;

  /// In which directions the links of the device, to two others or more, have the fault, and none
  /// to another is surely without.
  [[nodiscard]] unsigned directions_of(const Device& device, LinkFault fault) const {
    unsigned directions = 0;
    for (const unsigned direction : {kSends, kReceives}) {
      std::set<Device> others;
      bool is_all = true;
      for (const Edge& edge : edges_) {
        if ((direction == kSends ? edge.from : edge.to) == device) {
          is_all = is_all && (edge.fault == fault || edge.suspected == fault);
          if (edge.fault == fault) {
            others.insert(direction == kSends ? edge.to : edge.from);
          }
        }
      }
      // A host's memory is judged as a whole, but what is lost or changed in it is of two ranks.
      const bool is_memory = device.second.empty() && fault >= LinkFault::kLate;
      directions |= is_all && (others.size() > 1 || is_memory) && !others.empty() ? direction : 0;
    }
    return directions;
  }

  void tell_devices(const char* what, const std::vector<Device>& devices, LinkFault fault) {
    Finding found{.what = what, .fault = fault};
    Edge sum;
    unsigned directions = 0;
    for (const Device& device : devices) {
      const unsigned mine = directions_of(device, fault);
      directions |= mine;
      for (Edge& edge : edges_) {
        const bool sends = edge.from == device && (mine & kSends) != 0;
        const bool receives = edge.to == device && (mine & kReceives) != 0;
        if (sends || receives) {
          edge.is_told = true;
          add(sum, edge);
          for (const size_t link : edge.links) {
            const TriedLink& tried = verdict_.links[link];
            found.ranks.push_back(sends ? tried.source : tried.target);
          }
        }
      }
    }
    std::sort(found.ranks.begin(), found.ranks.end());
    found.ranks.erase(std::unique(found.ranks.begin(), found.ranks.end()), found.ranks.end());
    const char* const direction = directions == (kSends | kReceives) ? "what it sends and receives"
                                  : directions == kSends             ? "what it sends"
                                                                     : "what it receives";
    const std::string& rank = ranks_[static_cast<size_t>(found.ranks.front())].name;
    const std::string more =
        found.ranks.size() > 1 ? fmt::format(" and {} more", found.ranks.size() - 1) : "";
    found.sentence =
        fmt::format("{} of {}{}: {} {}", *what == 'h' ? "the host" : devices.front().second, rank,
                    more, devices.front().second.empty() ? "what its memory carries" : direction,
                    describe(fault, sum));
    verdict_.findings.push_back(std::move(found));
  }

  void tell_link(Edge& edge) {
    edge.is_told = true;
    const auto bad = std::find_if(edge.links.begin(), edge.links.end(), [&](size_t link) {
      return verdict_.links[link].fault == edge.fault;
    });
    const TriedLink& link = verdict_.links[*bad];
    verdict_.findings.push_back(
        {.what = "link",
         .fault = edge.fault,
         .ranks = {link.source, link.target},
         .sentence = fmt::format("the link from {} to {}{}: what it carries {}",
                                 ranks_[static_cast<size_t>(link.source)].name,
                                 ranks_[static_cast<size_t>(link.target)].name,
                                 link.network.empty() ? ""
                                                      : fmt::format(" ({} > {} of {})", link.from,
                                                                    link.to, link.network),
                                 describe(edge.fault, edge))});
  }

  /// All together: the best of them, since that is bad as well.
  static void add(Edge& sum, const Edge& edge) {
    sum.class_name = edge.class_name;
    sum.latency_us = best_latency(sum.latency_us, edge.latency_us);
    sum.gb_per_s = std::max(sum.gb_per_s, edge.gb_per_s);
    sum.links.insert(sum.links.end(), edge.links.begin(), edge.links.end());
  }

  [[nodiscard]] std::string describe(LinkFault fault, const Edge& edge) const {
    const LinkClass& usual = verdict_.classes.at(edge.class_name);
    uint64_t messages = 0;
    uint64_t corrupt = 0;
    std::string error;
    for (const size_t link : edge.links) {
      messages += verdict_.links[link].messages;
      corrupt += verdict_.links[link].corrupt;
      error = error.empty() ? verdict_.links[link].error : error;
    }
    const std::string like =
        fmt::format("(median of {} of {})", counted(usual.devices, "device"), edge.class_name);
    switch (fault) {
      case LinkFault::kCorrupt:
        return fmt::format("arrives changed: {} of {}", corrupt, counted(messages, "message"));
      case LinkFault::kLate:
        return fmt::format("is late: {:.0f} us at best, where its like takes {:.0f} us {}",
                           edge.latency_us, usual.latency_us, like);
      case LinkFault::kSlow:
        return fmt::format("is slow: {:.3f} GB/s at best, where its like has {:.3f} GB/s {}",
                           edge.gb_per_s, usual.gb_per_s, like);
      default:
        return fmt::format("does not arrive ({} did): {}", counted(messages, "message"), error);
    }
  }

  Verdict& verdict_;
  std::vector<Edge>& edges_;
  std::span<const TriedRank> ranks_;
};

TriedLink join(int source, const LinkSample& sent, const LinkSample* taken) {
  TriedLink link{.source = source,
                 .target = sent.peer,
                 .channel = sent.channel,
                 .network = sent.network,
                 .from = sent.send_device,
                 .latency_us = sent.latency_us,
                 .gb_per_s = sent.gb_per_s,
                 .gb_per_s_most = sent.gb_per_s_most};
  if (taken == nullptr) {
    link.failed = true;
    link.error = "the other rank did not try it";
    return link;
  }
  link.to = taken->recv_device;
  link.latency_us = best_latency(sent.latency_us, taken->latency_us);
  link.waited = std::max(sent.waited, taken->waited);
  link.messages = taken->received;
  link.corrupt = taken->corrupt;
  // Both ends notice, whichever direction it is: that in which something is missing, else both.
  const bool is_missing = sent.sent > taken->received;
  const bool is_other_missing = taken->sent > sent.received;
  const bool is_corrupt = taken->corrupt + sent.corrupt > 0;  // which ends a trial, too
  const std::string& error = taken->error.empty() ? sent.error : taken->error;
  link.failed = !error.empty() && (is_missing || (!is_other_missing && !is_corrupt));
  link.error = link.failed ? error : "";
  return link;
}

}  // namespace

const char* name(LinkFault fault) {
  constexpr const char* kNames[] = {"none", "failed", "corrupt", "late", "slow"};
  return kNames[static_cast<size_t>(fault)];
}

bool Verdict::wants_repeat() const {
  return std::any_of(findings.begin(), findings.end(), [](const Finding& found) {
    return found.fault == LinkFault::kLate || found.fault == LinkFault::kSlow;
  });
}

std::vector<TriedLink> join_samples(std::span<const std::vector<LinkSample>> by_rank) {
  std::vector<TriedLink> links;
  for (size_t rank = 0; rank < by_rank.size(); ++rank) {
    for (const LinkSample& sample : by_rank[rank]) {
      const auto& theirs = by_rank[static_cast<size_t>(sample.peer)];
      const auto at = std::find_if(theirs.begin(), theirs.end(), [&](const LinkSample& other) {
        return other.peer == static_cast<int>(rank) && other.channel == sample.channel;
      });
      links.push_back(join(static_cast<int>(rank), sample, at == theirs.end() ? nullptr : &*at));
    }
  }
  return links;
}

void keep_better(std::vector<TriedLink>& links, const std::vector<TriedLink>& again) {
  for (size_t i = 0; i < std::min(links.size(), again.size()); ++i) {
    TriedLink& link = links[i];
    link.latency_us = best_latency(link.latency_us, again[i].latency_us);
    link.gb_per_s = std::max(link.gb_per_s, again[i].gb_per_s);
    link.gb_per_s_most = std::max(link.gb_per_s_most, again[i].gb_per_s_most);
    link.waited = std::min(link.waited, again[i].waited);
    link.messages += again[i].messages;
    link.corrupt += again[i].corrupt;
    link.failed = link.failed || again[i].failed;
    link.error = link.error.empty() ? again[i].error : link.error;
  }
}

Verdict judge(std::vector<TriedLink> links, std::span<const TriedRank> ranks) {
  Verdict verdict;
  verdict.links = std::move(links);
  std::vector<Edge> edges = list_edges(verdict.links, ranks);
  for (const Edge& edge : edges) {
    if (verdict.classes.count(edge.class_name) == 0) {
      verdict.classes[edge.class_name] = judge_class(edge.class_name, edges);
    }
  }
  for (const Edge& edge : edges) {
    for (const size_t at : edge.links) {
      TriedLink& link = verdict.links[at];
      const bool is_of_edge = edge.fault == LinkFault::kLate || edge.fault == LinkFault::kSlow;
      link.fault = is_of_edge         ? edge.fault
                   : link.corrupt > 0 ? LinkFault::kCorrupt
                   : link.failed      ? LinkFault::kFailed
                                      : LinkFault::kNone;
    }
  }
  Teller teller(verdict, edges, ranks);
  for (const LinkFault fault :
       {LinkFault::kFailed, LinkFault::kCorrupt, LinkFault::kLate, LinkFault::kSlow}) {
    teller.tell(fault);
  }
  return verdict;
}

}  // namespace plexus
