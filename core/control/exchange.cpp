// SPDX-License-Identifier: Apache-2.0
#include "core/control/exchange.hpp"

#include <algorithm>
#include <mutex>
#include <new>
#include <sys/random.h>

#include "core/control/agent_host.hpp"
#include "core/control/family.hpp"
#include "guest/assert.hpp"

namespace plexus {

Exchange::Exchange(std::shared_ptr<Family> family,
                   uint64_t group,
                   std::vector<uint32_t> members,
                   int rank)
    : family_(std::move(family)), group_(group), members_(std::move(members)), rank_(rank) {
  PLEXUS_DCHECK(rank_ >= 0 && rank_ < nranks(), rank_, nranks());
  family_->open_group(group_);
}

Exchange::~Exchange() {
  try {
    leave();
  } catch (
      const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): peers see that the process ends
  }
}

Result<Gathered> Exchange::all_gather(std::string blob, const std::atomic<bool>* give_up) {
  PLEXUS_TRY(number, begin_gather(std::move(blob)));
  return end_gather(number, give_up);
}

Result<uint64_t> Exchange::begin_gather(std::string blob) {
  const uint64_t number = gathers_++;
  count(blob.size());
  PLEXUS_TRY(family_->send(
      {.type = MessageType::kGather, .group = group_, .tag = number, .payload = std::move(blob)}));
  return number;
}

void Exchange::drop_gather(uint64_t number) { family_->drop_gathered(group_, number); }

void Exchange::wait_dropped(const std::atomic<bool>* give_up) {
  family_->wait_dropped(group_, give_up);
}

Result<Gathered> Exchange::end_gather(uint64_t number, const std::atomic<bool>* give_up) {
  PLEXUS_TRY(blobs, family_->wait_gathered(group_, number, give_up));
  if (blobs.size() != members_.size()) {
    return fail(Code::kInternalError, "a gather of {} ranks brought {} blobs", members_.size(),
                blobs.size());
  }
  count(blobs.size_bytes());
  return std::move(blobs);
}

std::string Exchange::host_of(int rank) const {
  PLEXUS_DCHECK(rank >= 0 && rank < nranks(), rank, nranks());
  return family_->host_name_of(members_[static_cast<size_t>(rank)]);
}

std::string Exchange::process_of(int rank) const {
  PLEXUS_DCHECK(rank >= 0 && rank < nranks(), rank, nranks());
  return family_->process_name_of(members_[static_cast<size_t>(rank)]);
}

ProcessPlace Exchange::place_of(int rank) const {
  PLEXUS_DCHECK(rank >= 0 && rank < nranks(), rank, nranks());
  return family_->place_of(members_[static_cast<size_t>(rank)]);
}

void Exchange::count(uint64_t size_bytes) noexcept {
  messages_.fetch_add(1, std::memory_order_relaxed);
  bytes_.fetch_add(size_bytes, std::memory_order_relaxed);
}

Result<void> Exchange::post(int peer, uint64_t tag, std::string blob) {
  PLEXUS_DCHECK(peer >= 0 && peer < nranks(), peer, nranks());
  count(blob.size());
  return family_->send({.type = MessageType::kPost,
                        .to = members_[static_cast<size_t>(peer)],
                        .group = group_,
                        .tag = tag,
                        .payload = std::move(blob)});
}

std::optional<std::string> Exchange::try_take(int peer, uint64_t tag) {
  PLEXUS_DCHECK(peer >= 0 && peer < nranks(), peer, nranks());
  auto message = family_->try_take(group_, members_[static_cast<size_t>(peer)], tag);
  if (message.has_value()) {
    count(message->size());
  }
  return message;
}

void Exchange::on_post(uint64_t tag, PostHandler handler) {
  family_->on_post(
      group_, tag, [this, handler = std::move(handler)](uint32_t from, std::string blob) {
        std::vector<std::pair<uint32_t, std::string>> answers;
        count(blob.size());
        const auto at = std::find(members_.begin(), members_.end(), from);
        if (at == members_.end()) {
          return answers;
        }
        for (Posted& answer :
             handler({.peer = static_cast<int>(at - members_.begin()), .blob = std::move(blob)})) {
          PLEXUS_DCHECK(answer.peer >= 0 && answer.peer < nranks(), answer.peer, nranks());
          count(answer.blob.size());
          answers.emplace_back(members_[static_cast<size_t>(answer.peer)], std::move(answer.blob));
        }
        return answers;
      });
}

