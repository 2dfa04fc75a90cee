// SPDX-License-Identifier: Apache-2.0
#include "core/launch/launch_pool.hpp"

#include <algorithm>
#include <bit>

namespace plexus {

constexpr size_t kRecordBytesMin = 4096;

Result<std::shared_ptr<LaunchRecord>> make_record(DeviceRuntime& runtime,
                                                  int device,
                                                  size_t size_bytes) {
  auto record = std::make_shared<LaunchRecord>();
  PLEXUS_TRY(memory, allocate_pinned(runtime, device, size_bytes));
  record->memory = std::move(memory);
  PLEXUS_TRY(ended, make_event(runtime, device));
  record->ended = std::move(ended);
  return record;
}

Result<std::shared_ptr<LaunchRecord>> LaunchPool::take(DeviceRuntime& runtime,
                                                       int device,
                                                       size_t size_bytes) {
  const size_t rounded = std::bit_ceil(std::max(size_bytes, kRecordBytesMin));
  const std::lock_guard lock(mutex_);
  Records& records = records_[{device, rounded}];
  if (!records.empty() && records.front().use_count() == 1) {  // no run looks at it any more
    PLEXUS_TRY(ended, runtime.query(device, records.front()->ended.get()));
    if (ended) {
      records.push_back(std::move(records.front()));
      records.pop_front();
      return records.back();
    }
  }
  PLEXUS_TRY(record, make_record(runtime, device, rounded));
  records.push_back(record);
  return record;
}

}  // namespace plexus
