// SPDX-License-Identifier: Apache-2.0
#include "tools/sim/network.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <utility>

#include "core/base/hash.hpp"
#include "kernels/layout/fifo.hpp"

namespace plexus {
namespace {

/// One end of a connection, as its rank sees it: who, which of those between the two, and which
/// way.
struct End {
  int peer = 0;
  int channel = 0;
  int number = 0;  // Lane::connection
  bool sends = false;
  friend auto operator<=>(const End&, const End&) = default;
};

/// The programs of one rank with its connections numbered in the order of their first use.
struct RankView {
  std::vector<std::unique_ptr<Program>> programs;  // by channel
  std::vector<End> ends;
  std::vector<uint32_t> end_lanes;            // [end] lane over all channels
  std::vector<std::vector<uint32_t>> places;  // [lane] ends of each peer of each step
  std::vector<std::vector<uint32_t>> firsts;  // [lane][steps + 1]
};

ChannelOrder order_by_number(const SimJob& job) {
  ChannelOrder order;
  order.ring.resize(static_cast<size_t>(job.nranks));
  std::iota(order.ring.begin(), order.ring.end(), 0);
  for (int place = 0; place < job.nranks; place += job.ranks_per_node) {
    order.nodes.push_back(place);
  }
  order.datacenters = job.datacenters;
  order.above = job.above;
  return order;
}

class Recorder {
 public:
  explicit Recorder(const SimJob& job) : job_(job), orders_(job.orders) {
    if (orders_.empty()) {
      orders_.push_back(order_by_number(job));
    }
  }

  [[nodiscard]] RankView view(int rank) const {
    RankView view;
    std::map<End, uint32_t> known;
    uint32_t lane_number = 0;
    for (int channel = 0; channel < job_.channels; ++channel) {
      view.programs.push_back(std::make_unique<Program>(
          !job_.exchanges.empty()
              ? program_of(job_.exchanges[static_cast<size_t>(channel)], rank, job_.nranks)
              : program_of(*job_.algorithm, record_input(rank, channel))));
      const Program& program = *view.programs.back();
      for (const Lane& lane : program.lanes) {
        auto& places = view.places.emplace_back();
        auto& firsts = view.firsts.emplace_back();
        for (const Step& step : lane.steps) {
          firsts.push_back(static_cast<uint32_t>(places.size()));
          const auto add = [&](int peer, bool sends) {
            const End end{
                .peer = peer, .channel = channel, .number = lane.connection, .sends = sends};
            const auto [at, is_new] =
                known.try_emplace(end, static_cast<uint32_t>(view.ends.size()));
            if (is_new) {
              view.ends.push_back(end);
              view.end_lanes.push_back(lane_number);
            }
            places.push_back(at->second);
          };
          for (const int peer : program.recv_peers(step)) {
            add(peer, false);
          }
          for (const int peer : program.send_peers(step)) {
            add(peer, true);
          }
        }
        firsts.push_back(static_cast<uint32_t>(places.size()));
        ++lane_number;
      }
    }
    return view;
  }

  [[nodiscard]] const SimJob& job() const { return job_; }

 private:
  [[nodiscard]] RecordInput record_input(int rank, int channel) const {
    RecordInput input =
        record_input_of(orders_[static_cast<size_t>(channel) % orders_.size()], rank);
    input.root = job_.root;
    input.variant = channel % job_.algorithm->variants;
    input.joins = message_form_of(job_).joins;
    input.sketches = !job_.exact_spans;
    return input;
  }

