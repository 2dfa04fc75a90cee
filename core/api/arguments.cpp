// SPDX-License-Identifier: Apache-2.0
#include "core/api/arguments.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "core/base/config.hpp"
#include "core/comm/after_fork.hpp"
#include "core/comm/lifecycle.hpp"
#include "core/comm/process.hpp"
#include "core/device/choose_device.hpp"
#include "core/device/virtual_devices.hpp"
#include "core/schedule/call_buffers.hpp"

namespace plexus {
namespace {

// Stream values that CUDA gives a meaning: the default streams. On host ranks they mean "inline".
constexpr uintptr_t kLegacyStream = 1;
constexpr uintptr_t kPerThreadStream = 2;

Result<void> check_buffers(const CallShape& shape, int rank) {
  if (uses_send(shape, rank) && !shape.has_send) {
    return fail(Code::kInvalidArgument, "{}: the send buffer is NULL, count is {}",
                name(shape.collective), shape.count);
  }
  if (uses_recv(shape, rank) && !shape.has_recv) {
    return fail(Code::kInvalidArgument, "{}: the receive buffer is NULL, count is {}",
                name(shape.collective), shape.count);
  }
  return ok();
}

Result<void> check_size(const CallShape& shape, int nranks) {
  int64_t size_bytes =
      0;  // of all ranks' parts; multiplied, since a division costs more than a call
  const auto element_bytes = element_size(shape.datatype());
  if (__builtin_mul_overflow(shape.count, element_bytes * static_cast<uint64_t>(nranks),
                             &size_bytes)) {
    return fail(Code::kInvalidArgument, "{}: count {} of {} on {} ranks exceeds the address space",
                name(shape.collective), shape.count, name(shape.datatype()), nranks);
  }
  return ok();
}

/// kInvalidArgument when the rank does not reach `buffer`: a CUDA rank with NCCL_CHECK_POINTERS; a
/// rank on the host in a process that has a driver.
Result<void> check_reach(Communicator& comm, const void* buffer, const char* what) {
  if (comm.device_rank() == nullptr) {
    return comm.host_pointers().may_read(buffer)
               ? Result<void>(ok())
               : fail(Code::kInvalidArgument,
                      "the {} {} is memory of a GPU, but rank {} computes on the host: pass host "
                      "memory, or unset PLEXUS_DEVICE for ranks on the GPU",
                      what, fmt::ptr(buffer), comm.rank());
  }
  if (!comm.setup().config.check_pointers) {
    return ok();
  }
  const int device = comm.device_rank()->device();
  const PointerFacts facts = comm.device_rank()->runtime().describe_pointer(buffer);
  if (facts.place == PointerFacts::Place::kPageable) {
    return fail(Code::kInvalidArgument,
                "the {} {} is memory unknown to CUDA, but rank {} computes on cuda:{}: allocate it "
                "with ncclMemAlloc, cudaMalloc or cudaMallocHost",
                what, fmt::ptr(buffer), comm.rank(), device);
  }
  if (facts.place == PointerFacts::Place::kDevice && facts.device != device) {
    return fail(Code::kInvalidArgument,
                "the {} {} is memory of cuda:{}, but rank {} computes on cuda:{}: pass memory of "
                "the rank's own device",
                what, fmt::ptr(buffer), facts.device, comm.rank(), device);
  }
  return ok();
}

struct Field {
  const char* name;
  int value;
  int low;
  int high;
};

Result<void> check_field(const Field& field) {
  if (field.value != NCCL_CONFIG_UNDEF_INT &&
      (field.value < field.low || field.value > field.high)) {
    return fail(Code::kInvalidArgument, "ncclConfig_t.{} is {}; it must be in {}..{}", field.name,
                field.value, field.low, field.high);
  }
  return ok();
}

Result<void> check_fields(const ncclConfig_t& config) {
  constexpr int kAny = std::numeric_limits<int>::max();
  constexpr int kRmaMax = 1024;  // each rank has that many counters for each other one
  const Field fields[] = {
      {"blocking", config.blocking, 0, 1},
      {"cgaClusterSize", config.cgaClusterSize, 0, kAny},
      {"minCTAs", config.minCTAs, 1, kAny},
      {"maxCTAs", config.maxCTAs, 1, kAny},
      {"splitShare", config.splitShare, 0, 1},
      {"collnetEnable", config.collnetEnable, 0, 1},
      {"CTAPolicy", config.CTAPolicy, 0, NCCL_CTA_POLICY_EFFICIENCY | NCCL_CTA_POLICY_ZERO},
      {"shrinkShare", config.shrinkShare, 0, 1},
      {"nvlsCTAs", config.nvlsCTAs, 1, kAny},
      {"nChannelsPerNetPeer", config.nChannelsPerNetPeer, 1, 64},
      {"nvlinkCentricSched", config.nvlinkCentricSched, 0, 1},
      {"graphUsageMode", config.graphUsageMode, 0, 2},
      {"numRmaCtx", config.numRmaCtx, 0, kRmaMax},
      {"maxP2pPeers", config.maxP2pPeers, 1, kAny},
      {"graphStreamOrdering", config.graphStreamOrdering, 0, 1},
      {"launchOrderImplicit", config.launchOrderImplicit, 0, 1},
      {"numRmaSig", config.numRmaSig, 0, kRmaMax},
      {"rmaEagerInit", config.rmaEagerInit, 0, 1},
      {"hostCftMode", config.hostCftMode, ncclHostCftEnable, ncclHostCftFallback},
  };
  for (const Field& field : fields) {
    PLEXUS_TRY(check_field(field));
  }
  if (config.nvlsHostMode != ncclNvlsHostDisable) {
    PLEXUS_TRY(check_field({"nvlsHostMode", config.nvlsHostMode, ncclNvlsHostEnable,
                            ncclNvlsHostDisableTransport | ncclNvlsHostDisableSymmetricMultimem}));
  }
  if (config.minCTAs != NCCL_CONFIG_UNDEF_INT && config.maxCTAs != NCCL_CONFIG_UNDEF_INT &&
      config.minCTAs > config.maxCTAs) {
    return fail(Code::kInvalidArgument, "ncclConfig_t.minCTAs ({}) is greater than maxCTAs ({})",
                config.minCTAs, config.maxCTAs);
  }
  return ok();
}

/// The NCCL version that added each group of fields to ncclConfig_t. What a caller with an older
/// header passes has no later ones.
struct FieldEpoch {
  unsigned version;
  size_t offset;
};
constexpr FieldEpoch kEpochs[] = {
    {21700, offsetof(ncclConfig_t, cgaClusterSize)},
    {21800, offsetof(ncclConfig_t, splitShare)},
    {22600, offsetof(ncclConfig_t, trafficClass)},
    {22700, offsetof(ncclConfig_t, commName)},
    {22800, offsetof(ncclConfig_t, nChannelsPerNetPeer)},
    {22900, offsetof(ncclConfig_t, graphUsageMode)},
    {23000, offsetof(ncclConfig_t, maxP2pPeers)},
    {23005, offsetof(ncclConfig_t, graphStreamOrdering)},
    {23100, offsetof(ncclConfig_t, launchOrderImplicit)},
    {23200, offsetof(ncclConfig_t, nvlsHostMode)},
};

/// How many bytes of the caller's struct its version defines.
size_t known_bytes(const ncclConfig_t& config) {
  size_t known = copied_bytes<ncclConfig_t>(config.size);
  for (const FieldEpoch& epoch : kEpochs) {
    if (config.version < epoch.version) {
      known = std::min(known, epoch.offset);
    }
  }
  return known;
}

int value_or(int value, int fallback) { return value == NCCL_CONFIG_UNDEF_INT ? fallback : value; }

}  // namespace

Result<HostStream*> check_stream(cudaStream_t stream, int virtual_device) {
  if (virtual_device >= 0) {
    const cudaStream_t behind = virtual_devices()->find_stream(stream, virtual_device);
    stream = behind != nullptr ? behind : stream;
  }
  const auto value = reinterpret_cast<uintptr_t>(stream);
  if (value == 0 || value == kLegacyStream || value == kPerThreadStream) {
    return nullptr;
  }
  HostStream* const found = Process::instance().find_stream(stream);
  if (found == nullptr) {
    return unknown_stream(stream);
  }
  return found;
}

Result<void> check_pointer(const void* pointer, const char* what) {
  if (pointer == nullptr) {
    return fail(Code::kInvalidArgument, "{} is NULL", what);
  }
  return ok();
}

bool is_parents(ncclComm_t comm) noexcept { return parent_of(inner(comm)) != 0; }

Error unknown_stream(cudaStream_t stream) {
  if (const int32_t pid = Process::instance().parent_of_stream(stream); pid != 0) {
    return made_before_fork("stream", pid);
  }
  if (virtual_devices() != nullptr) {
    return fail(Code::kInvalidArgument,
                "stream {} was not created by cudaStreamCreate or is already destroyed",
                fmt::ptr(stream));
  }
  return fail(Code::kInvalidArgument,
              "stream {} was not created by plexusStreamCreate or is already destroyed: for host "
              "ranks pass NULL (complete on return) or a stream from plexusStreamCreate",
              fmt::ptr(stream));
}

Result<void> check_live(ncclComm_t comm) {
  if (!Communicator::is_live(inner(comm))) {
    if (const int32_t pid = parent_of(inner(comm)); pid != 0) {
      return made_before_fork("communicator", pid);
    }
    return fail(Code::kInvalidArgument, "{} is not a communicator: it is NULL or was destroyed",
                fmt::ptr(comm));
  }
  return ok();
}

Result<void> check_ready(ncclComm_t comm) {
  PLEXUS_TRY(check_live(comm));
  return check_usable(*inner(comm));
}

Result<Visit> enter(ncclComm_t comm) {
  PLEXUS_TRY(check_live(comm));
  return Visit::begin(Process::instance(), inner(comm));
}

Result<Visit> enter_ready(ncclComm_t comm) {
  PLEXUS_TRY(visit, enter(comm));
  PLEXUS_TRY(check_usable(*visit));
  return std::move(visit);
}

Result<void> check_type(ncclDataType_t type) {
  if (type < 0 || type >= ncclNumTypes) {
    return fail(Code::kInvalidArgument, "datatype {} is not in 0..{}", static_cast<int>(type),
                static_cast<int>(ncclNumTypes) - 1);
  }
  return ok();
}

Result<void> check_ranks(int nranks, int rank) {
  if (nranks < 1 || rank < 0 || rank >= nranks) {
    return fail(Code::kInvalidArgument, "rank {} of {} ranks: rank must be in 0..nranks-1", rank,
                nranks);
  }
  return ok();
}

Result<Task> check_call(const CallShape& shape, const CallPlace& place) {
  PLEXUS_TRY(check_ready(place.comm));
  Communicator& comm = *inner(place.comm);
  const int rank = comm.rank();
  if (shape.root < 0 || shape.root >= comm.nranks()) {
    return fail(Code::kInvalidArgument, "{}: {} {} is not a rank of this communicator (0..{})",
                name(shape.collective), is_rooted(shape.collective) ? "root" : "peer", shape.root,
                comm.nranks() - 1);
  }
  PLEXUS_TRY(check_type(static_cast<ncclDataType_t>(shape.type)));
  Task task;
  task.comm = &comm;
  task.shape = shape;
  task.send = place.send;
  task.recv = place.recv;
  task.device_stream = place.stream;
  task.shape.in_windows = comm.registrations().has_in_windows(shape, place.send, place.recv);
  if (is_reduction(shape.collective)) {
    PLEXUS_TRY(comm.user_reductions().resolve(&task));
  }
  if (comm.device() == kHostDevice) {
    PLEXUS_TRY(found, check_stream(place.stream, comm.comm_config().virtual_device));
    task.stream = found;
  } else if (Process::instance().find_stream(place.stream) != nullptr) {
    return fail(Code::kInvalidArgument,
                "a stream from plexusStreamCreate works for host ranks only, and rank {} computes "
                "on cuda:{}: pass a CUDA stream",
                rank, comm.device());
  }
  if (shape.count > 0) {
    PLEXUS_TRY(check_buffers(shape, rank));
    PLEXUS_TRY(check_size(shape, comm.nranks()));
    if (uses_send(shape, rank)) {
      PLEXUS_TRY(check_reach(comm, place.send, "send buffer"));
    }
    if (uses_recv(shape, rank)) {
      PLEXUS_TRY(check_reach(comm, place.recv, "receive buffer"));
    }
  }
  return task;
}

Result<CommConfig> check_config(const ncclConfig_t* config) {
  ncclConfig_t mine = NCCL_CONFIG_INITIALIZER;
  if (config != nullptr) {
    if (config->magic != NCCL_API_MAGIC || config->size < offsetof(ncclConfig_t, blocking)) {
      return fail(Code::kInvalidArgument,
                  "ncclConfig_t is not initialised: start from NCCL_CONFIG_INITIALIZER");
    }
    std::memcpy(&mine, config, known_bytes(*config));
  }
  PLEXUS_TRY(check_fields(mine));
  PLEXUS_TRY(environment, Process::instance().read_settings());
  CommConfig result;
  result.blocking = value_or(mine.blocking, 1) != 0;
  if (environment.comm_blocking >= 0) {
    result.blocking = environment.comm_blocking != 0;
  }
  result.min_ctas = value_or(mine.minCTAs, 0);
  result.max_ctas = value_or(mine.maxCTAs, 0);
  result.net_name = mine.netName == nullptr ? "" : mine.netName;
  result.split_share = value_or(mine.splitShare, 0) != 0;
  result.collnet_enable = value_or(mine.collnetEnable, 0) != 0;
  result.shrink_share = value_or(mine.shrinkShare, 0) != 0;
  result.traffic_class = value_or(mine.trafficClass, -1);
  result.rma_contexts = value_or(mine.numRmaCtx, 1);
  result.rma_signals = value_or(mine.numRmaSig, 1);
  result.rma_eager = value_or(mine.rmaEagerInit, 0) != 0;
  result.comm_name = mine.commName == nullptr ? "" : mine.commName;
  return result;
}

}  // namespace plexus
