// SPDX-License-Identifier: Apache-2.0
#include "core/ras/ras_job.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "core/base/text.hpp"
#include "core/ras/late_rank.hpp"

namespace plexus {
namespace {

/// The first probes have told by then which message is lost, and who is inside a plugin.
constexpr uint32_t kGuessAfterSeconds = 2;

/// "node0:4711": by rank of the communicator, where it is known.
std::map<int, std::string> names_in(const JobRoll& roll, uint64_t group) {
  std::map<int, std::string> names;
  for (const KnownRank& rank : roll.known) {
    if (rank.group == group && !rank.name.empty()) {
      names.emplace(rank.rank, rank.name);
    }
  }
  return names;
}

/// " (node0:4711)"; "": it is not known.
std::string place_in(const JobRoll& roll, uint64_t group, int rank) {
  const std::map<int, std::string> names = names_in(roll, group);
  const auto name = names.find(rank);
  return name == names.end() ? "" : " (" + name->second + ")";
}

const char* advise(const std::string& cause) {
  const std::pair<const char*, const char*> kAdvice[] = {
      {"stopped", "look for a stopped or swapping process, or a host that is cut off"},
      {"in_plugin", "look at the plugin and its network"},
      {"elsewhere", "look at the order in which the ranks use their communicators"},
      {"not_called",
       "look at what that rank's program does instead: data, an exception, fewer steps"},
      {"link", "look at the network between the two ranks, and at the net plugin"},
      {"slow", "look at that rank's host: load, clocks, memory"},
      {"late",
       "look at that rank's share of the work, and at its host: load, clocks, data loading"},
      {"nan", "look at what that rank computed before that call: data, learning rate, overflow"},
      {"dead", "look at that process's log, exit code and host; restart the job, or shrink"},
      {"failed", "look at the first error in that rank's log; abort and remake the communicator"}};
  for (const auto& [name, advice] : kAdvice) {
    if (cause == name) {
      return advice;
    }
  }
  return "";
}

}  // namespace

RasJob::RasJob(const JobRoll& roll)
    : seconds(std::chrono::duration<double>(roll.time).count()), timeouts(roll.timeouts) {
  add_ranks(roll);
  add_missing(roll);
  number_devices();
  for (const RasComm& comm : comms) {
    judge_comm(roll, comm);
    judge_arrivals(roll, comm);
    judge_inputs(roll, comm);
  }
}

int RasJob::find_process(const std::string& host, int32_t pid) {
  const auto [at, is_new] = places_.emplace(Name{host, pid}, static_cast<int>(processes.size()));
  if (is_new) {
    processes.push_back({.host = host, .pid = pid});
  }
  return at->second;
}

void RasJob::add_ranks(const JobRoll& roll) {
  std::map<uint64_t, RasComm> found;
  for (const RollProcess& process : roll.processes) {
    const int place =
        find_process(process.address.empty() ? "127.0.0.1" : process.address, process.pid);
    processes[static_cast<size_t>(place)].has_answered = true;
    std::map<uint64_t, int> counts;
    for (const RollRank& rank : process.ranks) {
      RasComm& comm = found[rank.group];
      comm.group = rank.group;
      comm.nranks = std::max(comm.nranks, rank.nranks);
      comm.ranks.push_back({.rank = rank.status.rank,
                            .process = place,
                            .device = rank.device >= 0 ? rank.device : -1 - counts[rank.group]++,
                            .said = &rank});
    }
    for (const auto& [group, count] : counts) {
      int& devices = processes[static_cast<size_t>(place)].devices;
      devices = std::max(devices, count);
    }
  }
  const auto by_rank = [](const RasRank& a, const RasRank& b) { return a.rank < b.rank; };
  const auto is_same = [](const RasRank& a, const RasRank& b) { return a.rank == b.rank; };
  for (auto& [group, comm] : found) {
    std::stable_sort(comm.ranks.begin(), comm.ranks.end(), by_rank);
    comm.ranks.erase(std::unique(comm.ranks.begin(), comm.ranks.end(), is_same), comm.ranks.end());
    comms.push_back(std::move(comm));
  }
}

void RasJob::add_missing(const JobRoll& roll) {
  std::map<std::pair<uint64_t, int>, const KnownRank*> known;
  for (const KnownRank& rank : roll.known) {
    known.emplace(std::pair(rank.group, rank.rank), &rank);
  }
  for (RasComm& comm : comms) {
    std::map<int, int> counts;  // of a process's ranks, as far as they are missing
    size_t next = 0;
    for (int rank = 0; rank < comm.nranks; ++rank) {
      if (next < comm.ranks.size() && comm.ranks[next].rank == rank) {
        ++next;
        continue;
      }
      RasRank missing{.rank = rank};
      const auto at = known.find({comm.group, rank});
      if (at != known.end() && !at->second->place.address.empty()) {
        const ProcessPlace& place = at->second->place;
        missing.process = find_process(place.address, place.pid);
        RasProcess& process = processes[static_cast<size_t>(missing.process)];
        process.is_dead = process.is_dead || place.is_dead;
        process.is_gone = process.is_gone || place.is_gone;
        missing.device = -1 - counts[missing.process]++;
        process.devices = std::max(process.devices, counts[missing.process]);
      }
      comm.missing.push_back(missing);
    }
  }
}

/// Ranks on the host count as devices: those of the processes of a host, one after the other.
void RasJob::number_devices() {
  std::map<std::string, int> used;
  for (const auto& [name, place] : places_) {
    RasProcess& process = processes[static_cast<size_t>(place)];
    process.first_device = used[name.first];
    used[name.first] += process.devices;
  }
  for (RasComm& comm : comms) {
    for (auto* const ranks : {&comm.ranks, &comm.missing}) {
      for (RasRank& rank : *ranks) {
        if (rank.device < 0) {
          rank.device = processes[static_cast<size_t>(rank.process)].first_device - rank.device - 1;
        }
      }
    }
  }
}

/// One verdict at most: of what has failed or died, else of what waits.
void RasJob::judge_comm(const JobRoll& roll, const RasComm& comm) {
  std::map<int, std::string> names = names_in(roll, comm.group);
  StatusSummary summary;
  const RollRank* waiting = nullptr;
  const RollRank* failed = nullptr;
  for (const RasRank& rank : comm.ranks) {
    const RankStatus& status = rank.said->status;
    summary.add(status);
    const bool waits =
        status.activity == RankActivity::kWaiting || status.activity == RankActivity::kSplitting;
    if (waits && (waiting == nullptr || status.seconds > waiting->status.seconds)) {
      waiting = rank.said;
    }
    failed = failed == nullptr && !rank.said->state.why.empty() ? rank.said : failed;
  }
  RasVerdict verdict{.group = comm.group};
  for (const RasRank& rank : comm.missing) {
    const RasProcess* const process = process_of(rank);
    if (process != nullptr && process->is_dead) {
      verdict.ranks.push_back(rank.rank);
    } else {
      summary.add({.activity = RankActivity::kSilent, .rank = rank.rank});
    }
  }
  const auto name = [&](int rank) { return names.count(rank) == 0 ? std::string() : names[rank]; };
  if (!verdict.ranks.empty()) {
    verdict.cause = "dead";
    const std::string where = name(verdict.ranks.front());
    verdict.sentence =
        fmt::format("comm {:#x} of {} ranks: the process of rank {}{} has died{}", comm.group,
                    comm.nranks, verdict.ranks.front(), where.empty() ? "" : " (" + where + ")",
                    failed == nullptr ? "" : ": " + failed->state.why);
  } else if (failed != nullptr) {
    verdict.cause = "failed";
    verdict.ranks = {failed->status.rank};
    verdict.sentence = fmt::format("comm {:#x} of {} ranks has failed: {}", comm.group, comm.nranks,
                                   failed->state.why);
  } else if (waiting != nullptr && waiting->status.seconds > 0) {
    const StallVerdict judged = judge(
        {.group = comm.group, .nranks = comm.nranks, .status = waiting->status, .process_of = name},
        summary);
    if (judged.is_guess && waiting->status.seconds < kGuessAfterSeconds) {
      return;
    }
    verdict.cause = plexus::name(judged.cause);
    verdict.ranks = judged.ranks;
    verdict.seconds = waiting->status.seconds;
    verdict.sentence = judged.sentence;
  } else {
    return;
  }
  verdict.rank = verdict.ranks.empty() ? -1 : verdict.ranks.front();
  verdict.sentence = printable(verdict.sentence);
  verdict.advice = advise(verdict.cause);
  verdicts.push_back(std::move(verdict));
}

void RasJob::judge_arrivals(const JobRoll& roll, const RasComm& comm) {
  const auto late = find_late_rank(roll, comm);
  if (!late.has_value()) {
    return;
  }
  constexpr double kPercent = 100;
  verdicts.push_back({.group = comm.group,
                      .rank = late->rank,
                      .ranks = {late->rank},
                      .cause = "late",
                      .sentence = printable(fmt::format(
                          "comm {:#x} of {} ranks: rank {}{} comes last to each call, by {:.0f} us "
                          "of the {:.0f} us from one call to the next ({:.0f} %; collectives {} to "
                          "{})",
                          comm.group, comm.nranks, late->rank,
                          place_in(roll, comm.group, late->rank), late->late_us, late->period_us,
                          kPercent * late->late_us / late->period_us, late->first, late->last)),
                      .advice = advise("late"),
                      .late_us = late->late_us,
                      .period_us = late->period_us});
}

/// The first one: by the number of the call, then by rank.
void RasJob::judge_inputs(const JobRoll& roll, const RasComm& comm) {
  const BadInput* first = nullptr;
  RasVerdict verdict{.group = comm.group, .cause = "nan", .advice = advise("nan")};
  for (const RasRank& rank : comm.ranks) {  // by rank
    const BadInput& input = rank.said->state.bad_input;
    if (input.text.empty()) {
      continue;
    }
    if (first == nullptr || input.call < first->call) {
      first = &input;
      verdict.ranks.clear();
    }
    if (input.call == first->call) {
      verdict.ranks.push_back(rank.rank);
    }
  }
  if (first == nullptr) {
    return;
  }
  verdict.rank = verdict.ranks.front();
  const size_t others = verdict.ranks.size() - 1;
  verdict.sentence = printable(fmt::format(
      "comm {:#x} of {} ranks: rank {}{} was the first to give {}{}", comm.group, comm.nranks,
      verdict.rank, place_in(roll, comm.group, verdict.rank), first->text,
      others == 0 ? "" : fmt::format(" ({} more in the same call)", counted(others, "rank"))));
  verdicts.push_back(std::move(verdict));
}

}  // namespace plexus
