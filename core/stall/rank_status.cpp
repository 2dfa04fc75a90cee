// SPDX-License-Identifier: Apache-2.0
#include "core/stall/rank_status.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "core/base/bytes.hpp"
#include "core/base/text.hpp"
#include "kernels/layout/collective.hpp"

namespace plexus {
namespace {

/// The part of a status that has one size.
struct StatusHead {
  uint64_t collectives;
  CallRecord call;
  int32_t rank;
  int32_t peer;
  int32_t lost_to;
  uint32_t seconds;
  uint8_t activity;
  uint8_t has_call;
  uint8_t is_awaited;
  uint8_t unused[5];
};

/// Equal for ranks that do the same. Messages between ranks differ in their peers and numbers, so
/// there all count as one.
auto class_of(const RankStatus& status) {
  const bool has_call = status.has_call && status.call.collective < kCollectiveCount;
  const auto collective = static_cast<Collective>(status.call.collective);
  const bool is_numbered = has_call && !is_point_to_point(collective);
  const bool is_inside = status.activity == RankActivity::kInPlugin;
  return std::tuple(status.activity, status.is_awaited, status.lost_to < 0, status.held_up.empty(),
                    has_call ? status.call.collective : 0xff,
                    is_numbered ? status.call.sequence : 0, is_numbered ? status.call.hash : 0,
                    is_inside ? std::string_view(status.where) : std::string_view());
}

}  // namespace

void StatusSummary::add(RankStatus status) {
  StatusClass one;
  one.count = 1;
  one.examples.push_back(std::move(status));
  merge(one);
}

void StatusSummary::merge(const StatusSummary& other) {
  for (const StatusClass& each : other.classes) {
    merge(each);
  }
  others += other.others;
}

void StatusSummary::merge(const StatusClass& other) {
  const auto key = class_of(other.examples.front());
  const auto at = std::lower_bound(classes.begin(), classes.end(), key,
                                   [](const StatusClass& each, const auto& sought) {
                                     return class_of(each.examples.front()) < sought;
                                   });
  if (at == classes.end() || class_of(at->examples.front()) != key) {
    classes.insert(at, other);
    if (classes.size() > kClassesMax) {
      others += classes.back().count;
      classes.pop_back();
    }
    return;
  }
  at->count += other.count;
  at->examples.insert(at->examples.end(), other.examples.begin(), other.examples.end());
  std::sort(at->examples.begin(), at->examples.end(),
            [](const RankStatus& a, const RankStatus& b) { return a.rank < b.rank; });
  if (at->examples.size() > kExamplesMax) {
    at->examples.resize(kExamplesMax);
  }
}

const RankStatus* StatusSummary::find(int rank) const {
  for (const StatusClass& each : classes) {
    for (const RankStatus& status : each.examples) {
      if (status.rank == rank) {
        return &status;
      }
    }
  }
  return nullptr;
}

std::string encode(const StatusSummary& summary) {
  ByteWriter writer;
  writer.put(summary.others);
  writer.put(static_cast<uint32_t>(summary.classes.size()));
  for (const StatusClass& each : summary.classes) {
    writer.put(each.count);
    writer.put(static_cast<uint32_t>(each.examples.size()));
    for (const RankStatus& status : each.examples) {
      writer.put(StatusHead{.collectives = status.collectives,
                            .call = status.call,
                            .rank = status.rank,
                            .peer = status.peer,
                            .lost_to = status.lost_to,
                            .seconds = status.seconds,
                            .activity = static_cast<uint8_t>(status.activity),
                            .has_call = status.has_call ? uint8_t{1} : uint8_t{0},
                            .is_awaited = status.is_awaited ? uint8_t{1} : uint8_t{0},
                            .unused = {}});
      for (const std::string_view text : {status.where, status.held_up}) {
        writer.put_text<uint16_t>(text.substr(0, kWhereBytesMax));
      }
    }
  }
  return writer.take();
}

std::optional<StatusSummary> decode_summary(std::string_view bytes, int nranks) {
  ByteReader reader(bytes);
  StatusSummary summary;
  const auto ranks = static_cast<uint64_t>(nranks);
  summary.others = reader.take_between<uint64_t>(0, ranks);
  const auto classes = reader.take_between<uint32_t>(0, kClassesMax);
  for (uint32_t i = 0; i < classes; ++i) {
    StatusClass one;
    const auto count = reader.take_between<uint64_t>(1, ranks);
    const auto examples = reader.take_between<uint32_t>(1, kExamplesMax);
    for (uint32_t j = 0; j < examples; ++j) {
      const auto head = reader.take<StatusHead>();
      const std::string_view where = reader.take_text<uint16_t>(kWhereBytesMax);
      const std::string_view held_up = reader.take_text<uint16_t>(kWhereBytesMax);
      const bool fits = head.activity < kRankActivities && head.rank >= 0 && head.rank < nranks &&
                        head.peer >= -1 && head.peer < nranks && head.lost_to >= -1 &&
                        head.lost_to < nranks;
      if (reader.broken() || !fits) {
        return std::nullopt;
      }
      one.examples.push_back({.activity = static_cast<RankActivity>(head.activity),
                              .rank = head.rank,
                              .peer = head.peer,
                              .lost_to = head.lost_to,
                              .seconds = head.seconds,
                              .collectives = head.collectives,
                              .has_call = head.has_call != 0,
                              .is_awaited = head.is_awaited != 0,
                              .call = head.call,
                              .where = printable(where),
                              .held_up = printable(held_up)});
    }
    if (count < examples) {
      return std::nullopt;
    }
    // One by one, since the sender may not have put equal ones together.
    StatusSummary part;
    for (RankStatus& status : one.examples) {
      part.add(std::move(status));
    }
    part.classes.front().count += count - examples;
    summary.merge(part);
  }
  return reader.whole() ? std::optional(std::move(summary)) : std::nullopt;
}

}  // namespace plexus
