// SPDX-License-Identifier: Apache-2.0
#include "core/control/family.hpp"

#include <algorithm>

#include "core/base/log.hpp"
#include "core/base/text.hpp"
#include "core/control/agent_host.hpp"
#include "guest/assert.hpp"

namespace plexus {

Family::Family(std::shared_ptr<AgentHost> host, uint32_t rank, const Times& times)
    : host_(std::move(host)), rank_(rank), times_(times) {}

Family::~Family() { host_->remove(rank_, *this); }

Result<void> Family::send(Message message) { return host_->take(rank_, std::move(message)); }

std::string Family::host_name_of(uint32_t rank) const { return host_->host_name_of(rank); }

std::string Family::process_name_of(uint32_t rank) const { return host_->process_name_of(rank); }

ProcessPlace Family::place_of(uint32_t rank) const { return host_->place_of(rank); }

std::vector<uint32_t> Family::gone_ranks(uint64_t group) const { return host_->gone_ranks(group); }

void Family::open_group(uint64_t group) {
  const std::lock_guard lock(mutex_);
  Group& opened = groups_[group];
  PLEXUS_DCHECK(!opened.open, group);
  opened.open = true;
  ++groups_open_;
  if (broken_.has_value()) {
    fail_group(opened, *broken_, FailureCause::kFailed);
  }
}

void Family::leave_group(uint64_t group, std::string record) {
  bool last = false;
  {
    const std::lock_guard lock(mutex_);
    Group& leaving = groups_[group];
    PLEXUS_DCHECK(leaving.open && groups_open_ > 0, group, groups_open_);
    PLEXUS_DCHECK(leaving.waiting == 0, group);
    leaving.open = false;
    leaving.handler = nullptr;
    leaving.probe_handler = nullptr;
    leaving.post_handlers.clear();
    leaving.messages.clear();
    last = --groups_open_ == 0;
  }
  // The group ends here with the agent's answer. It refuses only ranks that have not joined.
  (void)send({.type = MessageType::kLeaveGroup, .group = group, .payload = std::move(record)});
  if (last) {
    (void)send({.type = MessageType::kLeave});
    host_->wait_for_leave();
  }
}

void Family::stop_group(uint64_t group) {
  const std::lock_guard lock(mutex_);
  groups_[group].stopped = true;
  changed_.notify_all();
}

Result<Gathered> Family::wait_gathered(uint64_t group,
                                       uint64_t number,
                                       const std::atomic<bool>* give_up) {
  // Thousands of ranks of a process may wait at once, so who waits for long looks less often.
  constexpr auto kPollMin = std::chrono::milliseconds(50);
  constexpr auto kPollMax = std::chrono::milliseconds(400);
  std::chrono::milliseconds poll = kPollMin;
  const auto given_up = [&] {
    return give_up != nullptr && give_up->load(std::memory_order_acquire);
  };
  const Deadline deadline = Deadline::after(times_.gather);
  std::chrono::seconds late = times_.late;
  Deadline asks = late.count() == 0 ? Deadline::never() : Deadline::after(late);
  std::unique_lock lock(mutex_);
  Group& mine = groups_[group];
  const Waiting waiting(mine);
  const auto over = [&] {
    return mine.stopped || mine.failure.has_value() || mine.gathered.count(number) != 0;
  };
  bool ready = changed_.wait_for(lock, poll, over);
  while (!ready && !given_up() && !deadline.expired()) {
    if (asks.expired()) {
      lock.unlock();
      ask_who_is_late(group, number, late);
      lock.lock();
      asks = Deadline::after(late);
      late *= 2;
    }
    poll = std::min(2 * poll, kPollMax);
    ready = changed_.wait_for(lock, poll, over);
  }
  if (mine.stopped || (!ready && given_up())) {
    return fail(Code::kInvalidUsage, "aborted");
  }
  const auto at = mine.gathered.find(number);
  if (at != mine.gathered.end()) {
    Gathered gathered = std::move(at->second);
    mine.gathered.erase(at);
    return gathered;
  }
  if (ready) {
    return mine.failure->clone();
  }
  return explain_timeout(group, number, lock);
}

/// The agent asks the others; all ranks that wait are told (kLate).
void Family::ask_who_is_late(uint64_t group, uint64_t number, std::chrono::seconds waited) {
  const Error error =
      fail(Code::kInProgress,
           "others have waited for {} s in init, split, shrink or suspend, which every rank "
           "of the communicator must call",
           waited.count());
  // What is refused here is refused to the gather as well.
  (void)send({.type = MessageType::kFail, .group = group, .tag = number, .payload = encode(error)});
}

/// Reports the timeout to the agent, which asks the others and fails the group with the names of
/// the missing ranks.
Error Family::explain_timeout(uint64_t group, uint64_t number, std::unique_lock<std::mutex>& lock) {
  constexpr auto kAnswerTime = std::chrono::seconds(5);
  Error error = fail(Code::kTimeout,
                     "not all ranks made this call within {} s: every rank must call init, split, "
                     "shrink and suspend; "
                     "PLEXUS_BOOTSTRAP_TIMEOUT gives more time",
                     times_.gather.count());
  lock.unlock();
  const auto asked =
      send({.type = MessageType::kFail, .group = group, .tag = number, .payload = encode(error)});
  lock.lock();
  if (asked.has_error()) {
    return error;
  }
  Group& mine = groups_[group];
  changed_.wait_for(lock, kAnswerTime, [&] { return mine.failure.has_value(); });
  return mine.failure.has_value() ? mine.failure->clone() : std::move(error);
}

std::optional<std::string> Family::try_take(uint64_t group, uint32_t from, uint64_t tag) {
  const std::lock_guard lock(mutex_);
  auto& messages = groups_[group].messages;
  const auto at = messages.find({from, tag});
  if (at == messages.end()) {
    return std::nullopt;
  }
  PLEXUS_DCHECK(!at->second.empty(), group, from, tag);
  std::string message = std::move(at->second.front());
  at->second.pop_front();
  if (at->second.empty()) {
    messages.erase(at);
  }
  return message;
}

void Family::on_failure(uint64_t group, FailureHandler handler) {
  const std::lock_guard lock(mutex_);
  Group& mine = groups_[group];
  if (mine.failure.has_value()) {
    handler(*mine.failure, mine.cause);
  }
  if (!mine.failure.has_value() || mine.cause == FailureCause::kDeath) {
    mine.handler = std::move(handler);
  }
}

void Family::on_probe(uint64_t group, ProbeHandler handler) {
  const std::lock_guard lock(mutex_);
  groups_[group].probe_handler = std::move(handler);
}

std::vector<Message> Family::answer(const PostHandler& handler, const Message& message) {
  std::vector<Message> answers;
  for (auto& [to, blob] : handler(message.from, message.payload)) {
    answers.push_back({.type = MessageType::kPost,
                       .to = to,
                       .group = message.group,
                       .tag = message.tag,
                       .payload = std::move(blob)});
  }
  return answers;
}

void Family::on_post(uint64_t group, uint64_t tag, PostHandler handler) {
  std::vector<Message> answers;
  {
    const std::lock_guard lock(mutex_);
    Group& mine = groups_[group];
    for (auto at = mine.messages.begin(); at != mine.messages.end();) {
      if (at->first.second != tag) {
        ++at;
        continue;
      }
      for (std::string& early : at->second) {
        for (Message& each : answer(handler, {.from = at->first.first,
                                             .group = group,
                                             .tag = tag,
                                             .payload = std::move(early)})) {
          answers.push_back(std::move(each));
        }
      }
      at = mine.messages.erase(at);
    }
    mine.post_handlers[tag] = std::move(handler);
  }
  for (Message& each : answers) {
    (void)send(std::move(each));  // refused where the group has ended
  }
}

void Family::fail_group(Group& group, const Error& error, FailureCause cause) {
  if (group.failure.has_value() && is_final(group.cause, cause)) {
    return;
  }
  if (!group.failure.has_value()) {
    group.failure = error.clone();
  }
  group.cause = cause;
  if (group.handler) {
    group.handler(error, cause);
  }
  changed_.notify_all();
}

void Family::break_down(const Error& error) {
  const std::lock_guard lock(mutex_);
  broken_ = error.clone();
  for (auto& [id, group] : groups_) {
    fail_group(group, error, FailureCause::kFailed);
  }
}

void Family::deliver_gathered(uint64_t group, uint64_t number, Gathered gathered) {
  const std::lock_guard lock(mutex_);
  const auto at = groups_.find(group);
  if (at != groups_.end() && at->second.dropped.erase(number) == 0) {  // else left meanwhile
    at->second.gathered[number] = std::move(gathered);
    changed_.notify_all();
  }
}

void Family::drop_gathered(uint64_t group, uint64_t number) {
  const std::lock_guard lock(mutex_);
  if (Group& mine = groups_[group]; mine.gathered.erase(number) == 0) {
    mine.dropped.insert(number);
  }
}

void Family::wait_dropped(uint64_t group, const std::atomic<bool>* give_up) {
  std::set<uint64_t> numbers;
  {
    const std::lock_guard lock(mutex_);
    numbers.swap(groups_[group].dropped);
  }
  for (const uint64_t number : numbers) {
    (void)wait_gathered(group, number, give_up);  // the others are told what has failed
  }
}

void Family::deliver(const Message& message) {
  const std::lock_guard lock(mutex_);
  switch (message.type) {
    case MessageType::kPost: {  // may arrive before this rank has opened the group
      Group& group = groups_[message.group];
      if (const auto handler = group.post_handlers.find(message.tag);
          handler != group.post_handlers.end()) {
        for (Message& each : answer(handler->second, message)) {
          host_->take_later(rank_, std::move(each));
        }
      } else {
        group.messages[{message.from, message.tag}].push_back(message.payload);
      }
      return;
    }
    case MessageType::kProbe:
    case MessageType::kLeft:
      if (const auto at = groups_.find(message.group);
          at != groups_.end() && at->second.probe_handler) {
        at->second.probe_handler(message.from, message.type == MessageType::kLeft, message.payload);
      }
      return;
    case MessageType::kLeaveGroup:
      if (const auto at = groups_.find(message.group); at != groups_.end() && !at->second.open) {
        groups_.erase(at);
      }
      return;
    case MessageType::kFail:
      fail_group(groups_[message.group], decode_error(message.payload),
                 message.tag == static_cast<uint64_t>(FailureCause::kDeath)
                     ? FailureCause::kDeath
                     : FailureCause::kFailed);
      return;
    case MessageType::kLate:
      if (message.from == rank_) {
        PLEXUS_NOTIFY("{}", printable(message.payload));
      } else {
        PLEXUS_WARN("{}", printable(message.payload));
      }
      return;
    default:
      return;  // the agent delivers no other types
  }
}

}  // namespace plexus
