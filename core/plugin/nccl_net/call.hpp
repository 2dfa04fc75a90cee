// SPDX-License-Identifier: Apache-2.0
// A call into a library of NCCL's ABI, and what a native entry over it does besides.
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

/// A call into the plugin.
template <class Call>
int32_t call_vendor(const LogTarget& log, const char* name, Call&& call) {
  LogScope scope(log);
  return scope.finish(name, call());
}

/// An error of ours: its sentence for the host, and its code.
inline int32_t report(const LogTarget& log, const Error& error) {
  log.error(error.message());
  return static_cast<int32_t>(error.code());
}

}  // namespace plexus::nccl_net