  const SimJob& job_;
  std::vector<ChannelOrder> orders_;
};

/// A step as far as times depend on it.
void mix_step(const Step& step, Fnv1a& hash) {
  hash.mix(static_cast<uint64_t>(step.source) << 8 | static_cast<uint64_t>(step.target));
  hash.mix(static_cast<uint64_t>(step.receives) << 32 | static_cast<uint64_t>(step.sends) << 1 |
           (step.accumulates ? 1U : 0U));
  hash.mix(static_cast<uint64_t>(step.chunks));
  hash.mix(static_cast<uint64_t>(step.after.lane + 1) << 32 |
           static_cast<uint64_t>(step.after.step + 1));
}

using Signature = std::vector<uint64_t>;

/// What a rank does, without who its peers are. Two hashes of all steps stand for them.
Signature describe(const RankView& view, const Recorder& recorder, int rank) {
  Fnv1a one;
  Fnv1a two;
  two.mix(uint64_t{1});
  for (const auto& program : view.programs) {
    for (const Lane& lane : program->lanes) {
      for (Fnv1a* const hash : {&one, &two}) {
        hash->mix(uint64_t{lane.steps.size()});
        for (const Step& step : lane.steps) {
          mix_step(step, *hash);
        }
      }
    }
  }
  for (const auto& places : view.places) {
    for (const uint32_t place : places) {
      one.mix(uint64_t{place});
      two.mix(uint64_t{place});
    }
  }
  Signature signature = {one.value(), two.value()};
  for (const End& end : view.ends) {
    signature.push_back(static_cast<uint64_t>(end.channel) << 32 |
                        static_cast<uint64_t>(end.number) << 3 | (end.sends ? 4U : 0U) |
                        static_cast<uint64_t>(recorder.job().kind_of(rank, end.peer)));
  }
  return signature;
}

/// The other end of `end` of `rank`, in the list of its peer; its size: there is none.
uint32_t find_other(const std::vector<End>& ends, int rank, const End& end) {
  const End other{.peer = rank, .channel = end.channel, .number = end.number, .sends = !end.sends};
  return static_cast<uint32_t>(std::find(ends.begin(), ends.end(), other) - ends.begin());
}

/// Ranks that are the same node after node all around each datacenter: the rank `period` further in
/// its datacenter does the same with peers as much further in theirs, all taken modulo their size.
class Shift {
 public:
  /// nullopt: datacenters are not equally large, or no whole number of nodes, or rings do not
  /// follow the numbers of ranks.
  static std::optional<Shift> find(const SimJob& job) {
    const std::vector<int>& datacenters = job.datacenters;
    const int count = datacenters.empty() ? 1 : datacenters.back() + 1;
    const int size = job.nranks / count;
    const auto is_block = [&](int rank) {
      return datacenters.empty() || datacenters[static_cast<size_t>(rank)] == rank / size;
    };
    for (int rank = 0; rank < job.nranks; ++rank) {
      if (!is_block(rank)) {
        return std::nullopt;
      }
    }
    if (job.nranks % count != 0 || size % job.ranks_per_node != 0 || !job.orders.empty()) {
      return std::nullopt;
    }
    return Shift(count, size, job.ranks_per_node);
  }

  /// One of each place in a node, of each datacenter.
  [[nodiscard]] std::vector<int> members() const {
    std::vector<int> members;
    for (int datacenter = 0; datacenter < datacenters_; ++datacenter) {
      for (int place = 0; place < period_; ++place) {
        members.push_back(datacenter * size_ + place);
      }
    }
    return members;
  }
  /// The place of the member that stands for `rank`.
  [[nodiscard]] int place_of(int rank) const {
    return rank / size_ * period_ + rank % size_ % period_;
  }
  [[nodiscard]] int member_of(int rank) const {
    return rank / size_ * size_ + rank % size_ % period_;
  }
  /// What `peer` is to `rank`, is the result to its member.
  [[nodiscard]] int as_seen(int rank, int peer) const {
    const int distance = rank - member_of(rank);
    return peer / size_ * size_ + (peer % size_ - distance + size_) % size_;
  }

 private:
  Shift(int datacenters, int size, int period)
      : datacenters_(datacenters), size_(size), period_(period) {}

