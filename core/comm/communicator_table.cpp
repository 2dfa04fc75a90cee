// SPDX-License-Identifier: Apache-2.0
#include "core/comm/communicator_table.hpp"

#include <algorithm>
#include <new>

#include "core/comm/communicator.hpp"
#include "guest/assert.hpp"

namespace plexus {

void CommunicatorTable::add(Communicator* comm) {
  const std::lock_guard lock(mutex_);
  const bool is_new = live_.insert(comm).second;
  PLEXUS_DCHECK(is_new, comm);
}

bool CommunicatorTable::remove(Communicator* comm) {
  const std::lock_guard lock(mutex_);
  return live_.erase(comm) != 0;
}

bool CommunicatorTable::add_visit(Communicator* comm) {
  const std::lock_guard lock(mutex_);  // so that who removes it sees the visit
  if (live_.count(comm) == 0) {
    return false;
  }
  comm->visits.fetch_add(1, std::memory_order_relaxed);
  return true;
}

std::vector<Communicator*> CommunicatorTable::add_visits(
    const std::function<bool(const Communicator&)>& matches) {
  std::vector<Communicator*> visited;
  const std::lock_guard lock(mutex_);
  for (Communicator* const comm : live_) {
    if (matches(*comm)) {
      visited.push_back(comm);  // throws before it is counted
      comm->visits.fetch_add(1, std::memory_order_relaxed);
    }
  }
  return visited;
}

bool CommunicatorTable::any(const std::function<bool(const Communicator&)>& matches) {
  const std::lock_guard lock(mutex_);
  return std::any_of(live_.begin(), live_.end(),
                     [&](const Communicator* comm) { return matches(*comm); });
}

void* CommunicatorTable::take_memory() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) {
    free_.reserve(free_.capacity() + 1);  // so that give_back() need not allocate
    return ::operator new (sizeof(Communicator), std::align_val_t{alignof(Communicator)});
  }
  void* const memory = free_.back();
  free_.pop_back();
  return memory;
}

void CommunicatorTable::give_back(void* memory) noexcept {
  const std::lock_guard lock(mutex_);
  PLEXUS_DCHECK(free_.size() < free_.capacity(), free_.size());  // see take_memory()
  PLEXUS_DCHECK(std::find(free_.begin(), free_.end(), memory) == free_.end(), memory);
  free_.push_back(memory);
}

}  // namespace plexus
