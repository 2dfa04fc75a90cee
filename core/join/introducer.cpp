// SPDX-License-Identifier: Apache-2.0
#include "core/join/introducer.hpp"

#include <algorithm>
#include <vector>

#include "guest/assert.hpp"

namespace plexus {
namespace {

std::string name_of(const JoinInfo& info) {
  return fmt::format("rank {} ({}:{})", info.rank, info.process.host, info.process.pid);
}

}  // namespace

Result<void> Introducer::take(uint32_t client, const Message& message) {
  switch (message.type) {
    case MessageType::kJoin:
    case MessageType::kRelayed: {
      PLEXUS_TRY(info, decode_join(message.payload));
      return join(client, info, message.type == MessageType::kRelayed);
    }
    case MessageType::kFail:
      take_failure(message);
      return ok();
    case MessageType::kTable:
      if (is_complete_ && clients_.count(client) != 0) {
        send_(
            client,
            {.type = MessageType::kTable, .group = world_, .tag = message.tag, .payload = table_});
      }
      return ok();
    case MessageType::kLost:
      lose_process(client, message.tag);
      return ok();
    case MessageType::kLeave:
      clients_.erase(client);  // it has the table, or has left
      return ok();
    default:
      return break_of_protocol("a message that is not for the introducer");
  }
}

void Introducer::take_failure(const Message& message) {
  if (is_complete_) {
    return;
  }
  const Error error = decode_error(message.payload);
  if (error.code() == Code::kTimeout || error.code() == Code::kInProgress) {
    size_t count = 0;
    const std::string missing = missing_ranks(count);
    const std::string sentence =
        fmt::format("still waiting for rank {}: {}", missing, error.message());
    if (error.code() == Code::kTimeout) {
      fail_all(fail(Code::kTimeout, "{}", sentence));
      return;
    }
    const bool is_first = !names_.empty() && message.from == names_.begin()->first;
    const uint32_t asker =
        is_first && std::exchange(named_missing_, missing) != missing ? message.from : kNobody;
    for (auto client = clients_.begin(); is_first && client != clients_.end(); ++client) {
      send_(client->first,
            {.type = MessageType::kLate, .from = asker, .group = world_, .payload = sentence});
    }
    return;
  }
  if (error.code() == Code::kInvalidUsage) {
    fail_all(error);
    return;
  }
  const auto named = names_.find(message.from);
  fail_all(fail(Code::kRemoteError, "{} failed: {}",
                named == names_.end() ? "a rank that was about to join" : named->second,
                error.message()));
}

/// Why that rank cannot join; "": it can.
std::string Introducer::find_fault(const JoinInfo& info) const {
  if (info.nranks != nranks_) {
    return fmt::format("{} says there are {} ranks, {} says {}", name_of(info), info.nranks,
                       names_.begin()->second, nranks_);
  }
  if (info.version != version_) {
    return fmt::format("{} has version {}, {} has {}", name_of(info), info.version,
                       names_.begin()->second, version_);
  }
  if (const auto same = names_.find(info.rank); same != names_.end()) {
    return fmt::format("{}:{} and {} both say they are rank {}", info.process.host,
                       info.process.pid, same->second, info.rank);
  }
  return {};
}

Result<void> Introducer::join(uint32_t client, const JoinInfo& info, bool is_relayed) {
  if (nranks_ == 0) {
    nranks_ = info.nranks;
    version_ = info.version;
  }
  Client& mine = clients_[client];
  mine.is_relay |= is_relayed;
  if (!mine.is_relay && !mine.processes.empty() &&
      mine.processes.count(info.process.process) == 0) {
    return break_of_protocol("two processes on one connection");
  }
  if (failure_.has_value()) {
    const Error late = fail(Code::kRemoteError, "the job failed before rank {} joined: {}",
                            info.rank, failure_->message());
    send_(client, {.type = MessageType::kFail, .group = world_, .payload = encode(late)});
    return ok();
  }
  if (const std::string fault = find_fault(info); !fault.empty()) {
    fail_all(fail(Code::kInvalidUsage,
                  "{}: give every rank the same unique id and number of ranks, and a rank of its "
                  "own",
                  fault));
    return ok();
  }
  const auto process = mine.processes.emplace(info.process.process, info.process).first;
  process->second.ranks.push_back(info.rank);
  names_.emplace(info.rank, name_of(info));
  PLEXUS_DCHECK(names_.size() <= nranks_, names_.size(), nranks_);
  if (names_.size() == nranks_) {
    complete();
  }
  return ok();
}

void Introducer::complete() {
  PLEXUS_DCHECK(!is_complete_ && !has_failed());
  is_complete_ = true;
  std::vector<ProcessEntry> entries;
  for (const auto& [id, client] : clients_) {
    for (const auto& [process, entry] : client.processes) {
      entries.push_back(entry);
    }
  }
  auto table = ProcessTable::make(std::move(entries));
  if (table.has_error()) {
    is_complete_ = false;
    fail_all(table.error());
    return;
  }
  const uint64_t root = table.value().id_of(0);
  table_ = table.value().encode();
  const auto has_root = [root](const Client& client) { return client.processes.count(root) != 0; };
  for (const auto& [id, client] : clients_) {
    if (client.is_relay || !has_root(client)) {
      send_(id, {.type = MessageType::kJoined, .group = world_, .tag = root});
    }
  }
  for (const auto& [id, client] : clients_) {
    if (has_root(client)) {
      send_(id, {.type = MessageType::kTable, .group = world_, .tag = root, .payload = table_});
    }
  }
}

void Introducer::lose(uint32_t client) {
  auto lost = clients_.extract(client);
  if (lost.empty() || lost.mapped().processes.empty()) {
    return;
  }
  const std::string& name = names_.at(lost.mapped().processes.begin()->second.ranks.front());
  if (lost.mapped().is_relay) {
    fail_all(fail(Code::kRemoteError,
                  "the process that made the unique id with which {} joins died or lost its "
                  "connection before all ranks had joined",
                  name));
    return;
  }
  fail_all(
      fail(Code::kRemoteError, "{} died or lost its connection before all ranks had joined", name));
}

/// Also of one that was to pass the table on.
void Introducer::lose_process(uint32_t client, uint64_t process) {
  const auto relay = clients_.find(client);
  if (relay == clients_.end()) {
    return;
  }
  const auto at = relay->second.processes.find(process);
  if (at != relay->second.processes.end()) {
    fail_all(fail(Code::kRemoteError, "{} died or lost its connection before all ranks had joined",
                  names_.at(at->second.ranks.front())));
  }
}

std::string Introducer::missing_ranks(size_t& count) const {
  std::string missing;
  for (uint32_t rank = 0; rank < nranks_; ++rank) {
    if (names_.count(rank) == 0 && ++count <= kNamesMax) {
      missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
    }
  }
  return missing + (count > kNamesMax ? ", ..." : "");
}

void Introducer::give_up(uint64_t refusals) {
  size_t count = 0;
  const std::string missing = missing_ranks(count);
  const std::string why = refusals == 0
                              ? ""
                              : fmt::format(
                                    "; {} connections were refused since the process that made the "
                                    "unique id has no file descriptor left: raise its ulimit -n",
                                    refusals);
  if (count > 0) {
    fail_all(fail(Code::kTimeout,
                  "{} of {} ranks did not come (rank {}): start them, or give them more time with "
                  "PLEXUS_BOOTSTRAP_TIMEOUT{}",
                  count, nranks_, missing, why));
  }
}

void Introducer::fail_all(const Error& error) {
  if (failure_.has_value()) {
    return;
  }
  failure_ = error.clone();
  const Message message{.type = MessageType::kFail, .group = world_, .payload = encode(error)};
  for (const auto& [id, client] : clients_) {
    send_(id, message);
  }
}

}  // namespace plexus
