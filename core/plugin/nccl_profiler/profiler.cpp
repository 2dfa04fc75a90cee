// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/nccl_profiler/profiler.hpp"

#include <atomic>
#include <optional>
#include <type_traits>

#include "core/base/log.hpp"
#include "core/base/text.hpp"
#include "core/plugin/guarded.hpp"
#include "core/plugin/library_search.hpp"
#include "core/plugin/nccl_net/log.hpp"
#include "core/plugin/nccl_table.hpp"

namespace plexus {
namespace {

constexpr const char* kDefaultProfiler = "libnccl-profiler.so";

/// The event types that have `type` as an ancestor, and `type` itself.
constexpr uint64_t family_of(uint64_t type) {
  constexpr uint64_t kStep = NCCL_PROFILE_PROXY_STEP | NCCL_PROFILE_NET_PLUGIN;
  constexpr uint64_t kOp = NCCL_PROFILE_PROXY_OP | kStep;
  constexpr uint64_t kBelowTask = kOp | NCCL_PROFILE_KERNEL_CHANNEL;
  constexpr uint64_t kTasks = NCCL_PROFILE_COLL | NCCL_PROFILE_P2P | kBelowTask;
  switch (type) {
    case NCCL_PROFILE_PROXY_STEP:
      return kStep;
    case NCCL_PROFILE_PROXY_OP:
      return kOp;
    case NCCL_PROFILE_COLL:
    case NCCL_PROFILE_P2P:
      return type | kBelowTask;
    case NCCL_PROFILE_GROUP:
      return type | kTasks;
    case NCCL_PROFILE_COLL_API:
      return type | NCCL_PROFILE_COLL | kBelowTask;
    case NCCL_PROFILE_P2P_API:
      return type | NCCL_PROFILE_P2P | kBelowTask;
    case NCCL_PROFILE_GROUP_API:
      return type | NCCL_PROFILE_COLL_API | NCCL_PROFILE_P2P_API | NCCL_PROFILE_KERNEL_LAUNCH |
             kTasks;
    default:
      return type;
  }
}

nccl_profile_p2p_v4_t to_v4(const nccl_profile_p2p_v5_t& p2p) {
  return {p2p.function, p2p.buffer, p2p.datatype, p2p.count, p2p.peer, p2p.channels};
}

/// The calls that are the same in all versions.
template <class Table>
class TableProfiler : public Profiler {
 public:
  TableProfiler(const Table* table, int* mask) : Profiler(mask), table_(table) {}
  [[nodiscard]] const char* name() const noexcept override { return table_->name; }
  int32_t stop(void* event) noexcept override {
    return guarded([&] { return table_->stop(event); });
  }
  int32_t record(void* event, int state, nccl_profile_state_t* what) noexcept override {
    return guarded([&] { return table_->record_state(event, state, what); });
  }
  void finalize() noexcept override {
    if (context_ != nullptr) {  // as in NCCL, nothing is finalized without a context
      (void)guarded([&] { return table_->finalize(context_); });
    }
  }

