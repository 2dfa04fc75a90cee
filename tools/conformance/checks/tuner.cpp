// SPDX-License-Identifier: Apache-2.0
// A tuner plugin of the native ABI: contexts, answers, time.
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <unistd.h>

#include "plugin-api/plexus_tuner.h"

#include "tools/conformance/check.hpp"
#include "tools/conformance/leaks.hpp"
#include "tools/conformance/library.hpp"
#include "tools/conformance/process_state.hpp"

namespace plexus::conformance {
namespace {

/// The loaded tuner.
struct Tuner {
  Fixture* fixture;
  plexus_tuner_ops_t ops;
};

Result<Tuner> load(Fixture& fixture) {
  PLEXUS_TRY(library, load_library(fixture));
  using Query = const plexus_plugin_t*(uint32_t);
  Query* const query = library.find_function<Query>("plexus_plugin_query");
  const plexus_plugin_t* const plugin = query == nullptr ? nullptr : query(PLEXUS_HOST_ABI);
  if (plugin == nullptr || plugin->tuner == nullptr) {
    return wrong("it returns no tuner table to this host");
  }
  plexus_tuner_ops_t ops{};  // an older plugin lacks the last entries
  std::memcpy(&ops, plugin->tuner, std::min<size_t>(plugin->tuner->struct_size, sizeof ops));
  return Tuner{&fixture, ops};
}

plexus_tuner_comm_t make_comm(uint32_t nranks = 8, uint32_t nnodes = 2) {
  plexus_tuner_comm_t comm{};
  comm.struct_size = sizeof comm;
  comm.nranks = nranks;
  comm.nnodes = nnodes;
  comm.ndatacenters = 1;
  comm.ranks_per_node_max = (nranks + nnodes - 1) / nnodes;
  comm.cores_per_node_min = 8;
  comm.comm_id = 42;
  comm.slot_bytes = 1 << 17;
  comm.links[PLEXUS_LINK_HOST] = {nranks, 0, 500, 80000};
  comm.links[PLEXUS_LINK_NET] = {nranks, 0, 5000, 100000};
  return comm;
}

/// The context of a communicator, finalized by the destructor.
class Session {
 public:
  [[nodiscard]] static Result<Session> open(const Tuner& tuner, const plexus_tuner_comm_t& comm) {
    Monitor& monitor = tuner.fixture->monitor();
    Session session(tuner);
    const int32_t code = monitor.call(Place::kInit, [&] {
      return tuner.ops.init(&session.raw_, &comm, &Monitor::write_line, monitor.sink());
    });
    session.is_open_ = code == PLEXUS_OK;
    if (code != PLEXUS_OK) {
      return failed(monitor, "init", code);
    }
    return session;
  }
  Session(Session&& other) noexcept
      : tuner_(other.tuner_), raw_(other.raw_), is_open_(std::exchange(other.is_open_, false)) {}
  Session& operator=(Session&&) = delete;
  ~Session() { close(); }
  void close() noexcept {
    if (std::exchange(is_open_, false)) {
      tuner_->fixture->monitor().call(Place::kFinalize, [&] { return tuner_->ops.finalize(raw_); });
    }
  }
  int32_t ask(const plexus_tuner_call_t& call, void* candidates, uint32_t count, uint32_t stride) {
    return tuner_->fixture->monitor().call(Place::kGetTimes, [&] {
      return tuner_->ops.get_times(raw_, &call, static_cast<plexus_tuner_candidate_t*>(candidates),
                                   count, stride);
    });
  }
  Result<void> change_links(const plexus_tuner_comm_t& comm) {
    const int32_t code = tuner_->fixture->monitor().call(
        Place::kGetTimes, [&] { return tuner_->ops.links_changed(raw_, &comm); });
    if (code != PLEXUS_OK) {
      return failed(monitor(), "links_changed", code);
    }
    return ok();
  }
  [[nodiscard]] Monitor& monitor() const noexcept { return tuner_->fixture->monitor(); }

