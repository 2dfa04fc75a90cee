// SPDX-License-Identifier: Apache-2.0
// Events of a profiler of NCCL's ABI: every kind, alone and below its parents, in any order, from
// several threads, and events that are never stopped.
#include <algorithm>
#include <array>
#include <string>
#include <thread>
#include <vector>

#include "tools/conformance/check.hpp"
#include "tools/conformance/nccl_profiler.hpp"

namespace plexus::conformance {
namespace {

using Session = ProfilerSession;

template <Result<void> (*f)(Session&)>
Result<void> on_session(Fixture& fixture) {
  PLEXUS_TRY(profiler, NcclProfiler::load(fixture));
  PLEXUS_TRY(session, Session::open(profiler, {}));
  return f(session);
}

/// The events of a collective (or of a message), from the user's call to a step of the network.
struct Tree {
  EventHandle group_api = nullptr;
  EventHandle api = nullptr;
  EventHandle group = nullptr;
  EventHandle task = nullptr;
  EventHandle op = nullptr;
  EventHandle step = nullptr;
};

bool has_api(const Session& session) { return session.has(event_kind(NCCL_PROFILE_GROUP_API)); }

Result<void> start_task(Session& session, Tree& tree, bool is_p2p) {
  if (has_api(session)) {
    PLEXUS_TRY(group_api, session.start(NCCL_PROFILE_GROUP_API, nullptr, nullptr));
    PLEXUS_TRY(api, session.start(is_p2p ? NCCL_PROFILE_P2P_API : NCCL_PROFILE_COLL_API, group_api,
                                  nullptr));
    tree.group_api = group_api;
    tree.api = api;
  }
  PLEXUS_TRY(group, session.start(NCCL_PROFILE_GROUP, tree.group_api, nullptr));
  PLEXUS_TRY(task, session.start(is_p2p ? NCCL_PROFILE_P2P : NCCL_PROFILE_COLL, tree.api, group));
  tree.group = group;
  tree.task = task;
  return ok();
}

Result<void> start_proxy(Session& session, Tree& tree) {
  PLEXUS_TRY(op, session.start(NCCL_PROFILE_PROXY_OP, tree.task, nullptr));
  PLEXUS_TRY(step, session.start(NCCL_PROFILE_PROXY_STEP, op, nullptr));
  tree.op = op;
  tree.step = step;
  return ok();
}

std::vector<EventHandle> handles_of(const Tree& tree) {
  return {tree.group_api, tree.api, tree.group, tree.task, tree.op, tree.step};
}

Result<void> stop_all(Session& session, const std::vector<EventHandle>& handles) {
  for (EventHandle handle : handles) {
    PLEXUS_TRY(session.stop(handle));
  }
  return ok();
}

Result<void> each_kind(Session& session) {
  for (const EventKind& kind : all_event_kinds()) {
    if (session.has(kind)) {
      PLEXUS_TRY(event, session.start(kind.type, nullptr, nullptr));
      PLEXUS_TRY(session.stop(event));
    }
  }
  return ok();
}

Result<void> each_state(Session& session) {
  for (const EventKind& kind : all_event_kinds()) {
    if (session.has(kind)) {
      PLEXUS_TRY(event, session.start(kind.type, nullptr, nullptr));
      PLEXUS_TRY(session.record_all(event, kind));
      PLEXUS_TRY(session.record_all(event, kind));  // proxy steps repeat their states
      PLEXUS_TRY(session.stop(event));
    }
  }
  return ok();
}

/// Children end before their parents.
Result<void> whole_tree(Session& session) {
  for (const bool is_p2p : {false, true}) {
    Tree tree;
    PLEXUS_TRY(start_task(session, tree, is_p2p));
    PLEXUS_TRY(start_proxy(session, tree));
    PLEXUS_TRY(session.record_all(tree.op, event_kind(NCCL_PROFILE_PROXY_OP)));
    PLEXUS_TRY(session.record_all(tree.step, event_kind(NCCL_PROFILE_PROXY_STEP)));
    for (const uint64_t below : {NCCL_PROFILE_KERNEL_CHANNEL, NCCL_PROFILE_NET_PLUGIN}) {
      PLEXUS_TRY(
          child,
          session.start(below, below == NCCL_PROFILE_NET_PLUGIN ? tree.step : tree.task, nullptr));
      PLEXUS_TRY(session.stop(child));
    }
    std::vector<EventHandle> handles = handles_of(tree);
    std::reverse(handles.begin(), handles.end());
    PLEXUS_TRY(stop_all(session, handles));
  }
  return ok();
}

/// Only events that the mask asks for, and their parents.
Result<void> wanted_only(Session& session) {
  const auto mask = static_cast<uint64_t>(session.mask());
  for (const EventKind& kind : all_event_kinds()) {
    if (session.has(kind) && (mask & kind.type) != 0) {
      PLEXUS_TRY(event, session.start(kind.type, nullptr, nullptr));
      PLEXUS_TRY(session.record_all(event, kind));
      PLEXUS_TRY(session.stop(event));
    }
  }
  return ok();
}

/// The parents end first, then the children.
Result<void> parents_first(Session& session) {
  for (const bool is_p2p : {false, true}) {
    Tree tree;
    PLEXUS_TRY(start_task(session, tree, is_p2p));
    PLEXUS_TRY(start_proxy(session, tree));
    PLEXUS_TRY(stop_all(session, handles_of(tree)));
  }
  return ok();
}

/// A collective is stopped when it is enqueued; its steps start later.
Result<void> late_children(Session& session) {
  for (const bool is_p2p : {false, true}) {
    Tree tree;
    PLEXUS_TRY(start_task(session, tree, is_p2p));
    PLEXUS_TRY(stop_all(session, handles_of(tree)));
    PLEXUS_TRY(start_proxy(session, tree));
    PLEXUS_TRY(session.record(tree.step, NCCL_PROFILE_SEND_WAIT));
    PLEXUS_TRY(session.stop(tree.step));
    PLEXUS_TRY(session.stop(tree.op));
  }
  return ok();
}

Result<void> interleaved(Session& session) {
  constexpr size_t kAtOnce = 8;
  std::vector<EventHandle> open;
  for (int round = 0; round < 200; ++round) {
    const uint64_t type = round % 2 == 0 ? NCCL_PROFILE_PROXY_OP : NCCL_PROFILE_COLL;
    PLEXUS_TRY(event, session.start(type, nullptr, nullptr));
    open.push_back(event);
    if (open.size() == kAtOnce) {
      const auto chosen = open.begin() + (round * 5) % static_cast<int>(kAtOnce);
      PLEXUS_TRY(session.stop(*chosen));
      open.erase(chosen);
    }
  }
  return stop_all(session, open);
}

Result<void> two_communicators(Fixture& fixture) {
  PLEXUS_TRY(profiler, NcclProfiler::load(fixture));
  PLEXUS_TRY(first, Session::open(profiler, {"first", 1, 2, 8, 0}));
  PLEXUS_TRY(second, Session::open(profiler, {"second", 2, 2, 8, 0}));
  Tree one;
  Tree other;
  PLEXUS_TRY(start_task(first, one, false));
  PLEXUS_TRY(start_task(second, other, true));
  PLEXUS_TRY(start_proxy(first, one));
  PLEXUS_TRY(start_proxy(second, other));
  PLEXUS_TRY(stop_all(first, handles_of(one)));
  PLEXUS_TRY(
      expect(first.close() == PLEXUS_OK, "finalize failed: {}", fixture.monitor().last_failure()));
  PLEXUS_TRY(second.record(other.step, NCCL_PROFILE_RECV_WAIT));
  return stop_all(second, handles_of(other));
}

/// One thread per rank starts tasks and another reports their steps, like the user's and the
/// proxy's.
Result<void> threads(Session& session) {
  constexpr int kTimes = 500;
  std::array<std::string, 4> problems;
  std::vector<std::thread> running;
  for (std::string& problem : problems) {
    running.emplace_back([&] {
      const auto use = [&]() -> Result<void> {
        for (int i = 0; i < kTimes; ++i) {
          Tree tree;
          PLEXUS_TRY(start_task(session, tree, i % 2 == 1));
          PLEXUS_TRY(start_proxy(session, tree));
          PLEXUS_TRY(session.record(tree.step, NCCL_PROFILE_SEND_WAIT));
          PLEXUS_TRY(stop_all(session, handles_of(tree)));
        }
        return ok();
      };
      const Result<void> result = use();
      problem = result.has_error() ? result.error().message() : "";
    });
  }
  for (std::thread& thread : running) {
    thread.join();
  }
  for (const std::string& problem : problems) {
    PLEXUS_TRY(expect(problem.empty(), "one of 4 threads: {}", problem));
  }
  return ok();
}

Result<void> another_thread_stops(Session& session) {
  Tree tree;
  PLEXUS_TRY(start_task(session, tree, false));
  std::string problem;
  std::thread proxy([&] {
    const auto use = [&]() -> Result<void> {
      PLEXUS_TRY(start_proxy(session, tree));
      PLEXUS_TRY(session.record(tree.step, NCCL_PROFILE_SEND_WAIT));
      return stop_all(session, handles_of(tree));
    };
    const Result<void> result = use();
    problem = result.has_error() ? result.error().message() : "";
  });
  proxy.join();
  return expect(problem.empty(), "events started by one thread, stopped by another: {}", problem);
}

Result<void> many_open(Session& session) {
  constexpr int kEvents = 20000;
  std::vector<EventHandle> open;
  for (int i = 0; i < kEvents; ++i) {
    PLEXUS_TRY(event, session.start(NCCL_PROFILE_PROXY_STEP, nullptr, nullptr));
    open.push_back(event);
  }
  return stop_all(session, open);
}

Result<void> finalize_open(Session& session) {
  Tree tree;
  PLEXUS_TRY(start_task(session, tree, false));
  PLEXUS_TRY(start_proxy(session, tree));
  PLEXUS_TRY(session.stop(tree.task));
  return expect(session.close() == PLEXUS_OK, "finalize with 5 events open failed: {}",
                session.monitor().last_failure());
}

constexpr const char* kEventRule =
    "plugin ABI 9: startEvent makes a handle (null: not tracked), recordEventState and stopEvent "
    "take it";
constexpr const char* kOrderRule =
    "plugin ABI 9: parentObj is the parent's handle; nothing says that a parent outlives its "
    "children";
constexpr const char* kThreadRule =
    "plugin ABI 9: ranks and their proxies are threads of one process";

constexpr std::array kChecks = {
    Check{
        "event.each", "accepts every kind of event, requested or not",
        "plugin ABI 9: the mask is process-global: kinds that another communicator wants come too",
        on_session<each_kind>},
    Check{"event.wanted", "accepts the kinds that it requests", kEventRule,
          on_session<wanted_only>},
    Check{"event.states", "accepts every state of every kind", "plugin ABI 9: event states",
          on_session<each_state>},
    Check{"event.tree", "accepts events with their parents", kOrderRule, on_session<whole_tree>},
    Check{"event.parents_first", "lets parents end before their children", kOrderRule,
          on_session<parents_first>},
    Check{"event.late", "accepts children of a parent that has ended",
          "plugin ABI 9: a collective ends when it is enqueued, its proxy steps come later",
          on_session<late_children>},
    Check{"event.interleaved", "lets events end in any order", kEventRule, on_session<interleaved>},
    Check{"event.communicators", "keeps the events of two communicators apart", kEventRule,
          two_communicators},
    Check{"event.threads",
          "accepts events of several threads",
          kThreadRule,
          on_session<threads>,
          {.is_alone = true}},
    Check{"event.other_thread", "lets another thread stop an event", kThreadRule,
          on_session<another_thread_stops>},
    Check{"event.many", "accepts 20000 events that are open at once",
          "plugin ABI 9: a null handle is an event that is not tracked, no failure",
          on_session<many_open>},
    Check{"event.open",
          "can be finalized with events open",
          "an aborted communicator has events that nobody stops",
          on_session<finalize_open>,
          {.limit = seconds(10)}},
};

}  // namespace

CheckTable event_checks() { return kChecks; }

}  // namespace plexus::conformance
