// SPDX-License-Identifier: Apache-2.0
// The choice of algorithms, and NCCL_ALGO as users write it.
#include "core/tuning/choose_algorithm.hpp"

#include <map>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/tuning/algorithm_selection.hpp"

namespace plexus {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

ChoiceInput input_of(Collective collective, uint64_t size_bytes, int nranks = 4) {
  return {.collective = collective,
          .size_bytes = size_bytes,
          .nranks = nranks,
          .channels_min = 1,
          .channels_max = 8,
          .slot_bytes = 128 * 1024};
}

/// The family chosen under a filter, or the error's text.
std::string choose(const char* filter_text, const ChoiceInput& input) {
  const auto filter = AlgorithmFilter::parse(filter_text, "");
  if (filter.has_error()) {
    return std::string(filter.error().message());
  }
  const auto choice = choose_algorithm(input, filter.value(), nullptr);
  return choice.has_error() ? std::string(choice.error().message())
                            : choice.value().algorithm->family;
}

TEST(ChooseAlgorithm, TakesAllPairsForSmallMessagesOfFewRanks) {
  EXPECT_EQ(choose("", input_of(Collective::kAllReduce, 8)), "allpairs");
  EXPECT_EQ(choose("", input_of(Collective::kAllReduce, 1 << 20)), "ring");
  EXPECT_EQ(choose("", input_of(Collective::kAllReduce, 64 << 20, 1000)), "ring");
}

TEST(ChooseAlgorithm, TakesLogarithmicAlgorithmsForSmallMessagesOfManyRanks) {
  EXPECT_EQ(choose("", input_of(Collective::kAllReduce, 8, 1000)), "doubling");
  EXPECT_EQ(choose("", input_of(Collective::kBroadcast, 8, 64)), "binomial");
  EXPECT_EQ(choose("", input_of(Collective::kReduce, 8, 64)), "binomial");
  EXPECT_EQ(choose("", input_of(Collective::kAllGather, 64 * 8, 64)), "bruck");
  EXPECT_EQ(choose("", input_of(Collective::kReduceScatter, 64 * 8, 64)), "pat");
}

TEST(ChooseAlgorithm, ListsEveryWayAndWhatSpeaksAgainstIt) {
  const auto filter = AlgorithmFilter::parse("allreduce:^tree", "");
  const auto candidates =
      list_candidates(input_of(Collective::kAllReduce, 8, 1000), filter.value());
  std::map<std::string, std::string> reasons;
  for (const Candidate& candidate : candidates) {
    reasons[candidate.choice.algorithm->family] = candidate.reason;
  }
  EXPECT_EQ(reasons.size() * kProtocols.size(), candidates.size());
  EXPECT_EQ(reasons["tree"], "excluded by NCCL_ALGO");
  EXPECT_THAT(reasons["allpairs"], HasSubstr("ranks"));
  EXPECT_EQ(reasons["ring"], "");
}

TEST(ChooseAlgorithm, WithoutLinksBetweenAllDatacentersRingsAndTheTreeAllReduceRemain) {
  const LoopCosts costs(
      {.ring = {0, 1, 2}, .nodes = {0, 1, 2}, .datacenters = {0, 1, 2}, .above = {1, -1, 1}},
      false);
  const std::map<Collective, std::set<std::string>> remaining = {
      {Collective::kAllReduce, {"ring", "tree"}}, {Collective::kBroadcast, {"ring"}}};
  for (const auto& [collective, families] : remaining) {
    ChoiceInput input = input_of(collective, 8, 3);
    input.costs = &costs;
    std::set<std::string> possible;
    for (const Candidate& candidate : list_candidates(input, AlgorithmFilter())) {
      if (candidate.possible) {
        possible.insert(candidate.choice.algorithm->family);
      }
    }
    EXPECT_EQ(possible, families) << name(collective);
  }
}

/// Why `file`, which stands in a program file, is not a candidate; "": it is.
std::string why_not(const Algorithm& file,
                    const ChoiceInput& asked,
                    Protocol protocol = Protocol::kSimple) {
  ChoiceInput input = asked;
  input.recorded = std::span(&file, 1);
  for (const Candidate& candidate : list_candidates(input, AlgorithmFilter())) {
    if (candidate.choice.algorithm == &file && candidate.choice.protocol == protocol) {
      return candidate.reason;
    }
  }
  return "not listed";
}

TEST(ChooseAlgorithm, TakesAFileForItsRootSizesAndRanksOnly) {
  RecordedAlgorithm recorded;
  recorded.root = 2;
  recorded.bytes_min = 64;
  recorded.bytes_max = 4096;
  recorded.cost.chunks = 4;
  Algorithm file;
  file.name = file.family = "file";
  file.collective = Collective::kBroadcast;
  file.nranks_max = 4;
  file.recorded = &recorded;
  ChoiceInput input = input_of(Collective::kBroadcast, 64);
  input.root = 2;
  EXPECT_EQ(why_not(file, input), "");
  input.root = 1;
  EXPECT_EQ(why_not(file, input), "its file is for root 2");
  input.root = 2;
  for (const uint64_t size_bytes : {60U, 4100U}) {
    input.size_bytes = size_bytes;
    EXPECT_EQ(why_not(file, input), "its file is for 64 to 4096 bytes") << size_bytes;
  }
  input.size_bytes = 4096;
  EXPECT_EQ(why_not(file, input), "");
  input.size_bytes = 68;
  EXPECT_EQ(why_not(file, input), "its 4 chunks do not divide the elements");
  input.size_bytes = 64;
  input.nranks = 2;
  EXPECT_EQ(why_not(file, input), "");
  input.nranks = 1;
  EXPECT_EQ(why_not(file, input), "not listed");
  input.nranks = 5;
  EXPECT_EQ(why_not(file, input), "at most 4 ranks");
}

TEST(ChooseAlgorithm, TakesAFileWithLongMessagesWhereTheyFitASlotAndOnHostsOnlyByLines) {
  RecordedAlgorithm recorded;
  recorded.message_chunks = 2;
  recorded.cost.chunks = 4;
  Algorithm file;
  file.name = file.family = "file";
  file.collective = Collective::kAllGather;
  file.nranks_max = 4;
  file.recorded = &recorded;
  ChoiceInput input = input_of(Collective::kAllGather, 64);
  EXPECT_EQ(why_not(file, input, Protocol::kLL), "");
  EXPECT_EQ(why_not(file, input), "");
  input.blocks = 8;
  EXPECT_THAT(why_not(file, input, Protocol::kLL), HasSubstr("by Simple only"));
  EXPECT_EQ(why_not(file, input), "");
  input.blocks = 0;
  const auto most = static_cast<int>(kPayloadBytesMaxLL / input.element_bytes);
  recorded.message_chunks = most;
  EXPECT_EQ(why_not(file, input, Protocol::kLL), "");
  recorded.message_chunks = most + 1;
  EXPECT_EQ(why_not(file, input, Protocol::kLL),
            fmt::format("a message of {} chunks needs at least {} bytes, and a slot of LL has {}",
                        most + 1, (most + 1) * 4, kPayloadBytesMaxLL));
}

TEST(ChooseAlgorithm, DeterministicCallsTakeOnlyReductionsInRankOrder) {
  const auto list = [](Collective collective, bool deterministic) {
    ChoiceInput input = input_of(collective, 1 << 20);
    input.deterministic = deterministic;
    std::set<std::string> possible;
    for (const Candidate& candidate : list_candidates(input, AlgorithmFilter())) {
      if (candidate.possible) {
        possible.insert(candidate.choice.algorithm->name);
      }
    }
    return possible;
  };
  std::set<std::string> in_rank_order;
  for (const std::string& name : list(Collective::kAllReduce, false)) {
    if (find_algorithm(name)->in_rank_order) {
      in_rank_order.insert(name);
    }
  }
  EXPECT_FALSE(in_rank_order.empty());
  EXPECT_EQ(list(Collective::kAllReduce, true), in_rank_order);
  EXPECT_EQ(list(Collective::kAllGather, true), list(Collective::kAllGather, false));
}

TEST(ChooseAlgorithm, HasAnAlgorithmForEveryCollective) {
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    const auto choice = choose_algorithm(input_of(collective, 4096), AlgorithmFilter(), nullptr);
    ASSERT_TRUE(choice.has_value()) << name(collective);
    EXPECT_EQ(choice.value().algorithm->collective, collective);
  }
}

