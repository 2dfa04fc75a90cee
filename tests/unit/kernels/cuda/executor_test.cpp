// SPDX-License-Identifier: Apache-2.0
// The device executor, run by host threads, compared bit by bit with the host executor: every
// algorithm, every protocol, all ranks of one kind and mixed.
#include <algorithm>

#include <gtest/gtest.h>

#include "tests/unit/kernels/cuda/world.hpp"

namespace plexus::test {
namespace {

static_assert(kDevicePeersMax + 1 == kOperandsMax);

std::vector<bool> all_on_device(size_t nranks) { return std::vector<bool>(nranks, true); }
std::vector<bool> every_other(size_t nranks) {
  std::vector<bool> on_device(nranks);
  for (size_t rank = 0; rank < nranks; rank += 2) {
    on_device[rank] = true;
  }
  return on_device;
}

/// Expects the same bits as from host ranks.
void expect_host_bits(const Call& call, WorldOptions options, uint32_t times = 1) {
  World device(call, options);
  options.on_device.assign(call.programs.size(), false);
  World host(call, options);
  for (World* const world : {&device, &host}) {
    fill_inputs(*world, call.type, 1);
    ASSERT_TRUE(world->run(times));
  }
  for (size_t rank = 0; rank < device.size(); ++rank) {
    ASSERT_EQ(device.output(rank), host.output(rank)) << "rank " << rank;
  }
}

// ---- every algorithm ----

struct Case {
  const Algorithm* algorithm;
  Protocol protocol;
  bool joins = false;  // messages of several chunks
};
std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const Algorithm& algorithm : algorithms()) {
    // A network that reduces is a different kind of peer; sends and receives are tested in pairs
    // below.
    if (algorithm.network_cost == nullptr && !is_point_to_point(algorithm.collective)) {
      for (const Protocol protocol : kProtocols) {
        cases.push_back({&algorithm, protocol});
      }
      if (algorithm.joined.rounds != nullptr) {
        cases.push_back({&algorithm, Protocol::kSimple, true});
      }
    }
  }
  return cases;
}

class EveryAlgorithm : public testing::TestWithParam<Case> {
 protected:
  [[nodiscard]] static Call make(int nranks, uint64_t count) {
    const auto& [algorithm, protocol, joins] = GetParam();
    Call call = make_call(algorithm->name, nranks, count, protocol);
    if (joins) {
      call.programs = record_all(*algorithm, nranks, 0, true);
      call.slot_bytes =
          call.chunk_bytes * static_cast<uint32_t>(chunks_of_longest_message(call.programs));
    }
    return call;
  }
};

TEST_P(EveryAlgorithm, GivesTheHostsBitsOnDeviceRanks) {
  for (const int nranks : {2, 3, 5, 8}) {
    for (const uint64_t count : {1, 9, 300}) {
      SCOPED_TRACE(testing::Message() << nranks << " ranks, " << count);
      expect_host_bits(make(nranks, count), {.on_device = all_on_device(size_t(nranks))});
    }
  }
}

TEST_P(EveryAlgorithm, GivesTheHostsBitsOnMixedRanks) {
  for (const int nranks : {2, 4, 7}) {
    SCOPED_TRACE(nranks);
    expect_host_bits(make(nranks, 300), {.on_device = every_other(size_t(nranks))});
  }
}

TEST_P(EveryAlgorithm, GivesTheHostsBitsWithMappedAddresses) {
  expect_host_bits(make(4, 300), {.on_device = all_on_device(4), .by_address = true});
}

/// Steps that move an address only run at once.
TEST_P(EveryAlgorithm, GivesTheHostsBitsWhereAChunkIsAMessage) {
  for (const int nranks : {5, 8}) {
    SCOPED_TRACE(nranks);
    Call call = make(nranks, 700);
    call.chunk_bytes = GetParam().joins ? call.chunk_bytes : call.slot_bytes;
    for (const bool by_address : {false, true}) {
      expect_host_bits(
          call,
          {.on_device = all_on_device(size_t(nranks)), .threads = 4, .by_address = by_address});
    }
    expect_host_bits(call, {.on_device = every_other(size_t(nranks)), .by_address = true});
  }
}

