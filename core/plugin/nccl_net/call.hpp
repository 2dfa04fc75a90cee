// SPDX-License-Identifier: Apache-2.0
// Calls into a library of NCCL's ABI, with the logging that a native entry needs.
#pragma once

#include <cstdint>
#include <memory>

#include "core/base/result.hpp"
#include "core/plugin/guarded.hpp"
#include "core/plugin/nccl_net/log.hpp"

namespace plexus::nccl_net {

template <class T>
T* give_to_host(std::unique_ptr<T> owner) {
  return owner.release();
}
template <class T>
void take_from_host(T* handle) {
  const std::unique_ptr<T> owner(handle);
}

/// Calls the plugin; an exception becomes an error code.
template <class Call>
int32_t call_vendor(const LogTarget& log, const char* name, Call&& call) {
  LogScope scope(log);
  return scope.finish(name, call());
}

/// Logs an error of Plexus as the reason of the failure and returns its code.
inline int32_t report(const LogTarget& log, const Error& error) {
  log.error(error.message());
  return static_cast<int32_t>(error.code());
}

}  // namespace plexus::nccl_net
