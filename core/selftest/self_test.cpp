// SPDX-License-Identifier: Apache-2.0
#include "core/selftest/self_test.hpp"

#include <algorithm>
#include <fcntl.h>
#include <memory>
#include <numeric>
#include <set>
#include <utility>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "core/base/clock.hpp"
#include "core/base/hash.hpp"
#include "core/base/log.hpp"
#include "core/base/text.hpp"
#include "core/selftest/link_trial.hpp"
#include "core/selftest/rounds.hpp"
#include "core/selftest/verdict.hpp"
#include "core/transport/connections.hpp"
#include "core/transport/network/net_set.hpp"
#include "guest/file.hpp"

namespace plexus {
namespace {

constexpr uint32_t kSlotBytesMax = 128 * 1024;
constexpr int kTriesMax = 5;      // of what is late or slow
constexpr size_t kLinksMax = 16;  // between two ranks: devices that are tried
constexpr size_t kFindingsTold = 8;

/// One try of all links, in a group of its own.
class LinkTries {
 public:
  LinkTries(const SelfTestOptions& options, uint64_t number)
      : options_(options), infos_(*options.transport.infos), context_(options.transport) {
    Fnv1a group;
    group.mix("self-test");
    group.mix(options.exchange->group());
    group.mix(number);
    for (PeerInfo& info : infos_) {
      info.device = -1;  // links are tried between hosts, whatever computes there
    }
    context_.infos = &infos_;
    context_.group = group.value();
    context_.slot_bytes = std::min(context_.slot_bytes, kSlotBytesMax);
  }

  /// [nranks]: what each rank saw.
  Result<std::vector<std::vector<LinkSample>>> run() {
    const int nranks = options_.exchange->nranks();
    std::vector<int> all(static_cast<size_t>(nranks));
    std::iota(all.begin(), all.end(), 0);
    PLEXUS_TRY(exchange, options_.exchange->subgroup(all, context_.group));
    context_.exchange = exchange.get();
    std::vector<LinkSample> mine;
    {
      ConnectionSet connections(context_);
      for (const Round& round : list_rounds(nranks)) {
        PLEXUS_TRY(exchange->all_gather("", options_.give_up));
        connections.close();
        const auto peer = partner_of(round, context_.rank, nranks);
        if (peer.has_value()) {
          PLEXUS_TRY(try_links(connections, *peer, mine));
        }
      }
      PLEXUS_TRY(exchange->all_gather("", options_.give_up));
    }
    PLEXUS_TRY(blobs, exchange->all_gather(encode(mine), options_.give_up));
    std::vector<std::vector<LinkSample>> by_rank;
    for (size_t rank = 0; rank < blobs.size(); ++rank) {
      PLEXUS_TRY(samples, decode_samples(blobs[rank], nranks));
      by_rank.push_back(std::move(samples));
    }
    return by_rank;
  }

 private:
  /// Those between this rank and `peer`, one after the other: memory, or every pair of devices.
  Result<void> try_links(ConnectionSet& connections, int peer, std::vector<LinkSample>& mine) {
    const bool by_net = connections.transport_to(peer) == TransportKind::kNet;
    std::set<std::pair<std::string, std::string>> tried;  // routes there and back
    for (int channel = 0; channel < (by_net ? options_.channels : 1); ++channel) {
      LinkSample sample{.peer = peer, .channel = static_cast<uint32_t>(channel)};
      if (by_net) {
        PLEXUS_TRY(there, find_path(context_.rank, peer, sample.channel));
        PLEXUS_TRY(back, find_path(peer, context_.rank, sample.channel));
        if (tried.size() == kLinksMax ||
            !tried.insert(std::minmax(there.route, back.route)).second) {
          continue;
        }
        sample.network = there.context->plugin().network_name();
        sample.send_device = there.context->properties(there.device).name;
        sample.recv_device = back.context->properties(back.device).name;
      }
      LinkTrial trial({.send = &connections.find_or_make_send(peer, 2 * channel),
                       .recv = &connections.find_or_make_recv(peer, 2 * channel),
                       .leads = context_.rank < peer,
                       .slot_bytes = context_.slot_bytes,
                       .is_crowded = options_.is_crowded,
                       .give_up = options_.give_up});
      trial.run(sample);
      mine.push_back(std::move(sample));
    }
    return ok();
  }

