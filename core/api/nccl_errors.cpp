// SPDX-License-Identifier: Apache-2.0
// Version, texts of errors, logging.
#include <exception>
#include <string>

#include "core/api/arguments.hpp"
#include "core/api/guard.hpp"
#include "core/comm/communicator.hpp"
#include "core/comm/process.hpp"

namespace plexus {
namespace {

/// Why it has failed, valid until the same thread calls again; nullptr: it has not, or is none. The
/// thread that aborts a communicator may not destroy it meanwhile: another one, whose call that
/// ended, asks for the reason.
const char* failure_text(ncclComm_t comm) noexcept {
  thread_local std::string copy;
  try {
    const bool has_failed = Process::instance().communicators.any([comm](const Communicator& live) {
      const Code state = &live == inner(comm) ? live.state() : Code::kSuccess;
      if (state == Code::kSuccess || state == Code::kInProgress) {
        return false;
      }
      copy = live.stop_reason().message();
      return true;
    });
    return has_failed ? copy.c_str() : nullptr;
  } catch (const std::exception&) {
    return "out of memory";
  }
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

/// Of a communicator that has failed: why. Else the last error of the process, as in NCCL.
PLEXUS_PUBLIC(const char*, ncclGetLastError, (ncclComm_t comm)) {
  const char* const text = plexus::failure_text(comm);
  return text != nullptr ? text : plexus::last_error_text();
}

PLEXUS_PUBLIC(void, ncclResetDebugInit, (void)) { plexus::reset_log(); }
