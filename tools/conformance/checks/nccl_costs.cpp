// SPDX-License-Identifier: Apache-2.0
// Answers of a tuner of NCCL's ABI: the cost table, the channels, v2's pair, v6's chunk.
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>

#include "tools/conformance/check.hpp"
#include "tools/conformance/nccl_tuner.hpp"

namespace plexus::conformance {
namespace {

using Session = NcclTunerSession;

constexpr int kTuned = 5;          // number of collectives with tuning
constexpr int kChannelsMost = 64;  // per communicator

template <Result<void> (*f)(Session&)>
Result<void> on_session(Fixture& fixture) {
  PLEXUS_TRY(tuner, NcclTuner::load(fixture));
  PLEXUS_TRY(session, Session::open(tuner, {}));
  return f(session);
}

template <Result<void> (*f)(Session&)>
Result<void> on_table(Fixture& fixture) {
  PLEXUS_TRY(tuner, NcclTuner::load(fixture));
  if (tuner.version() == 2) {
    return skip("{} returns a pair, not a table", tuner.entry());
  }
  PLEXUS_TRY(session, Session::open(tuner, {}));
  return f(session);
}

/// Checks a table: each entry is a time or "not available", and at least one is a time.
Result<void> expect_times(const TunerCosts& costs) {
  bool any = false;
  for (int a = 0; a < costs.algorithms(); ++a) {
    for (int p = 0; p < costs.protocols(); ++p) {
      const float cost = costs.at(a, p);
      PLEXUS_TRY(expect(std::isfinite(cost) && (cost >= 0 || cost == NCCL_TUNER_NOT_POSSIBLE),
                        "the cost of algorithm {} with protocol {} is {}, neither a time nor -1", a,
                        p, cost));
      any = any || cost >= 0;
    }
  }
  return expect(any, "it leaves no usable algorithm");
}

/// Checks a pair: both or none, and nothing that was declared unavailable.
Result<void> expect_pair(const TunerCosts& costs) {
  const bool is_none = costs.algorithm == NCCL_TUNER_UNDEFINED;
  PLEXUS_TRY(expect(is_none == (costs.protocol == NCCL_TUNER_UNDEFINED),
                    "it sets only one of algorithm ({}) and protocol ({})", costs.algorithm,
                    costs.protocol));
  const bool is_plain = costs.algorithm == NCCL_TUNER_TREE || costs.algorithm == NCCL_TUNER_RING ||
                        costs.algorithm == NCCL_TUNER_PAT;
  return expect(
      is_none || (is_plain && costs.protocol >= 0 && costs.protocol < NCCL_TUNER_PROTOCOLS),
      "it chooses algorithm {} with protocol {}, which does not exist", costs.algorithm,
      costs.protocol);
}

Result<void> expect_sane(const Session& session, const TunerCosts& costs) {
  PLEXUS_TRY(expect(costs.channels >= 0 && costs.channels <= kChannelsMost,
                    "nChannels is {}, expected 0 (no opinion) to {}", costs.channels,
                    kChannelsMost));
  return session.tuner().version() == 2 ? expect_pair(costs) : expect_times(costs);
}

Result<TunerCosts> ask(Session& session, const TunerQuestion& question = {}) {
  TunerCosts costs = make_costs(question);
  PLEXUS_TRY(session.ask(question, costs));
  if (auto sane = expect_sane(session, costs); sane.has_error()) {
    return std::move(sane).error().with_context(
        fmt::format("collective {}, {} bytes", question.collective, question.size_bytes));
  }
  return costs;
}

Result<void> answers(Session& session) {
  PLEXUS_TRY(ask(session));
  return ok();
}

Result<void> all_sizes(Session& session) {
  for (uint32_t bits = 0; bits < 40; ++bits) {
    for (const size_t size : {(size_t{1} << bits) - 1, size_t{1} << bits}) {
      PLEXUS_TRY(ask(session, {.size_bytes = size}));
    }
  }
  return ok();
}

/// Every collective, size, number of ranks and hosts; also grouped and registered.
Result<void> grid(Fixture& fixture) {
  PLEXUS_TRY(tuner, NcclTuner::load(fixture));
  constexpr std::array<Session::Comm, 6> kComms = {
      {{2, 1}, {2, 2}, {8, 1}, {16, 2}, {24, 3}, {1024, 128}}};
  for (const Session::Comm& comm : kComms) {
    PLEXUS_TRY(session, Session::open(tuner, comm));
    for (int collective = 0; collective < kTuned; ++collective) {
      for (uint32_t bits = 0; bits <= 36; bits += 4) {
        for (const int calls : {1, 7}) {
          const TunerQuestion question = {collective, size_t{1} << bits, calls, calls % 2};
          if (auto asked = ask(session, question); asked.has_error()) {
            return std::move(asked).error().with_context(
                fmt::format("{} ranks on {} hosts", comm.nranks, comm.nnodes));
          }
        }
      }
    }
  }
  return ok();
}

Result<void> untuned_collectives(Session& session) {
  for (int collective = kTuned; collective < 20; ++collective) {
    const TunerQuestion question = {.collective = collective, .size_bytes = 4096};
    TunerCosts costs = make_costs(question);
    if (session.try_ask(question, costs) == PLEXUS_OK) {  // otherwise it refused with an error code
      PLEXUS_TRY(expect_sane(session, costs));
    }
  }
  return ok();
}

Result<void> offered_only(Session& session) {
  const struct {
    int algorithm;
    int protocol;
  } offers[] = {{NCCL_TUNER_RING, NCCL_TUNER_SIMPLE},
                {NCCL_TUNER_TREE, NCCL_TUNER_LL},
                {NCCL_TUNER_RING, NCCL_TUNER_LL128},
                {NCCL_TUNER_PAT, NCCL_TUNER_SIMPLE}};
  for (const auto& offer : offers) {
    for (int collective = 0; collective < kTuned; ++collective) {
      for (const size_t size : {size_t{64}, size_t{1} << 16, size_t{1} << 28}) {
        TunerCosts costs;
        costs.at(offer.algorithm, offer.protocol) = 100;
        PLEXUS_TRY(session.ask({collective, size, 1, 0}, costs));
        for (int place = 0; place < costs.algorithms() * costs.protocols(); ++place) {
          const int a = place / costs.protocols();
          const int p = place % costs.protocols();
          const bool is_offered = a == offer.algorithm && p == offer.protocol;
          PLEXUS_TRY(expect(is_offered || costs.at(a, p) == NCCL_TUNER_NOT_POSSIBLE,
                            "it sets the cost of algorithm {} with protocol {} to {}, though it "
                            "was -1: not possible, or excluded by the user",
                            a, p, costs.at(a, p)));
        }
      }
    }
  }
  return ok();
}

Result<void> nothing_offered(Session& session) {
  TunerCosts costs;
  const TunerCosts before = costs;
  session.try_ask({}, costs);
  costs.channels = 0;  // an answer without effect
  return expect(costs == before, "it changes a table in which nothing is possible");
}

Result<void> other_shapes(Session& session) {
  const struct {
    int algorithms;
    int protocols;
  } shapes[] = {{6, 3}, {7, 3}, {8, 3}, {9, 4}};
  for (const auto& shape : shapes) {
    for (int collective = 0; collective < kTuned; ++collective) {
      TunerCosts costs(shape.algorithms, shape.protocols);
      costs.at(NCCL_TUNER_RING, NCCL_TUNER_SIMPLE) = 50;
      costs.at(NCCL_TUNER_TREE, NCCL_TUNER_SIMPLE) = 70;
      session.try_ask({.collective = collective}, costs);  // may refuse a shape
      PLEXUS_TRY(expect(costs.are_guards_whole(),
                        "given a table of {} algorithms and {} protocols, it writes outside it",
                        shape.algorithms, shape.protocols));
      for (int place = 0; place < shape.algorithms * shape.protocols; ++place) {
        const int a = place / shape.protocols;
        const int p = place % shape.protocols;
        const bool is_offered = p == NCCL_TUNER_SIMPLE && a <= NCCL_TUNER_RING;
        PLEXUS_TRY(expect(is_offered || costs.at(a, p) == NCCL_TUNER_NOT_POSSIBLE,
                          "given a table of {} algorithms and {} protocols, it writes entry {}, {}",
                          shape.algorithms, shape.protocols, a, p));
      }
    }
  }
  return ok();
}

Result<void> keeps_inside(Session& session) {
  for (int collective = 0; collective < kTuned; ++collective) {
    PLEXUS_TRY(costs, ask(session, {.collective = collective}));
    PLEXUS_TRY(expect(costs.are_guards_whole(), "it writes outside the table"));
  }
  return ok();
}

/// NCCL multiplies costs by 1024 for precision.
Result<void> huge_costs(Session& session) {
  constexpr float kFactor = 1024;
  TunerCosts costs = make_costs({});
  for (int p = 0; p < costs.protocols(); ++p) {
    costs.at(NCCL_TUNER_RING, p) *= kFactor;
  }
  PLEXUS_TRY(session.ask({}, costs));
  return expect_sane(session, costs);
}

Result<void> channels(Session& session) {
  for (int collective = 0; collective < kTuned; ++collective) {
    for (uint32_t bits = 0; bits < 40; ++bits) {
      PLEXUS_TRY(ask(session, {.collective = collective, .size_bytes = size_t{1} << bits}));
    }
  }
  return ok();
}

Result<void> chunks(Session& session) {
  constexpr size_t kOurs = 1 << 19;
  for (uint32_t bits = 0; bits < 34; ++bits) {
    for (int protocol = 0; protocol < NCCL_TUNER_PROTOCOLS; ++protocol) {
      const TunerQuestion question = {.size_bytes = size_t{1} << bits};
      PLEXUS_TRY(ask(session, question));
      size_t chunk_bytes = kOurs;
      PLEXUS_TRY(has_entry, session.ask_chunk(question, NCCL_TUNER_RING, protocol, chunk_bytes));
      if (!has_entry) {
        return skip("{} has no getChunkSize", session.tuner().entry());
      }
      PLEXUS_TRY(
          expect(chunk_bytes > 0, "getChunkSize returns 0 bytes for {} bytes", 1ULL << bits));
    }
  }
  return ok();
}

Result<void> repeats_itself(Session& session) {
  PLEXUS_TRY(first, ask(session, {.size_bytes = 100000}));
  for (int i = 0; i < 50; ++i) {
    PLEXUS_TRY(ask(session, {.collective = i % kTuned, .size_bytes = size_t{1} << (i % 30)}));
    PLEXUS_TRY(again, ask(session, {.size_bytes = 100000}));
    PLEXUS_TRY(expect(first == again, "after {} other calls the same call returned another result",
                      i + 1));
  }
  return ok();
}

Result<void> contexts_agree(Fixture& fixture) {
  PLEXUS_TRY(tuner, NcclTuner::load(fixture));
  PLEXUS_TRY(first, Session::open(tuner, {}));
  PLEXUS_TRY(second, Session::open(tuner, {}));
  for (const size_t size : {8u, 4096u, 1u << 20, 1u << 28}) {
    PLEXUS_TRY(one, ask(first, {.size_bytes = size}));
    PLEXUS_TRY(other, ask(second, {.size_bytes = size}));
    PLEXUS_TRY(expect(one == other, "two ranks get different results for {} bytes", size));
  }
  return ok();
}

Result<void> processes_agree(Fixture& fixture) {
  if (fixture.role() == 1) {  // values that differ between ranks
    PLEXUS_TRY(expect(::setenv("HOSTNAME", "another-host", 1) == 0, "cannot set a variable"));
  }
  PLEXUS_TRY(tuner, NcclTuner::load(fixture));
  PLEXUS_TRY(session, Session::open(tuner, {}));
  for (const size_t size : {8u, 4096u, 1u << 20, 1u << 28}) {
    PLEXUS_TRY(own, ask(session, {.size_bytes = size}));
    constexpr size_t kPlaces = size_t{NCCL_TUNER_ALGORITHMS} * NCCL_TUNER_PROTOCOLS;
    std::array<double, kPlaces + 3> reported{};
    for (size_t place = 0; place < kPlaces; ++place) {
      reported[place] = own.at(static_cast<int>(place) / NCCL_TUNER_PROTOCOLS,
                               static_cast<int>(place) % NCCL_TUNER_PROTOCOLS);
    }
    reported[kPlaces] = own.channels;
    reported[kPlaces + 1] = own.algorithm;
    reported[kPlaces + 2] = own.protocol;
    PLEXUS_TRY(fixture.peer().send(reported));
    PLEXUS_TRY(others, fixture.peer().receive<decltype(reported)>());
    PLEXUS_TRY(
        expect(reported == others, "two processes get different results for {} bytes", size));
  }
  return ok();
}

Result<void> is_quick(Session& session) {
  session.monitor().measure_this_thread();
  for (int i = 0; i < 500; ++i) {
    PLEXUS_TRY(ask(session, {.size_bytes = size_t{1} << (i % 30)}));
  }
  const Monitor::Times times = session.monitor().times(Place::kGetTimes);
  constexpr auto kMedian = milliseconds(1);
  constexpr auto kLongest = seconds(1);
  return expect(times.median <= kMedian && times.longest <= kLongest,
                "every second getCollInfo takes {} us or more, the longest {} us",
                times.median.count() / 2000, times.longest.count() / 1000);
}

constexpr const char* kTableRule =
    "plugin ABI 8.3: an entry is the predicted time in microseconds, -1 is not available";
constexpr const char* kBlockRule =
    "plugin ABI 8.3: one contiguous block of numAlgo x numProto floats";
constexpr const char* kAgreeRule =
    "plugin ABI 8.4: all ranks must take identical decisions, and nothing checks that they do";

constexpr std::array kChecks = {
    Check{"costs.sane", "returns times", kTableRule, on_session<answers>},
    Check{"costs.sizes", "returns times for 0 bytes to 512 GiB", kTableRule, on_session<all_sizes>},
    Check{"costs.grid", "returns times for every collective, size and number of ranks and hosts",
          kTableRule, grid},
    Check{"costs.untuned", "survives collectives that are not tuned",
          "plugin ABI 8.2: only collectives 0 to 4 are tuned", on_session<untuned_collectives>},
    Check{"costs.huge", "accepts the high costs of algorithms that the host avoids",
          "plugin ABI 8.3: fp8 with more than 8 ranks, Ring costs times 1024",
          on_session<huge_costs>},
    Check{"costs.offered", "leaves the entries that are not possible",
          "plugin ABI 8.4: a cost in an entry that was -1 overrides the user's NCCL_ALGO",
          on_table<offered_only>},
    Check{"costs.nothing", "leaves a table without possible entries", kTableRule,
          on_table<nothing_offered>},
    Check{"costs.inside", "writes only inside the table", kBlockRule, on_table<keeps_inside>},
    Check{"costs.shape", "respects the numbers of algorithms and protocols that it is given",
          kBlockRule, on_table<other_shapes>},
    Check{"costs.channels", "requests a valid number of channels",
          "plugin ABI 8.3: nChannels 0 is no opinion; the value is stored unclamped",
          on_session<channels>},
    Check{"costs.chunk", "requests chunks of a byte or more",
          "plugin ABI 8.3: getChunkSize has no lower bound, 0 would be accepted",
          on_session<chunks>},
    Check{"costs.repeat", "returns the same result for the same call", kAgreeRule,
          on_session<repeats_itself>},
    Check{"costs.contexts", "returns the same result for two ranks of a process", kAgreeRule,
          contexts_agree},
    Check{"costs.processes",
          "returns the same result in two processes",
          kAgreeRule,
          processes_agree,
          {.processes = 2}},
    Check{"costs.quick",
          "returns quickly",
          "plugin ABI 8.5: getCollInfo is called for each collective that is enqueued",
          on_session<is_quick>,
          {.is_alone = true}},
};

}  // namespace

CheckTable nccl_costs_checks() { return kChecks; }

}  // namespace plexus::conformance