 private:
  explicit Session(const Tuner& tuner) : tuner_(&tuner) {}
  const Tuner* tuner_;
  plexus_tuner_context_t* raw_ = nullptr;
  bool is_open_ = false;
};

plexus_tuner_call_t make_call(uint64_t size_bytes, const char* collective = "all_reduce") {
  plexus_tuner_call_t call{};
  call.struct_size = sizeof call;
  call.collective = collective;
  call.size_bytes = size_bytes;
  call.element_bytes = 4;
  call.calls_in_group = 1;
  return call;
}

/// Fields that later headers append stay 0.
plexus_tuner_candidate_t make_candidate(const char* algorithm,
                                        const char* protocol,
                                        uint32_t rounds) {
  plexus_tuner_candidate_t candidate{};
  candidate.struct_size = sizeof candidate;
  candidate.rounds = rounds;
  candidate.algorithm = algorithm;
  candidate.protocol = protocol;
  candidate.chunks_per_loop = 8;
  candidate.chunks_moved = 14;
  candidate.channels_min = 1;
  candidate.channels_max = 16;
  candidate.time_ns = -1;
  candidate.channels = 4;
  candidate.chunk_bytes = 65536;
  return candidate;
}

using Candidates = std::vector<plexus_tuner_candidate_t>;
Candidates make_candidates() {
  struct Family {
    const char* algorithm;
    uint32_t rounds;
  };
  constexpr std::array<Family, 5> kFamilies = {
      {{"ring", 14}, {"tree", 6}, {"recursive_doubling", 3}, {"one_shot", 1}, {"two_shot", 2}}};
  Candidates candidates;
  for (const Family& family : kFamilies) {
    for (const char* protocol : {"simple", "ll", "ll128"}) {
      candidates.push_back(make_candidate(family.algorithm, protocol, family.rounds));
    }
  }
  return candidates;
}

Result<Candidates> ask(Session& session, const plexus_tuner_call_t& call) {
  Candidates candidates = make_candidates();
  const int32_t code =
      session.ask(call, candidates.data(), static_cast<uint32_t>(candidates.size()),
                  sizeof(plexus_tuner_candidate_t));
  if (code != PLEXUS_OK) {
    return failed(session.monitor(), "get_times", code);
  }
  return candidates;
}

/// All times are valid, and at least one candidate is usable.
Result<void> expect_sane(const Candidates& candidates) {
  constexpr int64_t kYear = int64_t{365} * 86400 * 1'000'000'000;
  bool is_usable = false;
  for (const plexus_tuner_candidate_t& each : candidates) {
    PLEXUS_TRY(expect(each.time_ns >= -1 && each.time_ns < kYear,
                      "time_ns of {}/{} is {}, which is not a valid time", each.algorithm,
                      each.protocol, each.time_ns));
    is_usable = is_usable || each.time_ns >= 0;
  }
  return expect(is_usable, "it excludes all {} candidates", candidates.size());
}

template <Result<void> (*f)(Session&)>
Result<void> on_session(Fixture& fixture) {
  PLEXUS_TRY(tuner, load(fixture));
  PLEXUS_TRY(session, Session::open(tuner, make_comm()));
  return f(session);
}

Result<void> opens(Session&) { return ok(); }

Result<void> answers(Session& session) {
  PLEXUS_TRY(candidates, ask(session, make_call(1 << 20)));
  return expect_sane(candidates);
}

Result<void> all_sizes(Session& session) {
  for (uint32_t bits = 0; bits < 40; ++bits) {
    for (const uint64_t size : {(uint64_t{1} << bits) - 1, uint64_t{1} << bits}) {
      PLEXUS_TRY(candidates, ask(session, make_call(size)));
      if (auto sane = expect_sane(candidates); sane.has_error()) {
        return std::move(sane).error().with_context(fmt::format("{} bytes", size));
      }
    }
  }
  return ok();
}

Result<void> all_collectives(Session& session) {
  for (const char* collective : {"all_reduce", "broadcast", "reduce", "all_gather",
                                 "reduce_scatter", "alltoall", "gather", "scatter", "sendrecv"}) {
    PLEXUS_TRY(candidates, ask(session, make_call(4096, collective)));
    PLEXUS_TRY(expect_sane(candidates));
  }
  return ok();
}

/// Expects an answer or an error code, but no garbage.
Result<void> expect_polite(Session& session, const plexus_tuner_call_t& call) {
  Candidates candidates = make_candidates();
  const int32_t code =
      session.ask(call, candidates.data(), static_cast<uint32_t>(candidates.size()),
                  sizeof(plexus_tuner_candidate_t));
  for (const plexus_tuner_candidate_t& each : candidates) {
    PLEXUS_TRY(expect(code != PLEXUS_OK || each.time_ns >= -1, "time_ns of {}/{} is {}",
                      each.algorithm, each.protocol, each.time_ns));
  }
  return ok();
}

Result<void> huge_sizes(Session& session) {
  for (const uint64_t size : {uint64_t{1} << 50, uint64_t{1} << 62, ~uint64_t{0}}) {
    PLEXUS_TRY(expect_polite(session, make_call(size)));
  }
  return ok();
}

Result<void> unknown_words(Session& session) {
  PLEXUS_TRY(expect_polite(session, make_call(1024, "something_new")));
  Candidates candidates = make_candidates();
  candidates[0].algorithm = "an_algorithm_of_next_year";
  candidates[1].protocol = "a_protocol_of_next_year";
  const int32_t code = session.ask(make_call(1024), candidates.data(), 2, sizeof candidates[0]);
  return expect(code != PLEXUS_OK || (candidates[0].time_ns >= -1 && candidates[1].time_ns >= -1),
                "an unknown algorithm got an invalid time");
}

Result<void> any_count(Session& session) {
  for (uint32_t count = 0; count <= 4; ++count) {
    Candidates candidates = make_candidates();
    const int32_t code =
        session.ask(make_call(4096), candidates.data(), count, sizeof candidates[0]);
    PLEXUS_TRY(expect(code == PLEXUS_OK, "get_times of {} candidates failed", count));
    for (size_t i = count; i < candidates.size(); ++i) {
      PLEXUS_TRY(expect(candidates[i].time_ns == -1, "it wrote to candidate {}, but was given {}",
                        i, count));
    }
  }
  return ok();
}

struct Wide {
  plexus_tuner_candidate_t known;
  std::array<uint64_t, 4> later;
};

Result<void> stride(Session& session) {
  const Candidates plain = make_candidates();
  std::vector<Wide> wide;
  for (const plexus_tuner_candidate_t& each : plain) {
    wide.push_back({each, {}});
    wide.back().known.struct_size = sizeof(Wide);
    wide.back().later.fill(~uint64_t{0});
  }
  const int32_t code =
      session.ask(make_call(65536), wide.data(), static_cast<uint32_t>(wide.size()), sizeof(Wide));
  PLEXUS_TRY(expect(code == PLEXUS_OK, "get_times of candidates with a larger stride failed"));
  PLEXUS_TRY(expected, ask(session, make_call(65536)));
  for (size_t i = 0; i < wide.size(); ++i) {
    PLEXUS_TRY(expect(std::all_of(wide[i].later.begin(), wide[i].later.end(),
                                  [](uint64_t word) { return word == ~uint64_t{0}; }),
                      "it wrote past the end of candidate {}", i));
    PLEXUS_TRY(expect(wide[i].known.time_ns == expected[i].time_ns,
                      "candidate {} gets {} ns at a stride of {}, {} ns at {}", i,
                      wide[i].known.time_ns, sizeof(Wide), expected[i].time_ns,
                      sizeof(plexus_tuner_candidate_t)));
  }
  return ok();
}

Result<void> keeps_inputs(Session& session) {
  const Candidates before = make_candidates();
  PLEXUS_TRY(after, ask(session, make_call(65536)));
  for (size_t i = 0; i < before.size(); ++i) {
    PLEXUS_TRY(expect(before[i].struct_size == after[i].struct_size &&
                          before[i].rounds == after[i].rounds &&
                          std::strcmp(before[i].algorithm, after[i].algorithm) == 0 &&
                          std::strcmp(before[i].protocol, after[i].protocol) == 0 &&
                          before[i].chunks_per_loop == after[i].chunks_per_loop &&
                          before[i].chunks_moved == after[i].chunks_moved &&
                          before[i].channels_min == after[i].channels_min &&
                          before[i].channels_max == after[i].channels_max,
                      "it changed input fields of candidate {}", i));
  }
  return ok();
}

bool are_equal(const Candidates& a, const Candidates& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.time_ns == y.time_ns && x.channels == y.channels && x.chunk_bytes == y.chunk_bytes &&
           x.trial_calls == y.trial_calls;
  });
}

