// SPDX-License-Identifier: Apache-2.0
// The C++ interface to plugin-api/plexus_net.h: a network as the core sees it.
//
//   NetPlugin   a loaded library with its checked descriptor; shared by its contexts
//   NetContext  one communicator's use of it: devices, listen, connect, net_path
//   NetListen, NetSend, NetRecv, NetMemory   owned handles; destroyed before their context
//
// Control calls return `Result`; the message of a failure is the plugin's own sentence after the
// plugin's name. Data-path calls (`isend`, `irecv`, `flush`, `test`) return the plugin's code as
// `NetStatus`, allocate nothing and log only that calls block; `explain` makes the `Error` of a
// failed one.
//
// Threads: as plexus_net.h says: one thread at a time per connection, any for the context.
//
//   PLEXUS_TRY(listen, context.listen(0, "rank 1"));
//   NetRecv recv = listen.accept("rank 1");  // listen.handle() is at rank 1, which connects
//   PLEXUS_TRY(state, recv.try_accept());    // again, while it is kPending
//   return ok();
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plugin-api/plexus_net.h"

#include "core/base/result.hpp"
#include "core/plugin/call_watch.hpp"
#include "core/plugin/descriptor.hpp"
#include "guest/assert.hpp"

namespace plexus {

/// Result of a data-path call. Every other value is a failing `Code`; `explain` gives the reason.
enum class NetStatus : int32_t {
  kOk = PLEXUS_OK,
  kAgain = PLEXUS_AGAIN,
};

/// Result of a control call that never blocks.
enum class NetProgress { kPending, kDone };

/// kChoice is the one line that says which network is used; users see it at level INIT.
enum class NetLogLevel { kWarn, kChoice, kInfo, kTrace };

/// Receives the lines of plugins and of the registry. Called from any thread.
using NetLog = std::function<void(NetLogLevel, std::string_view)>;

using NetHandle = plexus_net_handle_t;
using NetBuffer = plexus_net_buffer_t;
using NetPiece = plexus_net_piece_t;
using NetSource = plexus_net_source_t;
using NetRequest = plexus_net_request_t;

/// Selects the ABI of a library.
struct NetLoadOptions {
  /// PLEXUS_NET_ABI: "" or "auto" (native, else NCCL's newest), "native", or "v6" .. "v12".
  std::string abi;
  /// PLEXUS_NET_V11: the ABI of ncclNetPlugin_v11: "" or "auto" (by size), "mainline", "cross-dc".
  std::string v11;
};

/// Replaces the table's `init` for a plugin of another ABI.
class NetOrigin {
 public:
  NetOrigin() = default;
  NetOrigin(const NetOrigin&) = delete;
  NetOrigin& operator=(const NetOrigin&) = delete;
  virtual ~NetOrigin() = default;
  /// Like plexus_net_ops_t::init.
  [[nodiscard]] virtual int32_t init(const plexus_net_config_t* config,
                                     plexus_net_context_t** context) const = 0;
  /// The network's current name; some plugins change it during init.
  [[nodiscard]] virtual std::string name() const = 0;
};

class NetPlugin {
 public:
  /// Loads a library (see Library::load) and checks that it is a net plugin of Plexus's ABI or of
  /// NCCL's (core/plugin/nccl_net).
  [[nodiscard]] static Result<std::shared_ptr<const NetPlugin>> load(
      const std::filesystem::path& path, const NetLoadOptions& options = {});

  /// `origin` null: a native plugin.
  NetPlugin(std::filesystem::path path,
            NetDescriptor descriptor,
            std::shared_ptr<const NetOrigin> origin = nullptr)
      : path_(std::move(path)), descriptor_(std::move(descriptor)), origin_(std::move(origin)) {}

  /// The name that NCCL_NET is compared with.
  [[nodiscard]] std::string network_name() const;
  [[nodiscard]] int32_t init(const plexus_net_config_t* config,
                             plexus_net_context_t** context) const;

  /// Whether it is written for plexus_net.h. Otherwise only NCCL's contract holds: accept may block
  /// until the peer connects, and test may omit the number of bytes.
  [[nodiscard]] bool is_native() const noexcept { return origin_ == nullptr; }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] const NetDescriptor& descriptor() const noexcept { return descriptor_; }
  [[nodiscard]] const plexus_net_ops_t& ops() const noexcept { return descriptor_.ops; }

