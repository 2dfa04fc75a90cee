// SPDX-License-Identifier: Apache-2.0
// The C++ interface to plugin-api/plexus_collnet.h: a network that reduces, as the core sees it.
//
//   CollnetPlugin    a loaded library with its checked table; shared by its contexts
//   CollnetContext   one communicator's use of it: devices, what it can reduce, listen
//   CollnetListen, CollnetGroup, CollnetMemory   owned handles; destroyed before their context
//
// As in net_plugin.hpp, control calls return `Result` and data-path calls hand the plugin's code
// As in net_plugin.hpp, control calls return `Result`, and data-path calls return the plugin's code
// as `NetStatus`; `explain` makes the `Error` of a failed one.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "plugin-api/plexus_collnet.h"

#include "core/base/result.hpp"
#include "core/plugin/guarded.hpp"
#include "core/plugin/net_plugin.hpp"

namespace plexus {

/// Replaces the table's `init` for a plugin of NCCL's ABI.
class CollnetOrigin {
 public:
  CollnetOrigin() = default;
  CollnetOrigin(const CollnetOrigin&) = delete;
  CollnetOrigin& operator=(const CollnetOrigin&) = delete;
  virtual ~CollnetOrigin() = default;
  [[nodiscard]] virtual int32_t init(const plexus_collnet_config_t* config,
                                     plexus_collnet_context_t** context) const = 0;
};

/// A plugin whose descriptor was checked. `ops` has all entries.
struct CollnetPlugin {
  std::filesystem::path path;
  std::string name;     // "Aggregator"
  std::string version;  // "0.1.0"; for NCCL's ABI: "ncclCollNetPlugin_v8"
  plexus_collnet_ops_t ops{};
  std::shared_ptr<const CollnetOrigin> origin;  // null: native
};

/// Checks magic, sizes, ABI, names and entries of what plexus_collnet_query returned.
[[nodiscard]] Result<CollnetPlugin> check_collnet_plugin(const plexus_collnet_plugin_t* plugin);
/// Checks the values that the plugin's `properties` returned.
[[nodiscard]] Result<void> check_collnet_properties(const plexus_collnet_properties_t& properties);

namespace collnet_detail {

/// The state behind a context. Its address never changes, because it is the plugin's log sink.
class Context;
struct CloseContext {
  void operator()(Context* context) const noexcept;
};
[[nodiscard]] Error make_error(const Context& context, std::string_view call, int32_t code);

}  // namespace collnet_detail

class CollnetListen;
class CollnetGroup;

class CollnetContext {
 public:
  [[nodiscard]] static Result<CollnetContext> create(std::shared_ptr<const CollnetPlugin> plugin,
                                                     uint64_t comm_id);
  [[nodiscard]] const CollnetPlugin& plugin() const noexcept;
  [[nodiscard]] std::span<const plexus_collnet_properties_t> devices() const noexcept;
  /// `type`: PLEXUS_TYPE_*; `op`: PLEXUS_REDUCE_*.
  [[nodiscard]] Result<bool> supports(int32_t type, int32_t op) const;
  [[nodiscard]] Result<CollnetListen> listen(uint32_t device) const;

 private:
  using State = std::unique_ptr<collnet_detail::Context, collnet_detail::CloseContext>;
  explicit CollnetContext(State state) noexcept : state_(std::move(state)) {}
  State state_;
};

class CollnetListen {
 public:
  CollnetListen(CollnetListen&& other) noexcept
      : context_(other.context_),
        raw_(std::exchange(other.raw_, nullptr)),
        handle_(other.handle_) {}
  CollnetListen& operator=(CollnetListen&& other) noexcept {
    std::swap(context_, other.context_);
    std::swap(raw_, other.raw_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~CollnetListen();
  [[nodiscard]] const plexus_net_handle_t& handle() const noexcept { return handle_; }

 private:
  friend class CollnetContext;
  friend class CollnetGroup;
  CollnetListen(const collnet_detail::Context* context,
                plexus_collnet_listen_t* raw,
                const plexus_net_handle_t& handle) noexcept
      : context_(context), raw_(raw), handle_(handle) {}
  const collnet_detail::Context* context_;
  plexus_collnet_listen_t* raw_;
  plexus_net_handle_t handle_;
};

/// Registered memory of a group. Must be destroyed before the group.
class CollnetMemory {
 public:
  CollnetMemory(const plexus_collnet_ops_t* ops, plexus_collnet_memory_t* raw) noexcept
      : ops_(ops), raw_(raw) {}
  CollnetMemory(CollnetMemory&& other) noexcept
      : ops_(other.ops_), raw_(std::exchange(other.raw_, nullptr)) {}
  CollnetMemory& operator=(CollnetMemory&& other) noexcept {
    std::swap(ops_, other.ops_);
    std::swap(raw_, other.raw_);
    return *this;
  }
  ~CollnetMemory() {
    if (raw_ != nullptr) {
      // a failure here has no consequence
      (void)guarded([this] { return ops_->deregister(raw_); });
    }
  }
  [[nodiscard]] plexus_collnet_memory_t* raw() const noexcept { return raw_; }

 private:
  const plexus_collnet_ops_t* ops_;
  plexus_collnet_memory_t* raw_;
};

/// One member's end of a group. Owns its listen handle.
class CollnetGroup {
 public:
  CollnetGroup(CollnetListen listen, std::vector<plexus_net_handle_t> handles, uint32_t member)
      : listen_(std::move(listen)), handles_(std::move(handles)), member_(member) {}
  CollnetGroup(const CollnetGroup&) = delete;
  CollnetGroup& operator=(const CollnetGroup&) = delete;
  ~CollnetGroup();

  [[nodiscard]] Result<NetProgress> try_connect();
  [[nodiscard]] Result<CollnetMemory> register_memory(const plexus_net_region_t& region);
  [[nodiscard]] NetStatus iallreduce(const plexus_collnet_reduction_t& reduction,
                                     plexus_collnet_request_t** request) noexcept;
  /// kAgain: not done. Any other status: the request is freed.
  [[nodiscard]] NetStatus test(plexus_collnet_request_t* request) noexcept;
  /// The reason why `call` failed with `status`. Must be called right after it.
  [[nodiscard]] Error explain(std::string_view call, NetStatus status) const;

 private:
  CollnetListen listen_;
  std::vector<plexus_net_handle_t> handles_;
  uint32_t member_;
  plexus_collnet_group_t* raw_ = nullptr;
};

}  // namespace plexus
