// SPDX-License-Identifier: Apache-2.0
#include "tools/conformance/nccl_profiler.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <type_traits>
#include <unistd.h>

#include "core/base/immortal.hpp"
#include "core/plugin/nccl_net/log.hpp"
#include "core/plugin/nccl_profiler/profiler.hpp"

namespace plexus::conformance {
namespace {

template <class Call>
int32_t call(Monitor& monitor, Place place, const char* name, const Call& made) {
  return monitor.call(place, [&] {
    nccl_net::LogScope scope({&Monitor::write_line, monitor.sink()});
    return scope.finish(name, made());
  });
}

template <class Table>
const Table& as(const NcclProfiler& profiler) {
  return *static_cast<const Table*>(profiler.table());
}

/// States by the ABI's numbers; those without a name in plugin-api: 13 to 18 for control, 21 for
/// the net plugin, 22 for the kernel. Events of v6's copy engine are not sent, because the kit does
/// not know their descriptors.
constexpr std::array<EventKind, 12> kKinds = {
    {{NCCL_PROFILE_GROUP_API,
      "group API",
      5,
      {NCCL_PROFILE_GROUP_START_DONE, NCCL_PROFILE_GROUP_END_BEGIN}},
     {NCCL_PROFILE_COLL_API, "collective API", 5, {}},
     {NCCL_PROFILE_P2P_API, "p2p API", 5, {}},
     {NCCL_PROFILE_KERNEL_LAUNCH, "kernel launch", 5, {}},
     {NCCL_PROFILE_GROUP, "group", 4, {}},
     {NCCL_PROFILE_COLL, "collective", 4, {}},
     {NCCL_PROFILE_P2P, "p2p", 4, {}},
     {NCCL_PROFILE_PROXY_OP, "proxy op", 4, {NCCL_PROFILE_OP_IN_PROGRESS}},
     {NCCL_PROFILE_PROXY_STEP,
      "proxy step",
      4,
      {NCCL_PROFILE_SEND_GPU_WAIT, NCCL_PROFILE_SEND_PEER_WAIT, NCCL_PROFILE_SEND_WAIT,
       NCCL_PROFILE_RECV_WAIT, NCCL_PROFILE_RECV_FLUSH_WAIT, NCCL_PROFILE_RECV_GPU_WAIT}},
     {NCCL_PROFILE_PROXY_CTRL, "proxy control", 4, {13, 14, 15, 16, 17, 18}},
     {NCCL_PROFILE_KERNEL_CHANNEL, "kernel channel", 4, {22}},
     {NCCL_PROFILE_NET_PLUGIN, "net plugin", 4, {21}}}};

nccl_profile_coll_v4_t make_coll() {
  nccl_profile_coll_v4_t coll{};
  coll.function = "AllReduce";
  coll.count = 1024;
  coll.datatype = "ncclFloat32";
  coll.channels = 2;
  coll.algorithm = "RING";
  coll.protocol = "SIMPLE";
  return coll;
}

/// An id that no network has (type << 16
/// version; NVIDIA's are type 1, IB, and 2, Socket). A profiler interprets the data of networks
/// that it knows.
constexpr int64_t kUnknownNetwork = 0x7FFF0001;

nccl_profile_p2p_v5_t make_p2p(void* group) {
  return {"Send", nullptr, "ncclInt8", 64, 1, 1, group};
}

nccl_profile_proxy_op_t make_op() { return {::getpid(), 0, 1, 4, 1 << 17, 1}; }

void describe(nccl_profile_event_v4_t& what) {
  switch (what.type) {
    case NCCL_PROFILE_COLL:
      what.is.coll = make_coll();
      return;
    case NCCL_PROFILE_P2P: {
      const auto p2p = make_p2p(nullptr);
      what.is.p2p = {p2p.function, p2p.buffer, p2p.datatype, p2p.count, p2p.peer, p2p.channels};
      return;
    }
    case NCCL_PROFILE_PROXY_OP:
      what.is.proxy_op = make_op();
      return;
    case NCCL_PROFILE_PROXY_STEP:
      what.is.proxy_step = {2};
      return;
    case NCCL_PROFILE_NET_PLUGIN:
      what.is.net_plugin = {kUnknownNetwork, nullptr};
      return;
    default:
      return;
  }
}

void describe(nccl_profile_event_v5_t& what, void* group) {
  switch (what.type) {
    case NCCL_PROFILE_GROUP_API:
      what.is.group_api = {false, 1};
      return;
    case NCCL_PROFILE_COLL_API:
      what.is.coll_api = {"AllReduce", 1024, "ncclFloat32", 0, nullptr, false};
      return;
    case NCCL_PROFILE_P2P_API:
      what.is.p2p_api = {"Send", 64, "ncclInt8", nullptr, false};
      return;
    case NCCL_PROFILE_COLL:
      what.is.coll = {make_coll(), group};
      return;
    case NCCL_PROFILE_P2P:
      what.is.p2p = make_p2p(group);
      return;
    case NCCL_PROFILE_PROXY_OP:
      what.is.proxy_op = make_op();
      return;
    case NCCL_PROFILE_PROXY_STEP:
      what.is.proxy_step = {2};
      return;
    case NCCL_PROFILE_NET_PLUGIN:
      what.is.net_plugin = {kUnknownNetwork, nullptr};
      return;
    default:
      return;
  }
}

/// With a tag, as a user sets one.
void describe(nccl_profile_event_v7_t& what, void* group) {
  constexpr uint64_t kTag = 0x7a6;
  nccl_profile_event_v5_t old{};
  old.type = what.type;
  describe(old, group);
  switch (what.type) {
    case NCCL_PROFILE_COLL_API:
      what.is.coll_api = {old.is.coll_api, kTag};
      return;
    case NCCL_PROFILE_P2P_API:
      what.is.p2p_api = {old.is.p2p_api, kTag};
      return;
    case NCCL_PROFILE_COLL:
      what.is.coll = {old.is.coll, nullptr, false, kTag};
      return;
    case NCCL_PROFILE_P2P:
      what.is.p2p = {old.is.p2p, kTag};
      return;
    default:  // unchanged, and shorter
      static_assert(sizeof(old.is) <= sizeof(what.is));
      std::memcpy(&what.is, &old.is, sizeof(old.is));
      return;
  }
}

constexpr int kGarbage = 0xEE;

}  // namespace

std::span<const EventKind> all_event_kinds() { return kKinds; }

const EventKind& event_kind(uint64_t type) {
  return *std::find_if(kKinds.begin(), kKinds.end(),
                       [&](const EventKind& kind) { return kind.type == type; });
}

NcclProfiler::NcclProfiler(Fixture& fixture, NcclTable table)
    : fixture_(&fixture),
      table_(std::move(table)),
      mask_(Immortal<ProfilerMasks>::instance().find_or_make(table_.object.address)) {}

Result<NcclProfiler> NcclProfiler::load(Fixture& fixture) {
  PLEXUS_TRY(table, load_table(fixture, "ncclProfiler", {4, 7}));
  return NcclProfiler(fixture, std::move(table));
}

std::string NcclProfiler::name() const {
  const char* const text = as<nccl_profiler_v5_t>(*this).name;
  return text == nullptr ? "" : text;
}

bool NcclProfiler::has_entries() const noexcept {
  const auto& table = as<nccl_profiler_v5_t>(*this);
  return table.name != nullptr && table.init != nullptr && table.start != nullptr &&
         table.stop != nullptr && table.record_state != nullptr && table.finalize != nullptr;
}

Result<ProfilerSession> ProfilerSession::open(const NcclProfiler& profiler, const Comm& comm) {
  if (!profiler.has_entries()) {
    return wrong("an entry of its {} is null", profiler.entry());
  }
  ProfilerSession session(profiler, comm);
  const int32_t code = call(session.monitor(), Place::kInit, "init", [&] {
    if (profiler.version() == 4) {
      return as<nccl_profiler_v4_t>(profiler).init(&session.raw_, profiler.mask_, comm.name,
                                                   comm.id, comm.nnodes, comm.nranks, comm.rank,
                                                   nccl_net::log_from_nccl_plugin);
    }
    return as<nccl_profiler_v5_t>(profiler).init(&session.raw_, comm.id, profiler.mask_, comm.name,
                                                 comm.nnodes, comm.nranks, comm.rank,
                                                 nccl_net::log_from_nccl_plugin);
  });
  if (code != PLEXUS_OK) {
    return wrong("init failed with code {}: {}", code, session.monitor().last_failure());
  }
  session.is_open_ = true;
  return session;
}

int32_t ProfilerSession::close() {
  // as in NCCL, nothing is finalized without a context
  if (!std::exchange(is_open_, false) || raw_ == nullptr) {
    return PLEXUS_OK;
  }
  return call(monitor(), Place::kFinalize, "finalize",
              [&] { return as<nccl_profiler_v5_t>(*profiler_).finalize(raw_); });
}

Result<EventHandle> ProfilerSession::start(uint64_t type, EventHandle parent, EventHandle group) {
  EventHandle event = nullptr;
  int32_t code = PLEXUS_OK;
  const auto give = [&]<class Table>(auto what, std::type_identity<Table> /*table*/) {
    code = call(monitor(), Place::kStartEvent, "startEvent",
                [&] { return as<Table>(*profiler_).start(raw_, &event, what.get()); });
    std::memset(static_cast<void*>(what.get()), kGarbage, sizeof *what);
  };
  const auto fill = [&](auto what) {
    what->type = type;
    what->parent = parent;
    what->rank = comm_.rank;
    describe(*what, group);
    return what;
  };
  if (profiler_->version() == 4) {
    auto what = std::make_unique<nccl_profile_event_v4_t>();
    what->type = static_cast<uint8_t>(type);
    what->parent = group != nullptr ? group : parent;
    what->rank = comm_.rank;
    describe(*what);
    give(std::move(what), std::type_identity<nccl_profiler_v4_t>{});
  } else if (profiler_->version() < 7) {
    give(fill(std::make_unique<nccl_profile_event_v5_t>()),
         std::type_identity<nccl_profiler_v5_t>{});
  } else {
    give(fill(std::make_unique<nccl_profile_event_v7_t>()),
         std::type_identity<nccl_profiler_v7_t>{});
  }
  if (code != PLEXUS_OK) {
    return wrong("startEvent of a {} failed with code {}: {}", event_kind(type).name, code,
                 monitor().last_failure());
  }
  return event;
}

Result<void> ProfilerSession::record(EventHandle event, int state) {
  if (event == nullptr) {
    return ok();
  }
  nccl_profile_state_t what{};
  const int32_t code = call(monitor(), Place::kRecordState, "recordEventState", [&] {
    return as<nccl_profiler_v5_t>(*profiler_).record_state(event, state, &what);
  });
  if (code != PLEXUS_OK) {
    return wrong("recordEventState of state {} failed with code {}: {}", state, code,
                 monitor().last_failure());
  }
  return ok();
}

Result<void> ProfilerSession::record_all(EventHandle event, const EventKind& kind) {
  for (const int state : kind.states) {
    if (state != 0) {
      PLEXUS_TRY(record(event, state));
    }
  }
  return ok();
}

Result<void> ProfilerSession::stop(EventHandle event) {
  if (event == nullptr) {
    return ok();
  }
  const int32_t code = call(monitor(), Place::kStopEvent, "stopEvent",
                            [&] { return as<nccl_profiler_v5_t>(*profiler_).stop(event); });
  if (code != PLEXUS_OK) {
    return wrong("stopEvent failed with code {}: {}", code, monitor().last_failure());
  }
  return ok();
}

}  // namespace plexus::conformance