 private:
  std::filesystem::path path_;
  NetDescriptor descriptor_;
  std::shared_ptr<const NetOrigin> origin_;  // shared with the contexts made by it
};

/// Looks up a setting for a plugin; nullopt: not set.
using NetSettings = std::function<std::optional<std::string>(std::string_view name)>;

struct NetContextOptions {
  uint64_t comm_id = 0;
  int32_t traffic_class = -1;  // -1: default
  NetLog log;                  // may be empty
  NetSettings settings = {};   // empty: plugins read the environment
};

class NetMemory;
class NetListen;
class NetSend;
class NetRecv;

namespace net_detail {
class ContextState;
struct CloseContext {
  void operator()(ContextState* state) const noexcept;
};
}  // namespace net_detail

class NetContext {
 public:
  /// Makes the plugin's context for one communicator and reads its devices. No devices is a
  /// success: `device_count()` is 0.
  [[nodiscard]] static Result<NetContext> create(std::shared_ptr<const NetPlugin> plugin,
                                                 NetContextOptions options);

  [[nodiscard]] const NetPlugin& plugin() const noexcept;
  [[nodiscard]] uint32_t device_count() const noexcept;
  [[nodiscard]] const NetProperties& properties(uint32_t device) const;
  /// "plugin socket on device 0 (eth0)", for messages.
  [[nodiscard]] std::string describe(uint32_t device) const;
  /// Whether its connections accept messages made of pieces of unregistered memory.
  [[nodiscard]] bool takes_pieces(uint32_t device) const;
  /// Whether its connections send messages from several places in registered memory.
  [[nodiscard]] bool gathers() const noexcept;

  /// Whether the plugin has asked for the setting `name`, and so takes it into account.
  [[nodiscard]] bool has_read(std::string_view name) const;

  /// Listens on `device`. The handle goes to the sending side and is secret. `peer`, here and
  /// below: name of the other end, for error messages.
  [[nodiscard]] Result<NetListen> listen(uint32_t device, std::string_view peer = {}) const;
  /// Makes an unconnected connection; `NetSend::try_connect` connects it.
  [[nodiscard]] NetSend connect(uint32_t device,
                                const NetHandle& handle,
                                std::string_view peer = {}) const;
  /// A plugin that does not support fabrics reports level 0 within one fabric, unknown otherwise.
  [[nodiscard]] Result<NetPath> net_path(uint64_t source, uint64_t target) const;

 private:
  using State = std::unique_ptr<net_detail::ContextState, net_detail::CloseContext>;
  explicit NetContext(State state) noexcept : state_(std::move(state)) {}
  State state_;  // at a fixed address, because the handles below point to it
};

namespace net_detail {

/// Closes handles. Each is a control call into the plugin and watched as such.
void close(const ContextState& context, std::string_view peer, plexus_net_listen_t* raw) noexcept;
void close(const ContextState& context, std::string_view peer, plexus_net_send_t* raw) noexcept;
void close(const ContextState& context, std::string_view peer, plexus_net_recv_t* raw) noexcept;
void close(const ContextState& context, std::string_view peer, plexus_net_memory_t* raw) noexcept;

[[nodiscard]] DataPath& data_path_of(const ContextState& context) noexcept;

/// In a handler of an exception that `entry` threw, which breaks the plugin's contract: keeps the
/// reason for make_error() and returns PLEXUS_INTERNAL_ERROR.
[[nodiscard, gnu::cold, gnu::noinline]] int32_t keep_exception(const ContextState& context,
                                                               const char* entry) noexcept;

/// Where a call of the data path was made, for sentences: "on device 0 (eth0) to rank 1 (a:1)".
struct CallPlace {
  uint32_t device;
  const char* way;  // "to" or "from"
  const std::string& peer;
};

/// `entry` started nothing and did not say so, which breaks the plugin's contract: as above.
[[nodiscard, gnu::cold, gnu::noinline]] int32_t keep_lack_of_request(const ContextState& context,
                                                                     const char* entry,
                                                                     CallPlace place) noexcept;

/// A call of a data path that has its mark.
template <class Call>
[[nodiscard]] NetStatus call_entry(const ContextState& context,
                                   const char* entry,
                                   const Call& call) noexcept {
  try {
    return NetStatus{call()};
  } catch (...) {
    return NetStatus{keep_exception(context, entry)};
  }
}

/// An owned handle of type `Raw`.
template <class Raw>
class Handle {
 public:
  Handle(const ContextState* context, const plexus_net_ops_t* ops, Raw* raw, std::string_view peer)
      : context_(context), path_(&data_path_of(*context)), ops_(ops), raw_(raw), peer_(peer) {}
  Handle(Handle&& other) noexcept
      : context_(other.context_),
        path_(other.path_),
        ops_(other.ops_),
        raw_(std::exchange(other.raw_, nullptr)),
        peer_(std::move(other.peer_)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(context_, other.context_);
    std::swap(path_, other.path_);
    std::swap(ops_, other.ops_);
    std::swap(raw_, other.raw_);
    std::swap(peer_, other.peer_);
    return *this;
  }
  ~Handle() {
    if (raw_ != nullptr) {
      close(*context_, peer_, raw_);
    }
  }

