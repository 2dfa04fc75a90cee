// SPDX-License-Identifier: Apache-2.0
// The reports, line by line where programs parse them: the text as NCCL writes it, the JSON with
// every key that readers rely on (Ray Train, SGLang, Marin's strict model), and our verdicts.
#include "core/ras/ras_report.hpp"

#include <regex>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "kernels/layout/collective.hpp"

namespace plexus {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

constexpr uint64_t kGroup = 0xdeadbeef;
constexpr const char* kNow = "2026-11-27 19:00:00";

RollRank rank_of(int rank, int nranks, uint64_t all_reduces) {
  RollRank made{.group = kGroup, .nranks = nranks};
  made.counts[static_cast<size_t>(Collective::kAllReduce)] = all_reduces;
  made.status = {.activity = RankActivity::kOutside, .rank = rank, .collectives = all_reduces};
  return made;
}

/// Two nodes with two processes each, one rank in each; `absent` have not answered.
struct FourRanks {
  explicit FourRanks(const std::set<int>& absent = {}) {
    for (int rank = 0; rank < 4; ++rank) {
      const std::string host = "10.0.0." + std::to_string(1 + rank / 2);
      roll.known.push_back(
          {.group = kGroup,
           .rank = rank,
           .name = "node" + std::to_string(rank / 2) + ":" + std::to_string(100 + rank),
           .place = {.address = host, .pid = 100 + rank}});
      if (absent.count(rank) == 0) {
        roll.processes.push_back({.id = static_cast<uint64_t>(rank),
                                  .pid = 100 + rank,
                                  .host = "node",
                                  .address = host,
                                  .ranks = {rank_of(rank, 4, 7)}});
      }
    }
    roll.time = std::chrono::milliseconds(12);
    roll.timeouts = absent.size();
  }
  RollRank& rank(size_t process) { return roll.processes[process].ranks.front(); }
  [[nodiscard]] std::string text(bool is_verbose = false) const {
    return make_ras_text(RasJob(roll), is_verbose);
  }
  [[nodiscard]] json parsed() const { return json::parse(make_ras_json(RasJob(roll), kNow)); }
  JobRoll roll;
};

TEST(RasText, OfAHealthyJobIsAsNcclWritesIt) {
  const std::string text = FourRanks().text();
  const size_t behind_version = text.find('\n') + 1;
  EXPECT_THAT(text.substr(0, behind_version),
              testing::MatchesRegex("NCCL version 2\\.[0-9]+\\.[0-9]+\\+plexus[0-9.]+ compiled "
                                    "with CUDA 0\\.0\n"));
  EXPECT_EQ(text.substr(behind_version), R"(CUDA runtime version 0, driver version 0

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          2            1          4        4

Communicators... (0.012s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2         2         4         4   RUNNING      OK

Errors
======

Warnings
========

)");
}

TEST(RasText, ListsThoseThatDoNotAnswer) {
  const std::string text = FourRanks({3}).text();
  EXPECT_THAT(text, HasSubstr("    0         1         2         2         4         4   RUNNING  "
                              "INCOMPLETE\n"));
  EXPECT_THAT(text, HasSubstr("INCOMPLETE\n  Missing communicator data from 1 job process\n"
                              "  Process 103 on node 10.0.0.2 managing GPU 1\n\n"
                              "#0-0 (00000000deadbeef) INCOMPLETE\n"
                              "  Missing communicator data from 1 rank\n"
                              "  Rank 3 -- GPU 1 managed by process 103 on node 10.0.0.2\n\n"
                              "Warnings\n========\n\n"
                              "TIMEOUT\n  Encountered 1 communication timeout while gathering "
                              "communicator data\n\n"));
}

TEST(RasText, ListsTheDeadAndSaysSo) {
  FourRanks job({2, 3});
  for (const size_t rank : {2, 3}) {
    job.roll.known[rank].place.is_dead = job.roll.known[rank].place.is_gone = true;
  }
  const std::string text = job.text();
  EXPECT_THAT(text,
              HasSubstr("DEAD\n  2 job processes are considered dead (unreachable via the RAS "
                        "network)\n  Process 102 on node 10.0.0.2 managing GPU 0\n"
                        "  Process 103 on node 10.0.0.2 managing GPU 1\n\n"));
  EXPECT_THAT(text, HasSubstr("Verdicts\n========\n\n#0-0 (00000000deadbeef) DEAD\n"
                              "  comm 0xdeadbeef of 4 ranks: the process of rank 2 (node1:102) "
                              "has died\n  What to do: "));
}

TEST(RasText, ShowsCountsAndStatusThatDiffer) {
  FourRanks job;
  job.rank(1).counts[static_cast<size_t>(Collective::kAllReduce)] = 6;
  job.rank(2).state.is_finalized = true;
  const std::string text = job.text();
  EXPECT_THAT(text, HasSubstr("  FINALIZE  MISMATCH\n"));
  EXPECT_THAT(text,
              HasSubstr("#0-0 (00000000deadbeef) MISMATCH\n"
                        "  Communicator ranks have different status\n"
                        "  3 ranks have status RUNNING\n"
                        "  Rank 2 has status FINALIZE -- GPU 0 managed by process 102 on node "
                        "10.0.0.2\n"
                        "  Communicator ranks have different AllReduce operation counts\n"
                        "  3 ranks have launched up to operation 7\n"
                        "  Rank 1 has launched up to operation 6 -- GPU 1 managed by process 101 "
                        "on node 10.0.0.1\n\n"));
}

TEST(RasText, ShowsErrorsOfRanks) {
  FourRanks job;
  job.rank(3).state = {.error = 6, .why = "rank 9 died"};
  const std::string text = job.text();
  EXPECT_THAT(text, HasSubstr("#0-0 (00000000deadbeef) ERROR\n  Asynchronous error on 1 rank\n"
                              "  Rank 3 reported Remote process error -- GPU 1 managed by process "
                              "103 on node 10.0.0.2\n\n"));
  EXPECT_THAT(text, HasSubstr(" FAILED\n  comm 0xdeadbeef of 4 ranks has failed: rank 9 died\n"));
}

TEST(RasText, OfAJobWithoutCommunicators) {
  EXPECT_THAT(make_ras_text(RasJob({.processes = {{.pid = 5}}}), false),
              HasSubstr("No communicator data collected!\n"));
}

/// AMD's parser of the table and of the job's summary, which other programs have taken over.
TEST(RasText, HasOneSummaryRowAndTableRowsOfEightColumns) {
  const std::regex row(
      R"(^\s*(\d+)\s+(\d+)\s+(\d+)\s+(\d+(?:-\d+)?)\s+(\d+)\s+(\d+)\s+(\S+)\s+(\S+)\s*$)");
  const std::regex summary(R"(^\s*(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s*$)");
  std::istringstream text(FourRanks({3}).text());
  int rows = 0;
  int summaries = 0;
  for (std::string line; std::getline(text, line);) {
    rows += std::regex_match(line, row) ? 1 : 0;
    summaries += std::regex_match(line, summary) ? 1 : 0;
  }
  EXPECT_EQ(rows, 1);
  EXPECT_EQ(summaries, 1);
}

/// The rules of the strictest reader, whatever the job's state.
void expect_strict(const json& report) {
  EXPECT_EQ(report.at("communicators_count"), report.at("communicators").size());
  EXPECT_EQ(report.at("timestamp"), kNow);
  for (const char* const key : {"cuda_runtime_version", "cuda_driver_version"}) {
    EXPECT_TRUE(report.at(key).is_number_unsigned()) << key;
  }
  EXPECT_TRUE(report.at("ras").at("collection_time_sec").is_number());
  EXPECT_TRUE(report.at("ras").at("timeouts_count").is_number_unsigned());
  for (const json& comm : report.at("communicators")) {
    EXPECT_EQ(comm.at("ranks_count"), comm.at("ranks").size());
    EXPECT_EQ(comm.at("missing_ranks_count"), comm.at("missing_ranks").size());
    EXPECT_EQ(comm.at("size").get<size_t>(),
              comm.at("ranks").size() + comm.at("missing_ranks").size());
    std::set<int> ranks;
    for (const char* const list : {"ranks", "missing_ranks"}) {
      for (const json& rank : comm.at(list)) {
        EXPECT_TRUE(ranks.insert(rank.at("rank").get<int>()).second);
        for (const char* const key : {"pid", "cuda_dev", "nvml_dev"}) {
          EXPECT_GE(rank.at(key).get<int64_t>(), 0) << key;
        }
        EXPECT_FALSE(rank.at("host").get<std::string>().empty());
      }
    }
    for (const json& rank : comm.at("ranks")) {
      for (const char* const key : {"finalize_called", "destroy_flag", "abort_flag"}) {
        EXPECT_TRUE(rank.at("status").at(key).is_boolean()) << key;
      }
      for (const char* const key :
           {"Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce"}) {
        EXPECT_TRUE(rank.at("collective_counts").at(key).is_number_unsigned()) << key;
      }
      EXPECT_TRUE(rank.at("status").at("init_state").is_number());
      EXPECT_TRUE(rank.at("status").at("async_error").is_number());
    }
    for (const json& rank : comm.at("missing_ranks")) {
      EXPECT_TRUE(rank.at("status").at("unresponsive").is_boolean());
      EXPECT_TRUE(rank.at("status").at("considered_dead").is_boolean());
    }
  }
}

TEST(RasJson, HasWhatReadersRelyOn) {
  const json report = FourRanks().parsed();
  expect_strict(report);
  const json& comm = report.at("communicators").at(0);
  EXPECT_EQ(comm.at("hash"), "0xdeadbeef");
  EXPECT_EQ(comm.at("size"), 4);
  EXPECT_EQ(comm.at("ranks").at(2).at("host"), "10.0.0.2");
  EXPECT_EQ(comm.at("ranks").at(3).at("cuda_dev"), 1);
  EXPECT_EQ(comm.at("ranks").at(1).at("collective_counts").at("AllReduce"), 7);
  EXPECT_TRUE(report.at("verdicts").empty());
}

TEST(RasJson, CountsBytesAsNcclTestsDo) {
  FourRanks job;
  job.rank(1).bytes[static_cast<size_t>(Collective::kAllReduce)] = 100;
  job.rank(1).bytes[static_cast<size_t>(Collective::kAllGather)] = 10;
  job.rank(1).bytes[static_cast<size_t>(Collective::kRecv)] = 5;
  const json report = job.parsed();
  const json& rank = report.at("communicators").at(0).at("ranks").at(1);
  EXPECT_EQ(rank.at("collective_bytes"), json({{"AllReduce", 100}, {"AllGather", 40}}));
  EXPECT_EQ(rank.at("sent_bytes"), 0);
  EXPECT_EQ(rank.at("received_bytes"), 5);
}

TEST(RasJson, TellsMissingDeadAndGoneApart) {
  FourRanks job({1, 2, 3});
  job.roll.known[2].place.is_dead = job.roll.known[2].place.is_gone = true;
  job.roll.known[3].place.is_gone = true;
  const json report = job.parsed();
  expect_strict(report);
  const json& missing = report.at("communicators").at(0).at("missing_ranks");
  const auto status = [&](size_t i) { return missing.at(i).at("status"); };
  EXPECT_EQ(status(0), (json{{"unresponsive", true}, {"considered_dead", false}}));
  EXPECT_EQ(status(1), (json{{"unresponsive", true}, {"considered_dead", true}}));
  EXPECT_EQ(status(2), (json{{"unresponsive", false}, {"considered_dead", false}}));
  EXPECT_EQ(missing.at(0).at("pid"), 101);
}

TEST(RasJson, RanksOfWhichNothingIsKnownAreListed) {
  FourRanks job({3});
  job.roll.known.clear();
  const json report = job.parsed();
  expect_strict(report);
  const json& missing = report.at("communicators").at(0).at("missing_ranks").at(0);
  EXPECT_EQ(missing.at("host"), "unknown");
  EXPECT_EQ(missing.at("pid"), 0);
  EXPECT_THAT(job.text(), HasSubstr("  Rank 3 -- [process information not found]\n"));
}

TEST(RasJson, NamesTheRankThatKeepsOthersWaiting) {
  FourRanks job;
  for (const size_t waiting : {0, 1, 3}) {
    RankStatus& status = job.rank(waiting).status;
    status.activity = RankActivity::kWaiting;
    status.peer = 2;
    status.seconds = 5;
    status.collectives = 8;
    status.has_call = true;
    status.call.sequence = 7;
  }
  const json report = job.parsed();
  expect_strict(report);
  ASSERT_EQ(report.at("verdicts").size(), 1U);
  const json& verdict = report.at("verdicts").at(0);
  EXPECT_EQ(verdict.at("communicator"), "0xdeadbeef");
  EXPECT_EQ(verdict.at("rank"), 2);
  EXPECT_EQ(verdict.at("host"), "10.0.0.2");
  EXPECT_EQ(verdict.at("pid"), 102);
  EXPECT_EQ(verdict.at("cause"), "not_called");
  EXPECT_EQ(verdict.at("since_sec"), 5);
  EXPECT_THAT(verdict.at("sentence"), HasSubstr("rank 2 (node1:102) has not made that call"));
  EXPECT_FALSE(verdict.at("advice").get<std::string>().empty());
  const json& rank = report.at("communicators").at(0).at("ranks").at(0);
  EXPECT_EQ(rank.at("activity"), "waiting");
  EXPECT_EQ(rank.at("waits_for"), 2);
}

/// Collectives 32 to 47 of a rank: `inside_us` in each, one every 1000 us.
void set_arrivals(RollRank& rank, uint64_t inside_us, uint64_t number = 2) {
  rank.arrivals.push_back(
      {.number = number, .inside_ns = inside_us * 16'000, .period_ns = 16'000'000});
}

TEST(RasJson, NamesTheRankThatComesLast) {
  FourRanks job;
  for (size_t rank = 0; rank < 4; ++rank) {
    set_arrivals(job.rank(rank), rank == 1 ? 10 : 400, 1);
    set_arrivals(job.rank(rank), rank == 1 ? 100 : 300 + rank);
  }
  set_arrivals(job.rank(0), 900, 3);  // the others are not as far yet
  const json report = job.parsed();
  expect_strict(report);
  ASSERT_EQ(report.at("verdicts").size(), 1U);
  const json& verdict = report.at("verdicts").at(0);
  EXPECT_EQ(verdict.at("cause"), "late");
  EXPECT_EQ(verdict.at("rank"), 1);
  EXPECT_EQ(verdict.at("pid"), 101);
  EXPECT_NEAR(verdict.at("late_us").get<double>(), 202, 2);
  EXPECT_NEAR(verdict.at("period_us").get<double>(), 1000, 1);
  EXPECT_THAT(verdict.at("sentence"),
              HasSubstr("rank 1 (node0:101) comes last to each call, by 202 us of the 1000 us from "
                        "one call to the next (20 %; collectives 16 to 47)"));
}

TEST(RasJson, NamesTheFirstRankThatGaveANan) {
  FourRanks job;
  job.rank(0).state.bad_input = {.call = 8, .text = "a NaN to all_reduce, call number 8"};
  job.rank(2).state.bad_input = {.call = 7, .text = "an infinity to reduce, call number 7"};
  job.rank(3).state.bad_input = {.call = 7, .text = "a NaN to reduce, call number 7"};
  const json report = job.parsed();
  expect_strict(report);
  ASSERT_EQ(report.at("verdicts").size(), 1U);
  const json& verdict = report.at("verdicts").at(0);
  EXPECT_EQ(verdict.at("cause"), "nan");
  EXPECT_EQ(verdict.at("rank"), 2);
  EXPECT_EQ(verdict.at("ranks"), json({2, 3}));
  EXPECT_THAT(verdict.at("sentence"),
              HasSubstr("rank 2 (node1:102) was the first to give an infinity to reduce, call "
                        "number 7 (1 rank more in the same call)"));
}

TEST(RasJob, BlamesNobodyForLittleOrForOthers) {
  FourRanks even;
  for (size_t rank = 0; rank < 4; ++rank) {
    set_arrivals(even.rank(rank), 300 + 10 * rank);
  }
  EXPECT_TRUE(RasJob(even.roll).verdicts.empty()) << "1 % of the time";
  // Once late, and not in the window before.
  FourRanks once;
  for (size_t rank = 0; rank < 4; ++rank) {
    set_arrivals(once.rank(rank), rank == 2 ? 300 : 310, 1);
    set_arrivals(once.rank(rank), rank == 1 ? 100 : 300, 2);
  }
  EXPECT_TRUE(RasJob(once.roll).verdicts.empty());
  // One window alone has to say more.
  FourRanks barely;
  for (size_t rank = 0; rank < 4; ++rank) {
    set_arrivals(barely.rank(rank), rank == 1 ? 230 : 300);
  }
  EXPECT_TRUE(RasJob(barely.roll).verdicts.empty());
  for (size_t rank = 0; rank < 4; ++rank) {
    set_arrivals(barely.rank(rank), rank == 1 ? 230 : 300, 3);
  }
  EXPECT_EQ(RasJob(barely.roll).verdicts.size(), 1U);
  // One of 16 ms says nothing, however much: the process may have had no core. One of half a second
  // does.
  FourRanks busy;
  for (size_t rank = 0; rank < 4; ++rank) {
    set_arrivals(busy.rank(rank), rank == 1 ? 100 : 900);
  }
  EXPECT_TRUE(RasJob(busy.roll).verdicts.empty());
  for (size_t rank = 0; rank < 4; ++rank) {
    busy.rank(rank).arrivals.front().inside_ns *= 40;
    busy.rank(rank).arrivals.front().period_ns *= 40;
  }
  EXPECT_EQ(RasJob(busy.roll).verdicts.size(), 1U);
  // Rank 1 waits for the late one of another communicator, and so comes late to this one.
  FourRanks victim;
  for (size_t rank = 0; rank < 4; ++rank) {
    set_arrivals(victim.rank(rank), rank == 1 ? 100 : 400);
    set_arrivals(victim.rank(rank), rank == 1 ? 100 : 400, 3);
  }
  EXPECT_EQ(RasJob(victim.roll).verdicts.size(), 1U);
  RollRank other = rank_of(0, 1, 7);
  other.group = 0xbeef;
  set_arrivals(other, 300, 77);
  victim.roll.processes[1].ranks.push_back(other);
  EXPECT_TRUE(RasJob(victim.roll).verdicts.empty());
}

TEST(RasJson, TextOfOtherProcessesStaysText) {
  FourRanks job;
  job.rank(0).state = {.error = 6, .why = "\"}\\ \xff"};
  const json report = job.parsed();
  expect_strict(report);
  EXPECT_THAT(report.at("verdicts").at(0).at("sentence"), HasSubstr("\"}\\ ?"));
}

TEST(RasJob, RanksOfAProcessAreDevicesOneAfterTheOther) {
  JobRoll roll;
  for (int process = 0; process < 2; ++process) {
    roll.processes.push_back(
        {.id = static_cast<uint64_t>(process), .pid = 50 + process, .address = "10.0.0.1"});
    for (int rank = 0; rank < 3; ++rank) {
      roll.processes.back().ranks.push_back(rank_of(3 * process + rank, 6, 1));
    }
  }
  const RasJob job(roll);
  ASSERT_EQ(job.comms.size(), 1U);
  for (int rank = 0; rank < 6; ++rank) {
    EXPECT_EQ(job.comms[0].ranks[static_cast<size_t>(rank)].device, rank);
  }
  EXPECT_THAT(make_ras_text(job, false),
              HasSubstr("\n      1          2            3          2        6\n"));
}

TEST(RasDiagnostics, EndWithTheTime) {
  const std::string text = make_ras_diagnostics(RasJob(FourRanks({3}).roll), "node0:100");
  EXPECT_THAT(text, testing::StartsWith("node0:100 NCCL DIAG === RAS Diagnostics ===\n"));
  EXPECT_THAT(text, HasSubstr("[INFO] no answer of process 103 on node 10.0.0.2\n"));
  EXPECT_THAT(text, testing::EndsWith("node0:100 NCCL DIAG RAS diagnostics completed in 12.0 ms "
                                      "across 3 RAS peers\n"));
}

TEST(RasEvents, AreAsNcclWritesThem) {
  const RasEvent event{.name = "PEER_DEAD", .host = "10.0.0.2", .pid = 7, .details = "has died"};
  EXPECT_EQ(make_ras_event(event, false, kNow),
            "[2026-11-27 19:00:00] PEER_DEAD: Process 7 on node 10.0.0.2 has died\n");
  const json parsed = json::parse(make_ras_event(event, true, kNow));
  EXPECT_EQ(parsed.at("group"), "LIFECYCLE");
  EXPECT_EQ(parsed.at("peer").at("pid"), 7);
}

}  // namespace
}  // namespace plexus