  Result<NetSet::Path> find_path(int source, int target, uint32_t channel) {
    return context_.nets->find_path(context_.rank, source, target, channel, infos_);
  }

  const SelfTestOptions& options_;
  std::vector<PeerInfo> infos_;
  TransportContext context_;
};

std::vector<TriedRank> describe_ranks(const SelfTestOptions& options) {
  std::vector<TriedRank> ranks;
  for (const PeerInfo& info : *options.transport.infos) {
    const size_t rank = ranks.size();
    ranks.push_back({.host = info.host_hash,
                     .datacenter = options.datacenters[rank],
                     .name = describe_rank(static_cast<int>(rank), info)});
  }
  return ranks;
}

nlohmann::json to_json(const Verdict& verdict) {
  nlohmann::json links = nlohmann::json::array();
  for (const TriedLink& link : verdict.links) {
    links.push_back({{"source", link.source},
                     {"target", link.target},
                     {"channel", link.channel},
                     {"network", link.network},
                     {"from", link.from},
                     {"to", link.to},
                     {"latency_us", link.latency_us},
                     {"gb_per_s", link.gb_per_s},
                     {"waited", link.waited},
                     {"messages", link.messages},
                     {"corrupt", link.corrupt},
                     {"fault", name(link.fault)},
                     {"error", link.error}});
  }
  nlohmann::json classes = nlohmann::json::object();
  for (const auto& [name, usual] : verdict.classes) {
    classes[name] = {
        {"latency_us", usual.latency_us}, {"gb_per_s", usual.gb_per_s}, {"devices", usual.devices}};
  }
  nlohmann::json findings = nlohmann::json::array();
  for (const Finding& found : verdict.findings) {
    findings.push_back({{"what", found.what},
                        {"fault", name(found.fault)},
                        {"ranks", found.ranks},
                        {"sentence", found.sentence}});
  }
  return {{"links", std::move(links)}, {"classes", std::move(classes)}, {"findings", findings}};
}

/// By rank 0.
void tell(const SelfTestOptions& options, const Verdict& verdict, int tries, double seconds) {
  const uint64_t comm = options.exchange->group();
  const int nranks = options.exchange->nranks();
  if (!options.file.empty()) {
    nlohmann::json record = to_json(verdict);
    record["comm"] = fmt::format("{:#x}", comm);
    record["nranks"] = nranks;
    record["tries"] = tries;
    record["seconds"] = seconds;
    if (const auto refusal = write_text_file(options.file, record.dump() + "\n", O_APPEND);
        !refusal.empty()) {
      PLEXUS_WARN("PLEXUS_SELFTEST_FILE={} cannot be written: {}", options.file, refusal);
    }
  }
  const std::string about = fmt::format("comm {:#x} of {} ranks: self-test of {}", comm, nranks,
                                        counted(verdict.links.size() / 2, "link"));
  if (verdict.findings.empty()) {
    PLEXUS_INFO(kInit, "{} in {:.3f} s: all are like their class", about, seconds);
    return;
  }
  std::vector<std::string> told;
  for (const Finding& found : verdict.findings) {
    if (told.size() < kFindingsTold) {
      told.push_back(found.sentence);
    }
  }
  if (verdict.findings.size() > told.size()) {
    told.push_back(fmt::format("and {} more", verdict.findings.size() - told.size()));
  }
  PLEXUS_NOTIFY("{}: {}", about, fmt::join(told, "; "));
}

}  // namespace

Result<void> run_self_test(const SelfTestOptions& options) {
  const auto began = Clock::now();
  const std::vector<TriedRank> ranks = describe_ranks(options);
  std::vector<TriedLink> links;
  Verdict verdict;
  int tries = 0;
  do {
    PLEXUS_TRY(by_rank, LinkTries(options, static_cast<uint64_t>(tries)).run());
    std::vector<TriedLink> found = join_samples(by_rank);
    if (tries++ == 0) {
      links = std::move(found);
    } else {
      keep_better(links, found);
    }
    verdict = judge(links, ranks);
  } while (verdict.wants_repeat() && tries < kTriesMax);
  if (options.exchange->rank() == 0) {
    tell(options, verdict, tries, std::chrono::duration<double>(Clock::now() - began).count());
  }
  return ok();
}

}  // namespace plexus
