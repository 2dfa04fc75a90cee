// SPDX-License-Identifier: Apache-2.0
// Version, texts of errors, logging.
#include "core/api/arguments.hpp"
#include "core/api/guard.hpp"

PLEXUS_PUBLIC(ncclResult_t, ncclGetVersion, (int* version)) {
  return plexus::guard([&]() -> plexus::Result<void> {
    PLEXUS_TRY(plexus::check_pointer(version, "version"));
    *version = NCCL_VERSION_CODE;
    return plexus::ok();
  });
}

PLEXUS_PUBLIC(const char*, ncclGetErrorString, (ncclResult_t result)) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "a CUDA call failed (ncclGetLastError says which)";
    case ncclSystemError:
      return "a system call failed (ncclGetLastError says which)";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument (ncclGetLastError says which)";
    case ncclInvalidUsage:
      return "invalid usage (ncclGetLastError says why)";
    case ncclRemoteError:
      return "a remote process failed or the network failed";
    case ncclInProgress:
      return "in progress";
    case ncclTimeout:
      return "timeout";
    default:
      return "unknown result code";
  }
}

PLEXUS_PUBLIC(const char*, ncclGetLastError, (ncclComm_t /*comm*/)) {
  return plexus::last_error_text();
}

PLEXUS_PUBLIC(void, ncclResetDebugInit, (void)) { plexus::reset_log(); }
