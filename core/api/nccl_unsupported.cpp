// SPDX-License-Identifier: Apache-2.0
// Functions that programs link against but that no rank serves: each fails with a
// sentence. docs/compatibility.md lists them. Those of NCCL's device API have no declaration here:
// their parameters are never read.
#include "core/api/arguments.hpp"
#include "core/api/guard.hpp"

namespace plexus {
namespace {

ncclResult_t unsupported(const char* function, const char* why) {
  return report(fail(Code::kInvalidUsage, "{} is not available: {}", function, why));
}

constexpr const char* kDeviceApi =
    "NCCL's device API (kernels of the user that communicate) is not implemented, on GPU ranks "
    "neither; use the host API";

/// What functions that make teams return by value.
struct Team {
  int nranks;
  int rank;
  int stride;
};

}  // namespace
}  // namespace plexus

// NOLINTBEGIN(readability-function-size): the numbers of parameters are NCCL's
#define PLEXUS_UNSUPPORTED(name, arguments, why) \
  PLEXUS_PUBLIC(ncclResult_t, name, arguments) { return plexus::unsupported(#name, plexus::why); }

PLEXUS_UNSUPPORTED(ncclDevCommCreate, (), kDeviceApi)
PLEXUS_UNSUPPORTED(ncclDevCommDestroy, (), kDeviceApi)
PLEXUS_UNSUPPORTED(ncclGetMultimemDevicePointer, (), kDeviceApi)
PLEXUS_UNSUPPORTED(ncclGetLsaMultimemDevicePointer, (), kDeviceApi)
PLEXUS_UNSUPPORTED(ncclGetLsaDevicePointer, (), kDeviceApi)
PLEXUS_UNSUPPORTED(ncclGetPeerDevicePointer, (), kDeviceApi)
PLEXUS_UNSUPPORTED(ncclGetMultimemDeviceLeInfo, (), kDeviceApi)
PLEXUS_UNSUPPORTED(ncclGetCftDeviceLeInfo, (), kDeviceApi)
PLEXUS_UNSUPPORTED(ncclGetPeerDeviceLeInfo, (), kDeviceApi)
PLEXUS_UNSUPPORTED(ncclLsaBarrierCreateRequirement, (), kDeviceApi)
PLEXUS_UNSUPPORTED(ncclGinBarrierCreateRequirement, (), kDeviceApi)
PLEXUS_UNSUPPORTED(ncclGinOutboxCreateRequirement, (), kDeviceApi)
PLEXUS_UNSUPPORTED(ncclGinInboxA2ACreateRequirement, (), kDeviceApi)
PLEXUS_UNSUPPORTED(ncclLLA2ACreateRequirement, (), kDeviceApi)

// These return values, not codes: an empty team, no slots.
#define PLEXUS_UNSUPPORTED_VALUE(result, name)            \
  PLEXUS_PUBLIC(result, name, ()) {                       \
    (void)plexus::unsupported(#name, plexus::kDeviceApi); \
    return {};                                            \
  }
PLEXUS_UNSUPPORTED_VALUE(plexus::Team, ncclTeamCft)
PLEXUS_UNSUPPORTED_VALUE(plexus::Team, ncclTeamCftMultimem)
PLEXUS_UNSUPPORTED_VALUE(int, ncclLLA2ACalcSlots)
// NOLINTEND(readability-function-size)
