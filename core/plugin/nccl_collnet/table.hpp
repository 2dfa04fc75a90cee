// SPDX-License-Identifier: Apache-2.0
// One version of NCCL's collnet ABI with plain arguments: `Collnet`, and the template that
// implements it with a version's table. Values that a table cannot express are refused before the
// call.
#pragma once

#include <climits>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>

#include "plugin-api/nccl/collnet.h"
#include "plugin-api/plexus_collnet.h"

#include "core/plugin/nccl_net/log.hpp"

namespace plexus::nccl_collnet {

class Collnet {
 public:
  Collnet() = default;
  Collnet(const Collnet&) = delete;
  Collnet& operator=(const Collnet&) = delete;
  virtual ~Collnet() = default;

  /// True (v11 on): one init and finalize per communicator. False: one init per process, no
  /// finalize.
  [[nodiscard]] virtual bool is_per_communicator() const noexcept = 0;
  [[nodiscard]] virtual const char* name() const noexcept = 0;
  /// The first mandatory entry that the table lacks; null: it is complete.
  [[nodiscard]] virtual const char* find_missing_entry() const noexcept = 0;
  [[nodiscard]] virtual uint64_t region_bytes_max() const noexcept = 0;
  [[nodiscard]] virtual uint64_t count_max() const noexcept = 0;

  [[nodiscard]] virtual int32_t init(void** context, uint64_t comm_id) const = 0;
  virtual void finalize(void* context) const = 0;
  [[nodiscard]] virtual int32_t devices(int& count) const = 0;
  [[nodiscard]] virtual int32_t get_properties(int device,
                                               plexus_collnet_properties_t& result) const = 0;
  [[nodiscard]] virtual int32_t reduce_support(int type, int op, int& supported) const = 0;
  [[nodiscard]] virtual int32_t listen(void* context,
                                       int device,
                                       void* handle,
                                       void** listen) const = 0;
  [[nodiscard]] virtual int32_t connect(
      void** handles, int members, int member, void* listen, void** group) const = 0;
  [[nodiscard]] virtual int32_t register_memory(void* group,
                                                void* data,
                                                uint64_t size_bytes,
                                                void** memory) const = 0;
  [[nodiscard]] virtual int32_t deregister(void* group, void* memory) const = 0;
  [[nodiscard]] virtual int32_t iallreduce(void* group,
                                           const plexus_collnet_reduction_t& reduction,
                                           void* send_memory,
                                           void* recv_memory,
                                           void** request) const = 0;
  [[nodiscard]] virtual int32_t test(void* request, int& is_done, int& size) const = 0;
  virtual void close_group(void* group) const = 0;
  virtual void close_listen(void* listen) const = 0;
};

/// Number of requests in flight that every version allows.
constexpr uint32_t kRequests = NCCL_REQUESTS_MAX_V6;

template <class Table, class Properties>
class TableCollnet final : public Collnet {
 public:
  explicit TableCollnet(const void* table) : table_(static_cast<const Table*>(table)) {}

  [[nodiscard]] bool is_per_communicator() const noexcept override { return kPerCommunicator; }
  [[nodiscard]] const char* name() const noexcept override { return table_->name; }

  [[nodiscard]] const char* find_missing_entry() const noexcept override {
    const struct {
      const char* name;
      bool is_there;
    } entries[] = {{"init", table_->init != nullptr},
                   {"devices", table_->devices != nullptr},
                   {"getProperties", table_->get_properties != nullptr},
                   {"listen", table_->listen != nullptr},
                   {"connect", table_->connect != nullptr},
                   {"reduceSupport", table_->reduce_support != nullptr},
                   {"regMr", table_->register_memory != nullptr},
                   {"deregMr", table_->deregister != nullptr},
                   {"iallreduce", table_->iallreduce != nullptr},
                   {"test", table_->test != nullptr},
                   {"closeColl", table_->close_group != nullptr},
                   {"closeListen", table_->close_listen != nullptr}};
    for (const auto& entry : entries) {
      if (!entry.is_there) {
        return entry.name;
      }
    }
    return nullptr;
  }

