// SPDX-License-Identifier: Apache-2.0
// Error messages for calls that do not match.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <set>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/engine/engine.hpp"
#include "kernels/layout/collective.hpp"

namespace plexus {
namespace {

constexpr const char* kOpNames[] = {"sum", "prod", "max", "min"};

Error describe_unread(int rank, int peer, const LaneFailure& failure) {
  if (failure.error == ESRCH) {
    return fail(Code::kRemoteError,
                "rank {} cannot read the memory of rank {}: its process has ended during a call",
                rank, peer);
  }
  if (failure.error == ECANCELED) {
    return fail(Code::kRemoteError,
                "rank {} cannot use the memory of rank {}: that rank's call failed or was aborted",
                rank, peer);
  }
  if (failure.error == EFAULT) {
    return fail(Code::kRemoteError,
                "rank {} cannot read the buffer of rank {} at {:#x}: keep a buffer allocated until "
                "the call that uses it is done; for memory of a device that the processor does not "
                "copy from set PLEXUS_ATTACH=0",
                rank, peer, failure.connection->header().payload.address);
  }
  return fail(Code::kSystemError,
              "rank {} cannot read the memory of rank {} any more ({}): do not change credentials "
              "or install seccomp filters after ncclCommInitRank, or set PLEXUS_ATTACH=0",
              rank, peer, std::strerror(failure.error));
}

}  // namespace

std::string describe_call(const CallRecord& call) {
  const auto collective = static_cast<Collective>(call.collective);
  if (call.collective >= kCollectiveCount || call.type >= kDataTypeCount) {
    return "an unreadable call";
  }
  const bool has_counts = call.of_vector != 0 && !is_point_to_point(collective);
  std::string text =
      fmt::format("{}({} {}, {}", name(collective), has_counts ? "counts up to" : "count",
                  call.count, name(static_cast<DataType>(call.type)));
  if (is_reduction(collective) && call.op < std::size(kOpNames)) {
    text += fmt::format(", {}", kOpNames[call.op]);
  }
  if (is_rooted(collective)) {
    text += fmt::format(", root {}", call.root);
  }
  if (is_point_to_point(collective)) {
    const bool sends = collective == Collective::kSend;
    return text +
           fmt::format(") {} rank {}{}, number {} {} it", sends ? "to" : "from", call.root,
                       call.of_vector != 0 ? " of an all-to-all or all-gather with counts" : "",
                       call.sequence, sends ? "to" : "from");
  }
  const auto table = algorithms();
  if (call.algorithm > 0 && call.algorithm <= table.size()) {
    text += fmt::format(", by {}", table[call.algorithm - 1U].name);
  }
  return text + fmt::format("), call number {}", call.sequence);
}

Error describe_failure(LaneRun& lane) {
  const LaneFailure& failure = lane.failure();
  const Work& work = lane.work();
  const int rank = work.program->rank;
  const int peer = failure.connection->peer();
  if (failure.kind == LaneFailure::Kind::kUnmapped) {
    const MappedPlace& place = failure.connection->header().payload.place;
    return fail(Code::kSystemError,
                "rank {} cannot map the memory that rank {} registered (ncclMemAlloc): allow it to "
                "open /proc/{}/fd/{}, or set NCCL_LOCAL_REGISTER=0",
                rank, peer, place.pid, place.fd);
  }
  if (failure.kind == LaneFailure::Kind::kUnread) {
    return describe_unread(rank, peer, failure);
  }
  CallRecord peers_calls[kHeaders];
  std::transform(std::begin(failure.connection->fifo().calls),
                 std::end(failure.connection->fifo().calls), std::begin(peers_calls),
                 [](const SharedCall& call) { return call.load(); });
  return describe_mismatch({.rank = rank,
                            .peer = peer,
                            .call = work.call,
                            .peers_calls = peers_calls,
                            .hash_arrived = failure.hash_arrived,
                            .size_expected = failure.size_expected,
                            .size_arrived = failure.size_arrived});
}

Error describe_deadline(std::span<const Wait> waits,
                        std::chrono::milliseconds time,
                        const std::string& culprit,
                        bool is_taken_back) {
  constexpr size_t kPeersMax = 8;
  std::set<int> peers;
  for (const Wait& wait : waits) {
    peers.insert(wait.peer);
  }
  std::vector<int> named(peers.begin(), peers.end());
  named.resize(std::min(named.size(), kPeersMax));
  // Without proof those that it waits for itself, which may wait for others in turn.
  const std::string awaited =
      !culprit.empty()
          ? culprit
          : fmt::format("{} {}{}: {}", peers.size() == 1 ? "rank" : "ranks", fmt::join(named, ", "),
                        peers.size() > named.size() ? " and others" : "", waits.front().where);
  return fail(Code::kTimeout, "{} has waited {} ms (PLEXUS_OPTION_DEADLINE_MS) for {}{}",
              describe_call(waits.front().call), time.count(), awaited,
              is_taken_back ? "; the call counts as not made" : "");
}

Error describe_gone(const Wait& wait) {
  // A network may also have dropped what the peer sent before it closed: libraries do.
  return fail(Code::kInvalidUsage,
              "the ranks' calls differ: {} waits for rank {}, whose process has left without that "
              "call{}; every rank of a communicator must make the same calls in the same order",
              describe_call(wait.call), wait.peer,
              wait.where.empty() ? ""
                                 : fmt::format(" (if it did make it, the network lost its message: "
                                               "{})",
                                               wait.where));
}

Error describe_mismatch(const Mismatch& mismatch) {
  // The peer's record of the call that this slot belongs to; the record is gone if the peer has
  // made more than kHeaders calls since.
  std::string theirs = "a different call";
  for (const CallRecord& call : mismatch.peers_calls) {
    if (call.hash == mismatch.hash_arrived) {
      theirs = describe_call(call);
    }
  }
  const std::string sizes = mismatch.size_arrived == mismatch.size_expected
                                ? ""
                                : fmt::format(" and sent {} bytes where {} were expected",
                                              mismatch.size_arrived, mismatch.size_expected);
  return fail(Code::kInvalidUsage,
              "the ranks' calls differ: rank {} made {}, rank {} made {}{}; every rank of a "
              "communicator must make the same calls in the same order",
              mismatch.rank, describe_call(mismatch.call), mismatch.peer, theirs, sizes);
}

}  // namespace plexus
