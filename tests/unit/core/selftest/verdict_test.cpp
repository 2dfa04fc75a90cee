// SPDX-License-Identifier: Apache-2.0
// Planted faults among links that are alike: the right link, device or host is named, and no other.
#include "core/selftest/verdict.hpp"

#include <functional>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace plexus {
namespace {

using Spoil = std::function<void(TriedLink&)>;

/// A job of `hosts` hosts with one rank each, and `devices` devices a host; every pair is tried.
class Job {
 public:
  Job(int hosts, int devices) {
    for (int rank = 0; rank < hosts; ++rank) {
      ranks.push_back({.host = static_cast<uint64_t>(rank), .name = fmt::format("rank {}", rank)});
      for (int other = 0; other < hosts; ++other) {
        for (int device = 0; device < devices && other != rank; ++device) {
          const std::string name = fmt::format("eth{}", device);
          links.push_back({.source = rank,
                           .target = other,
                           .channel = static_cast<uint32_t>(device),
                           .network = "Socket",
                           .from = name,
                           .to = name,
                           .latency_us = 30.0 + (rank * 7 + other * 3) % 5,
                           .gb_per_s = 1 + 0.05 * ((rank + 2 * other) % 4),
                           .gb_per_s_most = 1.2,
                           .messages = 100});
        }
      }
    }
  }
  Job& spoil(const std::function<bool(const TriedLink&)>& which, const Spoil& how) {
    for (TriedLink& link : links) {
      if (which(link)) {
        how(link);
      }
    }
    return *this;
  }
  [[nodiscard]] Verdict judge() const { return plexus::judge(links, ranks); }

