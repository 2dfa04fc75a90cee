// SPDX-License-Identifier: Apache-2.0
// A tuner of NCCL's ABI: its table, its contexts, its leaks. Its answers are checked in
// nccl_costs.cpp.
#include "tools/conformance/nccl_tuner.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <thread>
#include <unistd.h>

#include "tools/conformance/check.hpp"
#include "tools/conformance/leaks.hpp"
#include "tools/conformance/process_state.hpp"

namespace plexus::conformance {
namespace {

using Session = NcclTunerSession;

template <Result<void> (*f)(Session&)>
Result<void> on_session(Fixture& fixture) {
  PLEXUS_TRY(tuner, NcclTuner::load(fixture));
  PLEXUS_TRY(session, Session::open(tuner, {}));
  return f(session);
}

Result<TunerCosts> ask(Session& session, const TunerQuestion& question = {}) {
  TunerCosts costs = make_costs(question);
  PLEXUS_TRY(session.ask(question, costs));
  return costs;
}

Result<void> table(Fixture& fixture) {
  constexpr std::array<size_t, 5> kBytes = {32, 32, 32, 32, 40};  // v2 to v6
  PLEXUS_TRY(tuner, NcclTuner::load(fixture));
  const size_t expected = kBytes[static_cast<size_t>(tuner.version() - 2)];
  PLEXUS_TRY(expect(tuner.size_bytes() == 0 || tuner.size_bytes() == expected,
                    "{} has {} bytes, expected {}", tuner.entry(), tuner.size_bytes(), expected));
  PLEXUS_TRY(expect(tuner.has_entries(), "name, init, getCollInfo or destroy of its {} is null",
                    tuner.entry()));
  const std::string name = tuner.name();
  return expect(!name.empty() && std::all_of(name.begin(), name.end(),
                                             [](char c) { return c >= ' ' && c <= '~'; }),
                "its name is empty or not printable");
}

Result<void> opens_and_ends(Session& session) {
  const int32_t code = session.close();
  return expect(code == PLEXUS_OK, "finalizing a context failed with code {}: {}", code,
                session.monitor().last_failure());
}

Result<void> any_communicator(Fixture& fixture) {
  constexpr std::array<Session::Comm, 9> kComms = {{{1, 1, 1},
                                                    {2, 1, 2},
                                                    {2, 2, 3},
                                                    {3, 3, 4},
                                                    {8, 1, 5},
                                                    {17, 4, 6},
                                                    {64, 8, 7},
                                                    {4096, 512, 8},
                                                    {65536, 65536, ~uint64_t{0}}}};
  PLEXUS_TRY(tuner, NcclTuner::load(fixture));
  for (const Session::Comm& comm : kComms) {
    PLEXUS_TRY(session, Session::open(tuner, comm));
    PLEXUS_TRY(ask(session));
  }
  return ok();
}

Result<void> two_communicators(Fixture& fixture) {
  PLEXUS_TRY(tuner, NcclTuner::load(fixture));
  PLEXUS_TRY(small, Session::open(tuner, {2, 1, 7}));
  PLEXUS_TRY(alone, ask(small));
  {
    PLEXUS_TRY(large, Session::open(tuner, {512, 64, 8}));
    PLEXUS_TRY(ask(large));
    PLEXUS_TRY(beside, ask(small));
    PLEXUS_TRY(expect(
        alone == beside,
        "its result for a communicator of 2 ranks changed when one of 512 ranks was created"));
  }
  PLEXUS_TRY(after, ask(small));
  return expect(alone == after, "its result changed when another communicator ended");
}

Result<void> many_leave_nothing(Fixture& fixture) {
  PLEXUS_TRY(tuner, NcclTuner::load(fixture));
  const auto use = [&](int times) -> Result<void> {
    for (int i = 0; i < times; ++i) {
      PLEXUS_TRY(session, Session::open(tuner, {}));
      PLEXUS_TRY(ask(session));
    }
    return ok();
  };
  return contexts_leave_nothing(fixture, use);
}

Result<void> borrows_model(Fixture& fixture) {
  PLEXUS_TRY(tuner, NcclTuner::load(fixture));
  if (tuner.version() < 5) {
    return skip("{} receives no model", tuner.entry());
  }
  PLEXUS_TRY(session, Session::open(tuner, {}));
  PLEXUS_TRY(before, ask(session));
  session.take_back();
  PLEXUS_TRY(after, ask(session));
  return expect(before == after,
                "its result changed when the model passed to init was overwritten");
}

Result<void> leaves_a_model(Fixture& fixture) {
  PLEXUS_TRY(tuner, NcclTuner::load(fixture));
  if (tuner.version() < 5) {
    return skip("{} receives no model", tuner.entry());
  }
  PLEXUS_TRY(session, Session::open(tuner, {}));
  const auto* const numbers = reinterpret_cast<const double*>(&session.constants());
  constexpr size_t kCount = sizeof(nccl_tuner_constants_v5_t) / sizeof(double);
  const auto* const bad = std::find_if(
      numbers, numbers + kCount, [](double each) { return !std::isfinite(each) || each < 0; });
  return expect(bad == numbers + kCount, "after init number {} of the model's constants is {}",
                bad - numbers, bad == numbers + kCount ? 0 : *bad);
}

Result<void> process_is_left(Fixture& fixture) {
  const Surroundings surroundings;
  const Holdings before;
  PLEXUS_TRY(tuner, NcclTuner::load(fixture));
  {
    PLEXUS_TRY(session, Session::open(tuner, {}));
    PLEXUS_TRY(ask(session));
  }
  PLEXUS_TRY(surroundings.expect_unchanged("it"));
  return before.expect_no_threads("it was used");
}

Result<void> threads(Fixture& fixture) {
  PLEXUS_TRY(tuner, NcclTuner::load(fixture));
  PLEXUS_TRY(reference, Session::open(tuner, {}));
  PLEXUS_TRY(expected, ask(reference));
  std::array<std::string, 4> problems;
  std::vector<std::thread> running;
  for (std::string& problem : problems) {
    running.emplace_back([&] {
      const auto use = [&]() -> Result<void> {
        PLEXUS_TRY(session, Session::open(tuner, {}));
        for (int i = 0; i < 200; ++i) {
          PLEXUS_TRY(found, ask(session));
          PLEXUS_TRY(expect(expected == found, "another result than in one thread"));
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
    PLEXUS_TRY(expect(problem.empty(), "one of 4 threads with a context each: {}", problem));
  }
  return ok();
}

Result<void> is_silent(Session& session) {
  PLEXUS_TRY(ask(session));
  for (const LogLine& line : session.monitor().lines()) {
    PLEXUS_TRY(
        expect(line.level > PLEXUS_LOG_WARN, "it logs a warning without a fault: {}", line.text));
  }
  return expect(::lseek(STDOUT_FILENO, 0, SEEK_END) == 0, "it wrote to stdout or stderr");
}

Result<void> is_used(Session& session) {
  PLEXUS_TRY(ask(session));
  return ok();
}

constexpr const char* kLifeRule =
    "plugin ABI 8.5: init once per communicator, finalize (destroy) once per communicator";
constexpr const char* kModelRule =
    "plugin ABI 8.1: the constants are in/out at init, and are read after it by the model";

constexpr std::array kChecks = {
    Check{"tuner.table", "has a complete table of its ABI", "plugin ABI 8.1: structs, slot order",
          table},
    Check{"tuner.init", "creates and finalizes a context", kLifeRule, on_session<opens_and_ends>},
    Check{"tuner.any", "serves communicators of every size",
          "plugin ABI 8.4: a tuner whose init fails fails the communicator", any_communicator},
    Check{"tuner.two", "keeps two communicators apart",
          "plugin ABI 8.1: since v2 all state is the context's", two_communicators},
    Check{"tuner.many",
          "serves many communicators and leaks nothing",
          kLifeRule,
          many_leave_nothing,
          {.is_alone = true}},
    Check{"tuner.borrowed", "keeps no pointer that was passed to init", kModelRule, borrows_model},
    Check{"tuner.model", "leaves finite numbers in the model", kModelRule, leaves_a_model},
    Check{"tuner.process", "changes no state of the process",
          "a plugin leaves the process as it is", process_is_left},
    Check{"tuner.threads", "serves communicators in several threads",
          "plugin ABI 8.1: a context per communicator; ranks of a process are threads", threads},
    Check{"tuner.silent", "logs no warning without a fault",
          "plugin ABI 8.1: init is given the log, a plugin has no other output",
          on_session<is_silent>},
    Check{"tuner.exit",
          "lets the process exit after use",
          "no entry raises a signal, ends the process",
          on_session<is_used>,
          {.exits = true}},
};

}  // namespace

CheckTable nccl_tuner_checks() { return kChecks; }

}  // namespace plexus::conformance
