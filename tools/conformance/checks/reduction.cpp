// SPDX-License-Identifier: Apache-2.0
// What a collnet plugin reduces: every type and operation that it says it can, against the host's
// arithmetic, bit for bit; sizes, requests under way, members that go.
#include <algorithm>
#include <array>
#include <deque>

#include "tools/conformance/check.hpp"
#include "tools/conformance/collnet.hpp"
#include "tools/conformance/collnet_data.hpp"

namespace plexus::conformance {
namespace {

Result<void> every_type(const CollnetUse& use, Team& team) {
  for (int32_t type = 0; type < kTypes; ++type) {
    for (int32_t op = 0; op < kOps; ++op) {
      PLEXUS_TRY(supported, use.supports(type, op));
      for (const uint64_t count : {uint64_t{1}, uint64_t{3}, uint64_t{1000}}) {
        if (supported) {
          PLEXUS_TRY(reduce(team, {.type = type, .op = op, .count = count}));
        }
      }
    }
  }
  return ok();
}

template <uint32_t size>
Result<void> all_types(const CollnetUse& use) {
  PLEXUS_TRY(team, make_team(use, size));
  return every_type(use, team);
}

template <uint32_t size>
Result<void> all_types_in_processes(Fixture& fixture) {
  PLEXUS_TRY(collnet, Collnet::load(fixture));
  PLEXUS_TRY(use, CollnetUse::open(collnet));
  PLEXUS_TRY(team, make_team_of_processes(use, size));
  PLEXUS_TRY(every_type(use, team));
  return fixture.peer().meet();
}

Result<void> all_sizes(const CollnetUse& use) {
  PLEXUS_TRY(reduction, find_reduction(use));
  PLEXUS_TRY(team, make_team(use, 2));
  const uint64_t longest =
      use.devices()[0].message_bytes_max / collnet_element_bytes(reduction.type);
  for (const uint64_t edge : {1U, 8U, 64U, 512U, 4096U, 65536U, 1U << 20U}) {
    for (const uint64_t count : {edge - 1, edge, edge + 1}) {
      if (count > 0 && count <= longest) {
        reduction.count = count;
        PLEXUS_TRY(reduce(team, reduction));
      }
    }
  }
  return ok();
}

Result<void> longest(const CollnetUse& use) {
  constexpr uint64_t kMostBytes = uint64_t{64} << 20;
  PLEXUS_TRY(reduction, find_reduction(use));
  PLEXUS_TRY(team, make_team(use, 2));
  reduction.count = std::min(kMostBytes, use.devices()[0].message_bytes_max) /
                    collnet_element_bytes(reduction.type);
  return reduce(team, reduction);
}

Result<void> in_place(const CollnetUse& use) {
  PLEXUS_TRY(reduction, find_reduction(use));
  PLEXUS_TRY(team, make_team(use, 3));
  reduction.is_in_place = true;
  for (const uint64_t count : {1U, 100U, 100'000U}) {
    reduction.count = count;
    PLEXUS_TRY(reduce(team, reduction));
  }
  return ok();
}

Result<void> any_address(const CollnetUse& use) {
  PLEXUS_TRY(reduction, find_reduction(use));
  PLEXUS_TRY(team, make_team(use, 2));
  reduction.count = 777;
  for (const size_t offset : {1U, 3U, 5U, 63U}) {
    reduction.offset = offset;
    PLEXUS_TRY(reduce(team, reduction));
  }
  return ok();
}

/// A reduction of a member in flight.
struct Flight {
  std::vector<std::byte> part;
  std::vector<std::byte> result;
  plexus_collnet_request_t* request = nullptr;
};

plexus_collnet_reduction_t describe(Flight& flight,
                                    const Reduction& reduction,
                                    plexus_collnet_memory_t* send,
                                    plexus_collnet_memory_t* recv) {
  return {flight.part.data(), flight.result.data(), reduction.count, send, recv,
          reduction.type,     reduction.op};
}

/// Starts reductions until the member has no free request, or `most` are in flight.
Result<std::deque<Flight>> start_many(Member& member,
                                      uint32_t number,
                                      const Reduction& reduction,
                                      uint32_t most) {
  std::deque<Flight> flights;
  for (uint32_t i = 0; i < most; ++i) {
    const CollnetData data = {reduction.type, reduction.op, reduction.count, i};
    Flight& flight = flights.emplace_back();
    flight.part = make_part(data, number);
    flight.result.resize(flight.part.size());
    PLEXUS_TRY(send, member.register_memory(flight.part.data(), flight.part.size()));
    PLEXUS_TRY(recv, member.register_memory(flight.result.data(), flight.result.size()));
    const auto what = describe(flight, reduction, send, recv);
    const int32_t code = member.iallreduce(what, &flight.request);
    if (code == PLEXUS_AGAIN) {
      flights.pop_back();
      break;
    }
    if (code != PLEXUS_OK) {
      return failed(member.monitor(), "iallreduce", code);
    }
  }
  return flights;
}

/// requests_max reductions in flight on every member, tested in reverse order.
Result<void> many_under_way(const CollnetUse& use) {
  PLEXUS_TRY(reduction, find_reduction(use));
  reduction.count = 300;
  PLEXUS_TRY(team, make_team(use, 2));
  constexpr uint32_t kMost = 64;
  const uint32_t promised = std::min(kMost, use.devices()[0].requests_max);
  std::array<std::deque<Flight>, 2> flights;
  for (uint32_t i = 0; i < 2; ++i) {
    PLEXUS_TRY(started, start_many(team.members[i], i, reduction, promised));
    PLEXUS_TRY(expect(started.size() == promised,
                      "it accepts {} requests at once, its properties report {}", started.size(),
                      promised));
    flights[i] = std::move(started);
  }
  std::array<size_t, 2> done{};  // by member, the oldest first
  PLEXUS_TRY(team.members[0].fixture().wait_until("the end of all requests", [&]() -> Result<bool> {
    for (size_t member = 0; member < 2; ++member) {
      if (done[member] == promised) {
        continue;
      }
      const int32_t code = team.members[member].test(flights[member][done[member]].request);
      if (code != PLEXUS_OK && code != PLEXUS_AGAIN) {
        return failed(team.members[member].monitor(), "test", code);
      }
      done[member] += code == PLEXUS_OK ? 1 : 0;
    }
    return done[0] + done[1] == 2 * size_t{promised};
  }));
  for (uint32_t i = 0; i < promised; ++i) {
    const auto expected = make_result({reduction.type, reduction.op, reduction.count, i}, 2);
    PLEXUS_TRY(expect(flights[0][i].result == expected && flights[1][i].result == expected,
                      "reduction {} of {} in flight has a wrong result", i, promised));
  }
  return ok();
}

/// One member asks for more than it has requests; what was refused must not be started.
Result<void> refused_is_not_started(const CollnetUse& use) {
  PLEXUS_TRY(reduction, find_reduction(use));
  reduction.count = 64;
  PLEXUS_TRY(team, make_team(use, 2));
  constexpr uint32_t kMost = 4096;
  PLEXUS_TRY(ahead, start_many(team.members[0], 0, reduction, kMost));
  if (ahead.size() == kMost) {
    return skip("it accepts {} requests at once and refuses none", kMost);
  }
  // The other member follows; its requests must match the ones with the same numbers.
  Fixture& fixture = team.members[0].fixture();
  for (uint32_t i = 0; i < ahead.size(); ++i) {
    const CollnetData data = {reduction.type, reduction.op, reduction.count, i};
    Flight behind;
    behind.part = make_part(data, 1);
    behind.result.resize(behind.part.size());
    PLEXUS_TRY(send, team.members[1].register_memory(behind.part.data(), behind.part.size()));
    PLEXUS_TRY(recv, team.members[1].register_memory(behind.result.data(), behind.result.size()));
    const auto what = describe(behind, reduction, send, recv);
    bool is_started = false;
    bool is_here = false;
    bool is_there = false;
    PLEXUS_TRY(fixture.wait_until("a reduction that was refused at first", [&]() -> Result<bool> {
      if (!is_started) {
        const int32_t code = team.members[1].iallreduce(what, &behind.request);
        PLEXUS_TRY(
            expect(code == PLEXUS_OK || code == PLEXUS_AGAIN, "iallreduce returned {}", code));
        is_started = code == PLEXUS_OK;
        return false;
      }
      is_here = is_here || team.members[1].test(behind.request) == PLEXUS_OK;
      is_there = is_there || team.members[0].test(ahead[i].request) == PLEXUS_OK;
      return is_here && is_there;
    }));
    team.members[1].deregister();
    const auto expected = make_result(data, 2);
    PLEXUS_TRY(expect(behind.result == expected && ahead[i].result == expected,
                      "after a refusal, reduction {} was combined with another one", i));
  }
  PLEXUS_TRY(reduce(team, {.type = reduction.type, .op = reduction.op, .count = 9, .salt = 5}));
  return ok();
}

Result<void> alone_is_not_done(const CollnetUse& use) {
  PLEXUS_TRY(reduction, find_reduction(use));
  reduction.count = 64;
  PLEXUS_TRY(team, make_team(use, 2));
  PLEXUS_TRY(flights, start_many(team.members[0], 0, reduction, 1));
  PLEXUS_TRY(expect(flights.size() == 1, "a first reduction is refused"));
  return team.members[0].fixture().repeat_for(milliseconds(100), [&]() -> Result<void> {
    const int32_t code = team.members[0].test(flights[0].request);
    return expect(code == PLEXUS_AGAIN, "test returned {} though the other member posted nothing",
                  code);
  });
}

Result<void> closes_in_flight(const CollnetUse& use) {
  PLEXUS_TRY(reduction, find_reduction(use));
  reduction.count = 4096;
  for (int i = 0; i < 5; ++i) {
    PLEXUS_TRY(team, make_team(use, 2));
    PLEXUS_TRY(flights, start_many(team.members[0], 0, reduction, 2));
    team.members[0].close();
    for (const Flight& flight : flights) {
      PLEXUS_TRY(expect(std::all_of(flight.result.begin(), flight.result.end(),
                                    [](std::byte each) { return each == std::byte{0}; }),
                        "it wrote a result before all members contributed"));
    }
    flights.clear();
  }
  return ok();
}

/// Drives the only member of this process until the plugin reports the failure.
Result<void> expect_failure(Team& team, const Reduction& reduction) {
  Member& member = team.members[0];
  PLEXUS_TRY(flights, start_many(member, team.numbers[0], reduction, 1));
  if (flights.empty()) {
    return wrong("a first reduction is refused");
  }
  int32_t code = PLEXUS_AGAIN;
  PLEXUS_TRY(member.fixture().wait_until("the failure of a group whose member died",
                                         [&]() -> Result<bool> {
                                           code = member.test(flights[0].request);
                                           return code != PLEXUS_AGAIN;
                                         }));
  PLEXUS_TRY(expect(code != PLEXUS_OK, "test returned PLEXUS_OK though a member is dead"));
  plexus_collnet_request_t* request = nullptr;
  const auto what = describe(flights[0], reduction, nullptr, nullptr);
  const int32_t again = member.iallreduce(what, &request);
  return expect(again != PLEXUS_OK && again != PLEXUS_AGAIN,
                "a group that failed accepts another reduction (code {})", again);
}

Result<void> member_dies(Fixture& fixture) {
  PLEXUS_TRY(collnet, Collnet::load(fixture));
  PLEXUS_TRY(use, CollnetUse::open(collnet));
  PLEXUS_TRY(reduction, find_reduction(use));
  reduction.count = 1000;
  PLEXUS_TRY(team, make_team_of_processes(use, 2));
  PLEXUS_TRY(reduce(team, reduction));
  PLEXUS_TRY(fixture.peer().meet());
  if (fixture.role() == 1) {
    fixture.die();
  }
  return expect_failure(team, reduction);
}

Result<void> counts_differ(const CollnetUse& use) {
  PLEXUS_TRY(reduction, find_reduction(use));
  PLEXUS_TRY(team, make_team(use, 2));
  std::array<std::deque<Flight>, 2> flights;
  for (uint32_t i = 0; i < 2; ++i) {
    reduction.count = 10 + i;
    PLEXUS_TRY(started, start_many(team.members[i], i, reduction, 1));
    PLEXUS_TRY(expect(started.size() == 1, "a first reduction is refused"));
    flights[i] = std::move(started);
  }
  return team.members[0].fixture().wait_until(
      "the failure of members that differ in their counts", [&]() -> Result<bool> {
        for (size_t i = 0; i < 2; ++i) {
          const int32_t code = team.members[i].test(flights[i][0].request);
          PLEXUS_TRY(
              expect(code != PLEXUS_OK, "a reduction of 10 elements was combined with one of 11"));
          if (code != PLEXUS_AGAIN) {
            return true;
          }
        }
        return false;
      });
}

constexpr const char* kReduceRule =
    "plexus_collnet.h iallreduce: `count` elements from `send` are combined over the group into "
    "`recv`; the same bits on all members";
constexpr const char* kAgainRule =
    "plexus_collnet.h iallreduce: the k-th of a member meets the k-th of every other; "
    "PLEXUS_AGAIN: nothing was started";
constexpr CheckOptions kNative = {.abi = CheckOptions::Abi::kNative};

constexpr std::array kChecks = {
    Check{"reduce.types", "performs every reduction that it reports, with two members", kReduceRule,
          on_use<all_types<2>>},
    Check{"reduce.types_three", "performs every reduction that it reports, with three members",
          kReduceRule, on_use<all_types<3>>},
    Check{"reduce.processes",
          "performs every reduction that it reports, with two processes",
          kReduceRule,
          all_types_in_processes<2>,
          {.processes = 2}},
    Check{"reduce.processes_three",
          "performs every reduction that it reports, with three members in two processes",
          kReduceRule,
          all_types_in_processes<3>,
          {.processes = 2}},
    Check{"reduce.sizes", "reduces any number of elements", kReduceRule, on_use<all_sizes>},
    Check{"reduce.longest",
          "reduces up to the size that it reports",
          "plexus_collnet.h message_bytes_max: longest iallreduce",
          on_use<longest>,
          {.is_alone = true}},
    Check{"reduce.in_place", "reduces in place", "plexus_collnet.h: send and recv may be equal",
          on_use<in_place>},
    Check{"reduce.address", "reduces from and to any element-aligned address", kReduceRule,
          on_use<any_address>},
    Check{"reduce.many", "has as many requests in flight as it reports", kAgainRule,
          on_use<many_under_way>},
    Check{"reduce.again", "starts nothing when it refuses a request", kAgainRule,
          on_use<refused_is_not_started>},
    Check{"reduce.not_done", "does not complete before all members contributed",
          "plexus_collnet.h test: PLEXUS_AGAIN is not done", on_use<alone_is_not_done>},
    Check{"reduce.close", "closes with requests outstanding",
          "plexus_collnet.h close_group: after the call their buffers are not accessed again",
          on_use<closes_in_flight>},
    Check{"reduce.differ", "fails when members differ",
          "plexus_collnet.h iallreduce: members whose k-th differ in count, type or op fail",
          on_use<counts_differ>, kNative},
    Check{"reduce.death",
          "reports a member that died, and stays failed",
          "plexus_collnet.h: a group that failed stays failed: every later call fails as well",
          member_dies,
          {.processes = 2, .abi = CheckOptions::Abi::kNative}},
};

}  // namespace

CheckTable reduction_checks() { return kChecks; }

}  // namespace plexus::conformance
