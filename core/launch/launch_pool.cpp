// SPDX-License-Identifier: Apache-2.0
#include "core/launch/launch_pool.hpp"

#include <algorithm>
#include <atomic>
#include <bit>

#include "core/base/log.hpp"
#include "core/base/units.hpp"

namespace plexus {
namespace {

constexpr size_t kRecordBytesMin = 4096;
constexpr size_t kPieceBytes = size_t{4} << 20;

size_t round(size_t size_bytes) { return std::bit_ceil(std::max(size_bytes, kRecordBytesMin)); }

}  // namespace

Result<void> LaunchPool::grow(DeviceRuntime& runtime, int device, size_t size_bytes) {
  Arena& arena = arenas_[device];
  const size_t piece_bytes = align_up(size_bytes, kPieceBytes);
  PLEXUS_TRY(piece, allocate_pinned(runtime, device, piece_bytes));
  arena.pieces.push_back(std::move(piece));
  arena.piece_bytes = piece_bytes;
  arena.used_bytes = 0;
  arena.taken_bytes += piece_bytes;
  PLEXUS_INFO(kAlloc, "launches on cuda:{} have {} MiB of pinned memory", device,
              arena.taken_bytes >> 20);  // NOLINT(readability-magic-numbers): MiB
  return ok();
}

Result<void> LaunchPool::reserve(DeviceRuntime& runtime, int device, size_t size_bytes) {
  const std::lock_guard lock(mutex_);
  Arena& arena = arenas_[device];
  const size_t wanted = arena.reserved_bytes + size_bytes;
  if (wanted > arena.taken_bytes) {
    PLEXUS_TRY(grow(runtime, device, wanted - arena.taken_bytes));
  }
  arena.reserved_bytes = wanted;
  return ok();
}

void LaunchPool::release(int device, size_t size_bytes) noexcept {
  const std::lock_guard lock(mutex_);
  arenas_[device].reserved_bytes -= size_bytes;
}

Result<LaunchRecord> LaunchPool::find_or_cut(DeviceRuntime& runtime, int device, size_t rounded) {
  Arena& arena = arenas_[device];
  if (auto& spare = arena.spare[rounded]; !spare.empty()) {
    const LaunchRecord record = spare.back();
    spare.pop_back();
    return record;
  }
  if (arena.used_bytes + rounded > arena.piece_bytes) {
    PLEXUS_TRY(grow(runtime, device, rounded));
  }
  std::byte* const memory = arena.pieces.back().get() + arena.used_bytes;
  arena.used_bytes += rounded;
  return LaunchRecord{.memory = memory, .size_bytes = rounded};
}

Result<std::shared_ptr<LaunchRecord>> LaunchPool::take(DeviceRuntime& runtime,
                                                       int device,
                                                       size_t size_bytes) {
  const size_t rounded = round(size_bytes);
  const std::lock_guard lock(mutex_);
  auto& records = arenas_[device].records[rounded];
  if (!records.empty() && records.front().use_count() == 1) {
    std::atomic_thread_fence(std::memory_order_acquire);  // pairs with the last run's reset()
    records.push_back(std::move(records.front()));
    records.pop_front();
    return records.back();
  }
  PLEXUS_TRY(record, find_or_cut(runtime, device, rounded));
  records.push_back(std::make_shared<LaunchRecord>(record));
  return records.back();
}

Result<std::shared_ptr<LaunchRecord>> LaunchPool::take_for_graph(DeviceRuntime& runtime,
                                                                 int device,
                                                                 size_t size_bytes) {
  const std::lock_guard lock(mutex_);
  PLEXUS_TRY(record, find_or_cut(runtime, device, round(size_bytes)));
  return std::shared_ptr<LaunchRecord>(
      new LaunchRecord(record), [this, device](const LaunchRecord* given_back) {
        const std::unique_ptr<const LaunchRecord> owner(given_back);
        const std::lock_guard back(mutex_);
        arenas_[device].spare[given_back->size_bytes].push_back(*given_back);
      });
}

}  // namespace plexus