/// Makes the trials that the tuner asks for, as a host does. The times are made up: the best is not
/// what a model predicts. Another rank, which has not seen the earlier questions, must agree.
Result<void> trials_end(Fixture& fixture) {
  PLEXUS_TRY(tuner, load(fixture));
  PLEXUS_TRY(session, Session::open(tuner, make_comm()));
  std::vector<plexus_tuner_trial_t> trials;
  for (;;) {
    plexus_tuner_call_t call = make_call(1 << 16);
    call.trials = trials.data();
    call.trials_count = static_cast<uint32_t>(trials.size());
    PLEXUS_TRY(answer, ask(session, call));
    PLEXUS_TRY(expect_sane(answer));
    PLEXUS_TRY(other_rank, Session::open(tuner, make_comm()));
    PLEXUS_TRY(other, ask(other_rank, call));
    PLEXUS_TRY(expect(are_equal(answer, other),
                      "after {} trials a rank that is asked for the first time gets another result",
                      trials.size()));
    const auto chosen =
        std::min_element(answer.begin(), answer.end(), [](const auto& a, const auto& b) {
          return b.time_ns < 0 || (a.time_ns >= 0 && a.time_ns < b.time_ns);
        });
    if (chosen->trial_calls == 0) {
      return ok();
    }
    PLEXUS_TRY(expect(trials.size() < PLEXUS_TRIALS_MAX, "it asks for another trial after {}",
                      trials.size()));
    constexpr int64_t kUnitNs = 1000;
    const int64_t place = chosen - answer.begin();
    trials.push_back({.algorithm = chosen->algorithm,
                      .protocol = chosen->protocol,
                      .channels = chosen->channels,
                      .chunk_bytes = chosen->chunk_bytes,
                      .calls = chosen->trial_calls,
                      .reserved = 0,
                      .time_ns = place % 4 == 3 ? -1 : kUnitNs * (1 + place * 7 % 5)});
  }
}

