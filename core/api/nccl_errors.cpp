// SPDX-License-Identifier: Apache-2.0
// Version, texts of errors, logging.
#include <exception>
#include <string>

#include "core/api/arguments.hpp"
#include "core/api/guard.hpp"
#include "core/comm/communicator.hpp"
#include "core/comm/lifecycle.hpp"

namespace plexus {
namespace {

bool has_failed(ncclComm_t comm) noexcept {
  if (!Communicator::is_live(inner(comm))) {
    return false;
  }
  const Code state = inner(comm)->state();
  return state != Code::kSuccess && state != Code::kInProgress;
}

/// Valid until the same thread calls again.
const char* failure_text(ncclComm_t comm) noexcept {
  thread_local std::string copy;
  try {
    copy = describe_stop(*inner(comm)).message();
  } catch (const std::exception&) {
    return "out of memory";
  }
  return copy.c_str();  // NOLINT(clang-analyzer-cplusplus.InnerPointer): thread_local
}

}  // namespace
}  // namespace plexus

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

/// Says why a communicator has failed; else gives the last error of the process, as NCCL does.
PLEXUS_PUBLIC(const char*, ncclGetLastError, (ncclComm_t comm)) {
  return plexus::has_failed(comm) ? plexus::failure_text(comm) : plexus::last_error_text();
}

PLEXUS_PUBLIC(void, ncclResetDebugInit, (void)) { plexus::reset_log(); }