  std::vector<TriedRank> ranks;
  std::vector<TriedLink> links;
};

const Spoil kSlow = [](TriedLink& link) { link.gb_per_s = link.gb_per_s_most = 0.1; };
const Spoil kLate = [](TriedLink& link) { link.latency_us = 2000; };
const Spoil kCorrupt = [](TriedLink& link) { link.corrupt = 2; };
const Spoil kFailed = [](TriedLink& link) {
  link.failed = true;
  link.error = "does not answer within 15 s";
};

void expect_one(const Job& job, const char* what, LinkFault fault, const std::vector<int>& ranks) {
  const Verdict verdict = job.judge();
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_STREQ(verdict.findings[0].what, what);
  EXPECT_EQ(verdict.findings[0].fault, fault);
  EXPECT_EQ(verdict.findings[0].ranks, ranks) << verdict.findings[0].sentence;
}

TEST(SelfTestVerdict, LinksThatAreAlikeAreFine) {
  for (const int hosts : {2, 3, 4, 16}) {
    const Verdict verdict = Job(hosts, 2).judge();
    EXPECT_TRUE(verdict.findings.empty()) << hosts;
    EXPECT_FALSE(verdict.wants_repeat());
  }
}

TEST(SelfTestVerdict, ADeviceIsNamedByItsDirection) {
  for (const int hosts : {3, 4, 16}) {
    for (const auto& [spoil, fault] :
         {std::pair{kSlow, LinkFault::kSlow}, std::pair{kCorrupt, LinkFault::kCorrupt},
          std::pair{kFailed, LinkFault::kFailed}}) {
      Job sends(hosts, 1);
      sends.spoil([](const TriedLink& link) { return link.source == 2; }, spoil);
      expect_one(sends, "device", fault, {2});
      EXPECT_NE(sends.judge().findings[0].sentence.find("eth0 (Socket) of rank 2: what it sends "),
                std::string::npos)
          << sends.judge().findings[0].sentence;
      Job receives(hosts, 1);
      receives.spoil([](const TriedLink& link) { return link.target == 1; }, spoil);
      expect_one(receives, "device", fault, {1});
      EXPECT_NE(receives.judge().findings[0].sentence.find("of rank 1: what it receives "),
                std::string::npos);
    }
  }
}

TEST(SelfTestVerdict, ADeviceIsNamedThoughSomeOfItsLinksWaitedForACore) {
  const Spoil hidden = [](TriedLink& link) {
    link.gb_per_s = 0.2;
    link.gb_per_s_most = 1.2;
    link.waited = 0.1;
  };
  Job job(6, 1);
  job.spoil([](const TriedLink& link) { return link.source == 2; }, hidden)
      .spoil([](const TriedLink& link) { return link.source == 2 && link.target < 2; }, kSlow);
  job.spoil([](const TriedLink& link) { return link.target < 2; },
            [](TriedLink& link) { link.waited = 0; });
  expect_one(job, "device", LinkFault::kSlow, {2});
  job.spoil([](const TriedLink& link) { return link.source == 2 && link.target == 4; },
            [](TriedLink& link) { link.gb_per_s = link.gb_per_s_most = 0; });
  expect_one(job, "device", LinkFault::kSlow, {2});  // to rank 4 no burst was through in time
  // One that is surely as fast as its like: it is the links.
  job.spoil([](const TriedLink& link) { return link.source == 2 && link.target == 5; },
            [](TriedLink& link) { link.gb_per_s = 1.1; });
  ASSERT_EQ(job.judge().findings.size(), 2U);
  EXPECT_STREQ(job.judge().findings[0].what, "link");
}

TEST(SelfTestVerdict, ALateDeviceIsNamed) {
  Job job(4, 1);
  job.spoil([](const TriedLink& link) { return link.source == 3 || link.target == 3; }, kLate);
  expect_one(job, "device", LinkFault::kLate, {3});
  EXPECT_EQ(job.judge().findings[0].sentence,
            "device eth0 (Socket) of rank 3: what it sends and receives is late: 2000 us at best, "
            "where its like takes 32 us (median of 4 devices of Socket)");
  EXPECT_TRUE(job.judge().wants_repeat());
}

TEST(SelfTestVerdict, ALinkIsNamedWhereItsDevicesAreFine) {
  for (const auto& [spoil, fault] :
       {std::pair{kSlow, LinkFault::kSlow}, std::pair{kLate, LinkFault::kLate},
        std::pair{kCorrupt, LinkFault::kCorrupt}, std::pair{kFailed, LinkFault::kFailed}}) {
    Job job(4, 1);
    job.spoil([](const TriedLink& link) { return link.source == 3 && link.target == 1; }, spoil);
    expect_one(job, "link", fault, {3, 1});
  }
}

TEST(SelfTestVerdict, OneOfTwoDevicesIsNamedAndBothAreTheirHost) {
  Job one(4, 2);
  one.spoil([](const TriedLink& link) { return link.source == 1 && link.channel == 1; }, kSlow);
  expect_one(one, "device", LinkFault::kSlow, {1});
  Job both(4, 2);
  both.spoil([](const TriedLink& link) { return link.source == 1; }, kSlow);
  expect_one(both, "host", LinkFault::kSlow, {1});
}

TEST(SelfTestVerdict, OfTwoHostsTheLinkIsNamedAndItsRateIsNotJudged) {
  Job slow(2, 1);
  slow.spoil([](const TriedLink& link) { return link.source == 1; }, kSlow);
  EXPECT_TRUE(slow.judge().findings.empty()) << "there is nothing to compare it with";
  Job corrupt(2, 1);
  corrupt.spoil([](const TriedLink& link) { return link.source == 1; }, kCorrupt);
  expect_one(corrupt, "link", LinkFault::kCorrupt, {1, 0});
}

TEST(SelfTestVerdict, WhatABusyMachineAddsIsNoFault) {
  Job job(4, 1);
  job.spoil([](const TriedLink& link) { return link.source == 2; },
            [](TriedLink& link) {
              link.latency_us = 500;
              link.gb_per_s = link.gb_per_s_most = 0.3;
              link.waited = 0.2;
            });
  EXPECT_TRUE(job.judge().findings.empty());
  job.spoil([](const TriedLink& link) { return link.source == 2; },
            [](TriedLink& link) { link.waited = 0; });
  EXPECT_FALSE(job.judge().findings.empty()) << "on a quiet machine it is";
}

TEST(SelfTestVerdict, OtherDatacentersAndNetworksAreOtherClasses) {
  Job job(6, 1);
  for (size_t rank = 3; rank < 6; ++rank) {
    job.ranks[rank].datacenter = 1;
  }
  job.spoil([](const TriedLink& link) { return (link.source < 3) != (link.target < 3); },
            [](TriedLink& link) {
              link.latency_us = 20'000;
              link.gb_per_s = link.gb_per_s_most = 0.02;
            });
  EXPECT_TRUE(job.judge().findings.empty());
  EXPECT_EQ(job.judge().classes.size(), 2U);
}

TEST(SelfTestVerdict, TheMemoryOfAHostIsComparedWithThatOfOthers) {
  Job job(4, 1);
  job.links.clear();
  std::vector<TriedRank> ranks;
  for (int rank = 0; rank < 8; ++rank) {
    ranks.push_back({.host = static_cast<uint64_t>(rank / 2), .name = std::to_string(rank)});
    job.links.push_back({.source = rank,
                         .target = rank ^ 1,
                         .latency_us = 1,
                         .gb_per_s = rank / 2 == 2 ? 1.0 : 9.0,
                         .gb_per_s_most = rank / 2 == 2 ? 1.0 : 9.0});
  }
  job.ranks = ranks;
  expect_one(job, "host", LinkFault::kSlow, {4, 5});
}

/// Rank 0 and rank 1, whose message in one direction was lost.
TEST(SelfTestVerdict, WhatIsMissingTellsTheDirection) {
  const std::vector<std::vector<LinkSample>> samples = {
      {{.peer = 1, .network = "Socket", .sent = 5, .received = 4, .error = "does not answer"}},
      {{.peer = 0, .network = "Socket", .sent = 4, .received = 4, .error = "does not answer"}}};
  const std::vector<TriedLink> links = join_samples(samples);
  ASSERT_EQ(links.size(), 2U);
  EXPECT_TRUE(links[0].failed);
  EXPECT_EQ(links[0].error, "does not answer");
  EXPECT_FALSE(links[1].failed);
}

TEST(SelfTestVerdict, TheBetterOfTwoTriesCounts) {
  std::vector<TriedLink> links = {{.latency_us = 900, .gb_per_s = 0.1, .messages = 1}};
  keep_better(links, {{.latency_us = 40, .gb_per_s = 1, .messages = 2, .corrupt = 1}});
  EXPECT_EQ(links[0].latency_us, 40);
  EXPECT_EQ(links[0].gb_per_s, 1);
  EXPECT_EQ(links[0].messages, 3U);
  EXPECT_EQ(links[0].corrupt, 1U);
}

}  // namespace
}  // namespace plexus