  [[nodiscard]] uint64_t region_bytes_max() const noexcept override {
    return std::is_same_v<decltype(Table::register_memory), nccl_register_v6_fn> ? INT_MAX
                                                                                 : UINT64_MAX;
  }
  [[nodiscard]] uint64_t count_max() const noexcept override {
    return kNarrowCount ? uint64_t{1} << 30 : UINT64_MAX;
  }

  [[nodiscard]] int32_t init(void** context, uint64_t comm_id) const override {
    if constexpr (kPerCommunicator) {
      return table_->init(context, comm_id, &nccl_net::log_from_nccl_plugin);
    } else {
      (void)context;
      (void)comm_id;
      return table_->init(&nccl_net::log_from_nccl_plugin);
    }
  }
  void finalize(void* context) const override {
    if constexpr (kPerCommunicator) {
      if (table_->finalize != nullptr) {
        table_->finalize(context);
      }
    }
    (void)context;
  }
  [[nodiscard]] int32_t devices(int& count) const override { return table_->devices(&count); }

  [[nodiscard]] int32_t get_properties(int device,
                                       plexus_collnet_properties_t& result) const override {
    Properties raw{};
    const int32_t code = table_->get_properties(device, &raw);
    if (code != PLEXUS_OK) {
      return code;
    }
    const char* const text = raw.name == nullptr ? "" : raw.name;
    std::memcpy(result.name, text, ::strnlen(text, sizeof(result.name) - 1));
    result.pointer_support = static_cast<uint32_t>(raw.pointer_support);
    result.requests_max = kRequests;
    result.speed_mbit_per_s = raw.speed > 0 ? static_cast<uint32_t>(raw.speed) : PLEXUS_UNKNOWN_U32;
    if constexpr (requires { raw.coll_bytes_max; }) {
      result.message_bytes_max = raw.coll_bytes_max;
    } else {
      result.message_bytes_max = NCCL_COLL_BYTES_BEFORE_V9;
    }
    return PLEXUS_OK;
  }

  [[nodiscard]] int32_t reduce_support(int type, int op, int& supported) const override {
    return table_->reduce_support(type, op, &supported);
  }
  [[nodiscard]] int32_t listen(void* context,
                               int device,
                               void* handle,
                               void** listen) const override {
    if constexpr (kPerCommunicator) {
      return table_->listen(context, device, handle, listen);
    } else {
      (void)context;
      return table_->listen(device, handle, listen);
    }
  }
  [[nodiscard]] int32_t connect(
      void** handles, int members, int member, void* listen, void** group) const override {
    return table_->connect(handles, members, member, listen, group);
  }
  [[nodiscard]] int32_t register_memory(void* group,
                                        void* data,
                                        uint64_t size_bytes,
                                        void** memory) const override {
    using Size =
        std::conditional_t<std::is_same_v<decltype(Table::register_memory), nccl_register_v6_fn>,
                           int, size_t>;
    return table_->register_memory(group, data, static_cast<Size>(size_bytes), NCCL_MEMORY_HOST,
                                   memory);
  }
  [[nodiscard]] int32_t deregister(void* group, void* memory) const override {
    return table_->deregister(group, memory);
  }
  [[nodiscard]] int32_t iallreduce(void* group,
                                   const plexus_collnet_reduction_t& reduction,
                                   void* send_memory,
                                   void* recv_memory,
                                   void** request) const override {
    using Count = std::conditional_t<kNarrowCount, int, size_t>;
    return table_->iallreduce(group, const_cast<void*>(reduction.send), reduction.recv,
                              static_cast<Count>(reduction.count), reduction.type, reduction.op,
                              send_memory, recv_memory, request);
  }
  [[nodiscard]] int32_t test(void* request, int& is_done, int& size) const override {
    return table_->test(request, &is_done, &size);
  }
  void close_group(void* group) const override { table_->close_group(group); }
  void close_listen(void* listen) const override { table_->close_listen(listen); }

 private:
  static constexpr bool kPerCommunicator =
      std::is_same_v<decltype(Table::init), nccl_collnet_init_v11_fn>;
  static constexpr bool kNarrowCount =
      std::is_same_v<decltype(Table::iallreduce), nccl_collnet_iallreduce_v6_fn>;

  const Table* table_;  // the plugin's own, in a library that is never unloaded
};

}  // namespace plexus::nccl_collnet