TEST_P(EveryAlgorithm, GivesTheHostsBitsInBlocksOfSeveralThreads) {
  expect_host_bits(make(3, 150), {.on_device = all_on_device(3), .threads = 3, .by_address = true});
}

INSTANTIATE_TEST_SUITE_P(Device,
                         EveryAlgorithm,
                         testing::ValuesIn(all_cases()),
                         [](const testing::TestParamInfo<Case>& row) {
                           return std::string(row.param.algorithm->name) + "_" +
                                  name(row.param.protocol) + (row.param.joins ? "_joined" : "");
                         });

// ---- every type and operation ----

class EveryType : public testing::TestWithParam<DataType> {};

TEST_P(EveryType, GivesTheHostsBitsForEveryReduction) {
  const DataType type = GetParam();
  const uint64_t third = is_floating(type) ? ReduceOp::scalar_bits_of(type, 1.0 / 3) : 3;
  for (const ReduceOp& op : {ReduceOp::plain(ReduceKind::kSum), ReduceOp::plain(ReduceKind::kProd),
                             ReduceOp::plain(ReduceKind::kMax), ReduceOp::plain(ReduceKind::kMin),
                             ReduceOp::average(type, 3), ReduceOp::premul_sum(third)}) {
    for (const char* const algorithm :
         {"ring_all_reduce", "tree_all_reduce", "all_pairs_all_reduce"}) {
      for (const Protocol protocol : kProtocols) {
        SCOPED_TRACE(testing::Message() << algorithm << " " << name(protocol) << " "
                                        << static_cast<int>(op.kind) << op.scales << op.divides);
        Call call = make_call(algorithm, 3, 211, protocol);
        call.type = type;
        call.op = op;
        expect_host_bits(call, {.on_device = every_other(3)});
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Device,
                         EveryType,
                         testing::Values(DataType::kInt8,
                                         DataType::kUint8,
                                         DataType::kInt32,
                                         DataType::kUint32,
                                         DataType::kInt64,
                                         DataType::kUint64,
                                         DataType::kFloat16,
                                         DataType::kFloat32,
                                         DataType::kFloat64,
                                         DataType::kBfloat16,
                                         DataType::kFloat8e4m3,
                                         DataType::kFloat8e5m2),
                         [](const auto& row) { return std::string(name(row.param)); });

// ---- memory, slots, lines ----

TEST(DeviceExecutor, ServesAllRanksInTurnByOneBlock) {
  int served = 0;
  for (const Case& each : all_cases()) {
    const Call call = make_call(each.algorithm->name, 5, 300, Protocol::kSimple);
    if (each.protocol != Protocol::kSimple ||
        !std::all_of(call.programs.begin(), call.programs.end(), runs_in_turn)) {
      continue;
    }
    SCOPED_TRACE(each.algorithm->name);
    ++served;
    for (const uint32_t threads : {1U, 3U}) {
      expect_host_bits(call, {.on_device = all_on_device(5), .threads = threads, .in_turn = true});
      expect_host_bits(call, {.on_device = every_other(5), .threads = threads, .in_turn = true}, 3);
      expect_host_bits(call, {.on_device = all_on_device(5), .by_address = true, .in_turn = true},
                       2);
    }
  }
  EXPECT_GE(served, 5);
}

TEST(DeviceExecutor, MovesBytesOfAnyAlignment) {
  for (const size_t shift : {1, 2, 4, 7, 8, 15}) {
    for (const Protocol protocol : kProtocols) {
      SCOPED_TRACE(testing::Message() << shift << " " << name(protocol));
      Call call = make_call("ring_all_reduce", 3, 700, protocol);
      call.type = DataType::kUint8;
      expect_host_bits(
          call,
          {.on_device = every_other(3), .threads = 2, .by_address = true, .shift_bytes = shift});
    }
  }
}

TEST(DeviceExecutor, MovesSlicesOfAnyLength) {
  for (uint64_t count = 1; count < 80; ++count) {
    Call call = make_call("ring_all_reduce", 2, count, Protocol::kSimple);
    call.type = DataType::kUint8;
    expect_host_bits(call, {.on_device = every_other(2), .threads = 2, .shift_bytes = 4});
  }
}

TEST(DeviceExecutor, UsesHeadersWhereAConnectionHasNoLines) {
  for (const Protocol protocol : kProtocols) {
    expect_host_bits(make_call("tree_all_reduce", 4, 300, protocol),
                     {.on_device = every_other(4), .lines = false});
  }
}

TEST(DeviceExecutor, PutsNothingIntoHeadersOfNetworkSlots) {
  expect_host_bits(make_call("ring_all_reduce", 3, 5, Protocol::kSimple),
                   {.on_device = every_other(3), .inline_bytes = 0});
}

TEST(DeviceExecutor, FillsTheLargestSlotsOfLines) {
  for (const Protocol protocol : {Protocol::kLL, Protocol::kLL128}) {
    Call call = make_call("ring_all_reduce", 2, 9000, protocol);
    call.chunk_bytes = 16384;
    call.slot_bytes = payload_bytes_max(protocol);
    expect_host_bits(call, {.on_device = every_other(2), .threads = 2});
  }
}

TEST(DeviceExecutor, WorksInPlace) {
  for (const Protocol protocol : kProtocols) {
    Call call = make_call("ring_all_reduce", 4, 300, protocol);
    World device(call, {.on_device = all_on_device(4), .by_address = true});
    World host(call, {.on_device = std::vector<bool>(4)});
    for (World* const world : {&device, &host}) {
      fill_inputs(*world, call.type, 5);
      world->make_in_place();
      ASSERT_TRUE(world->run());
    }
    for (size_t rank = 0; rank < 4; ++rank) {
      EXPECT_EQ(device.output(rank), host.output(rank));
    }
  }
}

TEST(DeviceExecutor, CountsStepsBeyond32BitsAndCleansLines) {
  constexpr uint64_t kHalf = uint64_t{1} << 31;
  for (const uint64_t first : {kHalf - 11, 2 * kHalf - 11, 3 * kHalf - 3}) {
    for (const Protocol protocol : kProtocols) {
      SCOPED_TRACE(testing::Message() << first << " " << name(protocol));
      expect_host_bits(make_call("ring_all_reduce", 2, 2000, protocol),
                       {.on_device = every_other(2), .first_step = first});
    }
  }
}

/// Sent by bytes, because the works write the same output and would change what an earlier one sent
/// by address.
TEST(DeviceExecutor, RunsTheWorksOfAQueueOneAfterTheOther) {
  for (const Protocol protocol : kProtocols) {
    expect_host_bits(make_call("tree_all_reduce", 4, 300, protocol),
                     {.on_device = all_on_device(4)}, 3);
    expect_host_bits(make_call("all_pairs_all_gather", 3, 50, protocol),
                     {.on_device = every_other(3)}, 3);
  }
}

TEST(DeviceExecutor, GoesOnWhereTheLastLaunchEnded) {
  World world(make_call("ring_all_reduce", 3, 300, Protocol::kLL128),
              {.on_device = every_other(3), .by_address = true});
  for (uint32_t launch = 0; launch < 5; ++launch) {
    fill_inputs(world, DataType::kInt32, launch);
    ASSERT_TRUE(world.run());
    EXPECT_EQ(world.output(0), world.output(1));
    EXPECT_EQ(world.output(0), world.output(2));
  }
}

// ---- messages ----

Call make_message(uint64_t count, Protocol protocol) {
  const std::vector<int> pair = {0, 1};
  Call call;
  call.programs = {find_algorithm("send")->record({.rank = 0, .ring = pair, .root = 1}),
                   find_algorithm("recv")->record({.rank = 1, .ring = pair, .root = 0})};
  call.collective = Collective::kSend;
  call.protocol = protocol;
  call.count = count;
  return call;
}

TEST(DeviceExecutor, ExchangesMessagesOfNothing) {
  for (const Protocol protocol : kProtocols) {
    for (const bool sender_on_device : {false, true}) {
      World world(make_message(0, protocol), {.on_device = {sender_on_device, !sender_on_device}});
      for (size_t rank = 0; rank < 2; ++rank) {
        world.set_loops(rank, 1);
      }
      EXPECT_TRUE(world.run());
    }
  }
}

TEST(DeviceExecutor, SendsToAHostRankAndReceivesFromOne) {
  for (const Protocol protocol : kProtocols) {
    expect_host_bits(make_message(1000, protocol), {.on_device = {true, false}});
    expect_host_bits(make_message(1000, protocol), {.on_device = {false, true}});
  }
}

// ---- failing ----

TEST(DeviceExecutor, NamesThePeerThatMadeAnotherCall) {
  for (const Protocol protocol : kProtocols) {
    World world(make_message(30, protocol), {.on_device = {true, true}, .threads = 2});
    world.set_hash(0, 99);
    EXPECT_FALSE(world.run());
    const DeviceControl& control = world.control(1);
    EXPECT_EQ(control.stop, DeviceStop::kFailed);
    EXPECT_EQ(control.failure.fault, DeviceFault::kOtherCall);
    EXPECT_EQ(control.failure.peer, 0);
    EXPECT_EQ(control.failure.hash_arrived, 99U);
    EXPECT_EQ(control.failure.hash_expected, world.device_work(1).call.hash);
    EXPECT_EQ(control.failure.sequence, world.device_work(1).call.sequence);
    EXPECT_EQ(world.done(1), 0U);
    EXPECT_TRUE(world.has_left(1));
  }
}

TEST(DeviceExecutor, NamesASizeThatIsNotExpected) {
  World world(make_message(30, Protocol::kSimple), {.on_device = {true, true}});
  world.device_work(0).geometry.part_count = 20;
  world.device_work(0).geometry.last_chunk_count = 20;
  EXPECT_FALSE(world.run());
  EXPECT_EQ(world.control(1).failure.fault, DeviceFault::kOtherSize);
  EXPECT_EQ(world.control(1).failure.size_expected, 30 * sizeof(int32_t));
  EXPECT_EQ(world.control(1).failure.size_arrived, 20 * sizeof(int32_t));
}

TEST(DeviceExecutor, RefusesAnAddressItCannotRead) {
  World world(make_message(30, Protocol::kSimple),
              {.on_device = {true, true}, .by_address = true, .reads_pointers = false});
  // the sender too, because it waits until what it sent by address is taken
  EXPECT_FALSE(world.run());
  EXPECT_EQ(world.control(0).stop, DeviceStop::kAborted);
  EXPECT_EQ(world.control(1).failure.fault, DeviceFault::kUnmapped);
}

TEST(DeviceExecutor, EndsWhenItIsAborted) {
  for (const Protocol protocol : kProtocols) {
    for (const char* const algorithm : {"ring_all_reduce", "tree_all_reduce"}) {
      // The last rank makes a different call: it or its neighbour fails and ends the others.
      World world(make_call(algorithm, 4, 300, protocol),
                  {.on_device = {true, true, true, false}, .threads = 2});
      world.set_hash(3, 1);
      EXPECT_FALSE(world.run());
      for (size_t rank = 0; rank < 3; ++rank) {
        EXPECT_NE(world.control(rank).stop, DeviceStop::kGoOn);
      }
    }
  }
}

}  // namespace
}  // namespace plexus::test