/// Trials of what is no candidate of this call, and impossible times.
Result<void> odd_trials(Session& session) {
  std::vector<plexus_tuner_trial_t> trials;
  for (const int64_t time_ns : {int64_t{-1}, int64_t{0}, std::numeric_limits<int64_t>::max()}) {
    for (const uint32_t calls : {0U, 1U, std::numeric_limits<uint32_t>::max()}) {
      trials.push_back({"an_algorithm_of_next_year", "simple", 1, 0, calls, 0, time_ns});
      trials.push_back({"ring", "simple", 4, 65536, calls, 0, time_ns});
    }
  }
  plexus_tuner_call_t call = make_call(1 << 16);
  call.trials = trials.data();
  call.trials_count = static_cast<uint32_t>(trials.size());
  PLEXUS_TRY(candidates, ask(session, call));
  return expect_sane(candidates);
}

Result<void> repeats_itself(Session& session) {
  PLEXUS_TRY(first, ask(session, make_call(100000)));
  for (int i = 0; i < 50; ++i) {
    PLEXUS_TRY(
        ask(session, make_call(uint64_t{1} << (i % 30), i % 2 == 0 ? "broadcast" : "reduce")));
    PLEXUS_TRY(again, ask(session, make_call(100000)));
    PLEXUS_TRY(expect(are_equal(first, again),
                      "after {} other calls the same call returned another result", i + 1));
  }
  return ok();
}

Result<void> contexts_agree(Fixture& fixture) {
  PLEXUS_TRY(tuner, load(fixture));
  PLEXUS_TRY(first, Session::open(tuner, make_comm()));
  PLEXUS_TRY(second, Session::open(tuner, make_comm()));
  for (const uint64_t size : {8u, 4096u, 1u << 20, 1u << 28}) {
    PLEXUS_TRY(one, ask(first, make_call(size)));
    PLEXUS_TRY(other, ask(second, make_call(size)));
    PLEXUS_TRY(expect(are_equal(one, other), "two ranks get different results for {} bytes", size));
  }
  return ok();
}

