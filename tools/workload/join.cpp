// SPDX-License-Identifier: Apache-2.0
// Traces of ranks 0, 1, ... as one workload in which each rank does its own.
#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "tools/workload/builder.hpp"

namespace plexus {
namespace {

constexpr size_t kInstancesMax = 16'384;

Result<void> check_ranks(const std::vector<Workload>& ranks) {
  size_t calls = 0;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const Workload& work = ranks[rank];
    calls += work.calls.size();
    if (std::any_of(work.calls.begin(), work.calls.end(),
                    [](const WorkloadCall& call) { return call.rank >= 0; })) {
      return fail(Code::kInvalidArgument, "file {} ({}) says what each rank does: give it alone",
                  rank, work.format);
    }
    if (work.rank >= 0 && static_cast<size_t>(work.rank) != rank) {
      return fail(Code::kInvalidArgument,
                  "file {} is rank {}'s by what it says: expects one file of each rank, in the "
                  "order of ranks",
                  rank, work.rank);
    }
    if (work.nranks > 0 && static_cast<size_t>(work.nranks) > ranks.size()) {
      return fail(Code::kInvalidArgument,
                  "file {} is of a job of {} ranks, and there are {} files: give one of each rank, "
                  "or one for all",
                  rank, work.nranks, ranks.size());
    }
  }
  return calls <= kWorkloadCallsMax
             ? Result<void>(ok())
             : fail(Code::kInvalidArgument,
                    "the files have {} calls and computations, more than {}: cut them to a step",
                    calls, kWorkloadCallsMax);
}

/// A communicator as the ranks' files call it: several may have the same name and size.
struct Communicator {
  std::string name;  // of the group
  int nranks = 0;
  int stride = 0;
  std::string called;
  friend auto operator<=>(const Communicator&, const Communicator&) = default;
};

class JoinedRanks {
 public:
  explicit JoinedRanks(std::vector<Workload> ranks) : ranks_(std::move(ranks)) {}

  Result<Workload> join() {
    PLEXUS_TRY(check_ranks(ranks_));
    Workload& work = builder_.work;
    work.nranks = static_cast<int>(ranks_.size());
    work.steps = ranks_.front().steps;
    work.format = fmt::format("{} files, one of each rank ({})", ranks_.size(), formats());
    for (const Workload& each : ranks_) {
      work.ranks_per_node = std::max(work.ranks_per_node, each.ranks_per_node);
      work.recorded_us = std::max(work.recorded_us, each.recorded_us);
      take_notes(each);
    }
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      PLEXUS_TRY(take_calls(static_cast<int>(rank)));
    }
    PLEXUS_TRY(tell_groups_apart());
    return builder_.finish();
  }

 private:
  [[nodiscard]] std::string formats() const {
    std::string all;
    for (const Workload& each : ranks_) {
      if (all.find(each.format) == std::string::npos) {
        all += (all.empty() ? "" : ", ") + each.format;
      }
    }
    return all;
  }

  /// Each once.
  void take_notes(const Workload& from) {
    for (size_t i = 0; i < from.notes.size(); ++i) {
      const std::vector<std::string>& known = builder_.work.notes;
      if (from.taken_for_all != i &&
          std::find(known.begin(), known.end(), from.notes[i]) == known.end()) {
        builder_.note(from.notes[i]);
      }
    }
  }

  [[nodiscard]] Communicator communicator_of(const Workload& from, const WorkloadCall& call) const {
    const WorkloadGroup& group = from.groups[call.group];
    const std::string& called = from.names[call.communicator];
    const bool is_listed = call.group != 0;  // else the file does not say how many it has
    return {.name = is_listed ? group.name : "process group " + called,
            .nranks = is_listed ? members_of(group, builder_.work.nranks) : 0,
            .stride = group.stride,
            .called = called};
  }

  Result<void> take_calls(int rank) {
    Workload& from = ranks_[static_cast<size_t>(rank)];
    const auto first = static_cast<uint32_t>(builder_.work.calls.size());
    const auto nranks = static_cast<int>(ranks_.size());
    std::vector<uint32_t> names;
    for (const std::string& name : from.names) {
      names.push_back(builder_.name(name));
    }
    for (WorkloadCall& call : from.calls) {
      const bool is_message = call.kind == WorkKind::kSend || call.kind == WorkKind::kRecv;
      if (is_message) {
        const int peer = (from.origin >= 0 ? from.origin : rank) + call.peer;
        call.peer = (peer % nranks + nranks) % nranks;  // of a file that all ranks could do alike
        if (call.peer == rank) {
          return fail(Code::kInvalidArgument, "file {}: call {} is a message to itself", rank,
                      &call - from.calls.data());
        }
      }
      for (uint32_t& other : call.after) {
        other += first;
      }
      call.rank = rank;
      call.name = names[call.name];
      if (call.kind == WorkKind::kCall && (call.group != 0 || call.communicator != 0)) {
        users_[communicator_of(from, call)][rank].push_back(
            static_cast<uint32_t>(builder_.work.calls.size()));
      }
      call.group = 0;
      builder_.work.calls.push_back(std::move(call));
    }
    return ok();
  }

  /// Ranks that call it the same way are one group if they are as many as it has members, else
  /// several, placed as it is.
  Result<void> tell_groups_apart() {
    for (const auto& [communicator, by_rank] : users_) {
      const auto size = static_cast<size_t>(std::max(communicator.nranks, 0));
      const bool is_one = size == 0 || by_rank.size() <= size;
      const int stride = std::max(communicator.stride, 1);
      std::map<int, std::vector<int>> instances;  // by the lowest rank
      for (const auto& [rank, calls] : by_rank) {
        const int place = is_one ? 0 : rank / stride % communicator.nranks;
        instances[is_one ? 0 : rank - place * stride].push_back(rank);
      }
      for (const auto& [lowest, members] : instances) {
        std::vector<WorkloadGroup>& groups = builder_.work.groups;
        if (groups.size() == kInstancesMax) {
          return fail(Code::kInvalidArgument, "the files have more than {} groups of ranks",
                      kInstancesMax);
        }
        const auto number = static_cast<uint32_t>(groups.size());
        groups.push_back({.name = communicator.name,
                          .nranks = static_cast<int>(std::max(members.size(), size)),
                          .stride = stride_of(members)});
        for (const int rank : members) {
          for (const uint32_t call : by_rank.at(rank)) {
            builder_.work.calls[call].group = number;
          }
        }
      }
    }
    return ok();
  }

  std::vector<Workload> ranks_;
  WorkloadBuilder builder_{""};
  std::map<Communicator, std::map<int, std::vector<uint32_t>>> users_;  // calls, by rank
};

}  // namespace

Result<Workload> join_ranks(std::vector<Workload> ranks) {
  if (ranks.empty() || ranks.size() > kWorkloadFilesMax) {
    return fail(Code::kInvalidArgument, "expects 1 to {} files, one of each rank, not {}",
                kWorkloadFilesMax, ranks.size());
  }
  return JoinedRanks(std::move(ranks)).join();
}

}  // namespace plexus