TEST(ChooseAlgorithm, KeepsTheBoundsOfChannels) {
  ChoiceInput input = input_of(Collective::kAllReduce, 8);
  input.channels_min = 4;
  EXPECT_EQ(choose_algorithm(input, AlgorithmFilter(), nullptr).value().channels, 4);
}

TEST(AlgorithmFilter, TakesListsInAnyCase) {
  EXPECT_EQ(choose("Ring", input_of(Collective::kAllReduce, 8)), "ring");
  EXPECT_EQ(choose("NVLS,rInG", input_of(Collective::kAllReduce, 8)), "ring");
}

TEST(AlgorithmFilter, TakesExclusions) {
  EXPECT_EQ(choose("^allpairs", input_of(Collective::kAllReduce, 8)), "ring");
  EXPECT_THAT(choose("nvls", input_of(Collective::kAllReduce, 8)),
              HasSubstr("exclude every algorithm"));
}

TEST(AlgorithmFilter, TakesRulesPerCollective) {
  const char* const rules = "allreduce:ring;reducescatter:nvls";
  EXPECT_EQ(choose(rules, input_of(Collective::kAllReduce, 8)), "ring");
  EXPECT_EQ(choose(rules, input_of(Collective::kBroadcast, 1 << 20)), "ring");
  EXPECT_THAT(choose(rules, input_of(Collective::kReduceScatter, 8)),
              HasSubstr("NCCL_ALGO and NCCL_PROTO exclude every algorithm"));
}