/// The entry is optional.
Result<void> follows_links(Fixture& fixture) {
  PLEXUS_TRY(tuner, load(fixture));
  if (tuner.ops.links_changed == nullptr) {
    return ok();
  }
  plexus_tuner_comm_t whole = make_comm();
  whole.ndatacenters = 2;
  whole.links[PLEXUS_LINK_XDC] = {16, 0, 10'000'000, 1000};
  plexus_tuner_comm_t half = whole;
  half.links[PLEXUS_LINK_XDC].bandwidth_mbit_per_s /= 2;
  PLEXUS_TRY(session, Session::open(tuner, whole));
  PLEXUS_TRY(before, ask(session, make_call(1 << 20)));
  PLEXUS_TRY(of_half, Session::open(tuner, half));
  PLEXUS_TRY(expected, ask(of_half, make_call(1 << 20)));
  PLEXUS_TRY(session.change_links(half));
  PLEXUS_TRY(during, ask(session, make_call(1 << 20)));
  PLEXUS_TRY(
      expect(are_equal(during, expected),
             "after links_changed it answers otherwise than a new context with these links"));
  PLEXUS_TRY(session.change_links(whole));
  PLEXUS_TRY(after, ask(session, make_call(1 << 20)));
  return expect(are_equal(after, before),
                "with the links of init again it answers otherwise than before");
}

Result<void> processes_agree(Fixture& fixture) {
  PLEXUS_TRY(tuner, load(fixture));
  if (fixture.role() == 1) {  // values that differ between ranks
    PLEXUS_TRY(expect(::setenv("HOSTNAME", "another-host", 1) == 0, "cannot set a variable"));
  }
  PLEXUS_TRY(session, Session::open(tuner, make_comm()));
  for (const uint64_t size : {8u, 4096u, 1u << 20, 1u << 28}) {
    PLEXUS_TRY(own, ask(session, make_call(size)));
    std::array<int64_t, 15> times{};
    for (size_t i = 0; i < own.size(); ++i) {
      times[i] = own[i].time_ns;
    }
    PLEXUS_TRY(fixture.peer().send(times));
    PLEXUS_TRY(others, fixture.peer().receive<decltype(times)>());
    PLEXUS_TRY(expect(times == others, "two processes get different results for {} bytes", size));
  }
  return ok();
}

Result<void> odd_communicators(Fixture& fixture) {
  PLEXUS_TRY(tuner, load(fixture));
  std::vector<plexus_tuner_comm_t> comms = {make_comm(1, 1), make_comm(2, 1), make_comm(4096, 512),
                                            make_comm(3, 3)};
  plexus_tuner_comm_t ignorant = make_comm();
  for (plexus_tuner_link_t& link : ignorant.links) {
    link.latency_ns = 0;  // not known
    link.bandwidth_mbit_per_s = 0;
  }
  comms.push_back(ignorant);
  plexus_tuner_comm_t xdc = make_comm();
  xdc.ndatacenters = 2;
  xdc.links[PLEXUS_LINK_XDC] = {16, 0, 50'000'000, 1000};
  comms.push_back(xdc);
  for (const plexus_tuner_comm_t& comm : comms) {
    PLEXUS_TRY(session, Session::open(tuner, comm));
    PLEXUS_TRY(candidates, ask(session, make_call(1 << 16)));
    if (auto sane = expect_sane(candidates); sane.has_error()) {
      return std::move(sane).error().with_context(
          fmt::format("{} ranks on {} hosts", comm.nranks, comm.nnodes));
    }
  }
  return ok();
}

Result<void> garbage_communicator(Fixture& fixture) {
  PLEXUS_TRY(tuner, load(fixture));
  plexus_tuner_comm_t comm{};
  std::memset(&comm, 0xFF, sizeof comm);
  comm.struct_size = sizeof comm;
  plexus_tuner_comm_t empty{};
  empty.struct_size = sizeof empty;
  for (const plexus_tuner_comm_t& each : {comm, empty}) {
    auto session = Session::open(tuner, each);
    if (session.has_value()) {
      PLEXUS_TRY(expect_polite(session.value(), make_call(1 << 16)));
    }
  }
  return ok();
}

