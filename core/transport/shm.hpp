// SPDX-License-Identifier: Apache-2.0
// The shm transport: two processes of one host. The receiver makes the slots (a memfd) and posts
// where they are; the sender maps them. Buffers from ncclMemAlloc are read in place by the
// receiver.
#pragma once

#include "core/bootstrap/exchange.hpp"
#include "core/device/device_memory.hpp"
#include "core/os/shared_memory.hpp"
#include "core/transport/connection.hpp"
#include "core/transport/user_memory.hpp"

namespace plexus {

class ShmSend final : public ConnectionEnd {
 public:
  struct Options {
    Exchange* exchange;
    size_t slot_stride;
    bool borrows;            // the receiver may map memory from ncclMemAlloc
    DeviceRuntime* runtime;  // of a CUDA rank; nullptr: computes on the host
    int device;              // of that rank
  };
  ShmSend(const ConnectionKey& key, const Options& options)
      : ConnectionEnd(key), options_(options) {}
  Result<bool> progress_connect() override;

 private:
  Options options_;
  SharedMemory slots_;
  DeviceMemory registration_;  // of the slots
};

class ShmRecv final : public ConnectionEnd {
 public:
  struct Options {
    Exchange* exchange;
    size_t slot_stride;
    DeviceRuntime* runtime;  // as the sender's
    int device;
  };
  ShmRecv(const ConnectionKey& key, const Options& options)
      : ConnectionEnd(key), options_(options) {}
  Result<bool> progress_connect() override;

 private:
  Options options_;
  SharedMemory slots_;
  DeviceMemory registration_;  // of the slots
  PeerSegments places_;
};

}  // namespace plexus
