// SPDX-License-Identifier: Apache-2.0
// A profiler of NCCL's ABI: its table, its contexts, duration, and leaks. Events: event.cpp.
#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <unistd.h>

#include "tools/conformance/check.hpp"
#include "tools/conformance/leaks.hpp"
#include "tools/conformance/nccl_profiler.hpp"
#include "tools/conformance/process_state.hpp"

namespace plexus::conformance {
namespace {

using Session = ProfilerSession;

template <Result<void> (*f)(Session&)>
Result<void> on_session(Fixture& fixture) {
  PLEXUS_TRY(profiler, NcclProfiler::load(fixture));
  PLEXUS_TRY(session, Session::open(profiler, {}));
  return f(session);
}

/// Reports a collective with a step of its proxy.
Result<void> tell_collective(Session& session) {
  PLEXUS_TRY(group, session.start(NCCL_PROFILE_GROUP, nullptr, nullptr));
  PLEXUS_TRY(coll, session.start(NCCL_PROFILE_COLL, nullptr, group));
  PLEXUS_TRY(op, session.start(NCCL_PROFILE_PROXY_OP, coll, nullptr));
  PLEXUS_TRY(step, session.start(NCCL_PROFILE_PROXY_STEP, op, nullptr));
  PLEXUS_TRY(session.record(step, NCCL_PROFILE_SEND_WAIT));
  PLEXUS_TRY(session.stop(step));
  PLEXUS_TRY(session.stop(op));
  PLEXUS_TRY(session.stop(coll));
  return session.stop(group);
}

Result<void> table(Fixture& fixture) {
  PLEXUS_TRY(profiler, NcclProfiler::load(fixture));
  constexpr size_t kBytes = sizeof(nccl_profiler_v5_t);  // for all versions
  PLEXUS_TRY(expect(profiler.size_bytes() == 0 || profiler.size_bytes() == kBytes,
                    "{} has {} bytes, expected {}", profiler.entry(), profiler.size_bytes(),
                    kBytes));
  PLEXUS_TRY(expect(profiler.has_entries(), "an entry of its {} is null", profiler.entry()));
  const std::string name = profiler.name();
  return expect(!name.empty() && std::all_of(name.begin(), name.end(),
                                             [](char c) { return c >= ' ' && c <= '~'; }),
                "its name is empty or not printable");
}

Result<void> opens_and_ends(Session& session) {
  const int32_t code = session.close();
  return expect(code == PLEXUS_OK, "finalize failed with code {}: {}", code,
                session.monitor().last_failure());
}

/// The mask may be set at the first init only, or at each: it is one for all communicators.
Result<void> keeps_the_mask(Fixture& fixture) {
  PLEXUS_TRY(profiler, NcclProfiler::load(fixture));
  PLEXUS_TRY(first, Session::open(profiler, {}));
  const int mask = profiler.mask();
  const auto expect_kept = [&](const char* by) {
    const int now = profiler.mask();
    return expect((mask & ~now) == 0,
                  "{} changes the mask from {:#x} to {:#x}, which counts for all communicators: "
                  "the one that is left loses events",
                  by, static_cast<unsigned>(mask), static_cast<unsigned>(now));
  };
  PLEXUS_TRY(second, Session::open(profiler, {}));
  PLEXUS_TRY(expect_kept("init of a second communicator"));
  PLEXUS_TRY(expect(first.close() == PLEXUS_OK, "finalize of the first of two failed: {}",
                    fixture.monitor().last_failure()));
  PLEXUS_TRY(expect_kept("finalize of the first of two communicators"));
  return tell_collective(second);
}

Result<void> any_communicator(Fixture& fixture) {
  PLEXUS_TRY(profiler, NcclProfiler::load(fixture));
  const std::string long_name(300, 'n');
  const std::array<Session::Comm, 5> comms = {{{"", 1, 1, 1, 0},
                                               {nullptr, 2, 1, 2, 1},
                                               {"a%s%n b", 3, 2, 2, 0},
                                               {long_name.c_str(), ~uint64_t{0}, 64, 512, 511},
                                               {"large", 5, 65536, 1 << 20, 1}}};
  for (const Session::Comm& comm : comms) {
    PLEXUS_TRY(session, Session::open(profiler, comm));
    PLEXUS_TRY(tell_collective(session));
  }
  return ok();
}

Result<void> several_communicators(Fixture& fixture) {
  PLEXUS_TRY(profiler, NcclProfiler::load(fixture));
  PLEXUS_TRY(first, Session::open(profiler, {"first", 1, 2, 8, 0}));
  PLEXUS_TRY(third, Session::open(profiler, {"third", 3, 2, 8, 7}));
  {
    PLEXUS_TRY(second, Session::open(profiler, {"second", 2, 1, 2, 1}));
    PLEXUS_TRY(tell_collective(second));
    PLEXUS_TRY(tell_collective(first));
  }
  PLEXUS_TRY(tell_collective(third));
  PLEXUS_TRY(expect(first.close() == PLEXUS_OK, "finalize of the first of two failed: {}",
                    fixture.monitor().last_failure()));
  PLEXUS_TRY(tell_collective(third));
  PLEXUS_TRY(expect(third.close() == PLEXUS_OK, "finalize of the last failed: {}",
                    fixture.monitor().last_failure()));
  PLEXUS_TRY(again, Session::open(profiler, {"again", 4, 1, 2, 0}));
  return tell_collective(again);
}

Result<void> many_leave_nothing(Fixture& fixture) {
  PLEXUS_TRY(profiler, NcclProfiler::load(fixture));
  const auto use = [&](int times) -> Result<void> {
    for (int i = 0; i < times; ++i) {
      PLEXUS_TRY(session, Session::open(profiler, {}));
      PLEXUS_TRY(tell_collective(session));
    }
    return ok();
  };
  return contexts_leave_nothing(fixture, use);
}

Result<void> process_is_left(Fixture& fixture) {
  const Surroundings before;
  PLEXUS_TRY(profiler, NcclProfiler::load(fixture));
  PLEXUS_TRY(session, Session::open(profiler, {}));
  PLEXUS_TRY(tell_collective(session));
  return before.expect_unchanged("it");
}

Result<void> is_quick(Session& session) {
  session.monitor().measure_this_thread();
  for (int i = 0; i < 1000; ++i) {
    PLEXUS_TRY(tell_collective(session));
  }
  for (const Place place : {Place::kStartEvent, Place::kStopEvent, Place::kRecordState}) {
    const Monitor::Times times = session.monitor().times(place);
    constexpr auto kMedian = std::chrono::microseconds(200);
    constexpr auto kLongest = seconds(1);
    PLEXUS_TRY(expect(times.median <= kMedian && times.longest <= kLongest,
                      "every second {} takes {} us or more, the longest {} us", place_name(place),
                      times.median.count() / 2000, times.longest.count() / 1000));
  }
  return ok();
}

Result<void> is_silent(Session& session) {
  PLEXUS_TRY(tell_collective(session));
  for (const LogLine& line : session.monitor().lines()) {
    PLEXUS_TRY(
        expect(line.level > PLEXUS_LOG_WARN, "it logs a warning without a fault: {}", line.text));
  }
  return expect(::lseek(STDOUT_FILENO, 0, SEEK_END) == 0, "it wrote to stdout or stderr");
}

/// A program may exit without having destroyed its communicators.
struct Unfinished {
  NcclProfiler profiler;
  std::optional<Session> session;
  EventHandle event = nullptr;
};

Result<void> exits_open(Fixture& fixture) {
  PLEXUS_TRY(profiler, NcclProfiler::load(fixture));
  // still reachable, never finalized
  static auto* const kLeft = new Unfinished{profiler, std::nullopt};
  PLEXUS_TRY(session, Session::open(kLeft->profiler, {}));
  PLEXUS_TRY(tell_collective(session));
  PLEXUS_TRY(event, session.start(NCCL_PROFILE_COLL, nullptr, nullptr));
  kLeft->event = event;
  kLeft->session.emplace(std::move(session));
  return ok();
}

Result<void> exits(Session& session) { return tell_collective(session); }

constexpr const char* kLifeRule =
    "plugin ABI 9: init per communicator and rank, finalize for each context that it gave";
constexpr const char* kTimeRule = "the proxy thread waits for each call: none may block";

constexpr std::array kChecks = {
    Check{"profiler.table", "has a complete table of its ABI",
          "plugin ABI 9: slots name, init, startEvent, stopEvent, recordEventState, finalize",
          table},
    Check{"profiler.init", "creates and finalizes a context", kLifeRule,
          on_session<opens_and_ends>},
    Check{"profiler.mask", "goes on requesting its kinds of event while a communicator is left",
          "plugin ABI 9: the mask is one for the process, and its address never changes",
          keeps_the_mask},
    Check{"profiler.any", "serves communicators of every size and name, and without one",
          "plugin ABI 9: commName is the user's, or null", any_communicator},
    Check{"profiler.several", "serves several communicators, finalized in any order", kLifeRule,
          several_communicators},
    Check{"profiler.many",
          "serves many communicators and leaks nothing",
          kLifeRule,
          many_leave_nothing,
          {.is_alone = true}},
    Check{"profiler.process", "changes no state of the process",
          "a plugin leaves the process as it is", process_is_left},
    Check{"profiler.quick",
          "spends little time on an event",
          kTimeRule,
          on_session<is_quick>,
          {.is_alone = true}},
    Check{"profiler.silent", "logs no warning without a fault",
          "plugin ABI 9: init is given the log, a plugin has no other output",
          on_session<is_silent>},
    Check{"profiler.exit",
          "lets the process exit after use",
          "no entry raises a signal, ends the process",
          on_session<exits>,
          {.exits = true}},
    Check{"profiler.exit_open",
          "lets the process exit with a communicator open",
          "a program may end without ncclCommDestroy",
          exits_open,
          {.exits = true}},
};

}  // namespace

CheckTable profiler_checks() { return kChecks; }

}  // namespace plexus::conformance