TEST(AlgorithmFilter, LeavesACollectiveFreeThatExcludesNothing) {
  EXPECT_EQ(choose("tree;allgather:^", input_of(Collective::kAllReduce, 1 << 20)), "tree");
  EXPECT_EQ(choose("tree;allgather:^", input_of(Collective::kAllGather, 1 << 20)), "ring");
}

/// The protocol chosen under NCCL_PROTO, or the error's text.
std::string choose_protocol(const char* text, const ChoiceInput& input) {
  const auto filter = AlgorithmFilter::parse("", text);
  if (filter.has_error()) {
    return std::string(filter.error().message());
  }
  const auto choice = choose_algorithm(input, filter.value(), nullptr);
  return choice.has_error() ? std::string(choice.error().message()) : name(choice.value().protocol);
}

TEST(ChooseAlgorithm, OffersLinesOnlyWhereRanksShareMemory) {
  ChoiceInput input = input_of(Collective::kBroadcast, 1024);
  input.shares_memory = false;
  EXPECT_EQ(choose_protocol("LL,Simple", input), "Simple");
  EXPECT_THAT(choose_protocol("LL,LL128", input), HasSubstr("exclude every algorithm"));
}

TEST(ChooseAlgorithm, KeepsChunksOfLinesWithinASlot) {
  const auto filter = AlgorithmFilter::parse("", "ll");
  const auto choice =
      choose_algorithm(input_of(Collective::kAllReduce, 1 << 20), filter.value(), nullptr);
  EXPECT_EQ(choice.value().chunk_bytes, kPayloadBytesMaxLL);
}

TEST(AlgorithmFilter, TakesProtocolsAsNcclProtoSpellsThem) {
  const ChoiceInput input = input_of(Collective::kAllReduce, 8);
  EXPECT_EQ(choose_protocol("LL", input), "LL");
  EXPECT_EQ(choose_protocol("^Simple,LL", input), "LL128");
  EXPECT_EQ(choose_protocol("allreduce:ll128;broadcast:LL", input), "LL128");
  EXPECT_THAT(choose_protocol("LL256", input),
              AllOf(HasSubstr("NCCL_PROTO: 'll256' is not a known protocol"), HasSubstr("simple")));
  EXPECT_THAT(choose_protocol("^Simple,LL,LL128", input), HasSubstr("exclude every algorithm"));
}

