// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/perf/ranks.hpp"

#include <bit>
#include <cstdlib>
#include <cstring>
#include <new>
#include <plexus.h>
#include <utility>

namespace plexus::perf {
namespace {

constexpr std::align_val_t kPage{4096};
static_assert(kGuardBytes % static_cast<size_t>(kPage) == 0);

size_t allocation_bytes(const PerfOptions& options, size_t largest_bytes) noexcept {
  constexpr size_t kElementBytesMax = 8;
  return kGuardBytes + largest_bytes + static_cast<size_t>(options.unalign) * kElementBytesMax +
         kGuardBytes;
}

ncclDataType_t nccl_type(Type type) noexcept { return static_cast<ncclDataType_t>(type); }

}  // namespace

Result<void> check_call(const char* call, ncclResult_t result) {
  if (result == ncclSuccess) {
    return ok();
  }
  const char* detail = ncclGetLastError(nullptr);
  return fail(static_cast<Code>(result), "{}: {} ({}): {}", call, ncclGetErrorString(result),
              static_cast<int>(result),
              detail == nullptr || *detail == '\0' ? "no reason was given" : detail);
}

Rank::Rank(ncclComm_t comm, const PerfOptions& options) noexcept : options_(options), comm_(comm) {}

Result<std::unique_ptr<Rank>> Rank::create(ncclComm_t comm,
                                           const PerfOptions& options,
                                           size_t largest_bytes) {
  // The constructor is private, which make_unique cannot reach.
  std::unique_ptr<Rank> rank(new Rank(comm, options));
  PLEXUS_TRY(check_call("ncclCommUserRank", ncclCommUserRank(comm, &rank->rank_)));
  if (options.stream == Stream::kAsync) {
    PLEXUS_TRY(check_call("plexusStreamCreate", plexusStreamCreate(&rank->stream_)));
  }
  PLEXUS_TRY(rank->allocate(&rank->first_, largest_bytes));
  PLEXUS_TRY(rank->allocate(&rank->second_, largest_bytes));
  return rank;
}

Rank::~Rank() {
  release_op();
  for (Memory* memory : {&first_, &second_}) {
    if (memory->base != nullptr && options_.buffers != Buffers::kPlain) {
      if (comm_ != nullptr && memory->window != nullptr) {
        ncclCommWindowDeregister(comm_, memory->window);
      } else if (comm_ != nullptr) {
        ncclCommDeregister(comm_, memory->registration);
      }
      ncclMemFree(memory->base);
    } else {
      ::operator delete(memory->base, kPage);
    }
  }
  if (comm_ != nullptr) {
    ncclCommAbort(comm_);  // after an error; otherwise close() was called
  }
  if (stream_ != nullptr) {
    plexusStreamDestroy(stream_);
  }
}

Result<void> Rank::allocate(Memory* memory, size_t largest_bytes) {
  const size_t size_bytes = allocation_bytes(options_, largest_bytes);
  bytes_ = size_bytes;
  if (options_.buffers != Buffers::kPlain) {
    void* pointer = nullptr;
    PLEXUS_TRY(check_call("ncclMemAlloc", ncclMemAlloc(&pointer, size_bytes)));
    memory->base = static_cast<std::byte*>(pointer);
    if (options_.buffers == Buffers::kWindow) {
      PLEXUS_TRY(check_call("ncclCommWindowRegister",
                            ncclCommWindowRegister(comm_, pointer, size_bytes, &memory->window,
                                                   NCCL_WIN_COLL_SYMMETRIC)));
    } else {
      PLEXUS_TRY(check_call("ncclCommRegister",
                            ncclCommRegister(comm_, pointer, size_bytes, &memory->registration)));
    }
  } else {
    memory->base = static_cast<std::byte*>(::operator new(size_bytes, kPage, std::nothrow));
    if (memory->base == nullptr) {
      return fail(Code::kSystemError,
                  "no memory for a buffer of {} bytes; use a smaller --maxbytes", size_bytes);
    }
  }
  // so that every page is mapped before anything is timed
  std::memset(memory->base, 0, size_bytes);
  return ok();
}

Result<void> Rank::choose(const Variant& variant, size_t count, bool in_place) {
  shape_ = {.collective = options_.collective,
            .type = variant.type,
            .nranks = options_.nranks,
            .rank = rank_,
            .root = variant.root,
            .count = count,
            .in_place = in_place,
            .traffic = &options_.traffic};
  counts_.assign(static_cast<size_t>(options_.nranks), count);
  places_.resize(counts_.size());
  for (size_t i = 0; i < places_.size(); ++i) {
    places_[i] = i * count;
  }
  const size_t first =
      kGuardBytes + static_cast<size_t>(options_.unalign) * info_of(variant.type).size_bytes;
  buffers_ = bind_buffers(shape_, first_.base + first, second_.base + first);
  return make_op(variant);
}

Result<void> Rank::make_op(const Variant& variant) {
  release_op();
  op_ = variant.op;
  if (!info_of(options_.collective).reduces || variant.op != Op::kMulSum) {
    reduction_ = static_cast<ncclRedOp_t>(variant.op);
    return ok();
  }
  Scalar scalar = premul_scalar(variant.type, rank_);
  PLEXUS_TRY(check_call("ncclRedOpCreatePreMulSum",
                        ncclRedOpCreatePreMulSum(&reduction_, scalar.bytes, nccl_type(variant.type),
                                                 ncclScalarHostImmediate, comm_)));
  owns_reduction_ = true;
  return ok();
}

void Rank::release_op() noexcept {
  if (owns_reduction_) {
    ncclRedOpDestroy(reduction_, comm_);
    owns_reduction_ = false;
  }
}

int Rank::nsteps() const noexcept {
  return shape_.collective == Collective::kHyperCube && shape_.nranks > 1
             ? std::bit_width(static_cast<unsigned>(shape_.nranks) - 1)
             : 1;
}

bool Rank::is_several_calls() const noexcept {
  return shape_.collective == Collective::kHyperCube ||
         shape_.collective == Collective::kSendRecv ||
         shape_.collective == Collective::kAllToAllV || shape_.collective == Collective::kPut;
}

Result<void> Rank::start(int step) {
  const void* send = buffers_.send;
  void* recv = buffers_.recv;
  const size_t count = shape_.count;
  const ncclDataType_t type = nccl_type(shape_.type);
  const int root = shape_.root;
  switch (shape_.collective) {
    case Collective::kAllReduce:
      return check_call("ncclAllReduce",
                        ncclAllReduce(send, recv, count, type, reduction_, comm_, stream_));
    case Collective::kBroadcast:
      return check_call("ncclBroadcast",
                        ncclBroadcast(send, recv, count, type, root, comm_, stream_));
    case Collective::kReduce:
      return check_call("ncclReduce",
                        ncclReduce(send, recv, count, type, reduction_, root, comm_, stream_));
    case Collective::kAllGather:
      return check_call("ncclAllGather", ncclAllGather(send, recv, count, type, comm_, stream_));
    case Collective::kReduceScatter:
      return check_call("ncclReduceScatter",
                        ncclReduceScatter(send, recv, count, type, reduction_, comm_, stream_));
    case Collective::kAllToAll:
      return check_call("ncclAlltoAll", ncclAlltoAll(send, recv, count, type, comm_, stream_));
    case Collective::kGather:
      return check_call("ncclGather", ncclGather(send, recv, count, type, root, comm_, stream_));
    case Collective::kScatter:
      return check_call("ncclScatter", ncclScatter(send, recv, count, type, root, comm_, stream_));
    case Collective::kAllToAllV:
      return start_all_to_all();
    case Collective::kHyperCube:
      return start_hypercube(step);
    case Collective::kPut:
      return start_put();
    case Collective::kSendRecv:
      return start_send_recv();
    default:
      return start_with_counts();
  }
}

/// Equal counts for all ranks.
Result<void> Rank::start_with_counts() {
  const void* send = buffers_.send;
  void* recv = buffers_.recv;
  const size_t count = shape_.count;
  const ncclDataType_t type = nccl_type(shape_.type);
  const size_t* const counts = counts_.data();
  const size_t* const places = places_.data();
  switch (shape_.collective) {
    case Collective::kReduceScatterV:
      return check_call("plexusReduceScatterV",
                        plexusReduceScatterV(send, counts, places, recv, count, type, reduction_,
                                             comm_, stream_));
    case Collective::kGatherV:
      return check_call("plexusGatherV", plexusGatherV(send, count, recv, counts, places, type,
                                                       shape_.root, comm_, stream_));
    case Collective::kScatterV:
      return check_call("plexusScatterV", plexusScatterV(send, counts, places, recv, count, type,
                                                         shape_.root, comm_, stream_));
    default:
      return check_call("plexusAllGatherV",
                        plexusAllGatherV(send, count, recv, counts, places, type, comm_, stream_));
  }
}

/// To the next rank, and waits for the one before. Windows have the same place on all ranks.
Result<void> Rank::start_put() {
  const bool is_in_first = buffers_.recv >= first_.base && buffers_.recv < first_.base + bytes_;
  const Memory& target = is_in_first ? first_ : second_;
  const auto offset = static_cast<size_t>(buffers_.recv - target.base);
  PLEXUS_TRY(
      check_call("ncclPutSignal", ncclPutSignal(buffers_.send, shape_.count, nccl_type(shape_.type),
                                                next_rank(rank_, shape_.nranks), target.window,
                                                offset, 0, 0, 0, comm_, stream_)));
  ncclWaitSignalDesc_t from{
      .opCnt = 1, .peer = prev_rank(rank_, shape_.nranks), .sigIdx = 0, .ctx = 0};
  return check_call("ncclWaitSignal", ncclWaitSignal(1, &from, comm_, stream_));
}

Result<void> Rank::start_all_to_all() {
  const ncclDataType_t type = nccl_type(shape_.type);
  const size_t element_bytes = info_of(shape_.type).size_bytes;
  const std::byte* send = buffers_.send;
  std::byte* recv = buffers_.recv;
  for (int peer = 0; peer < shape_.nranks; ++peer) {
    const size_t sent = peer_count(shape_, rank_, peer);
    const size_t received = peer_count(shape_, peer, rank_);
    if (sent > 0) {
      PLEXUS_TRY(check_call("ncclSend", ncclSend(send, sent, type, peer, comm_, stream_)));
    }
    if (received > 0) {
      PLEXUS_TRY(check_call("ncclRecv", ncclRecv(recv, received, type, peer, comm_, stream_)));
    }
    send += sent * element_bytes;
    recv += received * element_bytes;
  }
  return ok();
}

/// Step s: with the rank whose number differs in bit s, all blocks that either has are exchanged.
Result<void> Rank::start_hypercube(int step) {
  const ncclDataType_t type = nccl_type(shape_.type);
  const size_t block_bytes = shape_.count * info_of(shape_.type).size_bytes;
  std::byte* const mine = buffers_.recv + static_cast<size_t>(rank_) * block_bytes;
  if (step == 0 && mine != buffers_.send) {
    PLEXUS_TRY(
        check_call("ncclSend", ncclSend(buffers_.send, shape_.count, type, rank_, comm_, stream_)));
    PLEXUS_TRY(check_call("ncclRecv", ncclRecv(mine, shape_.count, type, rank_, comm_, stream_)));
  }
  if (shape_.nranks == 1) {
    return ok();
  }
  const unsigned bit = 1U << static_cast<unsigned>(step);
  const unsigned held = static_cast<unsigned>(rank_) & ~(bit - 1);  // the first block that is held
  const int peer = static_cast<int>(static_cast<unsigned>(rank_) ^ bit);
  const size_t count = shape_.count * bit;
  const std::byte* const send = step == 0 ? buffers_.send : buffers_.recv + held * block_bytes;
  PLEXUS_TRY(check_call("ncclSend", ncclSend(send, count, type, peer, comm_, stream_)));
  return check_call("ncclRecv", ncclRecv(buffers_.recv + (held ^ bit) * block_bytes, count, type,
                                         peer, comm_, stream_));
}

Result<void> Rank::start_send_recv() {
  const ncclDataType_t type = nccl_type(shape_.type);
  const int next = next_rank(rank_, shape_.nranks);
  const int prev = prev_rank(rank_, shape_.nranks);
  PLEXUS_TRY(
      check_call("ncclSend", ncclSend(buffers_.send, shape_.count, type, next, comm_, stream_)));
  return check_call("ncclRecv", ncclRecv(buffers_.recv, shape_.count, type, prev, comm_, stream_));
}

Result<void> Rank::wait() {
  if (stream_ == nullptr) {
    return ok();  // calls on the null stream are complete when they return
  }
  return check_call("plexusStreamSynchronize", plexusStreamSynchronize(stream_));
}

CheckInput Rank::check_input(uint64_t seed) const noexcept {
  return {.shape = shape_, .op = op_, .seed = seed, .buffers = buffers_};
}

void Rank::clear_buffers() noexcept {
  std::memset(buffers_.send, 0, buffers_.send_bytes);
  std::memset(buffers_.recv, 0, buffers_.recv_bytes);
}

Choice Rank::last_choice() const noexcept {
  const char* algorithm = nullptr;
  const char* protocol = nullptr;
  int channels = 0;
  // An empty call is dropped, and the last choice belongs to an earlier call.
  if (shape_.count == 0 ||
      plexusGetLastChoice(comm_, &algorithm, &protocol, &channels) != ncclSuccess) {
    return {};
  }
  return {.algorithm = make_name(algorithm), .protocol = make_name(protocol), .channels = channels};
}

Result<void> Rank::close() {
  release_op();
  for (Memory* memory : {&first_, &second_}) {
    if (memory->registration != nullptr) {
      PLEXUS_TRY(
          check_call("ncclCommDeregister",
                     ncclCommDeregister(comm_, std::exchange(memory->registration, nullptr))));
    }
  }
  return check_call("ncclCommDestroy", ncclCommDestroy(std::exchange(comm_, nullptr)));
}

Result<RankSet> RankSet::create(const std::vector<ncclComm_t>& comms,
                                const PerfOptions& options,
                                size_t largest_bytes) {
  std::vector<std::unique_ptr<Rank>> ranks;
  ranks.reserve(comms.size());
  for (ncclComm_t comm : comms) {
    PLEXUS_TRY(rank, Rank::create(comm, options, largest_bytes));
    ranks.push_back(std::move(rank));
  }
  return RankSet(std::move(ranks));
}

Result<void> RankSet::choose(const Variant& variant, size_t count, bool in_place) {
  for (const auto& rank : ranks_) {
    PLEXUS_TRY(rank->choose(variant, count, in_place));
  }
  return ok();
}

Result<void> RankSet::start(int aggregate) {
  const int nsteps = ranks_.front()->nsteps();
  const int together = nsteps == 1 ? aggregate : 1;  // of operations with steps, one at a time
  const bool grouped = ranks_.size() > 1 || together > 1 || ranks_.front()->is_several_calls();
  for (int begun = 0; begun < aggregate; begun += together) {
    for (int step = 0; step < nsteps; ++step) {
      if (grouped) {
        PLEXUS_TRY(check_call("ncclGroupStart", ncclGroupStart()));
      }
      for (int i = 0; i < together; ++i) {
        for (const auto& rank : ranks_) {
          PLEXUS_TRY(rank->start(step));
        }
      }
      if (grouped) {
        PLEXUS_TRY(check_call("ncclGroupEnd", ncclGroupEnd()));
      }
    }
  }
  return ok();
}

Result<double> RankSet::simulate() {
  const Rank& first = *ranks_.front();
  if (first.nsteps() > 1 || first.is_put()) {
    return -1;
  }
  PLEXUS_TRY(check_call("ncclGroupStart", ncclGroupStart()));
  for (const auto& rank : ranks_) {
    PLEXUS_TRY(rank->start(0));
  }
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  PLEXUS_TRY(check_call("ncclGroupSimulateEnd", ncclGroupSimulateEnd(&info)));
  return info.estimatedTime;
}

Result<void> RankSet::wait() {
  for (const auto& rank : ranks_) {
    PLEXUS_TRY(rank->wait());
  }
  return ok();
}

Result<void> RankSet::close() {
  for (const auto& rank : ranks_) {
    PLEXUS_TRY(rank->close());
  }
  return ok();
}

}  // namespace plexus::perf
