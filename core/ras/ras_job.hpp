// SPDX-License-Identifier: Apache-2.0
// A roll call of the job (core/stall/roll_call.hpp) as NCCL's RAS reports see it: communicators
// with the ranks that answered and those that are missing, processes, and who keeps whom waiting.
// Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/stall/stall_watch.hpp"

namespace plexus {

struct RasProcess {
  std::string host = {};  // numeric; "unknown"
  int32_t pid = 0;        // 0: unknown
  int devices = 1;        // ranks that it has in the communicator where it has most
  int first_device = 0;   // their numbers on the host start here
  bool has_answered = false;
  bool is_dead = false;
  bool is_gone = false;  // it died or left
};

struct RasRank {
  int rank = 0;
  int process = -1;  // in RasJob::processes; -1: unknown
  int device = 0;
  const RollRank* said = nullptr;  // nullptr: it is missing
};

struct RasVerdict {
  uint64_t group = 0;
  int rank = -1;  // the guilty one; the first of `ranks`
  std::vector<int> ranks = {};
  std::string cause = {};  // a StallCause's name, "failed", "dead", "late" or "nan"
  uint32_t seconds = 0;
  std::string sentence = {};
  std::string advice = {};  // what to look at
  // of a rank that comes late to each call: by how much, and the time from one call to the next
  double late_us = 0;
  double period_us = 0;
};

struct RasComm {
  uint64_t group = 0;
  int nranks = 0;
  std::vector<RasRank> ranks = {};    // that have answered, by rank
  std::vector<RasRank> missing = {};  // by rank
};

/// Borrows `roll`.
struct RasJob {
  explicit RasJob(const JobRoll& roll);
  RasJob(const RasJob&) = delete;
  RasJob& operator=(const RasJob&) = delete;

  std::vector<RasProcess> processes;
  std::vector<RasComm> comms;  // by group
  std::vector<RasVerdict> verdicts;
  double seconds = 0;
  size_t timeouts = 0;

  [[nodiscard]] const RasProcess* process_of(const RasRank& rank) const {
    return rank.process < 0 ? nullptr : &processes[static_cast<size_t>(rank.process)];
  }
  /// Processes of the job without those that have left it in order.
  [[nodiscard]] bool is_counted(const RasProcess& process) const {
    return process.has_answered || process.is_dead || !process.is_gone;
  }

 private:
  using Name = std::pair<std::string, int32_t>;  // host and pid
  int find_process(const std::string& host, int32_t pid);
  void add_ranks(const JobRoll& roll);
  void add_missing(const JobRoll& roll);
  void number_devices();
  void judge_comm(const JobRoll& roll, const RasComm& comm);
  void judge_arrivals(const JobRoll& roll, const RasComm& comm);
  void judge_inputs(const JobRoll& roll, const RasComm& comm);

  std::map<Name, int> places_;
};

/// NCCL's names of the collectives, in the order of Collective.
inline constexpr const char* kRasCollectives[CallLog::kCollectiveKinds] = {
    "AllReduce",     "Broadcast", "Reduce", "AllGather",
    "ReduceScatter", "AlltoAll",  "Gather", "Scatter"};

}  // namespace plexus