TEST(AlgorithmFilter, LeavesPairwiseCollectivesAloneUnlessNamed) {
  EXPECT_EQ(choose("ring", input_of(Collective::kAllToAll, 8)), "pairwise");
  EXPECT_THAT(choose("alltoall:ring", input_of(Collective::kAllToAll, 8)),
              HasSubstr("exclude every algorithm"));
}

TEST(AlgorithmFilter, SaysWhatItDoesNotKnowAndWhatItKnows) {
  EXPECT_THAT(choose("rnig", input_of(Collective::kAllReduce, 8)),
              AllOf(HasSubstr("'rnig'"), HasSubstr("allpairs")));
  EXPECT_THAT(choose("allredcue:ring", input_of(Collective::kAllReduce, 8)),
              AllOf(HasSubstr("'allredcue'"), HasSubstr("reducescatter")));
}

/// Why the algorithm of the table with this name is not a candidate; "": it is.
std::string why_not(const char* name,
                    const ChoiceInput& input,
                    Protocol protocol = Protocol::kSimple,
                    const AlgorithmFilter& filter = {}) {
  for (const Candidate& candidate : list_candidates(input, filter)) {
    if (candidate.choice.algorithm == find_algorithm(name) &&
        candidate.choice.protocol == protocol) {
      EXPECT_EQ(candidate.possible, candidate.reason.empty());
      return candidate.reason;
    }
  }
  return "not listed";
}

TEST(ChooseAlgorithm, TheNetworkReducesWhatItsPluginCanInOneDatacenter) {
  constexpr const char* kDirect = "collnet_direct_all_reduce";
  ChoiceInput input = input_of(Collective::kAllReduce, 4096);
  input.type = DataType::kInt8;
  input.kind = ReduceKind::kMax;
  EXPECT_EQ(why_not(kDirect, input), "there is no collnet plugin");
  CollnetAbility ability{.missing = "its plugin is too old"};
  input.collnet = &ability;
  EXPECT_EQ(why_not(kDirect, input), "its plugin is too old");
  ability.missing = "";
  constexpr const char* kNot = "the collnet plugin does not reduce this type with this operation";
  EXPECT_EQ(why_not(kDirect, input), kNot);
  const uint8_t max = 1U << static_cast<unsigned>(ReduceKind::kMax);
  ability.kinds[static_cast<size_t>(DataType::kInt8)] = static_cast<uint8_t>(~max);
  EXPECT_EQ(why_not(kDirect, input), kNot);
  ability.kinds[static_cast<size_t>(DataType::kInt8)] = max;
  EXPECT_EQ(why_not(kDirect, input), "");
  input.ranks_per_node_max = 65;
  EXPECT_EQ(why_not(kDirect, input), "");
  input.ranks_per_node_max = 66;
  EXPECT_EQ(why_not(kDirect, input), "at most 65 ranks on a host");
  EXPECT_EQ(why_not("collnet_chain_all_reduce", input), "");
  const LoopCosts three({.ring = {0, 1, 2}, .nodes = {0, 1, 2}, .datacenters = {0, 1, 2}}, true);
  input.nranks = 3;
  input.costs = &three;
  EXPECT_EQ(why_not("collnet_chain_all_reduce", input), "the ranks are in several datacenters");
  const LoopCosts one({.ring = {0, 1, 2}, .nodes = {0, 1, 2}, .datacenters = {}}, true);
  input.costs = &one;
  EXPECT_EQ(why_not("collnet_chain_all_reduce", input), "");
}

TEST(ChooseAlgorithm, AlgorithmsForSeveralDatacentersAreForThemOrForThoseWhoNameThem) {
  const LoopCosts three({.ring = {0, 1, 2}, .nodes = {0, 1, 2}, .datacenters = {0, 1, 2}}, true);
  size_t found = 0;
  for (const Algorithm& algorithm : algorithms()) {
    if (!algorithm.for_datacenters || algorithm.nranks_max < 4) {
      continue;
    }
    ++found;
    ChoiceInput input = input_of(algorithm.collective, 4096, 3);
    EXPECT_EQ(why_not(algorithm.name, input), "all ranks are in one datacenter");
    const auto named = AlgorithmFilter::parse(algorithm.family, "");
    EXPECT_EQ(why_not(algorithm.name, input, Protocol::kSimple, named.value()), "");
    input.costs = &three;
    EXPECT_EQ(why_not(algorithm.name, input), "");
  }
  EXPECT_GT(found, 0U);
}

