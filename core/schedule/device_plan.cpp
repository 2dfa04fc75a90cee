// SPDX-License-Identifier: Apache-2.0
#include "core/schedule/device_plan.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <span>

#include "core/base/units.hpp"
#include "guest/assert.hpp"
#include "kernels/cuda/launch.hpp"

namespace plexus {
namespace {

/// Builds tables: their bytes in host memory, their device addresses once `base` is known.
class Image {
 public:
  /// Reserves `size_bytes` zero bytes; returns their offset.
  size_t reserve(size_t size_bytes) {
    const size_t begin = align_up(bytes_.size(), kCacheLine);
    bytes_.resize(begin + size_bytes);
    return begin;
  }
  template <class T>
  size_t add(std::span<const T> values) {
    const size_t begin = reserve(values.size_bytes());
    if (!values.empty()) {
      std::memcpy(bytes_.data() + begin, values.data(), values.size_bytes());
    }
    return begin;
  }
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

/// Offsets of a work's tables in the image.
struct WorkPlaces {
  std::vector<size_t> steps;    // by lane
  std::vector<size_t> batches;  // by lane
  size_t lanes = 0;
  size_t sends = 0;
  size_t recvs = 0;
  size_t slots = 0;  // 0: none, the image begins with something else
  size_t progress = 0;
  bool has_lines = true;  // all connections have
};

template <class T>
T* at(std::byte* base, size_t offset) {
  return reinterpret_cast<T*>(base + offset);
}

/// [peer of the program]: whether a message to it may not go by address.
std::vector<bool> list_slot_users(const Work& work, bool has_private_buffers) {
  std::vector<bool> users(work.program->peers.size(), has_private_buffers);
  for (const Lane& lane : work.program->lanes) {
    for (const Step& step : lane.steps) {
      const bool scales = step.source == Buffer::kInput && work.op.scales_input();
      const bool has_home = step.target != Buffer::kNone || (step.receives == 0 && !scales);
      const bool is_alone = !step.with_next && !continues_message(lane, step);
      const auto first = static_cast<size_t>(step.peers_first) + static_cast<size_t>(step.receives);
      for (size_t i = first; i < first + static_cast<size_t>(step.sends); ++i) {
        users[i] = users[i] || !step.by_address || !has_home || !is_alone;
      }
    }
  }
  return users;
}

Result<WorkPlaces> add_work(DeviceRank& rank,
                            const WorkQueue::Item& item,
                            bool has_private_buffers,
                            Image& image) {
  const Work& work = item.work;
  WorkPlaces places;
  for (size_t lane = 0; lane < work.program->lanes.size(); ++lane) {
    places.steps.push_back(image.add(std::span<const Step>(work.program->lanes[lane].steps)));
    const std::vector<uint32_t> batches = find_batches(*work.program, lane);
    places.batches.push_back(image.add(std::span<const uint32_t>(batches)));
  }
  const std::vector<bool> uses_slots = list_slot_users(work, has_private_buffers);
  std::vector<DeviceSend*> sends;
  std::vector<std::byte*> slots;
  bool come_later = false;
  for (DeviceEnd* const end : item.device_sends) {
    sends.push_back(nullptr);
    slots.push_back(nullptr);
    if (end != nullptr) {
      const bool by_lines = uses_lines(work.protocol) && end->view().lines != nullptr;
      come_later = come_later || end->view().reach == Reach::kProcess;
      if (uses_slots[sends.size() - 1] && !by_lines) {
        PLEXUS_TRY(end->provide_slots());
      }
      slots.back() = end->view().slots;
      PLEXUS_TRY(entry, rank.entry_of_send(*end));
      sends.back() = entry;
      places.has_lines = places.has_lines && end->view().lines != nullptr;
    }
  }
  std::vector<DeviceRecv*> recvs;
  for (DeviceEnd* const end : item.device_recvs) {
    recvs.push_back(nullptr);
    if (end != nullptr) {
      PLEXUS_TRY(entry, rank.entry_of_recv(*end));
      recvs.back() = entry;
      places.has_lines = places.has_lines && end->view().lines != nullptr;
    }
  }
  places.sends = image.add(std::span<DeviceSend* const>(sends));
  places.recvs = image.add(std::span<DeviceRecv* const>(recvs));
  if (come_later) {
    places.slots = image.add(std::span<std::byte* const>(slots));
  }
  places.progress = image.reserve(work.program->lanes.size() * sizeof(uint64_t));
  places.lanes = image.reserve(work.program->lanes.size() * sizeof(DeviceLane));
  return places;
}

/// [peer of the program]; empty: none reads our memory from another process.
std::vector<int> readers_of(const WorkQueue::Item& item) {
  std::vector<int> readers;
  bool any = false;
  for (const DeviceEnd* const end : item.device_sends) {
    const bool reads = end != nullptr && end->view().reach == Reach::kMapped;
    readers.push_back(reads ? end->key().peer : -1);
    any = any || reads;
  }
  return any ? readers : std::vector<int>{};
}

/// Number of threads that a slice can keep busy; more would only wait. A thread moves 64 bytes at
/// once, or 8 of a protocol with lines (NCCL's thresholds; not measured here).
uint32_t threads_of(const Work& work) {
  constexpr uint64_t kThreadsMin = 128;
  const uint64_t elements = std::min(work.geometry.part_count, work.geometry.chunk_count);
  const uint64_t slice_bytes = std::min<uint64_t>(elements * work.element_bytes, work.slot_bytes);
  const uint64_t bytes_of_thread = uses_lines(work.protocol) ? 8 : 64;
  return static_cast<uint32_t>(std::clamp<uint64_t>(std::bit_ceil(slice_bytes / bytes_of_thread),
                                                    kThreadsMin, kDeviceThreadsMax));
}

size_t scratch_bytes(const Work& work) {
  return align_up(static_cast<size_t>(work.program->scratch_chunks) * work.geometry.chunk_count *
                      work.element_bytes,
                  kCacheLine);
}

/// The work without the fields that change from call to call, and without `scratch`.
DeviceWork describe(const DeviceRank& rank,
                    const Work& work,
                    const WorkPlaces& places,
                    std::byte* base) {
  DeviceWork made{};
  made.lanes = at<DeviceLane>(base, places.lanes);
  made.sends = at<DeviceSend*>(base, places.sends);
  made.recvs = at<DeviceRecv*>(base, places.recvs);
  made.slots = places.slots == 0 ? nullptr : at<std::byte*>(base, places.slots);
  made.progress = at<uint64_t>(base, places.progress);
  made.claimed = rank.claimed();
  made.control = rank.control();
  made.geometry = work.geometry;
  made.lane_count = static_cast<uint32_t>(work.program->lanes.size());
  made.peer_count = static_cast<uint32_t>(work.program->peers.size());
  made.slot_bytes = work.slot_bytes;
  made.borrow_bytes_min = work.borrow_bytes_min;
  made.type = work.type;
  made.protocol = work.protocol;
  made.exchanges_empty = work.exchanges_empty;
  made.has_lines = places.has_lines;
  made.shares_scratch = work.program->shares_scratch;
  return made;
}

}  // namespace

Result<std::unique_ptr<DevicePlan>> DevicePlan::build(DeviceRank& rank,
                                                      Execution& execution,
                                                      bool has_private_buffers) {
  auto plan = std::make_unique<DevicePlan>();
  Image image;
  std::vector<WorkPlaces> places;
  std::vector<size_t> rendezvous;
  size_t scratch = 0;
  for (WorkQueue& queue : execution.queues) {
    Queue& made = plan->queues_.emplace_back();
    rendezvous.push_back(image.reserve(sizeof(DeviceBarrier)));
    for (WorkQueue::Item& item : queue.items) {
      PLEXUS_TRY(added, add_work(rank, item, has_private_buffers, image));
      places.push_back(std::move(added));
      plan->places_.emplace_back(&item.work, plan->places_.size());
      plan->readers_.push_back(readers_of(item));
      plan->size_.loans += plan->readers_.back().size();
      made.works.push_back(&item.work);
      made.turns =
          made.turns && runs_in_turn(*item.work.program) && item.work.protocol == Protocol::kSimple;
      made.blocks = std::max(made.blocks, static_cast<uint32_t>(item.work.program->lanes.size()));
      scratch += scratch_bytes(item.work);
      plan->threads_ = std::max(plan->threads_, threads_of(item.work));
    }
    plan->size_ += {.blocks = made.blocks,
                    .queues = 1,
                    .works = made.works.size(),
                    .loans = 0,
                    .turns = made.turns ? size_t{1} : 0};
  }
  PLEXUS_DCHECK(places.size() == plan->size_.works && plan->queues_.size() == plan->size_.queues,
                places.size(), plan->size_.works, plan->queues_.size());
  std::sort(plan->places_.begin(), plan->places_.end());
  DeviceRuntime& runtime = rank.runtime();
  PLEXUS_TRY(tables, allocate_device(runtime, rank.device(), image.bytes().size()));
  if (scratch > 0) {
    PLEXUS_TRY(memory, allocate_device(runtime, rank.device(), scratch));
    plan->scratch_ = std::move(memory);
  }
  std::byte* scratch_at = plan->scratch_.get();
  std::vector<std::byte> bytes(image.bytes().begin(), image.bytes().end());
  for (size_t queue = 0; queue < plan->queues_.size(); ++queue) {
    plan->queues_[queue].barrier = at<DeviceBarrier>(tables.get(), rendezvous[queue]);
    for (const Work* const work : plan->queues_[queue].works) {
      const WorkPlaces& placed = places[plan->works_.size()];
      std::vector<DeviceLane> lanes;
      for (size_t lane = 0; lane < placed.steps.size(); ++lane) {
        lanes.push_back(
            {.steps = at<Step>(tables.get(), placed.steps[lane]),
             .batches = at<uint32_t>(tables.get(), placed.batches[lane]),
             .step_count = static_cast<uint32_t>(work->program->lanes[lane].steps.size()),
             .awaited = is_awaited(*work->program, static_cast<int>(lane)) ? 1U : 0U});
      }
      std::memcpy(bytes.data() + placed.lanes, lanes.data(), lanes.size() * sizeof(DeviceLane));
      plan->works_.push_back(describe(rank, *work, placed, tables.get()));
      plan->works_.back().scratch = scratch_at;
      scratch_at += scratch_bytes(*work);
    }
  }
  PLEXUS_DCHECK(plan->works_.size() == places.size(), plan->works_.size(), places.size());
  PLEXUS_DCHECK(scratch_at == plan->scratch_.get() + scratch, scratch);
  PLEXUS_TRY(runtime.copy(rank.device(), tables.get(), bytes.data(), bytes.size()));
  plan->tables_ = std::move(tables);
  return plan;
}

void DevicePlan::retire(DeviceRank& rank) {
  for (DeviceMemory* const memory : {&tables_, &scratch_}) {
    if (*memory != nullptr) {
      rank.watch().retire(std::move(*memory));
    }
  }
}

DeviceBlock* DevicePlan::fill(const Places& places, std::vector<DeviceQueue*>* in_turn) const {
  DeviceBlock* block = places.blocks;
  DeviceLoan* loan = places.loans;
  size_t work = 0;
  for (size_t i = 0; i < queues_.size(); ++i) {
    const Queue& queue = queues_[i];
    DeviceQueue& made = places.queues[i];
    made = {.works = places.works + work,
            .work_count = static_cast<uint32_t>(queue.works.size()),
            .block_count = queue.blocks,
            .barrier = queue.barrier,
            .done = places.done + i,
            .times = places.times == nullptr ? nullptr : places.times + 2 * i,
            .next = nullptr};
    places.done[i] = 0;
    for (const Work* const source : queue.works) {
      DeviceWork& target = places.works[work];
      target = works_[work];
      target.input = source->input.address;
      target.output = source->output.address;
      target.open_bytes = source->opens_output ? source->output.size_bytes : 0;
      target.loans = readers_[work].empty() ? nullptr : loan;
      loan = std::fill_n(loan, readers_[work].size(), DeviceLoan{kNotMapped, kNotMapped});
      target.call = source->call;
      target.op = source->op;
      ++work;
    }
    if (queue.turns && in_turn != nullptr) {
      in_turn->push_back(&made);
      continue;
    }
    for (uint32_t lane = 0; lane < queue.blocks; ++lane) {
      *block++ = {.queue = made, .lane = lane, .in_turn = 0};
    }
  }
  PLEXUS_DCHECK(work == size_.works, work, size_.works);
  PLEXUS_DCHECK(loan == places.loans + size_.loans, size_.loans);
  PLEXUS_DCHECK(block <= places.blocks + size_.blocks, size_.blocks);
  return block;
}

void DevicePlan::close_buffers(const Places& places, const Work& work) const {
  DeviceWork& closed = places.works[place_of(work)];
  closed.borrow_bytes_min = std::numeric_limits<uint32_t>::max();
  closed.closes_output = true;
}

Result<void> DevicePlan::map_for_peers(const Places& places,
                                       const PeerMappedBuffers& buffers,
                                       PeerMappedMemory& memory) const {
  const size_t place = place_of(buffers.work);
  const std::vector<int>& readers = readers_[place];
  auto* const loans = const_cast<DeviceLoan*>(  // NOLINT(cppcoreguidelines-pro-type-const-cast)
      places.works[place].loans);
  PLEXUS_DCHECK(readers.empty() || loans != nullptr, place);
  for (size_t i = 0; i < readers.size(); ++i) {
    if (readers[i] < 0) {
      continue;
    }
    PLEXUS_TRY(input, memory.map_for_peer(readers[i], buffers.work.input.address,
                                          buffers.input_bytes, buffers.in_graph));
    PLEXUS_TRY(output, memory.map_for_peer(readers[i], buffers.work.output.address,
                                           buffers.output_bytes, buffers.in_graph));
    loans[i] = {.input = input, .output = output};
  }
  return ok();
}

size_t DevicePlan::place_of(const Work& work) const noexcept {
  const auto at = std::lower_bound(places_.begin(), places_.end(), std::pair(&work, size_t{0}));
  PLEXUS_DCHECK(at != places_.end() && at->first == &work, places_.size());
  return at->second;
}

size_t launch_bytes(const DevicePlan::Size& size) {
  return align_up(size.blocks * sizeof(DeviceBlock), kCacheLine) +
         align_up(size.queues * sizeof(DeviceQueue), kCacheLine) +
         align_up(size.works * sizeof(DeviceWork), kCacheLine) +
         align_up(size.loans * sizeof(DeviceLoan), kCacheLine) +
         align_up(2 * size.queues * sizeof(uint64_t), kCacheLine) +
         align_up(size.queues * sizeof(uint64_t), kCacheLine);
}

size_t launch_bytes_in_flight(size_t blocks) {
  constexpr size_t kLaunches = 16;
  constexpr size_t kBytesMax = size_t{1} << 20;  // more ranks than this serves take turns
  const size_t each =
      launch_bytes({.blocks = blocks, .queues = blocks, .works = blocks, .loans = 0, .turns = 0});
  return std::min(kLaunches * std::bit_ceil(each), kBytesMax);
}

DevicePlan::Places launch_places(std::byte* memory, const DevicePlan::Size& size) {
  const std::byte* const begin = memory;
  const auto next = [&](size_t size_bytes) {
    std::byte* const place = memory;
    memory += align_up(size_bytes, kCacheLine);
    return place;
  };
  DevicePlan::Places places{};
  places.blocks = reinterpret_cast<DeviceBlock*>(next(size.blocks * sizeof(DeviceBlock)));
  places.queues = reinterpret_cast<DeviceQueue*>(next(size.queues * sizeof(DeviceQueue)));
  places.works = reinterpret_cast<DeviceWork*>(next(size.works * sizeof(DeviceWork)));
  places.done = reinterpret_cast<uint64_t*>(next(size.queues * sizeof(uint64_t)));
  places.loans = reinterpret_cast<DeviceLoan*>(next(size.loans * sizeof(DeviceLoan)));
  places.times = reinterpret_cast<uint64_t*>(next(2 * size.queues * sizeof(uint64_t)));
  PLEXUS_DCHECK(begin + launch_bytes(size) == memory, launch_bytes(size));
  return places;
}

}  // namespace plexus
