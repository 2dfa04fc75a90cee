// SPDX-License-Identifier: Apache-2.0
// One version of NCCL's net plugin ABI behind the newest version's interface: the calls of v12 with
// plain arguments. What reads a version's table (table.hpp) reduces them to what its
// table can express. Results are NCCL's numbers. The data path is one virtual call plus the
// plugin's own.
//
// Threads: as for the plugin; the only state is the borrowed table.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "plugin-api/nccl/net_common.h"
#include "plugin-api/nccl/net_v12.h"
#include "plugin-api/plexus_net.h"

namespace plexus::nccl_net {

/// The newest version's properties, plus those of the cross-DC branch.
struct ForeignProperties {
  nccl_net_properties_v12_t v12{};
  std::optional<uint64_t> fabric_id;
};

/// The buffers of a grouped receive or of a flush, as arrays.
struct Buffers {
  int count = 0;
  std::array<void*, PLEXUS_NET_RECVS_MAX> data{};
  std::array<size_t, PLEXUS_NET_RECVS_MAX> sizes{};
  std::array<int, PLEXUS_NET_RECVS_MAX> tags{};
  std::array<void*, PLEXUS_NET_RECVS_MAX> memory{};
  void** profiles = nullptr;  // [count] handles of a profiler's events, each may be null; or null
};

/// What a communicator contributes: v11's context, v10's configuration.
struct CommState {
  void* context = nullptr;
  nccl_comm_config_t config{-1};
};

class Net {
 public:
  Net() = default;
  Net(const Net&) = delete;
  Net& operator=(const Net&) = delete;
  virtual ~Net() = default;

  /// True (v11 on): one init and finalize per communicator. False: one init per process, no
  /// finalize.
  [[nodiscard]] virtual bool is_per_communicator() const noexcept = 0;
  [[nodiscard]] virtual uint32_t requests_max() const noexcept = 0;
  /// Largest size of one registration.
  [[nodiscard]] virtual uint64_t region_bytes_max() const noexcept = 0;
  [[nodiscard]] virtual bool has_dmabuf() const noexcept = 0;
  /// May change during init, and may be null.
  [[nodiscard]] virtual const char* name() const noexcept = 0;
  /// The first mandatory entry that is missing at present; null: none.
  [[nodiscard]] virtual const char* find_missing_entry() const noexcept = 0;

  [[nodiscard]] virtual int32_t init(CommState& comm, uint64_t comm_id) const = 0;
  virtual void finalize(CommState& comm) const = 0;
  [[nodiscard]] virtual int32_t devices(int& count) const = 0;
  [[nodiscard]] virtual int32_t get_properties(int device, ForeignProperties& result) const = 0;
  [[nodiscard]] virtual int32_t listen(CommState& comm,
                                       int device,
                                       void* handle,
                                       void** listen) const = 0;
  /// `offload`, here and in accept: where the plugin may offer to have a GPU drive the connection;
  /// null: not wanted. v6 has no such argument.
  [[nodiscard]] virtual int32_t connect(CommState& comm,
                                        int device,
                                        void* handle,
                                        void** send,
                                        nccl_device_handle_t** offload) const = 0;
  [[nodiscard]] virtual int32_t accept(void* listen,
                                       void** recv,
                                       nccl_device_handle_t** offload) const = 0;
  /// At most region_bytes_max() bytes; a DMABUF only when has_dmabuf().
  [[nodiscard]] virtual int32_t register_memory(void* connection,
                                                const plexus_net_region_t& region,
                                                void** memory) const = 0;
  [[nodiscard]] virtual int32_t deregister(void* connection, void* memory) const = 0;
  /// `profile`: the handle of a profiler's event, or null.
  [[nodiscard]] virtual int32_t isend(void* send,
                                      void* data,
                                      size_t size,
                                      int tag,
                                      void* memory,
                                      void* profile,
                                      void** request) const = 0;
  [[nodiscard]] virtual int32_t irecv(void* recv, Buffers& buffers, void** request) const = 0;
  [[nodiscard]] virtual int32_t iflush(void* recv, Buffers& buffers, void** request) const = 0;
  [[nodiscard]] virtual int32_t test(void* request, int* is_done, int* sizes) const = 0;
  virtual void close_send(void* send) const = 0;
  virtual void close_recv(void* recv) const = 0;
  virtual void close_listen(void* listen) const = 0;

  [[nodiscard]] virtual bool has_net_path() const noexcept { return false; }
  /// 0: same datacenter, 1: another one, 2: not connected.
  [[nodiscard]] virtual int32_t net_path(uint64_t, uint64_t, int&) const {
    return PLEXUS_INTERNAL_ERROR;
  }
};

}  // namespace plexus::nccl_net