Result<void> newer_structs(Fixture& fixture) {
  PLEXUS_TRY(tuner, load(fixture));
  struct {
    plexus_tuner_comm_t known = make_comm();
    std::array<uint64_t, 8> later{};
  } comm;
  comm.known.struct_size = sizeof comm;
  comm.later.fill(~uint64_t{0});
  PLEXUS_TRY(session, Session::open(tuner, comm.known));
  struct {
    plexus_tuner_call_t known = make_call(4096);
    std::array<uint64_t, 8> later{};
  } call;
  call.known.struct_size = sizeof call;
  call.later.fill(~uint64_t{0});
  PLEXUS_TRY(candidates, ask(session, call.known));
  return expect_sane(candidates);
}

Result<void> comm_is_borrowed(Fixture& fixture) {
  PLEXUS_TRY(tuner, load(fixture));
  auto comm = std::make_unique<plexus_tuner_comm_t>(make_comm());
  PLEXUS_TRY(kept, Session::open(tuner, make_comm()));
  PLEXUS_TRY(session, Session::open(tuner, *comm));
  std::memset(comm.get(), 0xEE, sizeof *comm);
  PLEXUS_TRY(expected, ask(kept, make_call(1 << 16)));
  PLEXUS_TRY(found, ask(session, make_call(1 << 16)));
  return expect(are_equal(expected, found),
                "its result changed when the borrowed struct was overwritten");
}

Result<void> many_contexts(Fixture& fixture) {
  PLEXUS_TRY(tuner, load(fixture));
  const auto use = [&](int times) -> Result<void> {
    for (int i = 0; i < times; ++i) {
      PLEXUS_TRY(session, Session::open(tuner, make_comm()));
      PLEXUS_TRY(ask(session, make_call(4096)));
    }
    return ok();
  };
  return contexts_leave_nothing(fixture, use);
}