 protected:
  const Table* const table_;
};

class ProfilerV4 final : public TableProfiler<nccl_profiler_v4_t> {
 public:
  using TableProfiler::TableProfiler;
  int32_t init(const ProfiledComm& comm) {
    return table_->init(&context_, mask_, comm.name.c_str(), comm.id, comm.nnodes, comm.nranks,
                        comm.rank, nccl_net::log_from_nccl_plugin);
  }
  int32_t start(nccl_profile_event_v7_t what,
                void* parent,
                void* group,
                void** event) noexcept override {
    nccl_profile_event_v4_t old{};
    old.type = static_cast<uint8_t>(what.type);
    old.parent = parent;
    old.rank = what.rank;
    switch (what.type) {
      case NCCL_PROFILE_GROUP:
        break;
      case NCCL_PROFILE_COLL:
        old.parent = group;
        old.is.coll = what.is.coll.v5.v4;
        break;
      case NCCL_PROFILE_P2P:
        old.parent = group;
        old.is.p2p = to_v4(what.is.p2p.v5);
        break;
      case NCCL_PROFILE_PROXY_OP:
        old.is.proxy_op = what.is.proxy_op;
        break;
      case NCCL_PROFILE_PROXY_STEP:
        old.is.proxy_step = what.is.proxy_step;
        break;
      case NCCL_PROFILE_KERNEL_CHANNEL:
        old.is.kernel_channel = what.is.kernel_channel;
        break;
      default:
        return PLEXUS_OK;  // v4 has no such event
    }
    return guarded([&] { return table_->start(context_, event, &old); });
  }
};

/// As v5 has it: without what v7 appends. Of an event that v5 does not have, nothing.
nccl_profile_event_v5_t to_v5(const nccl_profile_event_v7_t& what) {
  nccl_profile_event_v5_t old{};
  old.type = what.type;
  old.parent = what.parent;
  old.rank = what.rank;
  switch (what.type) {
    case NCCL_PROFILE_COLL:
      old.is.coll = what.is.coll.v5;
      break;
    case NCCL_PROFILE_P2P:
      old.is.p2p = what.is.p2p.v5;
      break;
    case NCCL_PROFILE_COLL_API:
      old.is.coll_api = what.is.coll_api.v5;
      break;
    case NCCL_PROFILE_P2P_API:
      old.is.p2p_api = what.is.p2p_api.v5;
      break;
    case NCCL_PROFILE_GROUP_API:
      old.is.group_api = what.is.group_api;
      break;
    case NCCL_PROFILE_KERNEL_LAUNCH:
      old.is.kernel_launch = what.is.kernel_launch;
      break;
    case NCCL_PROFILE_PROXY_OP:
      old.is.proxy_op = what.is.proxy_op;
      break;
    case NCCL_PROFILE_PROXY_STEP:
      old.is.proxy_step = what.is.proxy_step;
      break;
    case NCCL_PROFILE_KERNEL_CHANNEL:
      old.is.kernel_channel = what.is.kernel_channel;
      break;
    default:
      break;
  }
  return old;
}

/// v5 to v7, whose tables differ in the descriptions only. v6 and v7 add kinds of events that host
/// ranks do not have.
template <class Table>
class ProfilerV5 final : public TableProfiler<Table> {
 public:
  using TableProfiler<Table>::TableProfiler;
  int32_t init(const ProfiledComm& comm) {
    return this->table_->init(&this->context_, comm.id, this->mask_, comm.name.c_str(), comm.nnodes,
                              comm.nranks, comm.rank, nccl_net::log_from_nccl_plugin);
  }
  int32_t start(nccl_profile_event_v7_t what,
                void* parent,
                void* group,
                void** event) noexcept override {
    what.parent = parent;
    if (what.type == NCCL_PROFILE_COLL) {
      what.is.coll.v5.parent_group = group;
    } else if (what.type == NCCL_PROFILE_P2P) {
      what.is.p2p.v5.parent_group = group;
    }
    return guarded([&] {
      if constexpr (std::is_same_v<Table, nccl_profiler_v7_t>) {
        return this->table_->start(this->context_, event, &what);
      } else {
        auto old = to_v5(what);
        return this->table_->start(this->context_, event, &old);
      }
    });
  }
};

/// The initialised profiler; null: it refused, and the job runs without it.
template <class Made, class Table>
std::unique_ptr<Profiler> init_profiler(const Table& table, const ProfiledComm& comm, int* mask) {
  auto made = std::make_unique<Made>(&table, mask);
  const int32_t code = guarded([&] { return made->init(comm); });
  if (code != PLEXUS_OK) {
    PLEXUS_WARN("profiler {} did not start (code {}) and is not used", table.name, code);
    return nullptr;
  }
  return made;
}

template <class Table>
bool is_complete(const Table& table) {
  return table.name != nullptr && table.init != nullptr && table.start != nullptr &&
         table.stop != nullptr && table.record_state != nullptr && table.finalize != nullptr;
}

template <class Made, class Table>
Result<std::unique_ptr<Profiler>> make_profiler(const Library& library,
                                                const NcclTable& found,
                                                const ProfiledComm& comm,
                                                ProfilerMasks& masks) {
  const auto context = [&] { return fmt::format("profiler plugin {}", library.path().string()); };
  if (auto checked = found.check_size(sizeof(Table)); checked.has_error()) {
    return std::move(checked.error()).with_context(context());
  }
  const auto& table = *static_cast<const Table*>(found.object.address);
  if (!is_complete(table)) {
    return fail(Code::kInvalidUsage, "{}: its {} has null entries; rebuild it", context(),
                found.symbol);
  }
  auto profiler = init_profiler<Made>(table, comm, masks.find_or_make(&table));
  if (profiler != nullptr) {
    PLEXUS_INFO(kInit, "profiler {} ({}) from {}", profiler->name(), found.symbol,
                library.path().string());
  }
  return profiler;
}

Result<std::unique_ptr<Profiler>> open_profiler(const Library& library,
                                                const ProfiledComm& comm,
                                                ProfilerMasks& masks) {
  constexpr const char* kStem = "ncclProfiler";
  if (const auto table = find_newest_table(library, kStem, {4, 7})) {
    if (table->version == 7) {
      return make_profiler<ProfilerV5<nccl_profiler_v7_t>, nccl_profiler_v7_t>(library, *table,
                                                                               comm, masks);
    }
    return table->version == 4
               ? make_profiler<ProfilerV4, nccl_profiler_v4_t>(library, *table, comm, masks)
               : make_profiler<ProfilerV5<nccl_profiler_v5_t>, nccl_profiler_v5_t>(library, *table,
                                                                                   comm, masks);
  }
  if (const auto other = find_newest_table(library, kStem, kAnyNcclVersion)) {
    return fail(Code::kInvalidUsage,
                "profiler plugin {} has {}, expected ncclProfiler_v4 to v7; use a build of it for "
                "an NCCL version in that range",
                library.path().string(), other->symbol);
  }
  return fail(Code::kInvalidUsage,
              "{} has none of ncclProfiler_v4 to v7: it is not a profiler plugin; correct the name "
              "in NCCL_PROFILER_PLUGIN",
              library.path().string());
}

}  // namespace

int* ProfilerMasks::find_or_make(const void* table) {
  const std::scoped_lock lock(mutex_);
  std::shared_ptr<int>& mask = masks_[table];
  if (mask == nullptr) {
    mask = std::make_shared<int>(0);
  }
  return mask.get();
}

bool Profiler::wants(uint64_t type) const noexcept {
  // The plugin may write the mask from a thread of its own, to switch profiling on and off.
  const int mask = __atomic_load_n(mask_, __ATOMIC_RELAXED);
  return (static_cast<uint64_t>(mask) & family_of(type)) != 0 &&
         !is_off_.load(std::memory_order_relaxed);
}

bool Profiler::complain(const char* call, int32_t code) noexcept {
  if (code == PLEXUS_OK) {
    return false;
  }
  if (!is_off_.exchange(true)) {
    PLEXUS_WARN("profiler {}: {} failed with code {}; the profiler is switched off", name(), call,
                code);
  }
  return true;
}

Result<std::unique_ptr<ProfilerSet>> ProfilerSet::open(const ProfilerOptions& options,
                                                       const ProfiledComm& comm,
                                                       ProfilerMasks& masks) {
  std::unique_ptr<ProfilerSet> set(new ProfilerSet(comm));
  const std::string wanted = options.plugins.empty() ? kDefaultProfiler : options.plugins;
  for (const std::string_view name : split_list(wanted, ',')) {
    if (name == "none") {
      continue;
    }
    if (set->profilers_.size() == kProfilersMax) {
      return fail(Code::kInvalidUsage, "NCCL_PROFILER_PLUGIN lists more than {} profilers",
                  kProfilersMax);
    }
    auto library = find_library({.kind = "profiler",
                                 .setting = "NCCL_PROFILER_PLUGIN",
                                 .name = std::string(name),
                                 .folders = options.folders,
                                 .own_folder = options.own_folder});
    if (library.has_error()) {
      if (options.plugins.empty()) {
        break;  // no profiler asked for it
      }
      return std::move(library).error();
    }
    PLEXUS_TRY(profiler, open_profiler(library.value(), set->comm_, masks));
    if (profiler != nullptr) {
      set->profilers_.push_back(std::move(profiler));
    }
  }
  return set->profilers_.empty() ? nullptr : std::move(set);
}

ProfilerSet::~ProfilerSet() {
  for (const auto& profiler : profilers_) {
    profiler->finalize();
  }
}

bool ProfilerSet::wants(uint64_t type) const noexcept {
  for (const auto& profiler : profilers_) {
    if (profiler->wants(type)) {
      return true;
    }
  }
  return false;
}

ProfileEvent ProfilerSet::start(const nccl_profile_event_v7_t& what,
                                const ProfileEvent* parent,
                                const ProfileEvent* group) noexcept {
  ProfileEvent event;
  for (size_t i = 0; i < profilers_.size(); ++i) {
    if (!profilers_[i]->wants(what.type)) {
      continue;
    }
    const int32_t code =
        profilers_[i]->start(what, parent == nullptr ? nullptr : parent->handles[i],
                             group == nullptr ? nullptr : group->handles[i], &event.handles[i]);
    if (profilers_[i]->complain("startEvent", code)) {
      event.handles[i] = nullptr;
    }
  }
  return event;
}

void ProfilerSet::record(const ProfileEvent& event, int state, uint64_t number) noexcept {
  for (size_t i = 0; i < profilers_.size(); ++i) {
    if (event.handles[i] != nullptr) {
      nccl_profile_state_t what{};
      what.kernel_timer = number;  // all numbers of the union are at the same offset
      profilers_[i]->complain("recordEventState",
                              profilers_[i]->record(event.handles[i], state, &what));
    }
  }
}

void ProfilerSet::stop(ProfileEvent& event) noexcept {
  for (size_t i = 0; i < profilers_.size(); ++i) {
    if (void* const handle = std::exchange(event.handles[i], nullptr); handle != nullptr) {
      profilers_[i]->complain("stopEvent", profilers_[i]->stop(handle));
    }
  }
}

}  // namespace plexus