  int datacenters_;
  int size_;  // of each
  int period_;
};

/// Looked at for some ranks only (symmetry_test.cpp compares all bits up to 512).
bool is_shifted(const Recorder& recorder, const Shift& shift) {
  constexpr int kLookedAt = 16;
  const int nranks = recorder.job().nranks;
  for (int i = 1; i <= kLookedAt; ++i) {
    const int rank = static_cast<int>(int64_t{nranks - 1} * i / kLookedAt);
    const int first = shift.member_of(rank);
    const RankView one = recorder.view(first);
    RankView other = recorder.view(rank);
    for (End& end : other.ends) {
      end.peer = shift.as_seen(rank, end.peer);
    }
    if (one.ends != other.ends ||
        describe(one, recorder, first) != describe(other, recorder, first)) {
      return false;
    }
  }
  return true;
}

/// The classes of the ranks by refinement: ranks that look alike, then those whose peers look alike
/// too, until that separates no more.
class Classes {
 public:
  Classes(const std::vector<std::vector<End>>& ends, std::vector<Signature> looks) : ends_(ends) {
    separate(std::move(looks));
    constexpr int kRoundsMax = 256;  // a chain would take one for each rank
    size_t before = 0;
    for (int round = 0; before != count_ && round < kRoundsMax; ++round) {
      before = count_;
      std::vector<Signature> refined(ends.size());
      for (size_t rank = 0; rank < ends.size(); ++rank) {
        refined[rank].push_back(class_of_[rank]);
        for (const End& end : ends[rank]) {
          const auto peer = static_cast<size_t>(end.peer);
          refined[rank].push_back(class_of_[peer]);
          refined[rank].push_back(find_other(ends_[peer], static_cast<int>(rank), end));
        }
      }
      separate(std::move(refined));
    }
    is_stable_ = before == count_;
  }

  [[nodiscard]] const std::vector<uint32_t>& class_of() const { return class_of_; }
  [[nodiscard]] size_t count() const { return count_; }
  [[nodiscard]] bool are_stable() const { return is_stable_; }

 private:
  void separate(std::vector<Signature> signatures) {
    std::map<Signature, uint32_t> known;
    class_of_.clear();
    for (Signature& signature : signatures) {
      const auto next = static_cast<uint32_t>(known.size());
      class_of_.push_back(known.try_emplace(std::move(signature), next).first->second);
    }
    count_ = known.size();
  }

  const std::vector<std::vector<End>>& ends_;
  std::vector<uint32_t> class_of_;
  size_t count_ = 0;
  bool is_stable_ = false;
};

/// Joins the programs of `members` (ranks): each end with the other end at the member that stands
/// for its peer.
class Joiner {
 public:
  Joiner(const Recorder& recorder, std::vector<int> members) {
    network_.job = recorder.job();
    network_.nranks = recorder.job().nranks;
    for (const int rank : members) {
      views_.push_back(recorder.view(rank));
      add(rank, views_.back());
    }
  }

  /// `place_of`: the member that stands for a rank. `other_of`: the place of the other end of an
  /// end of a member among those of its peer.
  Result<SimNetwork> join(const std::function<uint32_t(int rank)>& place_of,
                          const std::function<uint32_t(int rank, const End& end)>& other_of) {
    numbers_.resize(views_.size());
    for (size_t member = 0; member < views_.size(); ++member) {
      numbers_[member].resize(views_[member].ends.size());
    }
    for (size_t member = 0; member < views_.size(); ++member) {
      const RankView& view = views_[member];
      const int rank = network_.ranks[member].rank;
      for (size_t place = 0; place < view.ends.size(); ++place) {
        const End& end = view.ends[place];
        if (!end.sends) {
          continue;
        }
        const uint32_t peer = place_of(end.peer);
        const uint32_t other = other_of(rank, end);
        if (other >= views_[peer].ends.size()) {
          return fail(Code::kInvalidArgument, "rank {} sends to rank {}, which receives nothing",
                      rank, end.peer);
        }
        const auto number = static_cast<uint32_t>(network_.connections.size());
        network_.connections.push_back({.source = static_cast<uint32_t>(member),
                                        .target = peer,
                                        .source_place = static_cast<uint32_t>(place),
                                        .target_place = other,
                                        .send_lane = view.end_lanes[place],
                                        .recv_lane = views_[peer].end_lanes[other],
                                        .kind = network_.job.kind_of(rank, end.peer)});
        numbers_[member][place] = number;
        numbers_[peer][other] = number;
      }
    }
    for (size_t member = 0; member < views_.size(); ++member) {
      number_connections(member);
    }
    const RankView& first = views_.front();
    for (size_t channel = 0; channel < first.programs.size(); ++channel) {
      network_.geometries.push_back(
          geometry_of(network_.job, *first.programs[channel], static_cast<int>(channel)));
    }
    for (RankView& view : views_) {
      std::move(view.programs.begin(), view.programs.end(), std::back_inserter(network_.programs));
    }
    return std::move(network_);
  }

