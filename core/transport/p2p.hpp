// SPDX-License-Identifier: Apache-2.0
// The p2p transport: two CUDA ranks in two processes whose devices access each other. The receiver
// makes Fifo and slots on its device and posts their handle (CUDA IPC); the sender maps them.
#pragma once

#include "core/bootstrap/exchange.hpp"
#include "core/device/device_memory.hpp"
#include "core/transport/connection.hpp"

namespace plexus {

/// Both ends: their rank's device.
struct P2pOptions {
  Exchange* exchange;
  DeviceRuntime* runtime;
  int device;
  size_t slot_stride;
  bool
      borrows;  // the receiver may read memory that the sender maps for it (peer_mapped_memory.hpp)
};

class P2pSend final : public ConnectionEnd {
 public:
  using Options = P2pOptions;
  P2pSend(const ConnectionKey& key, const Options& options)
      : ConnectionEnd(key), options_(options) {}
  Result<bool> progress_connect() override;

 private:
  Options options_;
  DeviceMemory slots_;
};

class P2pRecv final : public ConnectionEnd {
 public:
  using Options = P2pOptions;
  P2pRecv(const ConnectionKey& key, const Options& options)
      : ConnectionEnd(key), options_(options) {}
  Result<bool> progress_connect() override;

 private:
  Options options_;
  DeviceMemory slots_;
};

}  // namespace plexus
