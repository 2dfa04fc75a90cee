// SPDX-License-Identifier: Apache-2.0
// plexus.h: collectives with counts of their own per rank. Where all ranks know all counts
// (all-gather, reduce-scatter) they are one call, done by the algorithms of the collective; else,
// and on CUDA ranks, groups of messages between pairs of ranks, or of a reduction to each.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/api/arguments.hpp"
#include "core/api/guard.hpp"
#include "core/comm/communicator.hpp"
#include "core/comm/group.hpp"

namespace plexus {
namespace {

/// Elements [displacement, displacement + count) of a user's buffer.
struct Part {
  size_t displacement;
  size_t count;
};

/// Peers [first, end).
struct Peers {
  int first;
  int end;
  [[nodiscard]] bool has(int peer) const { return peer >= first && peer < end; }
};
constexpr Peers kNoPeers{0, 0};
constexpr Peers kAllPeers{0, std::numeric_limits<int>::max()};
constexpr Peers only(int peer) { return {peer, peer + 1}; }

/// One rank's side of a call, as the user names it. An array that the call does not have is
/// nullptr: `count` for all peers, at the buffer's start.
struct Side {
  Peers peers;
  const void* buffer;
  const size_t* counts;
  const size_t* displacements;
  size_t count;
  const char* buffer_name;
  const char* counts_name;
  const char* displacements_name;

