// SPDX-License-Identifier: Apache-2.0
#include "core/stall/verdict.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/engine/engine.hpp"
#include "kernels/layout/collective.hpp"

namespace plexus {
namespace {

/// Ranks that keep others waiting for one cause.
struct Suspects {
  StallCause cause;
  uint64_t count = 0;
  std::vector<RankStatus> examples;
};

/// Outside the call that is waited for, which the rank has not made.
bool lacks_call(const RankStatus& status, const RankStatus& asker) {
  if (status.is_awaited) {
    return true;
  }
  if (asker.activity == RankActivity::kSplitting) {
    return status.activity == RankActivity::kOutside;
  }
  const auto collective = static_cast<Collective>(asker.call.collective);
  return !is_point_to_point(collective) && status.collectives <= asker.call.sequence;
}

std::optional<StallCause> cause_of(const RankStatus& status, const RankStatus& asker) {
  if (status.lost_to >= 0 || !status.held_up.empty()) {
    return StallCause::kLink;
  }
  switch (status.activity) {
    case RankActivity::kSilent:
      return StallCause::kStopped;
    case RankActivity::kInPlugin:
      return StallCause::kInPlugin;
    case RankActivity::kElsewhere:
      return lacks_call(status, asker) ? std::optional(StallCause::kElsewhere) : std::nullopt;
    case RankActivity::kOutside:
      return lacks_call(status, asker) ? std::optional(StallCause::kNotCalled) : std::nullopt;
    case RankActivity::kRunning:
      return StallCause::kSlow;
    case RankActivity::kSplitting:
    case RankActivity::kWaiting:
      return std::nullopt;
  }
  return std::nullopt;
}

/// Finds the one of the summary's causes that explains the others.
std::optional<Suspects> find_suspects(const StatusSummary& summary, const RankStatus& asker) {
  std::optional<Suspects> found;
  for (const StatusClass& each : summary.classes) {
    const auto cause = cause_of(each.examples.front(), asker);
    if (!cause.has_value() || (found.has_value() && *cause > found->cause)) {
      continue;
    }
    if (!found.has_value() || *cause < found->cause) {
      found = Suspects{.cause = *cause, .count = 0, .examples = {}};
    }
    found->count += each.count;
    found->examples.insert(found->examples.end(), each.examples.begin(), each.examples.end());
  }
  return found;
}

/// Whether ranks of which this is true keep others waiting for certain, and do not only wait
/// themselves.
bool is_proof(StallCause cause) { return cause != StallCause::kLink && cause != StallCause::kSlow; }

std::string name_of(const StallAsker& asker, int rank) {
  const std::string process = asker.process_of(rank);
  return process.empty() ? fmt::format("rank {}", rank)
                         : fmt::format("rank {} ({})", rank, process);
}

std::string describe_wanted(const RankStatus& asker) {
  return asker.activity == RankActivity::kSplitting ? "ncclCommSplit" : describe_call(asker.call);
}

std::string describe_last_call(const RankStatus& status) {
  return status.has_call ? "its last call was " + describe_call(status.call)
                         : std::string("it has made no call yet");
}

/// What the first of the suspects does, after its name.
std::string describe_cause(StallCause cause, const RankStatus& status) {
  switch (cause) {
    case StallCause::kStopped:
      return "does not answer: its process is stopped, or its machine is overloaded or cut off";
    case StallCause::kInPlugin:
      return fmt::format("has been inside {} for {} s", status.where, status.seconds);
    case StallCause::kElsewhere:
      return fmt::format("has not made that call: its thread waits in {}", status.where);
    case StallCause::kNotCalled:
      return fmt::format("has not made that call: it is in no call of this communicator, {}",
                         describe_last_call(status));
    case StallCause::kSlow:
      return fmt::format("is still at work in {}", describe_call(status.call));
    case StallCause::kLink:
      break;
  }
  if (status.lost_to >= 0) {
    return fmt::format("has sent a message to rank {} that does not arrive", status.lost_to);
  }
  if (!status.held_up.empty()) {
    return fmt::format("is held up by its network: {}", status.held_up);
  }
  return fmt::format("has waited for {} s for rank {}{}{}", status.seconds, status.peer,
                     status.where.empty() ? "" : " by ", status.where);
}

/// Where all wait for messages: a rank that waits for one that does not wait for it in turn, else
/// the asker.
RankStatus find_link(const StallAsker& asker, const StatusSummary& summary) {
  for (const StatusClass& each : summary.classes) {
    for (const RankStatus& status : each.examples) {
      if (status.activity != RankActivity::kWaiting || status.peer < 0) {
        continue;
      }
      const RankStatus* const peer = summary.find(status.peer);
      if (peer != nullptr && peer->activity != RankActivity::kWaiting) {
        return status;
      }
    }
  }
  return asker.status;
}

nlohmann::json json_of(const RankStatus& status) {
  nlohmann::json made{{"rank", status.rank},
                      {"activity", name(status.activity)},
                      {"seconds", status.seconds},
                      {"collectives", status.collectives}};
  if (status.has_call) {
    made["call"] = describe_call(status.call);
  }
  if (status.lost_to >= 0) {
    made["lost_to"] = status.lost_to;
  }
  if (status.peer >= 0) {
    made["waits_for"] = status.peer;
  }
  if (!status.held_up.empty()) {
    made["held_up"] = status.held_up;
  }
  if (!status.where.empty()) {
    made["where"] = status.where;
  }
  return made;
}

std::string dump(const nlohmann::json& made) {
  return made.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

bool waits(const RankStatus& status) {
  return status.activity == RankActivity::kWaiting || status.activity == RankActivity::kSplitting;
}

nlohmann::json json_of(const StallAsker& asker, const StatusSummary& summary) {
  nlohmann::json made{{"comm", fmt::format("{:#x}", asker.group)},
                      {"nranks", asker.nranks},
                      {"not_heard", summary.others},
                      {"classes", nlohmann::json::array()}};
  for (const StatusClass& each : summary.classes) {
    nlohmann::json examples = nlohmann::json::array();
    for (const RankStatus& status : each.examples) {
      examples.push_back(json_of(status));
    }
    made["classes"].push_back({{"count", each.count}, {"examples", std::move(examples)}});
  }
  return made;
}

/// Calls before the one that the rank is in have ended, those after it wait on a stream.
nlohmann::json records_of(const StallReport& report) {
  const CallRecord& now = report.status.call;
  const bool is_inside = report.status.has_call && report.status.activity != RankActivity::kOutside;
  nlohmann::json records = nlohmann::json::array();
  const char* state = "completed";
  for (const CallRecord& call : report.recent) {
    const bool is_it = is_inside && call.sequence == now.sequence &&
                       call.collective == now.collective && call.root == now.root;
    records.push_back({{"collective", name(static_cast<Collective>(call.collective))},
                       {"sequence", call.sequence},
                       {"count", call.count},
                       {"type", name(static_cast<DataType>(call.type))},
                       {"root", call.root},
                       {"state", is_it ? "started" : state}});
    state = is_it ? "scheduled" : state;
  }
  return records;
}

std::string make_json(const StallAsker& asker,
                      const StatusSummary& summary,
                      const StallVerdict& verdict) {
  nlohmann::json made = json_of(asker, summary);
  made["call"] = describe_wanted(asker.status);
  made["seconds"] = asker.status.seconds;
  made["cause"] = name(verdict.cause);
  made["ranks"] = verdict.ranks;
  made["count"] = verdict.count;
  made["verdict"] = verdict.sentence;
  return dump(made);
}

}  // namespace

const char* name(StallCause cause) {
  switch (cause) {
    case StallCause::kStopped:
      return "stopped";
    case StallCause::kInPlugin:
      return "in_plugin";
    case StallCause::kElsewhere:
      return "elsewhere";
    case StallCause::kNotCalled:
      return "not_called";
    case StallCause::kSlow:
      return "slow";
    case StallCause::kLink:
      return "link";
  }
  return "unknown";
}

const char* name(RankActivity activity) {
  switch (activity) {
    case RankActivity::kSilent:
      return "silent";
    case RankActivity::kInPlugin:
      return "in_plugin";
    case RankActivity::kElsewhere:
      return "elsewhere";
    case RankActivity::kOutside:
      return "outside";
    case RankActivity::kRunning:
      return "running";
    case RankActivity::kSplitting:
      return "splitting";
    case RankActivity::kWaiting:
      return "waiting";
  }
  return "unknown";
}

StallVerdict judge(const StallAsker& asker, const StatusSummary& summary) {
  Suspects suspects =
      find_suspects(summary, asker.status)
          .value_or(Suspects{
              .cause = StallCause::kLink, .count = 1, .examples = {find_link(asker, summary)}});
  std::sort(suspects.examples.begin(), suspects.examples.end(),
            [](const RankStatus& a, const RankStatus& b) {
              return std::pair(a.lost_to < 0, a.rank) < std::pair(b.lost_to < 0, b.rank);
            });
  if (suspects.examples.size() > kExamplesMax) {
    suspects.examples.resize(kExamplesMax);
  }
  StallVerdict verdict;
  verdict.cause = suspects.cause;
  verdict.count = suspects.count;
  for (const RankStatus& status : suspects.examples) {
    verdict.ranks.push_back(status.rank);
  }
  const RankStatus& first = suspects.examples.front();
  verdict.is_guess = !is_proof(suspects.cause) && first.lost_to < 0 && first.held_up.empty();
  std::string link;
  if (first.lost_to >= 0) {
    const RankStatus* const receiver = summary.find(first.lost_to);
    link = receiver == nullptr || receiver->where.empty() ? "" : " by " + receiver->where;
  }
  std::string others;
  if (suspects.count > 1) {
    others = fmt::format(" ({} ranks in all are so:", suspects.count);
    for (const int rank : verdict.ranks) {
      others += fmt::format(" {}", rank);
    }
    others += suspects.count > verdict.ranks.size() ? " ...)" : ")";
  }
  verdict.sentence = fmt::format(
      "comm {:#x} of {} ranks: rank {} has waited for {} s in {}: {}{} {}{}{}", asker.group,
      asker.nranks, asker.status.rank, asker.status.seconds, describe_wanted(asker.status),
      suspects.cause == StallCause::kLink ? "all ranks have made the call, and " : "",
      name_of(asker, first.rank), describe_cause(suspects.cause, first), link, others);
  if (is_proof(suspects.cause)) {
    verdict.culprit = fmt::format("{}, which {}{}", name_of(asker, first.rank),
                                  describe_cause(suspects.cause, first), others);
  }
  verdict.json = make_json(asker, summary, verdict);
  return verdict;
}

std::string describe(const StallAsker& asker, const StatusSummary& summary) {
  for (const StatusClass& each : summary.classes) {
    if (waits(each.examples.front())) {
      StallAsker waiting = asker;
      waiting.status = waits(asker.status) ? asker.status : each.examples.front();
      return judge(waiting, summary).json;
    }
  }
  return dump(json_of(asker, summary));
}

std::string describe(const StallReport& report) {
  nlohmann::json made = json_of(report.status);
  made["comm"] = fmt::format("{:#x}", report.group);
  made["nranks"] = report.nranks;
  made["calls"] = report.calls;
  made["recent"] = nlohmann::json::array();
  for (const CallRecord& call : report.recent) {
    made["recent"].push_back(describe_call(call));
  }
  made["waits"] = nlohmann::json::array();
  for (const Wait& wait : report.waits) {
    made["waits"].push_back(
        {{"rank", wait.peer}, {"call", describe_call(wait.call)}, {"where", wait.where}});
  }
  made["records"] = records_of(report);
  made["members"] = report.members;
  made["verdict"] = report.verdict;
  return dump(made);
}

}  // namespace plexus