TEST(ChooseAlgorithm, ACallTakesWhatItSelectsOrAnythingUnlessItIsForced) {
  ChoiceInput input = input_of(Collective::kAllReduce, 1 << 20);
  input.selection = selection_of(*find_algorithm("tree_all_reduce"), Protocol::kLL);
  EXPECT_EQ(why_not("tree_all_reduce", input, Protocol::kLL), "");
  EXPECT_EQ(why_not("tree_all_reduce", input), "excluded by algSelection");
  EXPECT_EQ(why_not("ring_all_reduce", input, Protocol::kLL), "excluded by algSelection");
  EXPECT_EQ(choose("", input), "tree");
  input.shares_memory = false;
  EXPECT_EQ(choose("", input), "ring");
  input.is_forced = true;
  EXPECT_THAT(choose("", input),
              AllOf(HasSubstr("nothing that algSelection names is possible for this all_reduce ("),
                    HasSubstr("): name others, or set forceAlgSelection to 0")));
  input.nranks = 1;
  EXPECT_EQ(choose("", input), "ring") << "a single rank only copies";
}

TEST(ChooseAlgorithm, SaysWhatIsLeftAndWhyItIsNotPossible) {
  ChoiceInput input = input_of(Collective::kAllReduce, 8, 100);
  EXPECT_EQ(choose("allpairs", input),
            "NCCL_ALGO and NCCL_PROTO exclude every algorithm for all_reduce (allpairs: at most 65 "
            "ranks): unset them, or allow one of those that `plexus explain` lists");
  input.deterministic = true;
  EXPECT_EQ(choose("ring", input),
            "PLEXUS_DETERMINISTIC, with NCCL_ALGO and NCCL_PROTO as set, excludes every algorithm "
            "for all_reduce on 100 ranks: unset it, or use at most 65 ranks");
}

TEST(ChooseAlgorithm, ASingleRankIsFreeOfSettings) {
  EXPECT_EQ(choose("nvls", input_of(Collective::kAllReduce, 8, 1)),
            choose("", input_of(Collective::kAllReduce, 8, 1)));
}

TEST(ChooseAlgorithm, TakesAFileForItsProtocolAndCollectiveOnly) {
  RecordedAlgorithm recorded;
  recorded.protocol = Protocol::kLL;
  recorded.cost.chunks = 4;
  Algorithm file;
  file.name = file.family = "file";
  file.collective = Collective::kAllGather;
  file.recorded = &recorded;
  EXPECT_EQ(why_not(file, input_of(Collective::kAllGather, 64)), "its file is for LL");
  EXPECT_EQ(why_not(file, input_of(Collective::kAllGather, 64), Protocol::kLL), "");
  EXPECT_EQ(why_not(file, input_of(Collective::kAllReduce, 64), Protocol::kLL), "not listed");
}

TEST(ChooseAlgorithm, AFileWhoseMessagesCanGoApartIsForEverySlot) {
  RecordedAlgorithm recorded;
  recorded.message_chunks = 1 << 20;
  recorded.cost.chunks = 4;
  Algorithm file;
  file.name = file.family = "file";
  file.collective = Collective::kAllGather;
  file.recorded = &recorded;
  EXPECT_THAT(why_not(file, input_of(Collective::kAllGather, 64)), HasSubstr("a slot of Simple"));
  recorded.apart.emplace_back();
  EXPECT_EQ(why_not(file, input_of(Collective::kAllGather, 64)), "");
}

TEST(ChooseAlgorithm, ChannelsAreOneAtLeastAndNoMoreThanAllowed) {
  ChoiceInput input = input_of(Collective::kAllReduce, 8);
  for (const auto& [least, channels] : {std::pair(0, 1), std::pair(8, 8), std::pair(9, 8)}) {
    input.channels_min = least;
    EXPECT_EQ(choose_algorithm(input, AlgorithmFilter(), nullptr).value().channels, channels);
  }
}

}  // namespace
}  // namespace plexus
