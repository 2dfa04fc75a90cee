// SPDX-License-Identifier: Apache-2.0
// A net plugin under check: owners of its handles, with each call made through the monitor, without
// core/transport. A plugin of NCCL's ABI is used through core/plugin/nccl_net, which makes it
// native; what only its raw table shows is in checks/vendor.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "plugin-api/plexus_net.h"

#include "core/plugin/net_plugin.hpp"
#include "tools/conformance/fixture.hpp"

namespace plexus::conformance {

/// The loaded plugin.
struct Net {
  Fixture* fixture;
  std::shared_ptr<const NetPlugin> plugin;

  [[nodiscard]] static Result<Net> load(Fixture& fixture);
  [[nodiscard]] const plexus_net_ops_t& ops() const noexcept { return plugin->ops(); }
  [[nodiscard]] bool is_native() const noexcept {
    return plugin->descriptor().entry == "plexus_plugin_query";
  }
};

/// Owner of a handle that an entry of the plugin closes.
template <class Raw, void (*plexus_net_ops::*kClose)(Raw*), Place kPlace>
class Owned {
 public:
  Owned(const Net& net, Raw* raw) : net_(&net), raw_(raw) {}
  Owned(Owned&& other) noexcept : net_(other.net_), raw_(std::exchange(other.raw_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(net_, other.net_);
    std::swap(raw_, other.raw_);
    return *this;
  }
  ~Owned() { close(); }

  void close() noexcept {
    if (raw_ != nullptr) {
      Raw* const raw = std::exchange(raw_, nullptr);
      net_->fixture->monitor().call_void(kPlace, [&] { (net_->ops().*kClose)(raw); });
    }
  }
  [[nodiscard]] Raw* raw() const noexcept { return raw_; }
  [[nodiscard]] const Net& net() const noexcept { return *net_; }

 protected:
  [[nodiscard]] Monitor& monitor() const noexcept { return net_->fixture->monitor(); }
  [[nodiscard]] Trace& trace() const noexcept { return net_->fixture->trace(); }
  const Net* net_;
  Raw* raw_;
};

/// The sending end.
class Send : public Owned<plexus_net_send_t, &plexus_net_ops::close_send, Place::kCloseSend> {
 public:
  Send(const Net& net,
       plexus_net_context_t* context,
       uint32_t device,
       const NetHandle& handle,
       uint64_t message_bytes_max)
      : Owned(net, nullptr),
        context_(context),
        device_(device),
        handle_(handle),
        message_bytes_max_(message_bytes_max) {}
  /// The limit of its device.
  [[nodiscard]] uint64_t message_bytes_max() const noexcept { return message_bytes_max_; }
  /// A PLEXUS_* code.
  int32_t try_connect();
  [[nodiscard]] NetHandle& handle() noexcept { return handle_; }
  int32_t isend(const void* data,
                uint64_t size_bytes,
                int32_t tag,
                plexus_net_memory_t* memory,
                plexus_net_request_t** request);
  /// Only if the table has it.
  int32_t isend_pieces(std::span<const plexus_net_piece_t> pieces,
                       int32_t tag,
                       plexus_net_request_t** request);
  /// Only if the table has it.
  int32_t isend_gathered(std::span<const plexus_net_source_t> sources,
                         int32_t tag,
                         plexus_net_request_t** request);
  int32_t test(plexus_net_request_t* request, uint64_t* size_bytes);
  [[nodiscard]] Result<plexus_net_memory_t*> register_memory(const void* data, uint64_t size_bytes);

 private:
  plexus_net_context_t* context_;
  uint32_t device_;
  NetHandle handle_;
  uint64_t message_bytes_max_;
  uint32_t traced_ = 0;  // its number in the trace, from the first try
};

/// The receiving end.
class Recv : public Owned<plexus_net_recv_t, &plexus_net_ops::close_recv, Place::kCloseRecv> {
 public:
  Recv(const Net& net, plexus_net_listen_t* listen, uint64_t message_bytes_max)
      : Owned(net, nullptr), listen_(listen), message_bytes_max_(message_bytes_max) {}
  [[nodiscard]] uint64_t message_bytes_max() const noexcept { return message_bytes_max_; }
  int32_t try_accept();
  int32_t irecv(std::span<const plexus_net_buffer_t> buffers, plexus_net_request_t** request);
  /// Only if the table has it.
  int32_t irecv_pieces(std::span<const plexus_net_piece_t> pieces,
                       int32_t tag,
                       plexus_net_request_t** request);
  int32_t test(plexus_net_request_t* request, uint64_t* sizes_bytes);
  [[nodiscard]] Result<plexus_net_memory_t*> register_memory(const void* data, uint64_t size_bytes);

 private:
  plexus_net_listen_t* listen_;
  uint64_t message_bytes_max_;
  uint32_t traced_ = 0;
};

class Listen
    : public Owned<plexus_net_listen_t, &plexus_net_ops::close_listen, Place::kCloseListen> {
 public:
  Listen(const Net& net,
         plexus_net_listen_t* raw,
         const NetHandle& handle,
         uint64_t message_bytes_max)
      : Owned(net, raw), handle_(handle), message_bytes_max_(message_bytes_max) {}
  [[nodiscard]] const NetHandle& handle() const noexcept { return handle_; }
  /// A receiving end that is not accepted yet.
  [[nodiscard]] Recv accept() const { return {*net_, raw_, message_bytes_max_}; }

 private:
  NetHandle handle_;
  uint64_t message_bytes_max_;
};

/// The context of a communicator.
class Context : public Owned<plexus_net_context_t, &plexus_net_ops::finalize, Place::kFinalize> {
 public:
  /// Fails when the plugin is unusable here, including when there is no device.
  [[nodiscard]] static Result<Context> open(const Net& net, uint64_t comm_id = 7);

  [[nodiscard]] uint32_t devices() const noexcept {
    return static_cast<uint32_t>(properties_.size());
  }
  [[nodiscard]] const plexus_net_properties_t& properties(uint32_t device = 0) const {
    return properties_[device];
  }
  [[nodiscard]] Result<Listen> listen(uint32_t device = 0) const;
  [[nodiscard]] Send connect(const NetHandle& handle, uint32_t device = 0) const {
    return {*net_, raw_, device, handle, properties(device).message_bytes_max};
  }

 private:
  using Owned::Owned;
  std::vector<plexus_net_properties_t> properties_;
};

/// A connection with both ends in this process.
struct Pair {
  Listen listen;
  Send send;
  Recv recv;
};
/// Advances both ends; true when both are connected.
[[nodiscard]] Result<bool> progress(Send& send, bool& is_connected, Recv& recv, bool& is_accepted);

/// A connection between the two processes of a check: one calls this function, the other the next.
[[nodiscard]] Result<Send> connect_to_peer(const Context& context);
[[nodiscard]] Result<Recv> accept_from_peer(const Context& context);

/// A connection on a listen handle at which others have given up: they may be accepted first, and
/// the next accept then returns the one that is alive.
[[nodiscard]] Result<void> accept_after_quitters(const Context& context, const Listen& listen);

/// Must belong to the memory's connection. Null: nothing to do.
void deregister(const Net& net, plexus_net_memory_t* memory);

/// "isend failed: " and the plugin's sentence.
[[nodiscard]] Error failed(Monitor& monitor, const char* call, int32_t code);

}  // namespace plexus::conformance
