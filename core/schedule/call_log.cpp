// SPDX-License-Identifier: Apache-2.0
#include "core/schedule/call_log.hpp"

#include <algorithm>

namespace plexus {

std::vector<CallRecord> CallLog::list_recent(size_t count) const {
  const uint64_t end = calls();
  const uint64_t first = end - std::min<uint64_t>({end, count, kRecords});
  std::vector<CallRecord> records;
  records.reserve(end - first);
  for (uint64_t number = first; number < end; ++number) {
    records.push_back(records_[number % kRecords].load());
  }
  // Meanwhile the oldest ones may have been overwritten, and the one after the last may be in the
  // act of it.
  const uint64_t now = collectives_.fetch_add(0, std::memory_order_acq_rel) +  // after the loads
                       messages_.fetch_add(0, std::memory_order_acq_rel);
  const uint64_t whole = now < kRecords ? 0 : now - kRecords + 1;
  const uint64_t lost = whole > first ? std::min(whole, end) - first : 0;
  records.erase(records.begin(), records.begin() + static_cast<std::ptrdiff_t>(lost));
  return records;
}

template <class Matches>
std::optional<CallLog::Found> CallLog::find_recent(const Matches& matches) const {
  const uint64_t end = calls();  // first: calls that come meanwhile make places too low
  const std::vector<CallRecord> recent = list_recent();
  const auto at = std::find_if(recent.rbegin(), recent.rend(), matches);
  if (at == recent.rend()) {
    return std::nullopt;
  }
  const auto behind = static_cast<uint64_t>(at - recent.rbegin()) + 1;
  return Found{.record = *at, .place = end - std::min(end, behind)};
}

std::optional<CallLog::Found> CallLog::find(uint64_t sequence) const {
  return find_recent([&](const CallRecord& record) {
    return record.sequence == sequence &&
           !is_point_to_point(static_cast<Collective>(record.collective));
  });
}

std::optional<CallLog::Found> CallLog::find(const MessageKey& key, uint64_t sequence) const {
  const Collective collective = key.sends ? Collective::kSend : Collective::kRecv;
  return find_recent([&](const CallRecord& record) {
    return record.sequence == sequence && record.collective == static_cast<uint8_t>(collective) &&
           record.root == key.peer && (record.of_vector != 0) == key.of_vector;
  });
}

}  // namespace plexus
