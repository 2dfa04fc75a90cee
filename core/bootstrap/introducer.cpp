// SPDX-License-Identifier: Apache-2.0
#include "core/bootstrap/introducer.hpp"

#include <algorithm>
#include <vector>

namespace plexus {
namespace {

std::string name_of(const JoinInfo& info) {
  return fmt::format("rank {} ({}:{})", info.rank, info.process.host, info.process.pid);
}

}  // namespace

Result<void> Introducer::take(uint32_t guest, const Message& message) {
  if (message.type == MessageType::kJoin) {
    PLEXUS_TRY(info, decode_join(message.payload));
    return join(guest, info);
  }
  if (message.type == MessageType::kFail) {
    take_failure(message);
    return ok();
  }
  if (message.type == MessageType::kLeave) {
    guests_.erase(guest);  // it has the table, or has left
    return ok();
  }
  return break_of_protocol("a message that is not for the introducer");
}

void Introducer::take_failure(const Message& message) {
  if (is_complete_) {
    return;
  }
  const Error error = decode_error(message.payload);
  if (error.code() == Code::kTimeout || error.code() == Code::kInProgress) {
    size_t count = 0;
    const std::string sentence =
        fmt::format("still waiting for rank {}: {}", missing_ranks(count), error.message());
    if (error.code() == Code::kTimeout) {
      fail_all(fail(Code::kTimeout, "{}", sentence));
      return;
    }
    const bool is_first = !names_.empty() && message.from == names_.begin()->first;
    for (auto guest = guests_.begin(); is_first && guest != guests_.end(); ++guest) {
      send_(guest->first, {.type = MessageType::kLate, .group = world_, .payload = sentence});
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

Result<void> Introducer::join(uint32_t guest, const JoinInfo& info) {
  std::string wrong;
  if (nranks_ == 0) {
    nranks_ = info.nranks;
    version_ = info.version;
  } else if (info.nranks != nranks_) {
    wrong = fmt::format("{} says there are {} ranks, {} says {}", name_of(info), info.nranks,
                        names_.begin()->second, nranks_);
  } else if (info.version != version_) {
    wrong = fmt::format("{} has version {}, {} has {}", name_of(info), info.version,
                        names_.begin()->second, version_);
  } else if (const auto same = names_.find(info.rank); same != names_.end()) {
    wrong = fmt::format("{}:{} and {} both say they are rank {}", info.process.host,
                        info.process.pid, same->second, info.rank);
  }
  ProcessEntry& mine = guests_[guest];
  if (mine.ranks.empty()) {
    mine = info.process;
  }
  if (failure_.has_value()) {
    const Error late = fail(Code::kRemoteError, "the job failed before rank {} joined: {}",
                            info.rank, failure_->message());
    send_(guest, {.type = MessageType::kFail, .group = world_, .payload = encode(late)});
    return ok();
  }
  if (!wrong.empty()) {
    fail_all(fail(Code::kInvalidUsage,
                  "{}: give every rank the same unique id and number of ranks, and a rank of its "
                  "own",
                  wrong));
    return ok();
  }
  mine.ranks.push_back(info.rank);
  names_.emplace(info.rank, name_of(info));
  if (names_.size() == nranks_) {
    complete();
  }
  return ok();
}

void Introducer::complete() {
  is_complete_ = true;
  std::vector<ProcessEntry> entries;
  for (const auto& [id, process] : guests_) {
    if (!process.ranks.empty()) {
      entries.push_back(process);
    }
  }
  auto table = ProcessTable::make(std::move(entries));
  if (table.has_error()) {
    is_complete_ = false;
    fail_all(table.error());
    return;
  }
  const uint64_t root = table.value().id_of(0);
  const std::string bytes = table.value().encode();
  for (const auto& [id, process] : guests_) {
    if (process.process != root) {
      send_(id, {.type = MessageType::kJoined, .group = world_});
    }
  }
  for (const auto& [id, process] : guests_) {
    if (process.process == root) {
      send_(id, {.type = MessageType::kTable, .group = world_, .payload = bytes});
    }
  }
}

void Introducer::lose(uint32_t guest) {
  const auto at = guests_.find(guest);
  if (at == guests_.end()) {
    return;
  }
  const ProcessEntry process = std::move(at->second);
  guests_.erase(at);
  if (!process.ranks.empty()) {  // also of one that was to pass the table on
    fail_all(fail(Code::kRemoteError, "{} died or lost its connection before all ranks had joined",
                  names_.at(process.ranks.front())));
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

void Introducer::give_up() {
  size_t count = 0;
  const std::string missing = missing_ranks(count);
  if (count > 0) {
    fail_all(fail(Code::kTimeout,
                  "{} of {} ranks did not come (rank {}): start them, or give them more time with "
                  "PLEXUS_BOOTSTRAP_TIMEOUT",
                  count, nranks_, missing));
  }
}

void Introducer::fail_all(const Error& error) {
  if (failure_.has_value()) {
    return;
  }
  failure_ = error.clone();
  const Message message{.type = MessageType::kFail, .group = world_, .payload = encode(error)};
  for (const auto& [id, process] : guests_) {
    send_(id, message);
  }
}

}  // namespace plexus