void Exchange::probe(int peer, std::string payload) {
  PLEXUS_DCHECK(peer >= 0 && peer < nranks(), peer, nranks());
  // A refused probe is one of a group that has ended.
  (void)family_->send({.type = MessageType::kProbe,
                       .to = members_[static_cast<size_t>(peer)],
                       .group = group_,
                       .payload = std::move(payload)});
}

void Exchange::on_probe(ProbeHandler handler) {
  family_->on_probe(
      group_, [this, handler = std::move(handler)](uint32_t from, bool left, std::string payload) {
        const auto at = std::find(members_.begin(), members_.end(), from);
        if (at != members_.end()) {
          handler(static_cast<int>(at - members_.begin()), left, std::move(payload));
        }
      });
}

void Exchange::announce_failure(const Error& error) {
  (void)family_->send({.type = MessageType::kFail, .group = group_, .payload = encode(error)});
}

void Exchange::on_failure(std::function<void(const Error&, FailureCause)> handler) {
  family_->on_failure(group_, std::move(handler));
}

std::vector<int> Exchange::gone_ranks() const {
  const std::vector<uint32_t> gone = family_->gone_ranks(group_);
  std::vector<int> ranks;
  for (size_t rank = 0; rank < members_.size() && ranks.size() < gone.size(); ++rank) {
    if (members_[rank] == gone[ranks.size()]) {
      ranks.push_back(static_cast<int>(rank));
    }
  }
  return ranks;
}

void Exchange::leave(std::string record) {
  if (!std::exchange(left_, true)) {
    family_->leave_group(group_, std::move(record));
  }
}

void Exchange::stop() { family_->stop_group(group_); }

Result<std::unique_ptr<Exchange>> Exchange::subgroup(const std::vector<int>& members,
                                                     uint64_t group) {
  std::vector<uint32_t> ranks;
  int mine = -1;
  for (size_t i = 0; i < members.size(); ++i) {
    PLEXUS_DCHECK(members[i] >= 0 && members[i] < nranks(), members[i], nranks());
    ranks.push_back(members_[static_cast<size_t>(members[i])]);
    mine = members[i] == rank_ ? static_cast<int>(i) : mine;
  }
  if (mine < 0) {
    return fail(Code::kInternalError, "rank {} makes a group that it is not in", rank_);
  }
  PLEXUS_TRY(
      family_->send({.type = MessageType::kGroup, .group = group, .payload = encode(ranks)}));
  return std::make_unique<Exchange>(family_, group, std::move(ranks), mine);
}

void Exchange::fail_subgroup(uint64_t group, const Error& error) {
  (void)family_->send({.type = MessageType::kFail, .group = group, .payload = encode(error)});
}

// ---- all ranks in one process ----

namespace {

constexpr auto kLocalGatherTime = std::chrono::seconds(300);

uint64_t random_group() {
  uint64_t value = 0;
  while (value == 0) {
    if (getrandom(&value, sizeof(value), 0) != sizeof(value)) {
      static std::atomic<uint64_t> next{1};  // unique within one process
      value = next.fetch_add(1);
    }
  }
  return value;
}

}  // namespace

std::vector<std::unique_ptr<Exchange>> make_local_exchanges(int nranks, AgentHooks hooks) {
  const uint64_t world = random_group();
  auto host =
      std::make_shared<LocalAgentHost>(world, static_cast<uint32_t>(nranks), std::move(hooks));
  const std::vector<uint32_t> members = all_ranks(static_cast<size_t>(nranks));
  std::vector<std::unique_ptr<Exchange>> exchanges;
  for (const uint32_t rank : members) {
    auto family = std::make_shared<Family>(host, rank, Family::Times{.gather = kLocalGatherTime});
    host->add(rank, *family);
    exchanges.push_back(
        std::make_unique<Exchange>(std::move(family), world, members, static_cast<int>(rank)));
  }
  return exchanges;
}

}  // namespace plexus