  [[nodiscard]] Part part(int peer) const {
    return {displacements == nullptr ? 0 : displacements[peer],
            counts == nullptr ? count : counts[peer]};
  }
};

/// Fails if a part has no buffer, or its end is beyond the address space.
Result<void> check_side(const Side& side, int nranks, size_t element_bytes) {
  for (int peer = side.peers.first; peer < std::min(nranks, side.peers.end); ++peer) {
    const Part part = side.part(peer);
    const std::string place = side.counts == nullptr ? "" : fmt::format("[{}]", peer);
    size_t begin = 0;
    size_t size_bytes = 0;
    if (part.count == 0) {
      continue;
    }
    if (side.buffer == nullptr) {
      return fail(Code::kInvalidArgument, "{} is NULL, {}{} is {}", side.buffer_name,
                  side.counts_name, place, part.count);
    }
    if (__builtin_mul_overflow(part.count, element_bytes, &size_bytes)) {
      return fail(Code::kInvalidArgument, "{}{} is {}, which exceeds the address space",
                  side.counts_name, place, part.count);
    }
    if (__builtin_mul_overflow(part.displacement, element_bytes, &begin) ||
        __builtin_add_overflow(reinterpret_cast<uintptr_t>(side.buffer), begin, &begin) ||
        __builtin_add_overflow(begin, size_bytes, &begin)) {
      return fail(Code::kInvalidArgument, "{}{} is {}, which exceeds the address space",
                  side.displacements_name, place, part.displacement);
    }
  }
  return ok();
}

Result<void> check_root(int root, int nranks) {
  if (root < 0 || root >= nranks) {
    return fail(Code::kInvalidArgument, "root {} is not a rank of this communicator (0..{})", root,
                nranks - 1);
  }
  return ok();
}

/// Enters the communicator.
Result<Visit> check_parts(ncclComm_t comm,
                          ncclDataType_t type,
                          const Side& sent,
                          const Side& received) {
  PLEXUS_TRY(visit, enter_ready(comm));
  PLEXUS_TRY(check_type(type));
  const int nranks = visit->nranks();
  const size_t element_bytes = element_size(static_cast<DataType>(type));
  PLEXUS_TRY(check_side(sent, nranks, element_bytes));
  PLEXUS_TRY(check_side(received, nranks, element_bytes));
  return std::move(visit);
}

const void* address_of(const Side& side, const Part& part, size_t element_bytes) {
  // The displacement of an empty part is not checked, so no address is computed from it.
  return part.count == 0
             ? nullptr
             : static_cast<const std::byte*>(side.buffer) + part.displacement * element_bytes;
}

/// One rank's messages, to and from every rank. `place` has the buffers of both sides.
Result<void> exchange_parts(const CallPlace& place,
                            ncclDataType_t type,
                            const Side& sent,
                            const Side& received) {
  auto visit = check_parts(place.comm, type, sent, received);
  if (visit.has_error()) {
    fail_group(visit.error());
    return std::move(visit).error();
  }
  const size_t element_bytes = element_size(static_cast<DataType>(type));
  const int nranks = visit.value()->nranks();
  PLEXUS_TRY(group_start());
  bool good = true;
  for (int peer = 0; peer < nranks && good; ++peer) {
    const auto message = [&](Collective collective, size_t count) -> CallShape {
      return {
          .collective = collective, .type = type, .root = peer, .count = count, .of_vector = true};
    };
    CallPlace at = place;
    if (sent.peers.has(peer)) {
      const Part out = sent.part(peer);
      at.send = address_of(sent, out, element_bytes);
      at.recv = nullptr;
      good = issue(message(Collective::kSend, out.count), at).has_value();
    }
    if (good && received.peers.has(peer)) {
      const Part in = received.part(peer);
      at.send = nullptr;
      at.recv = in.count == 0
                    ? nullptr
                    : static_cast<std::byte*>(place.recv) + in.displacement * element_bytes;
      good = issue(message(Collective::kRecv, in.count), at).has_value();
    }
  }
  return group_end();  // with the error of a message that was refused
}

/// The parts of a buffer that one rank, the root, has for all: it moves between there and the
/// ranks' own buffers.
struct RootedCall {
  int root;
  ncclDataType_t type;
  CallPlace place;
  bool gathers;  // to the root; else from there
};

/// `of_root`: its peers are filled in. `own`: likewise.
Result<void> move_rooted(const RootedCall& call, Side of_root, Side own) {
  const auto prepare = [&]() -> Result<void> {
    PLEXUS_TRY(visit, enter_ready(call.place.comm));
    PLEXUS_TRY(check_root(call.root, visit->nranks()));
    own.peers = only(call.root);
    of_root.peers = visit->rank() == call.root ? kAllPeers : kNoPeers;
    if (visit->rank() == call.root) {
      PLEXUS_TRY(check_pointer(of_root.counts, of_root.counts_name));
      PLEXUS_TRY(check_pointer(of_root.displacements, of_root.displacements_name));
    }
    return ok();
  };
  if (auto prepared = prepare(); prepared.has_error()) {
    fail_group(prepared.error());
    return prepared;
  }
  return call.gathers ? exchange_parts(call.place, call.type, own, of_root)
                      : exchange_parts(call.place, call.type, of_root, own);
}

/// A reduction to each rank, of its part of the input.
Result<void> reduce_parts(const CallPlace& place,
                          ncclDataType_t type,
                          ncclRedOp_t op,
                          const Side& sent,
                          const Communicator& comm) {
  const size_t element_bytes = element_size(static_cast<DataType>(type));
  PLEXUS_TRY(group_start());
  bool good = true;
  for (int root = 0; root < comm.nranks() && good; ++root) {
    const Part part = sent.part(root);
    CallPlace at = place;
    at.send = address_of(sent, part, element_bytes);
    at.recv = root == comm.rank() ? place.recv : nullptr;
    good = issue({.collective = Collective::kReduce,
                  .type = type,
                  .op = op,
                  .root = root,
                  .count = part.count},
                 at)
               .has_value();
  }
  return group_end();  // with the error of a reduction that was refused
}

/// The counts of a call that all its ranks share; `largest` of them.
SharedBlocks blocks_of(const Side& all, const Communicator& comm, uint64_t& largest) {
  const auto made = std::make_shared<CallBlocks>();
  for (int rank = 0; rank < comm.nranks(); ++rank) {
    const Part part = all.part(rank);
    made->counts.push_back(part.count);
    made->displacements.push_back(part.count == 0 ? 0 : part.displacement);
    made->end = std::max<uint64_t>(made->end, made->displacements.back() + part.count);
    largest = std::max<uint64_t>(largest, part.count);
  }
  made->own = all.part(comm.rank()).count;
  return {made};
}

/// `shape`: an all-gather or a reduce-scatter, whose counts all ranks know. `all`: the side of the
/// buffer that has the blocks of all ranks; `own`: of the other.
Result<void> exchange_blocks(CallShape shape,
                             const CallPlace& place,
                             const Side& all,
                             const Side& own) {
  const bool gathers = shape.collective == Collective::kAllGather;
  const auto type = static_cast<ncclDataType_t>(shape.type);
  const Side& sent = gathers ? own : all;
  const Side& received = gathers ? all : own;
  const auto check = [&]() -> Result<Visit> {
    PLEXUS_TRY(visit, check_parts(place.comm, type, sent, received));
    if (const size_t mine = all.counts[visit->rank()]; mine != own.count) {
      return fail(Code::kInvalidArgument, "{} is {}, but {}[{}], of this rank, is {}",
                  own.counts_name, own.count, all.counts_name, visit->rank(), mine);
    }
    return std::move(visit);
  };
  auto visit = check();
  if (visit.has_error()) {
    fail_group(visit.error());
    return std::move(visit).error();
  }
  const Communicator& comm = *visit.value();
  if (comm.setup().blocks > 0) {
    return gathers ? exchange_parts(place, type, sent, received)
                   : reduce_parts(place, type, static_cast<ncclRedOp_t>(shape.op), sent, comm);
  }
  shape.blocks = blocks_of(all, comm, shape.count);
  return issue(std::move(shape), place);
}

/// check_pointer for each; a failure also fails the open group.
Result<void> check_arrays(std::initializer_list<std::pair<const size_t*, const char*>> arrays) {
  for (const auto& [array, name] : arrays) {
    if (auto checked = check_pointer(array, name); checked.has_error()) {
      fail_group(checked.error());
      return checked;
    }
  }
  return ok();
}

}  // namespace
}  // namespace plexus

