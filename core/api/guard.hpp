// SPDX-License-Identifier: Apache-2.0
// The ABI boundary between C callers and us: every public function is one statement behind `guard`.
// Nothing is thrown through it, no arithmetic behind it traps, and every failure is logged here,
// once, as WARN (the text of ncclGetLastError).
//
//   return plexus::guard([&]() -> plexus::Result<void> {
//     PLEXUS_TRY(plexus::check_pointer(buffer, "buffer"));
//     return plexus::ok();
//   });
#pragma once

#include <exception>
#include <new>

#include "core/api/public.hpp"
#include "core/base/log.hpp"
#include "core/base/result.hpp"
#include "core/comm/group.hpp"
#include "guest/float_traps.hpp"

namespace plexus {

/// Logs the error and converts its code.
inline ncclResult_t report(const Error& error) noexcept {
  if (error.code() != Code::kInProgress) {
    warn(error);
  }
  return static_cast<ncclResult_t>(error.code());
}

template <class Body>
ncclResult_t guard(const Body& body) noexcept {
  const FloatTrapsOff no_traps;
  try {
    const Result<void> result = body();
    return result.has_value() ? ncclSuccess : report(result.error());
  } catch (const std::bad_alloc&) {
    return report(fail(Code::kSystemError, "out of memory"));
  } catch (const std::exception& exception) {
    return report(fail(Code::kInternalError, "unexpected exception: {}", exception.what()));
  } catch (...) {
    return report(fail(Code::kInternalError, "unexpected exception"));
  }
}

/// The same; a failure inside a group also fails the group.
template <class Body>
ncclResult_t guard_in_group(const Body& body) noexcept {
  return guard([&]() -> Result<void> {
    auto result = body();
    if (result.has_error() && result.error().code() != Code::kInProgress) {
      fail_group(result.error());
    }
    return result;
  });
}

}  // namespace plexus

/// A function of plexus.h.
#define PLEXUS_EXTENSION extern "C" __attribute__((visibility("default")))

/// Defines a public function pncclX and its weak alias ncclX, which tools may override (as MPI's
/// profiling interface has it).
#define PLEXUS_PUBLIC(result, name, arguments)                                                     \
  extern "C" __attribute__((visibility("default"))) result p##name arguments;                      \
  extern "C" __attribute__((visibility("default"), weak, alias("p" #name))) result name arguments; \
  extern "C" result p##name arguments