Result<void> threads(Fixture& fixture) {
  PLEXUS_TRY(tuner, load(fixture));
  PLEXUS_TRY(reference, Session::open(tuner, make_comm()));
  PLEXUS_TRY(expected, ask(reference, make_call(1 << 18)));
  std::array<std::string, 4> problems;
  std::vector<std::thread> running;
  for (std::string& problem : problems) {
    running.emplace_back([&] {
      const auto use = [&]() -> Result<void> {
        PLEXUS_TRY(session, Session::open(tuner, make_comm()));
        for (int i = 0; i < 200; ++i) {
          PLEXUS_TRY(found, ask(session, make_call(1 << 18)));
          PLEXUS_TRY(expect(are_equal(expected, found), "another result than in one thread"));
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

Result<void> is_quick(Session& session) {
  session.monitor().measure_this_thread();
  for (int i = 0; i < 500; ++i) {
    PLEXUS_TRY(ask(session, make_call(uint64_t{1} << (i % 30))));
  }
  const Monitor::Times times = session.monitor().times(Place::kGetTimes);
  constexpr auto kMedian = std::chrono::milliseconds(1);
  constexpr auto kLongest = std::chrono::seconds(1);
  return expect(times.median <= kMedian && times.longest <= kLongest,
                "every second get_times of 15 candidates takes {} us or more, the longest {} us",
                times.median.count() / 2000, times.longest.count() / 1000);
}

Result<void> is_silent(Session& session) {
  for (int i = 0; i < 20; ++i) {
    PLEXUS_TRY(ask(session, make_call(uint64_t{1} << i)));
  }
  for (const LogLine& line : session.monitor().lines()) {
    PLEXUS_TRY(
        expect(line.level > PLEXUS_LOG_WARN, "it logs a warning without a fault: {}", line.text));
    PLEXUS_TRY(expect(line.text.find('\n') == std::string::npos, "a log line has a newline"));
  }
  return expect(::lseek(STDOUT_FILENO, 0, SEEK_END) == 0, "it wrote to stdout or stderr");
}

Result<void> process_is_left(Fixture& fixture) {
  const Surroundings surroundings;
  const Holdings before;
  PLEXUS_TRY(tuner, load(fixture));
  {
    PLEXUS_TRY(session, Session::open(tuner, make_comm()));
    PLEXUS_TRY(ask(session, make_call(4096)));
  }
  PLEXUS_TRY(surroundings.expect_unchanged("it"));
  return before.expect_no_threads("it was used");
}

Result<void> exits(Session& session) {
  PLEXUS_TRY(ask(session, make_call(4096)));
  return ok();
}

constexpr const char* kLifeRule =
    "plexus_tuner.h: init once per communicator and rank, then any number of get_times, then "
    "finalize";
constexpr const char* kAnswerRule =
    "plexus_tuner.h time_ns: out the predicted time of the call, or -1: do not use this one";
constexpr const char* kAgreeRule =
    "plexus_tuner.h: all ranks of a communicator must get the same answer: compute it from the "
    "arguments alone";
constexpr const char* kThreadRule =
    "plexus_tuner.h: one thread at a time per context; contexts of several communicators run in "
    "parallel";
constexpr const char* kGrowRule = "ABI.md: structs that the host fills grow at their end";

constexpr std::array kChecks = {
    Check{"tuner.init", "creates and finalizes a context", kLifeRule, on_session<opens>},
    Check{"tuner.many",
          "serves many communicators and leaks nothing",
          kLifeRule,
          many_contexts,
          {.is_alone = true}},
    Check{"tuner.odd", "serves small, large, xdc and unknown communicators",
          "plexus_tuner.h: latency_ns 0: not known", odd_communicators},
    Check{"tuner.garbage", "survives invalid values in the communicator",
          "plexus_tuner.h: a tuner cannot make a result wrong", garbage_communicator},
    Check{"tuner.newer", "ignores fields of newer structs", kGrowRule, newer_structs},
    Check{"tuner.borrowed", "keeps no pointer to the communicator's struct",
          "plexus_tuner.h init: `comm` is borrowed for the call", comm_is_borrowed},
    Check{"tuner.process", "changes no state of the process",
          "a plugin leaves the process as it is", process_is_left},
    Check{"tuner.threads", "serves contexts in several threads", kThreadRule, threads},
    Check{"tuner.exit",
          "lets the process exit after use",
          "no entry raises a signal, ends the process",
          on_session<exits>,
          {.exits = true}},
    Check{"times.sane", "returns times", kAnswerRule, on_session<answers>},
    Check{"times.sizes", "returns times for 0 bytes to 512 GiB", kAnswerRule,
          on_session<all_sizes>},
    Check{"times.huge", "returns valid times for impossible sizes", kAnswerRule,
          on_session<huge_sizes>},
    Check{"times.collectives", "returns times for every collective", kAnswerRule,
          on_session<all_collectives>},
    Check{"times.unknown", "survives unknown names",
          "plexus_tuner.h: collective, algorithm and protocol are words; more may come",
          on_session<unknown_words>},
    Check{"times.count", "writes only the candidates that it is given",
          "plexus_tuner.h get_times: `count` of them", on_session<any_count>},
    Check{"times.stride", "uses the stride and not the size of its own struct",
          "plexus_tuner.h get_times: `stride` bytes apart", on_session<stride>},
    Check{"times.inputs", "changes only the output fields",
          "plexus_tuner.h: the answer: time_ns, channels, chunk_bytes", on_session<keeps_inputs>},
    Check{"times.repeat", "returns the same result for the same call", kAgreeRule,
          on_session<repeats_itself>},
    Check{"times.contexts", "returns the same result for two ranks of a process", kAgreeRule,
          contexts_agree},
    Check{"times.processes",
          "returns the same result in two processes",
          kAgreeRule,
          processes_agree,
          {.processes = 2}},
    Check{"times.trials", "ends its trials, and chooses alike on all ranks",
          "plexus_tuner.h: its answer depends on its arguments only, trials included", trials_end},
    Check{"times.odd_trials", "survives trials that are not of this call",
          "plexus_tuner.h trials: of calls like this one, whose candidates may differ",
          on_session<odd_trials>},
    Check{"times.links", "follows changed links as if it had been opened with them",
          "plexus_tuner.h links_changed: what init was told of links has changed", follows_links},
    Check{"times.quick",
          "returns quickly",
          "plexus_tuner.h get_times: must not block",
          on_session<is_quick>,
          {.is_alone = true}},
    Check{"times.silent", "logs no warning without a fault",
          "plexus_plugin.h: a plugin has no other output", on_session<is_silent>},
};

}  // namespace

CheckTable tuner_checks() { return kChecks; }

}  // namespace plexus::conformance