using plexus::check_arrays;
using plexus::exchange_blocks;
using plexus::exchange_parts;
using plexus::guard;
using plexus::kAllPeers;
using plexus::kNoPeers;
using plexus::Result;

// NOLINTBEGIN(readability-function-size): as many parameters as MPI's calls of these names
PLEXUS_EXTENSION ncclResult_t plexusAllToAllV(const void* sendbuff,
                                              const size_t* sendcounts,
                                              const size_t* senddispls,
                                              void* recvbuff,
                                              const size_t* recvcounts,
                                              const size_t* recvdispls,
                                              ncclDataType_t datatype,
                                              ncclComm_t comm,
                                              cudaStream_t stream) {
  return guard([&]() -> Result<void> {
    PLEXUS_TRY(check_arrays({{sendcounts, "sendcounts"},
                             {senddispls, "senddispls"},
                             {recvcounts, "recvcounts"},
                             {recvdispls, "recvdispls"}}));
    return exchange_parts(
        {sendbuff, recvbuff, comm, stream}, datatype,
        {kAllPeers, sendbuff, sendcounts, senddispls, 0, "sendbuff", "sendcounts", "senddispls"},
        {kAllPeers, recvbuff, recvcounts, recvdispls, 0, "recvbuff", "recvcounts", "recvdispls"});
  });
}

PLEXUS_EXTENSION ncclResult_t plexusAllGatherV(const void* sendbuff,
                                               size_t sendcount,
                                               void* recvbuff,
                                               const size_t* recvcounts,
                                               const size_t* recvdispls,
                                               ncclDataType_t datatype,
                                               ncclComm_t comm,
                                               cudaStream_t stream) {
  return guard([&]() -> Result<void> {
    PLEXUS_TRY(check_arrays({{recvcounts, "recvcounts"}, {recvdispls, "recvdispls"}}));
    return exchange_blocks(
        {.collective = plexus::Collective::kAllGather, .type = datatype},
        {sendbuff, recvbuff, comm, stream},
        {kAllPeers, recvbuff, recvcounts, recvdispls, 0, "recvbuff", "recvcounts", "recvdispls"},
        {kAllPeers, sendbuff, nullptr, nullptr, sendcount, "sendbuff", "sendcount", "sendcount"});
  });
}

PLEXUS_EXTENSION ncclResult_t plexusReduceScatterV(const void* sendbuff,
                                                   const size_t* sendcounts,
                                                   const size_t* senddispls,
                                                   void* recvbuff,
                                                   size_t recvcount,
                                                   ncclDataType_t datatype,
                                                   ncclRedOp_t op,
                                                   ncclComm_t comm,
                                                   cudaStream_t stream) {
  return guard([&]() -> Result<void> {
    PLEXUS_TRY(check_arrays({{sendcounts, "sendcounts"}, {senddispls, "senddispls"}}));
    return exchange_blocks(
        {.collective = plexus::Collective::kReduceScatter, .type = datatype, .op = op},
        {sendbuff, recvbuff, comm, stream},
        {kAllPeers, sendbuff, sendcounts, senddispls, 0, "sendbuff", "sendcounts", "senddispls"},
        {kAllPeers, recvbuff, nullptr, nullptr, recvcount, "recvbuff", "recvcount", "recvcount"});
  });
}

PLEXUS_EXTENSION ncclResult_t plexusGatherV(const void* sendbuff,
                                            size_t sendcount,
                                            void* recvbuff,
                                            const size_t* recvcounts,
                                            const size_t* recvdispls,
                                            ncclDataType_t datatype,
                                            int root,
                                            ncclComm_t comm,
                                            cudaStream_t stream) {
  return guard([&] {
    return plexus::move_rooted(
        {root, datatype, {sendbuff, recvbuff, comm, stream}, true},
        {kNoPeers, recvbuff, recvcounts, recvdispls, 0, "recvbuff", "recvcounts", "recvdispls"},
        {kNoPeers, sendbuff, nullptr, nullptr, sendcount, "sendbuff", "sendcount", "sendcount"});
  });
}

PLEXUS_EXTENSION ncclResult_t plexusScatterV(const void* sendbuff,
                                             const size_t* sendcounts,
                                             const size_t* senddispls,
                                             void* recvbuff,
                                             size_t recvcount,
                                             ncclDataType_t datatype,
                                             int root,
                                             ncclComm_t comm,
                                             cudaStream_t stream) {
  return guard([&] {
    return plexus::move_rooted(
        {root, datatype, {sendbuff, recvbuff, comm, stream}, false},
        {kNoPeers, sendbuff, sendcounts, senddispls, 0, "sendbuff", "sendcounts", "senddispls"},
        {kNoPeers, recvbuff, nullptr, nullptr, recvcount, "recvbuff", "recvcount", "recvcount"});
  });
}
// NOLINTEND(readability-function-size)