 protected:
  /// A call of the data path, which must return at once.
  template <class Call>
  [[nodiscard]] NetStatus call_quickly(const char* entry, const Call& call) noexcept {
    const DataPath::QuickCall marked(*path_, entry, peer_);
    return call_entry(*context_, entry, call);
  }
  /// A call that starts what `*request` stands for: a native plugin that says OK gives one.
  template <class Call>
  [[nodiscard]] NetStatus start(const char* entry,
                                CallPlace place,
                                NetRequest** request,
                                const Call& call) noexcept {
    PLEXUS_DCHECK(raw_ != nullptr);
    *request = nullptr;
    const NetStatus status = call_quickly(entry, call);
    if (status == NetStatus::kOk && *request == nullptr) {
      return NetStatus{keep_lack_of_request(*context_, entry, place)};
    }
    return status;
  }

  const ContextState* context_;
  DataPath* path_;
  const plexus_net_ops_t* ops_;
  Raw* raw_;          // null: not made yet
  std::string peer_;  // for error messages
};

/// The Error of a failed call: the sentence that the plugin logged in this thread, or the code.
[[nodiscard]] Error make_error(const ContextState& context, std::string_view call, int32_t code);

}  // namespace net_detail

/// Registered memory. Must be destroyed before its connection.
class NetMemory : public net_detail::Handle<plexus_net_memory_t> {
 public:
  using Handle::Handle;
  /// For isend and irecv; null when the plugin needs no registration.
  [[nodiscard]] plexus_net_memory_t* raw() const noexcept { return raw_; }
};

class NetListen : public net_detail::Handle<plexus_net_listen_t> {
 public:
  [[nodiscard]] const NetHandle& handle() const noexcept { return handle_; }
  /// Makes an unconnected connection; `NetRecv::try_accept` connects it and needs this object
  /// alive. One at a time.
  [[nodiscard]] NetRecv accept(std::string_view peer = {}) const;

 private:
  friend class NetContext;
  NetListen(const net_detail::ContextState* context,
            const plexus_net_ops_t* ops,
            plexus_net_listen_t* raw,
            uint32_t device,
            const NetHandle& handle,
            std::string_view peer)
      : Handle(context, ops, raw, peer), device_(device), handle_(handle) {}
  uint32_t device_;
  NetHandle handle_;
};

/// The sending end of a connection.
class NetSend : public net_detail::Handle<plexus_net_send_t> {
 public:
  [[nodiscard]] Result<NetProgress> try_connect();
  [[nodiscard]] Result<NetMemory> register_memory(const plexus_net_region_t& region);

