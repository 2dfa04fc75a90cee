// SPDX-License-Identifier: Apache-2.0
// Each format's sample: what is read of it, that docs/formats.md shows it and says the same, and
// what is said of files that are none.
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/workload/builder.hpp"

namespace plexus {
namespace {

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

Workload sample(const std::string& name) {
  auto work = parse_workload(read(PLEXUS_WORKLOAD_SAMPLES "/" + name));
  EXPECT_TRUE(work.has_value()) << name << ": " << work.error().message();
  return work.has_value() ? std::move(work).value() : Workload();
}

TEST(WorkloadFormats, TheDocumentShowsEachSampleAndWhatIsUnderstood) {
  const std::string document =
      read(std::string(std::getenv("PLEXUS_TEST_SOURCE_DIR")) + "/docs/formats.md");
  for (const char* const name :
       {"step.json", "trace.json", "pipeline.goal", "layers.txt", "aicb.csv", "chakra.json",
        "execution_trace.json", "kineto.json", "flight_recorder.json", "inspector.jsonl",
        "nccl_tests.log", "flows.cm", "calls.json"}) {
    EXPECT_THAT(document,
                testing::HasSubstr("```\n" + read(PLEXUS_WORKLOAD_SAMPLES "/" + std::string(name)) +
                                   "```\n"))
        << name;
    EXPECT_THAT(document, testing::HasSubstr(describe(sample(name)))) << name;
  }
  EXPECT_THAT(document, testing::HasSubstr(describe(sample("messages.et"))));
}

TEST(WorkloadFormats, GoalHasRanksOfTheirOwnAndWhatTheyRequire) {
  const Workload work = sample("pipeline.goal");
  ASSERT_EQ(work.calls.size(), 4U);
  EXPECT_EQ(work.nranks, 2);
  EXPECT_DOUBLE_EQ(work.calls[0].time_us, 5);
  EXPECT_EQ(work.calls[1].kind, WorkKind::kSend);
  EXPECT_EQ(work.calls[1].peer, 1);
  EXPECT_EQ(work.calls[1].tag, 1U);
  EXPECT_THAT(work.calls[1].after, testing::ElementsAre(0U));
  EXPECT_EQ(work.calls[2].rank, 1);
  EXPECT_THAT(work.calls[3].after, testing::ElementsAre(2U));
}

TEST(WorkloadFormats, LayersGoForwardAndBackAndWeightsBeside) {
  const Workload work = sample("layers.txt");
  ASSERT_EQ(work.calls.size(), 13U);
  EXPECT_EQ(work.names[work.calls[0].name], "attention forward");
  EXPECT_DOUBLE_EQ(work.calls[0].time_us, 400);
  EXPECT_EQ(work.groups[work.calls[1].group].nranks, 4);
  EXPECT_EQ(work.names[work.calls[4].name], "mlp input gradients");
  EXPECT_EQ(work.calls[7].collective, Collective::kReduceScatter);
  EXPECT_EQ(work.calls[7].stream, 1U);
  EXPECT_THAT(work.calls[7].after, testing::ElementsAre(6U));
  EXPECT_EQ(members_of(work.groups[work.calls[7].group], 16), 4);
  EXPECT_EQ(members_of(work.groups[work.calls[7].group], 64), 16) << "data parallelism grows";
  EXPECT_EQ(members_of(work.groups[work.calls[1].group], 64), 4);
  EXPECT_THAT(work.calls[12].after, testing::ElementsAre(7U, 11U)) << "the update waits for both";
}

TEST(WorkloadFormats, BothFormsOfChakraAreGraphs) {
  for (const char* const name : {"messages.et", "chakra.json"}) {
    const Workload work = sample(name);
    ASSERT_GE(work.calls.size(), 3U) << name;
    EXPECT_EQ(work.calls[0].kind, WorkKind::kCompute);
    EXPECT_DOUBLE_EQ(work.calls[0].time_us, 300);
    EXPECT_EQ(work.calls[1].collective, Collective::kAllReduce);
    EXPECT_EQ(work.calls[1].bytes, 1U << 20);
    EXPECT_THAT(work.calls[1].after, testing::ElementsAre(0U));
  }
  const Workload work = sample("messages.et");
  EXPECT_EQ(work.calls[2].kind, WorkKind::kSend);
  EXPECT_EQ(work.calls[2].peer, 1);
  EXPECT_EQ(work.calls[3].kind, WorkKind::kRecv);
  EXPECT_EQ(work.calls[3].peer, 3);
  EXPECT_EQ(work.nranks, 4);
}

TEST(WorkloadFormats, KernelsBesideACallOverlapIt) {
  const Workload work = sample("kineto.json");
  ASSERT_EQ(work.calls.size(), 4U);
  EXPECT_EQ(work.calls[1].collective, Collective::kAllReduce);
  EXPECT_EQ(work.calls[1].bytes, 4U << 20);
  EXPECT_THAT(work.calls[1].after, testing::ElementsAre(0U)) << "the kernel that ended before it";
  EXPECT_THAT(work.calls[2].after, testing::IsEmpty()) << "runs beside it";
  EXPECT_THAT(work.calls[3].after, testing::ElementsAre(1U)) << "began when it had ended";
  EXPECT_DOUBLE_EQ(work.recorded_us, 250);
}

TEST(WorkloadFormats, BlocksOfCallsBecomeBuffers) {
  const Workload work = sample("inspector.jsonl");
  ASSERT_EQ(work.calls.size(), 2U);
  EXPECT_EQ(work.calls[0].bytes, 1U << 20);
  EXPECT_EQ(work.calls[1].bytes, 16U * 65536) << "a reduce-scatter counts what a rank gets";
  EXPECT_EQ(work.ranks_per_node, 8);
}

TEST(WorkloadFormats, OthersHaveWhatTheySay) {
  EXPECT_EQ(sample("nccl_tests.log").ranks_per_node, 1);
  EXPECT_EQ(sample("nccl_tests.log").calls[1].bytes, 2097152U);
  EXPECT_EQ(sample("aicb.csv").calls[2].times, 2U);
  EXPECT_DOUBLE_EQ(sample("aicb.csv").calls[1].time_us, 420);
  EXPECT_EQ(sample("flight_recorder.json").calls[1].peer, 1);
  EXPECT_EQ(sample("flight_recorder.json").calls[1].bytes, 128U);
  EXPECT_EQ(sample("execution_trace.json").calls[0].bytes, 1U << 20);
  EXPECT_EQ(sample("flows.cm").calls[3].kind, WorkKind::kSend);
  EXPECT_DOUBLE_EQ(sample("flows.cm").calls[2].time_us, 5);
}

std::string json_of(const std::string& pickle) {
  const auto json = read_pickle(pickle);
  return json.has_error() ? "refused" : json.value().dump();
}

TEST(WorkloadFormats, PicklesAreReadWithoutPython) {
  using namespace std::string_literals;
  const Workload work = sample("flight_recorder.pickle");
  EXPECT_EQ(describe(work), describe(sample("flight_recorder.json")));
  // {'a': (1, -2, 2.5, True, None), 'b': [300, 'a']}, protocols 2 and 4; the second 'a' is a
  // reference.
  const std::string expected = R"({"a":[1,-2,2.5,true,null],"b":[300,"a"]})";
  EXPECT_EQ(json_of("\x80\x02}q\x00(X\x01\x00\x00\x00"
                    "aq\x01(K\x01J\xfe\xff\xff\xffG@\x04\x00\x00\x00\x00\x00\x00"
                    "\x88Ntq\x02X\x01\x00\x00\x00"
                    "bq\x03]q\x04(M,\x01h\x01"
                    "eu."s),
            expected);
  EXPECT_EQ(json_of("\x80\x04\x95\x30\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01"
                    "a\x94(K\x01J\xfe\xff\xff\xffG@\x04\x00\x00\x00"
                    "\x00\x00\x00\x88Nt\x94\x8c\x01"
                    "b\x94]\x94(M,\x01h\x01"
                    "eu."s),
            expected);
  // PyTorch marks a list of numbers by a function.
  EXPECT_EQ(json_of("\x80\x02"
                    "ctorch.jit._pickle\nbuild_intlist\n](K\x05K\x06"
                    "e\x85R."s),
            "[5,6]");
  EXPECT_EQ(json_of("\x80\x02\x8a\x08\x15\x81\xe9}\xf4\x10\x22\x11."s), "1234567890123456789");
  EXPECT_EQ(json_of("\x80\x02\x8a\x01\xff."s), "-1");
}

TEST(WorkloadFormats, BrokenPicklesAreRefused) {
  using namespace std::string_literals;
  for (const std::string& pickle : {"\x80\x02"s, "\x80\x02."s,
                                    "\x80\x02]q\x00h\x00"
                                    "a."s,
                                    "\x80\x02h\x07."s,
                                    "\x80\x02"
                                    "e."s,
                                    "\x80\x02}K\x01"
                                    "a."s,
                                    "\x80\x02}(K\x01u."s, "\x80\x02\x85."s,
                                    "\x80\x02X\xff\xff\xff\xff"
                                    "a."s,
                                    "\x80\x02\xee."s, "\x80\x02(K\x01\x86."s}) {
    EXPECT_EQ(json_of(pickle), "refused") << testing::PrintToString(pickle);
  }
  // Each list has the one before it ten times.
  std::string bomb = "\x80\x02K\x01";
  for (int i = 0; i < 30; ++i) {
    bomb +=
        "q\x01"
        "0](h\x01h\x01h\x01h\x01h\x01h\x01h\x01h\x01h\x01h\x01"
        "e";
  }
  EXPECT_EQ(json_of(bomb + "."), "refused");
  const std::string whole = read(PLEXUS_WORKLOAD_SAMPLES "/flight_recorder.pickle");
  for (size_t length = 0; length < whole.size(); length += 3) {
    EXPECT_EQ(json_of(whole.substr(0, length)), "refused") << length;
  }
}

TEST(WorkloadFormats, WhatIsNoneIsNamedWithWhatToDo) {
  using Pair = std::pair<std::string, const char*>;
  for (const auto& [text, says] :
       {Pair{"\x1f\x8b\x08", "gunzip"},
        {std::string("\x80\x04\x95\x00", 4), "pickle"},
        {"# collprof 0.9 output file\nMPI_Init:-", "Schedgen"},
        {"topology: [ Ring ]\n", "ASTRA-sim"},
        {"Nodes 16\nTiers 2\n", "network"},
        {"{\"gpus\": [{\"id\": 0, \"threadblocks\": []}]}", "MSCCL++"},
        {"<algo name=\"x\"/>", "plexus program"},
        {"{\"nodes\": 1}", "is neither"},
        {"hello", "is neither"},
        {std::string(1000, '['), "deep"},
        {"{\"nodes\": [], \"schema\": \"1\"}", "without a call"},
        {"num_ranks 2\nrank 0 {\nl1: send 8b to 2\n}", "line 3"},
        {"num_ranks 2\nrank 0 {\nl1: push 8b to 1\n}", "line 3"},
        {"num_ranks 2\nrank 0 {\nl1 requires l2\n}", "line 3"},
        {"num_ranks 99999999\n", "num_ranks"},
        {"num_ranks 4\nrank 3 {\nl: send 8b to 2\n}\nnum_ranks 2\n", "line 5"},
        {"Nodes 4\nConnections 1\n0->3 id 1 size 8\nNodes 2\n", "line 4"},
        {"MICRO\n1\nlayer -1 x NONE 0 1 NONE 0 1 NONE 0 1\n", "line 3"},
        {"MICRO\n1\nlayer -1 1 ALLREDUCE 9999999999999 1 NONE 0 1 NONE 0 1\n", "at most"},
        {"comm_type,msg_size\nall_reduce,many\n", "line 2"},
        {"Nodes 4\nConnections 1\n0->9 id 1 size 8\n", "line 3"},
        {"# size count type redop root time\n8 2 float sum -1 5.5\n", "which test"}}) {
    const auto work = parse_workload(text);
    ASSERT_TRUE(work.has_error()) << text.substr(0, 60);
    EXPECT_THAT(work.error().message(), testing::HasSubstr(says)) << text.substr(0, 60);
  }
}

TEST(WorkloadFormats, ACutFileIsRefusedOrReadUpToThere) {
  for (const char* const name : {"messages.et", "kineto.json", "step.json", "inspector.jsonl"}) {
    const std::string whole = read(PLEXUS_WORKLOAD_SAMPLES "/" + std::string(name));
    for (size_t length = 0; length < whole.size(); length += 7) {
      const auto work = parse_workload(whole.substr(0, length));
      EXPECT_TRUE(work.has_error() ? !work.error().message().empty() : !work.value().calls.empty());
    }
  }
}

TEST(WorkloadFormats, GoalComesBack) {
  for (const char* const name : {"pipeline.goal", "flows.cm"}) {
    const Workload work = sample(name);
    const auto text = format_goal(work);
    ASSERT_TRUE(text.has_value()) << text.error().message();
    const auto again = parse_workload(text.value());
    ASSERT_TRUE(again.has_value()) << again.error().message();
    ASSERT_EQ(again.value().calls.size(), work.calls.size());
    EXPECT_EQ(format_goal(again.value()).value().size(), text.value().size());
  }
  EXPECT_THAT(format_goal(sample("step.json")).error().message(),
              testing::HasSubstr("call 0 is one"));
}

TEST(WorkloadFormats, ChakraComesBack) {
  for (const char* const name : {"step.json", "chakra.json", "messages.et", "layers.txt"}) {
    const Workload work = sample(name);
    for (const std::string& text : {format_chakra(work, 0), format_chakra_protobuf(work, 0)}) {
      const auto again = parse_workload(text);
      ASSERT_TRUE(again.has_value()) << again.error().message();
      ASSERT_EQ(again.value().calls.size(), work.calls.size()) << name;
      for (size_t i = 0; i < work.calls.size(); ++i) {
        EXPECT_EQ(again.value().calls[i].kind, work.calls[i].kind);
        EXPECT_EQ(again.value().calls[i].bytes, work.calls[i].bytes);
        EXPECT_EQ(again.value().calls[i].collective, work.calls[i].collective);
        EXPECT_EQ(again.value().calls[i].peer, work.calls[i].peer);
        EXPECT_NEAR(again.value().calls[i].time_us, work.calls[i].time_us, 0.5);
      }
    }
  }
}

TEST(WorkloadFormats, ChakraProtobufIsAsItsReadersExpectIt) {
  const auto work = parse_workload(R"({"calls": [{"compute_us": 300, "name": "f"},
      {"collective": "all_gather", "bytes": 300}]})");
  ASSERT_TRUE(work.has_value());
  // Each message behind its length. GlobalMetadata: version. Node: id, name, type, data_deps,
  // duration_micros, attributes: is_cpu_op = false (bool_val), comm_size (int64_val), comm_type.
  using namespace std::string_literals;
  const std::string expected =
      "\x07\x0a\x05"
      "0.0.4"
      "\x1a\x08\x00\x12\x01"
      "f\x18\x04\x38\xac\x02"
      "\x52\x0e\x0a\x09"
      "is_cpu_op\xd8\x01\x00"
      "\x37\x08\x01\x12\x00\x18\x07\x28\x00"
      "\x52\x0e\x0a\x09"
      "is_cpu_op\xd8\x01\x00"
      "\x52\x0e\x0a\x09"
      "comm_size\x48\xac\x02"
      "\x52\x0d\x0a\x09"
      "comm_type\x48\x02"s;
  EXPECT_EQ(format_chakra_protobuf(work.value(), 0), expected);
}

TEST(WorkloadFormats, GroupsArePlacedFromTheInside) {
  const Workload work = sample("step.json");
  ASSERT_EQ(work.groups.size(), 3U);
  const auto strides_of = [&](const char* order) {
    std::vector<int> strides(2);
    const std::vector<int> placed = place_groups(work, 16, order);
    for (size_t i = 1; i < placed.size(); ++i) {
      strides[work.groups[i].name == "tp" ? 0 : 1] = placed[i];
    }
    return strides;
  };
  EXPECT_THAT(strides_of("tp,dp"), testing::ElementsAre(1, 4));
  EXPECT_THAT(strides_of("dp,tp"), testing::ElementsAre(4, 1));
  EXPECT_THAT(strides_of(""), testing::ElementsAre(1, 4)) << "tensors within the node";
}

}  // namespace
}  // namespace plexus
