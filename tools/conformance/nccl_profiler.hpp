// SPDX-License-Identifier: Apache-2.0
// A library of NCCL's profiler ABI (ncclProfiler_v4 .. v7), driven through its raw table.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "plugin-api/nccl/profiler.h"

#include "tools/conformance/library.hpp"

namespace plexus::conformance {

class NcclProfiler {
 public:
  /// The version that the subject names, or else the newest.
  [[nodiscard]] static Result<NcclProfiler> load(Fixture& fixture);
  [[nodiscard]] Fixture& fixture() const noexcept { return *fixture_; }
  [[nodiscard]] int version() const noexcept { return table_.version; }
  [[nodiscard]] const std::string& entry() const noexcept { return table_.symbol; }
  [[nodiscard]] std::string name() const;
  [[nodiscard]] size_t size_bytes() const noexcept { return table_.object.size_bytes; }
  [[nodiscard]] const void* table() const noexcept { return table_.object.address; }
  [[nodiscard]] bool has_entries() const noexcept;
  /// The process's mask; the plugin may write it at any time.
  [[nodiscard]] int mask() const noexcept { return __atomic_load_n(mask_, __ATOMIC_RELAXED); }

 private:
  friend class ProfilerSession;
  NcclProfiler(Fixture& fixture, NcclTable table);
  Fixture* fixture_;
  NcclTable table_;
  int* mask_;  // never freed
};

/// An event in progress; null: the profiler does not track it.
using EventHandle = void*;

/// A kind of event and its sequence of states.
struct EventKind {
  uint64_t type;
  const char* name;
  int since;                  // version of the ABI
  std::array<int, 6> states;  // 0: no more
};
/// The kinds of events in a version; parents come before their children.
[[nodiscard]] std::span<const EventKind> all_event_kinds();
[[nodiscard]] const EventKind& event_kind(uint64_t type);

/// The context of a communicator; finalized by the destructor. Threads: as for the plugin.
class ProfilerSession {
 public:
  struct Comm {
    const char* name = "kit";
    uint64_t id = 42;
    int nnodes = 2;
    int nranks = 8;
    int rank = 3;
  };
  [[nodiscard]] static Result<ProfilerSession> open(const NcclProfiler& profiler, const Comm& comm);
  ProfilerSession(ProfilerSession&& other) noexcept
      : profiler_(other.profiler_),
        comm_(other.comm_),
        raw_(other.raw_),
        is_open_(std::exchange(other.is_open_, false)) {}
  ProfilerSession& operator=(ProfilerSession&&) = delete;
  ~ProfilerSession() { (void)close(); }
  /// The plugin's code.
  int32_t close();

  [[nodiscard]] bool has(const EventKind& kind) const noexcept {
    return kind.since <= profiler_->version();
  }
  /// Overwrites the descriptor after the call.
  [[nodiscard]] Result<EventHandle> start(uint64_t type, EventHandle parent, EventHandle group);
  [[nodiscard]] Result<void> record(EventHandle event, int state);
  /// Records all of the kind's states in order.
  [[nodiscard]] Result<void> record_all(EventHandle event, const EventKind& kind);
  [[nodiscard]] Result<void> stop(EventHandle event);
  [[nodiscard]] Monitor& monitor() const noexcept { return profiler_->fixture().monitor(); }
  [[nodiscard]] Fixture& fixture() const noexcept { return profiler_->fixture(); }
  [[nodiscard]] int mask() const noexcept { return profiler_->mask(); }

 private:
  ProfilerSession(const NcclProfiler& profiler, const Comm& comm)
      : profiler_(&profiler), comm_(comm) {}
  const NcclProfiler* profiler_;
  Comm comm_;
  void* raw_ = nullptr;
  bool is_open_ = false;
};

}  // namespace plexus::conformance