  /// Starts sending. kAgain: not started, call again. kOk: test `*request` until it is done.
  [[nodiscard]] NetStatus isend(std::span<const std::byte> data,
                                int32_t tag,
                                plexus_net_memory_t* memory,
                                NetRequest** request) noexcept {
    return start("isend", place(), request,
                 [&] { return ops_->isend(raw_, data.data(), data.size(), tag, memory, request); });
  }
  /// Only where NetContext::takes_pieces().
  [[nodiscard]] NetStatus isend_pieces(std::span<const NetPiece> pieces,
                                       int32_t tag,
                                       NetRequest** request) noexcept {
    return start("isend_pieces", place(), request, [&] {
      return ops_->isend_pieces(raw_, static_cast<uint32_t>(pieces.size()), pieces.data(), tag,
                                request);
    });
  }
  /// Only where NetContext::gathers().
  [[nodiscard]] NetStatus isend_gathered(std::span<const NetSource> sources,
                                         int32_t tag,
                                         NetRequest** request) noexcept {
    return start("isend_gathered", place(), request, [&] {
      return ops_->isend_gathered(raw_, static_cast<uint32_t>(sources.size()), sources.data(), tag,
                                  request);
    });
  }
  /// kAgain: not done. Any other status: the request is freed.
  [[nodiscard]] NetStatus test(NetRequest* request, uint64_t* size_bytes) noexcept {
    return call_quickly("test", [&] { return ops_->test(request, size_bytes); });
  }
  /// The reason why `call` failed with `status`. Must be called right after it in the same thread.
  [[nodiscard]] Error explain(std::string_view call, NetStatus status) const {
    return net_detail::make_error(*context_, call, static_cast<int32_t>(status));
  }

 private:
  friend class NetContext;
  NetSend(const net_detail::ContextState* context,
          const plexus_net_ops_t* ops,
          uint32_t device,
          const NetHandle& handle,
          std::string_view peer)
      : Handle(context, ops, nullptr, peer), device_(device), handle_(handle) {}
  [[nodiscard]] net_detail::CallPlace place() const noexcept { return {device_, "to", peer_}; }
  uint32_t device_;
  NetHandle handle_;
};

/// The receiving end of a connection.
class NetRecv : public net_detail::Handle<plexus_net_recv_t> {
 public:
  [[nodiscard]] Result<NetProgress> try_accept();
  [[nodiscard]] Result<NetMemory> register_memory(const plexus_net_region_t& region);

  /// Posts all of `buffers` (1 .. recvs_max) as one request, or none (kAgain).
  [[nodiscard]] NetStatus irecv(std::span<const NetBuffer> buffers, NetRequest** request) noexcept {
    return start("irecv", place(), request, [&] {
      return ops_->irecv(raw_, static_cast<uint32_t>(buffers.size()), buffers.data(), request);
    });
  }
  /// Only where NetContext::takes_pieces(). Posts one buffer, or none (kAgain).
  [[nodiscard]] NetStatus irecv_pieces(std::span<const NetPiece> pieces,
                                       int32_t tag,
                                       NetRequest** request) noexcept {
    return start("irecv_pieces", place(), request, [&] {
      return ops_->irecv_pieces(raw_, static_cast<uint32_t>(pieces.size()), pieces.data(), tag,
                                request);
    });
  }
  /// kOk with `*request` null: nothing to wait for.
  [[nodiscard]] NetStatus flush(std::span<const NetBuffer> buffers, NetRequest** request) noexcept {
    *request = nullptr;
    if (ops_->flush == nullptr) {
      return NetStatus::kOk;
    }
    return call_quickly("flush", [&] {
      return ops_->flush(raw_, static_cast<uint32_t>(buffers.size()), buffers.data(), request);
    });
  }
  /// kAgain: not done. Any other status: the request is freed. `sizes_bytes`: one entry per buffer.
  [[nodiscard]] NetStatus test(NetRequest* request, uint64_t* sizes_bytes) noexcept {
    return call_quickly("test", [&] { return ops_->test(request, sizes_bytes); });
  }
  /// The reason why `call` failed with `status`. Must be called right after it in the same thread.
  [[nodiscard]] Error explain(std::string_view call, NetStatus status) const {
    return net_detail::make_error(*context_, call, static_cast<int32_t>(status));
  }

 private:
  friend class NetListen;
  NetRecv(const net_detail::ContextState* context,
          const plexus_net_ops_t* ops,
          uint32_t device,
          plexus_net_listen_t* listen,
          std::string_view peer)
      : Handle(context, ops, nullptr, peer), device_(device), listen_(listen) {}
  [[nodiscard]] net_detail::CallPlace place() const noexcept { return {device_, "from", peer_}; }
  uint32_t device_;
  plexus_net_listen_t* listen_;  // borrowed until accepted
};

}  // namespace plexus