  [[nodiscard]] const std::vector<RankView>& views() const { return views_; }

 private:
  void add(int rank, const RankView& view) {
    SimRank& made = network_.ranks.emplace_back();
    made.rank = rank;
    for (size_t channel = 0; channel < view.programs.size(); ++channel) {
      made.first_lanes.push_back(static_cast<uint32_t>(made.lanes.size()));
      for (const Lane& lane : view.programs[channel]->lanes) {
        SimLane& one = made.lanes.emplace_back();
        one.steps = &lane;
        one.channel = static_cast<int>(channel);
        one.first = view.firsts[made.lanes.size() - 1];
      }
    }
  }

  void number_connections(size_t member) {
    for (size_t lane = 0; lane < views_[member].places.size(); ++lane) {
      std::vector<uint32_t>& numbers = network_.ranks[member].lanes[lane].connections;
      for (const uint32_t place : views_[member].places[lane]) {
        numbers.push_back(numbers_[member][place]);
      }
    }
  }

  SimNetwork network_;
  std::vector<RankView> views_;
  std::vector<std::vector<uint32_t>> numbers_;  // [member][end] connection
};

/// Of programs that are the same all around the ring.
Result<SimNetwork> make_shifted_network(const Recorder& recorder, const Shift& shift) {
  const int nranks = recorder.job().nranks;
  Joiner joiner(recorder, shift.members());
  auto network = joiner.join(
      [&](int rank) { return static_cast<uint32_t>(shift.place_of(rank)); },
      [&](int rank, const End& end) {
        return find_other(joiner.views()[static_cast<size_t>(shift.place_of(end.peer))].ends,
                          shift.as_seen(end.peer, rank),
                          {.peer = shift.member_of(end.peer),
                           .channel = end.channel,
                           .number = end.number,
                           .sends = end.sends});
      });
  if (network.has_value()) {
    for (int rank = 0; rank < nranks; ++rank) {
      network.value().class_of.push_back(static_cast<uint32_t>(shift.place_of(rank)));
    }
  }
  return network;
}

Result<void> check(const SimJob& job) {
  if (job.exchanges.empty() &&
      (job.nranks < 2 || job.nranks > job.algorithm->nranks_max ||
       job.algorithm->network_cost != nullptr || is_point_to_point(job.algorithm->collective))) {
    return fail(Code::kInvalidArgument, "{} cannot be simulated on {} ranks", job.algorithm->name,
                job.nranks);
  }
  if (job.costs.near.latency_us <= 0 || job.costs.far.latency_us <= 0 ||
      (!job.datacenters.empty() && job.costs.wide.latency_us <= 0)) {
    return fail(Code::kInvalidArgument, "a message needs a latency above 0 us");
  }
  return ok();
}

}  // namespace

Result<SimNetwork> make_network(const SimJob& job) {
  PLEXUS_TRY(check(job));
  const Recorder recorder(job);
  std::vector<int> all(static_cast<size_t>(job.nranks));
  std::iota(all.begin(), all.end(), 0);
  Joiner joiner(recorder, std::move(all));
  return joiner.join([](int rank) { return static_cast<uint32_t>(rank); },
                     [&joiner](int rank, const End& end) {
                       return find_other(joiner.views()[static_cast<size_t>(end.peer)].ends, rank,
                                         end);
                     });
}

Result<SimNetwork> make_symmetric_network(const SimJob& job, size_t steps_recorded) {
  PLEXUS_TRY(check(job));
  const Recorder recorder(job);
  const RankView first = recorder.view(0);
  size_t steps = 0;
  for (const auto& program : first.programs) {
    steps += program->step_count();
  }
  steps *= static_cast<size_t>(job.nranks);
  const std::optional<Shift> shift = Shift::find(job);
  if (steps > steps_recorded && shift.has_value() && is_shifted(recorder, *shift)) {
    return make_shifted_network(recorder, *shift);
  }
  constexpr size_t kStepsMax = size_t{1} << 33;
  if (steps > kStepsMax) {
    return fail(Code::kInvalidArgument,
                "{} on {} ranks has about {} steps, which differ from rank to rank: at most {} can "
                "be looked at",
                job.exchanges.empty() ? job.algorithm->name : "an exchange", job.nranks, steps,
                kStepsMax);
  }
  std::vector<std::vector<End>> ends;
  std::vector<Signature> looks;
  for (int rank = 0; rank < job.nranks; ++rank) {
    RankView view = recorder.view(rank);
    looks.push_back(describe(view, recorder, rank));
    ends.push_back(std::move(view.ends));
  }
  const Classes classes(ends, std::move(looks));
  constexpr size_t kStepsKept = size_t{1} << 27;
  const size_t each = steps / static_cast<size_t>(job.nranks);
  if (classes.count() * each > kStepsKept) {
    return fail(Code::kInvalidArgument,
                "of {} ranks {} do different things, about {} steps each: at most {} in all fit "
                "into the memory; simulate fewer ranks, or a shorter call",
                job.nranks, classes.count(), each, kStepsKept);
  }
  if (!classes.are_stable()) {
    auto whole = make_network(job);
    if (whole.has_value()) {
      whole.value().class_of.resize(static_cast<size_t>(job.nranks));
      std::iota(whole.value().class_of.begin(), whole.value().class_of.end(), 0U);
    }
    return whole;
  }
  std::vector<int> members(classes.count(), -1);
  for (int rank = job.nranks - 1; rank >= 0; --rank) {
    members[classes.class_of()[static_cast<size_t>(rank)]] = rank;
  }
  Joiner joiner(recorder, members);
  auto network =
      joiner.join([&](int rank) { return classes.class_of()[static_cast<size_t>(rank)]; },
                  [&](int rank, const End& end) {
                    return find_other(ends[static_cast<size_t>(end.peer)], rank, end);
                  });
  if (network.has_value()) {
    network.value().class_of = classes.class_of();
  }
  return network;
}

std::vector<uint64_t> count_sent_bytes(const SimNetwork& network) {
  std::vector<uint64_t> sent(network.connections.size());
  for (const SimRank& rank : network.ranks) {
    for (const SimLane& lane : rank.lanes) {
      const Geometry& geometry = network.geometries[static_cast<size_t>(lane.channel)];
      for (size_t at = 0; at < lane.steps->steps.size(); ++at) {
        const Step& step = lane.steps->steps[at];
        uint64_t bytes = 0;
        for (uint32_t loop = 0; step.sends > 0 && loop < geometry.loops; ++loop) {
          bytes += step_bytes(geometry, step, loop, network.job.element_bytes);
        }
        const uint32_t first = lane.first[at] + static_cast<uint32_t>(step.receives);
        for (uint32_t place = first; place < lane.first[at + 1]; ++place) {
          sent[lane.connections[place]] += bytes;
        }
      }
    }
  }
  return sent;
}

}  // namespace plexus
