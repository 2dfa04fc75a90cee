// SPDX-License-Identifier: Apache-2.0
// A collnet plugin under the monitor: owners of its handles, and members of a group that reduce. A
// plugin of NCCL's ABI is used through core/plugin/nccl_collnet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/plugin/collnet_plugin.hpp"
#include "tools/conformance/fixture.hpp"

namespace plexus::conformance {

struct Collnet {
  [[nodiscard]] static Result<Collnet> load(Fixture& fixture);
  [[nodiscard]] const plexus_collnet_ops_t& ops() const noexcept { return plugin->ops; }
  [[nodiscard]] Monitor& monitor() const noexcept { return fixture->monitor(); }

  Fixture* fixture;
  std::shared_ptr<const CollnetPlugin> plugin;
};

class CollnetUse {
 public:
  [[nodiscard]] static Result<CollnetUse> open(const Collnet& collnet, uint64_t comm_id = 42);
  CollnetUse(CollnetUse&& other) noexcept
      : collnet_(other.collnet_),
        raw_(std::exchange(other.raw_, nullptr)),
        devices_(std::move(other.devices_)) {}
  CollnetUse& operator=(CollnetUse&&) = delete;
  ~CollnetUse();
  [[nodiscard]] const Collnet& collnet() const noexcept { return *collnet_; }
  [[nodiscard]] plexus_collnet_context_t* raw() const noexcept { return raw_; }
  [[nodiscard]] const std::vector<plexus_collnet_properties_t>& devices() const noexcept {
    return devices_;
  }
  [[nodiscard]] Result<bool> supports(int32_t type, int32_t op) const;

 private:
  explicit CollnetUse(const Collnet& collnet) : collnet_(&collnet) {}
  const Collnet* collnet_;
  plexus_collnet_context_t* raw_ = nullptr;
  std::vector<plexus_collnet_properties_t> devices_;
};

/// One member: it listens, then joins a group.
class Member {
 public:
  [[nodiscard]] static Result<Member> listen(const CollnetUse& use, uint32_t device = 0);
  Member(Member&& other) noexcept
      : collnet_(other.collnet_),
        listen_(std::exchange(other.listen_, nullptr)),
        handle_(other.handle_),
        group_(std::exchange(other.group_, nullptr)),
        memory_(std::exchange(other.memory_, {})) {}
  Member& operator=(Member&&) = delete;
  ~Member() { close(); }
  [[nodiscard]] const plexus_net_handle_t& handle() const noexcept { return handle_; }
  /// The plugin's code.
  int32_t try_connect(std::span<const plexus_net_handle_t> handles, uint32_t number);
  [[nodiscard]] Result<plexus_collnet_memory_t*> register_memory(void* data, uint64_t size_bytes);
  int32_t iallreduce(const plexus_collnet_reduction_t& reduction,
                     plexus_collnet_request_t** request);
  int32_t test(plexus_collnet_request_t* request);
  /// Deregisters everything.
  void deregister();
  /// Closes the memory, the group, then the listen handle.
  void close();
  [[nodiscard]] Fixture& fixture() const noexcept { return *collnet_->fixture; }
  [[nodiscard]] Monitor& monitor() const noexcept { return collnet_->monitor(); }

 private:
  explicit Member(const Collnet& collnet) : collnet_(&collnet) {}
  const Collnet* collnet_;
  plexus_collnet_listen_t* listen_ = nullptr;
  plexus_net_handle_t handle_{};
  plexus_collnet_group_t* group_ = nullptr;
  std::vector<plexus_collnet_memory_t*> memory_;
};

/// The connected members in this process, with their numbers in the group.
struct Team {
  std::vector<Member> members;
  std::vector<uint32_t> numbers;
  uint32_t size = 0;  // size of the group
};
/// A group with all members in this process.
[[nodiscard]] Result<Team> make_team(const CollnetUse& use, uint32_t size);
/// A group over two processes: members with even numbers are in process 0.
[[nodiscard]] Result<Team> make_team_of_processes(const CollnetUse& use, uint32_t size);

/// A reduction that every member of the team performs; parts are of all members of the group.
struct Reduction {
  int32_t type = PLEXUS_TYPE_INT32;
  int32_t op = PLEXUS_REDUCE_SUM;
  uint64_t count = 0;
  bool is_in_place = false;
  size_t offset = 0;  // elements into a buffer
  uint32_t salt = 0;
};
/// For a supported type and operation, preferring small elements.
[[nodiscard]] Result<Reduction> find_reduction(const CollnetUse& use, uint64_t count = 100);
/// Starts it on all members and tests until all are done; compares the bits with the host's
/// arithmetic, and checks the guards.
[[nodiscard]] Result<void> reduce(Team& team, const Reduction& reduction);

inline constexpr int32_t kTypes = PLEXUS_TYPE_FLOAT8E5M2 + 1;
inline constexpr int32_t kOps = PLEXUS_REDUCE_MIN + 1;

/// A check with one context, for the table of checks.
template <Result<void> (*f)(const CollnetUse&)>
Result<void> on_use(Fixture& fixture) {
  PLEXUS_TRY(collnet, Collnet::load(fixture));
  PLEXUS_TRY(use, CollnetUse::open(collnet));
  return f(use);
}

}  // namespace plexus::conformance
