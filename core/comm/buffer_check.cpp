// SPDX-License-Identifier: Apache-2.0
#include "core/comm/buffer_check.hpp"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/units.hpp"
#include "core/comm/communicator.hpp"
#include "core/device/virtual_devices.hpp"
#include "core/os/caller.hpp"
#include "core/schedule/call_buffers.hpp"

namespace plexus {
namespace {

constexpr size_t kKeptBytesMax = 256_MiB;
constexpr size_t kFilledBytesMax = 256_MiB;  // of an allocation: a machine may not have them all
// A signalling NaN as float; four in a row are no value by accident.
constexpr uint32_t kNeverWritten = 0x7fb5a3c9;
constexpr size_t kRunMin = 4;

std::string describe(const UserOf& by) {
  return fmt::format("{} at {}", by.function, describe_caller(by.caller));
}

std::string describe_rank(const UserOf& by) {
  return by.rank < 0 ? std::string() : fmt::format("rank {} of {}: ", by.rank, by.nranks);
}

UserOf user_of(const Task& task) {
  return {.function = name(task.shape.collective),
          .caller = task.caller,
          .rank = task.comm->rank(),
          .nranks = task.comm->nranks()};
}

Region region(const void* begin, size_t size_bytes) {
  return {static_cast<const std::byte*>(begin), size_bytes};
}

/// What a call uses of a buffer. `has_all`: it has the blocks of all ranks.
std::vector<Region> regions_of(const Task& task,
                               const void* buffer,
                               size_t size_bytes,
                               bool has_all) {
  const CallBlocks* const blocks = task.shape.blocks.get();
  if (blocks == nullptr || !has_all) {
    return {region(buffer, size_bytes)};
  }
  std::vector<Region> regions;
  const size_t element_bytes = element_size(task.shape.datatype());
  for (size_t rank = 0; rank < blocks->counts.size(); ++rank) {
    if (blocks->counts[rank] > 0) {
      regions.push_back(region(
          static_cast<const std::byte*>(buffer) + blocks->displacements[rank] * element_bytes,
          blocks->counts[rank] * element_bytes));
    }
  }
  return regions;
}

std::vector<Region> sent_by(const Task& task) {
  const bool sends = task.send != nullptr && uses_send(task.shape, task.comm->rank());
  return sends ? regions_of(task, task.send, send_size_bytes(task.shape, task.comm->nranks()),
                            task.shape.collective == Collective::kReduceScatter)
               : std::vector<Region>{};
}

std::vector<Region> received_by(const Task& task) {
  const bool receives = task.recv != nullptr && uses_recv(task.shape, task.comm->rank());
  return receives ? regions_of(task, task.recv, recv_size_bytes(task.shape, task.comm->nranks()),
                               task.shape.collective == Collective::kAllGather)
                  : std::vector<Region>{};
}

bool overlap(const Region& a, const Region& b) {
  return a.size_bytes > 0 && b.size_bytes > 0 && a.begin < b.begin + b.size_bytes &&
         b.begin < a.begin + a.size_bytes;
}

bool overlap(const std::vector<Region>& some, const std::vector<Region>& others) {
  return std::any_of(some.begin(), some.end(), [&](const Region& one) {
    return std::any_of(others.begin(), others.end(),
                       [&](const Region& other) { return overlap(one, other); });
  });
}

/// Bytes [first, second) of what was never written; empty: there is nothing such.
std::pair<size_t, size_t> find_unwritten(const Region& buffer) {
  const size_t skipped = align_up(reinterpret_cast<uintptr_t>(buffer.begin), sizeof(uint32_t)) -
                         reinterpret_cast<uintptr_t>(buffer.begin);
  const size_t words =
      buffer.size_bytes < skipped ? 0 : (buffer.size_bytes - skipped) / sizeof(uint32_t);
  const std::byte* const first = buffer.begin + skipped;
  const auto is_unwritten = [first](size_t index) {
    uint32_t word = 0;
    std::memcpy(&word, first + index * sizeof(word), sizeof(word));
    return word == kNeverWritten;
  };
  size_t run = 0;
  for (size_t i = 0; i <= words; ++i) {
    if (i < words && is_unwritten(i)) {
      ++run;
      continue;
    }
    if (run >= std::min(kRunMin, std::max<size_t>(words, 1))) {
      return {skipped + (i - run) * sizeof(uint32_t), skipped + i * sizeof(uint32_t)};
    }
    run = 0;
  }
  return {0, 0};
}

}  // namespace

// ---- memory ----

void BufferCheck::note_new(void* data, size_t size_bytes) {
  const size_t words = std::min(size_bytes, kFilledBytesMax) / sizeof(kNeverWritten);
  std::fill_n(static_cast<uint32_t*>(data), words, kNeverWritten);
  const std::lock_guard lock(mutex_);
  forget_freed(region(data, size_bytes));
}

void BufferCheck::forget_freed(const Region& region) {
  std::erase_if(freed_, [&](const auto& each) {
    return overlap({each.first, each.second.size_bytes}, region);
  });
}

Result<void> BufferCheck::note_free(const UserOf& by, const Region& region, Stream stream) {
  const std::lock_guard lock(mutex_);
  if (const auto at = freed_.find(region.begin); at != freed_.end()) {
    auto error = fail(Code::kInvalidArgument, "{} frees {}, which {} has freed", describe(by),
                      fmt::ptr(region.begin), describe(at->second.by));
    report_.say(error.message());
    return error;
  }
  compare(by, {.region = region, .writes = true}, stream);
  freed_[region.begin] = {.size_bytes = region.size_bytes, .by = by};
  return ok();
}

bool BufferCheck::keep(void* data, size_t size_bytes, Release release) {
  std::vector<Kept> gone;
  {
    const std::lock_guard lock(mutex_);
    if (size_bytes > kKeptBytesMax / 4) {
      forget_freed(region(data, size_bytes));
      return false;
    }
    kept_.push_back({data, size_bytes, release});
    kept_bytes_ += size_bytes;
    for (; kept_bytes_ > kKeptBytesMax; kept_.pop_front()) {
      gone.push_back(kept_.front());
      kept_bytes_ -= gone.back().size_bytes;
      forget_freed(region(gone.back().data, gone.back().size_bytes));
    }
  }
  for (const Kept& each : gone) {
    each.release(each.data, each.size_bytes);
  }
  return true;
}

Result<void> BufferCheck::check_memory(const UserOf& by,
                                       int device,
                                       const Region& buffer,
                                       const char* what) {
  const plexusVirtualDevices* const devices = virtual_devices();
  size_t left = buffer.size_bytes;
  if (device >= 0 && devices != nullptr) {
    plexusMemoryFacts facts{};
    if (devices->find_memory(buffer.begin, device, &facts) == 0) {
      return fail(
          Code::kInvalidArgument,
          "{}{}: the {} {} is memory that CUDA does not know: allocate it with cudaMalloc or "
          "ncclMemAlloc",
          describe_rank(by), describe(by), what, fmt::ptr(buffer.begin));
    }
    if (facts.is_reachable == 0) {
      report_.say(fmt::format(
          "{}{}: the {} is memory of device {}, but the rank is on device {}: call cudaSetDevice "
          "before cudaMalloc",
          describe_rank(by), describe(by), what, facts.device, device));
    }
    left = facts.size_bytes -
           static_cast<size_t>(buffer.begin - static_cast<const std::byte*>(facts.data));
  } else if (const MappedPlace place = memory_.find_place(buffer.begin, 1); place.segment != 0) {
    left = place.segment_bytes - place.offset;
  }
  if (left < buffer.size_bytes) {
    return fail(
        Code::kInvalidArgument, "{}{}: the {} {} needs {} bytes, and its allocation ends after {}",
        describe_rank(by), describe(by), what, fmt::ptr(buffer.begin), buffer.size_bytes, left);
  }
  return ok();
}

Result<void> BufferCheck::check_region(const Task& task, const Region& buffer, const char* what) {
  if (buffer.size_bytes == 0) {
    return ok();
  }
  const UserOf by = user_of(task);
  {
    const std::lock_guard lock(mutex_);
    const auto at = std::find_if(freed_.begin(), freed_.end(), [&](const auto& each) {
      return overlap({each.first, each.second.size_bytes}, buffer);
    });
    if (at != freed_.end()) {
      return fail(Code::kInvalidArgument, "{}{}: the {} {} was freed by {}", describe_rank(by),
                  describe(by), what, fmt::ptr(buffer.begin), describe(at->second.by));
    }
  }
  return check_memory(by, task.comm->comm_config().virtual_device, buffer, what);
}

Result<void> BufferCheck::check_call(const Task& task) {
  const auto check = [&]() -> Result<void> {
    for (const Region& buffer : sent_by(task)) {
      PLEXUS_TRY(check_region(task, buffer, "send buffer"));
    }
    for (const Region& buffer : received_by(task)) {
      PLEXUS_TRY(check_region(task, buffer, "receive buffer"));
    }
    return ok();
  };
  auto checked = check();
  if (checked.has_error()) {
    report_.say(checked.error().message());
  }
  return checked;
}

std::function<void()> BufferCheck::look_for_unwritten(const Task& task) {
  return [this, by = user_of(task), buffers = sent_by(task)] {
    for (const Region& buffer : buffers) {
      const auto [first, last] = find_unwritten(buffer);
      if (last > first) {
        report_.say(
            fmt::format("{}{}", describe_rank(by), describe(by)) + " unwritten",
            fmt::format("{}{} sends bytes {} to {} of {} at {}, which nothing has written since "
                        "they were allocated",
                        describe_rank(by), describe(by), first, last - 1, buffer.size_bytes,
                        fmt::ptr(buffer.begin)));
      }
    }
  };
}

// ---- work ----

/// Says which earlier use of the same memory is neither over nor before what is put on `stream`.
void BufferCheck::compare(const UserOf& by, const BufferUse& use, Stream stream) {
  for (const Use& earlier : uses_) {
    const bool is_wrong =
        (use.writes || earlier.use.writes) && (by.rank >= 0 || earlier.by.rank >= 0) &&
        overlap(use.region, earlier.use.region) && !order_.is_over(earlier.work) &&
        (stream == nullptr || !order_.comes_before(earlier.work, stream));
    if (!is_wrong) {
      continue;
    }
    const char* const after =
        stream == nullptr ? "and the program has not waited for that: synchronize the stream first"
                          : "on another stream, and does not wait for that: record an event "
                            "behind the first and make the second stream wait for it";
    const bool frees = stream == nullptr && by.rank < 0 && use.writes;
    report_.say(fmt::format("{} {} {}", describe(by), describe(earlier.by), earlier.by.rank),
                fmt::format("{}{} {} {} bytes at {}, which {} {} {}",
                            describe_rank(earlier.by.rank >= 0 ? earlier.by : by), describe(by),
                            frees        ? "frees"
                            : use.writes ? "writes"
                                         : "reads",
                            use.region.size_bytes, fmt::ptr(use.region.begin), describe(earlier.by),
                            earlier.use.writes ? "writes" : "reads", after));
  }
}

void BufferCheck::add(Use use) {
  const auto at = std::find_if(uses_.begin(), uses_.end(), [&](const Use& each) {
    return each.work.stream == use.work.stream && each.use.writes == use.use.writes &&
           each.use.region.begin == use.use.region.begin &&
           each.use.region.size_bytes == use.use.region.size_bytes &&
           (each.by.rank >= 0) == (use.by.rank >= 0);
  });
  if (at != uses_.end()) {
    *at = std::move(use);  // who comes behind this one comes behind the earlier one, too
  } else {
    uses_.push_back(std::move(use));
  }
}

void BufferCheck::note_work(const UserOf& by, std::span<const BufferUse> uses, Stream stream) {
  const std::lock_guard lock(mutex_);
  for (const BufferUse& use : uses) {
    compare(by, use, stream);
  }
  if (stream == nullptr) {
    return;
  }
  const auto work = order_.add({&stream, 1}, nullptr);
  for (const BufferUse& use : uses) {
    add({.by = by, .use = use, .work = work});
  }
}

void BufferCheck::note_calls(std::span<const Task> tasks) {
  const void* const comm = tasks.front().comm;
  std::vector<Stream> streams;
  for (const Task& task : tasks) {
    if (task.stream != nullptr &&
        std::find(streams.begin(), streams.end(), task.stream) == streams.end()) {
      streams.push_back(task.stream);
    }
  }
  const std::lock_guard lock(mutex_);
  if (streams.empty()) {
    order_.end(order_.clock_of(comm));  // calls without a stream wait for the others
  }
  // As NCCL has it, the calls of a group are one piece of work on all of its streams.
  const auto work = streams.empty() ? StreamOrder::Work{} : order_.add(streams, comm);
  const Stream stream = streams.empty() ? nullptr : streams.front();
  std::vector<Use> made;
  for (const Task& task : tasks) {
    const auto note = [&](const std::vector<Region>& regions, bool writes) {
      for (const Region& used : regions) {
        if (used.size_bytes > 0) {
          const BufferUse use{used, writes};
          compare(user_of(task), use, stream);
          made.push_back({.by = user_of(task), .use = use, .work = work});
        }
      }
    };
    note(sent_by(task), false);
    note(received_by(task), true);
  }
  compare_in_group(tasks);
  if (stream != nullptr) {
    std::for_each(made.begin(), made.end(), [this](Use& use) { add(std::move(use)); });
  }
}

/// Messages of one group have no order, so none may use what another one writes. A message of a
/// rank to itself may stay where it is.
void BufferCheck::compare_in_group(std::span<const Task> tasks) {
  for (const Task& writer : tasks) {
    if (writer.shape.collective != Collective::kRecv) {
      continue;
    }
    for (const Task& other : tasks) {
      const bool is_own = writer.shape.root == writer.comm->rank() &&
                          other.shape.root == writer.shape.root && other.send == writer.recv;
      const bool is_wrong =
          &other != &writer && !is_own && is_point_to_point(other.shape.collective) &&
          (overlap(sent_by(other), received_by(writer)) ||
           (&writer < &other && overlap(received_by(other), received_by(writer))));
      if (is_wrong) {
        const UserOf by = user_of(writer);
        report_.say(
            fmt::format("{}{} {}", describe_rank(by), describe(by), describe(user_of(other))),
            fmt::format("{}{} writes {} bytes at {}, which {} uses in the same group: the "
                        "messages of a group have no order",
                        describe_rank(by), describe(by), received_by(writer).front().size_bytes,
                        fmt::ptr(writer.recv), describe(user_of(other))));
      }
    }
  }
}

// ---- order ----

void BufferCheck::record(const void* event, Stream stream) {
  const std::lock_guard lock(mutex_);
  order_.record(event, stream);
}

void BufferCheck::wait(Stream stream, const void* event) {
  const std::lock_guard lock(mutex_);
  order_.wait(stream, event);
}

void BufferCheck::forget(const void* name) {
  const std::lock_guard lock(mutex_);
  order_.forget(name);
}

StreamOrder::Clock BufferCheck::mark(const void* name) {
  const std::lock_guard lock(mutex_);
  return order_.clock_of(name);
}

void BufferCheck::end(const StreamOrder::Clock& clock) {
  const std::lock_guard lock(mutex_);
  order_.end(clock);
  uses_.remove_if([this](const Use& use) { return order_.is_over(use.work); });
}

}  // namespace plexus
