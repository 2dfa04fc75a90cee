// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cmath>
#include <ctime>
#include <functional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/ras/ras_report.hpp"

namespace plexus {
namespace {

using json = nlohmann::ordered_json;

std::string dump(const json& made) {
  return made.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

json describe_place(const RasJob& job, const RasRank& rank) {
  const RasProcess* const process = job.process_of(rank);
  return {{"rank", rank.rank},
          {"host", process == nullptr ? "unknown" : process->host},
          {"pid", process == nullptr ? 0 : process->pid},
          {"cuda_dev", rank.device},
          {"nvml_dev", rank.device}};
}

/// Of the kinds that were called, by nccl-tests' convention: where a call takes or gives a part for
/// each rank, the bytes of all parts.
json describe_bytes(const RollRank& rank) {
  json bytes = json::object();
  for (size_t kind = 0; kind < CallLog::kCollectiveKinds; ++kind) {
    const auto collective = static_cast<Collective>(kind);
    const bool is_whole = collective == Collective::kAllReduce ||
                          collective == Collective::kBroadcast || collective == Collective::kReduce;
    if (rank.bytes[kind] > 0) {
      bytes[kRasCollectives[kind]] =
          rank.bytes[kind] * (is_whole ? 1 : static_cast<uint64_t>(rank.nranks));
    }
  }
  return bytes;
}

json describe_rank(const RasJob& job, const RasRank& rank) {
  const MemberState& state = rank.said->state;
  const bool starts = state.error == static_cast<uint8_t>(Code::kInProgress);
  json made = describe_place(job, rank);
  made["status"] = {{"init_state", starts && !state.is_finalized ? state.error : 0},
                    {"async_error", starts ? 0 : state.error},
                    {"finalize_called", state.is_finalized},
                    {"destroy_flag", false},  // such a rank is in no communicator any more
                    {"abort_flag", state.is_aborted}};
  json counts = json::object();
  for (size_t kind = 0; kind < rank.said->counts.size(); ++kind) {
    counts[kRasCollectives[kind]] = rank.said->counts[kind];
  }
  made["collective_counts"] = std::move(counts);
  made["collective_bytes"] = describe_bytes(*rank.said);
  made["sent_bytes"] = rank.said->bytes[static_cast<size_t>(Collective::kSend)];
  made["received_bytes"] = rank.said->bytes[static_cast<size_t>(Collective::kRecv)];
  made["failovers"] = state.failovers;
  made["resent_messages"] = state.resent;
  const RankStatus& status = rank.said->status;
  made["activity"] = name(status.activity);
  if (status.seconds > 0) {
    made["activity_sec"] = status.seconds;
  }
  if (status.peer >= 0) {
    made["waits_for"] = status.peer;
  }
  return made;
}

json describe_missing(const RasJob& job, const RasRank& rank) {
  const RasProcess* const process = job.process_of(rank);
  json made = describe_place(job, rank);
  const bool answers = process != nullptr && process->has_answered;
  const bool has_left = process != nullptr && process->is_gone && !process->is_dead;
  made["status"] = {{"unresponsive", !answers && !has_left},
                    {"considered_dead", process != nullptr && process->is_dead}};
  return made;
}

/// Two communicators with one hash differ in the place of their first rank.
std::string second_hash(const RasJob& job, const RasComm& comm) {
  const auto& first = comm.ranks.empty() ? comm.missing : comm.ranks;
  const RasProcess* const process = first.empty() ? nullptr : job.process_of(first.front());
  return process == nullptr
             ? "0x0:0x0"
             : fmt::format("{:#x}:{:#x}", std::hash<std::string>()(process->host), process->pid);
}

json describe_comm(const RasJob& job, const RasComm& comm) {
  json made{{"hash", fmt::format("{:#x}", comm.group)},
            {"secondary_hash", second_hash(job, comm)},
            {"size", comm.nranks},
            {"ranks_count", comm.ranks.size()},
            {"missing_ranks_count", comm.missing.size()},
            {"ranks", json::array()},
            {"missing_ranks", json::array()}};
  for (const RasRank& rank : comm.ranks) {
    made["ranks"].push_back(describe_rank(job, rank));
  }
  for (const RasRank& rank : comm.missing) {
    made["missing_ranks"].push_back(describe_missing(job, rank));
  }
  return made;
}

json describe_verdict(const RasJob& job, const RasVerdict& verdict) {
  json made{{"communicator", fmt::format("{:#x}", verdict.group)},
            {"rank", verdict.rank},
            {"ranks", verdict.ranks},
            {"cause", verdict.cause},
            {"since_sec", verdict.seconds},
            {"sentence", verdict.sentence},
            {"advice", verdict.advice}};
  if (verdict.late_us > 0) {
    made["late_us"] = verdict.late_us;
    made["period_us"] = verdict.period_us;
  }
  for (const RasComm& comm : job.comms) {
    for (const auto* const ranks : {&comm.ranks, &comm.missing}) {
      for (const RasRank& rank : *ranks) {
        const RasProcess* const process = job.process_of(rank);
        if (comm.group == verdict.group && rank.rank == verdict.rank && process != nullptr) {
          made["host"] = process->host;
          made["pid"] = process->pid;
        }
      }
    }
  }
  return made;
}

}  // namespace

std::string make_ras_json(const RasJob& job, const std::string& timestamp) {
  json made{{"nccl_version", PLEXUS_NCCL_VERSION "+plexus" PLEXUS_VERSION},
            {"cuda_runtime_version", 0},
            {"cuda_driver_version", 0},
            {"timestamp", timestamp},
            {"communicators_count", job.comms.size()},
            {"communicators", json::array()}};
  for (const RasComm& comm : job.comms) {
    made["communicators"].push_back(describe_comm(job, comm));
  }
  made["verdicts"] = json::array();
  for (const RasVerdict& verdict : job.verdicts) {
    made["verdicts"].push_back(describe_verdict(job, verdict));
  }
  constexpr double kThousand = 1000;
  made["ras"] = {{"collection_time_sec", std::round(job.seconds * kThousand) / kThousand},
                 {"timeouts_count", job.timeouts}};
  return dump(made);
}

std::string make_ras_event(const RasEvent& event, bool is_json, const std::string& timestamp) {
  if (!is_json) {
    return fmt::format("[{}] {}: Process {} on node {} {}\n", timestamp, event.name, event.pid,
                       event.host, event.details);
  }
  return dump({{"timestamp", timestamp},
               {"group", "LIFECYCLE"},
               {"event", event.name},
               {"peer",
                {{"host", event.host},
                 {"pid", event.pid},
                 {"cuda_devs", json::array()},
                 {"nvml_devs", json::array()}}},
               {"details", event.details}});
}

std::string local_timestamp() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  std::array<char, 32> text{};
  localtime_r(&now, &parts);
  return {text.data(), std::strftime(text.data(), text.size(), "%F %T", &parts)};
}

}  // namespace plexus
