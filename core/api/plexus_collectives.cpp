// SPDX-License-Identifier: Apache-2.0
// plexus.h: collectives with counts of their own per rank, as groups of messages between all pairs.
#include <cstddef>

#include "core/api/arguments.hpp"
#include "core/api/guard.hpp"

namespace plexus {
namespace {

/// Elements [displacement, displacement + count) of a user's buffer.
struct Part {
  size_t displacement;
  size_t count;
};

/// One rank's messages: `sends(peer)` of `sendbuff` to, `receives(peer)` of `recvbuff` from every
/// rank.
template <class Sends, class Receives>
Result<void> exchange_parts(const CallArguments& call,
                            const Sends& sends,
                            const Receives& receives) {
  PLEXUS_TRY(check_ready(call.comm));
  PLEXUS_TRY(check_type(call.type));
  const size_t element_bytes = element_size(static_cast<DataType>(call.type));
  const int nranks = nranks_of(*inner(call.comm));
  PLEXUS_TRY(group_start());
  bool good = true;
  for (int peer = 0; peer < nranks && good; ++peer) {
    CallArguments message = call;
    message.root = peer;
    message.of_vector = true;
    const Part sent = sends(peer);
    message.collective = Collective::kSend;
    message.send = static_cast<const std::byte*>(call.send) + sent.displacement * element_bytes;
    message.recv = nullptr;
    message.count = sent.count;
    good = issue(message).has_value();
    const Part received = receives(peer);
    message.collective = Collective::kRecv;
    message.send = nullptr;
    message.recv = static_cast<std::byte*>(call.recv) + received.displacement * element_bytes;
    message.count = received.count;
    good = good && issue(message).has_value();
  }
  return group_end();  // with the error of a message that was refused
}

}  // namespace
}  // namespace plexus

using plexus::check_pointer;
using plexus::Collective;
using plexus::exchange_parts;
using plexus::guard;
using plexus::kNoOp;
using plexus::Part;
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
    PLEXUS_TRY(check_pointer(sendcounts, "sendcounts"));
    PLEXUS_TRY(check_pointer(senddispls, "senddispls"));
    PLEXUS_TRY(check_pointer(recvcounts, "recvcounts"));
    PLEXUS_TRY(check_pointer(recvdispls, "recvdispls"));
    return exchange_parts(
        {Collective::kSend, sendbuff, recvbuff, 0, datatype, kNoOp, 0, comm, stream},
        [&](int peer) {
          return Part{senddispls[peer], sendcounts[peer]};
        },
        [&](int peer) {
          return Part{recvdispls[peer], recvcounts[peer]};
        });
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
    PLEXUS_TRY(check_pointer(recvcounts, "recvcounts"));
    PLEXUS_TRY(check_pointer(recvdispls, "recvdispls"));
    return exchange_parts(
        {Collective::kSend, sendbuff, recvbuff, 0, datatype, kNoOp, 0, comm, stream},
        [&](int /*peer*/) {
          return Part{0, sendcount};
        },
        [&](int peer) {
          return Part{recvdispls[peer], recvcounts[peer]};
        });
  });
}
// NOLINTEND(readability-function-size)
