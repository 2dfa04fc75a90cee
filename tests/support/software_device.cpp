// SPDX-License-Identifier: Apache-2.0
#include "tests/support/software_device.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

#include "kernels/cuda/device_work.hpp"
#include "kernels/cuda/in_turn.hpp"
#include "kernels/cuda/launch.hpp"
#include "tests/support/host_block.hpp"

namespace plexus::testing_device {
namespace {

thread_local int current_device = 0;

struct ExportedPlace {
  uint64_t id;
  uint64_t size_bytes;
  int32_t pid;
  int32_t fd;
};
static_assert(sizeof(ExportedPlace) <= sizeof(MemoryHandle));

}  // namespace

struct SoftwareDevice::Event {
  std::shared_ptr<Event> self;  // until it is destroyed; streams may keep it longer
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t recorded = 0;
  uint64_t happened = 0;
  std::shared_ptr<SoftwareGraph> graph;  // last recorded in a capture

  void happen(uint64_t number) {
    const std::lock_guard lock(mutex);
    happened = std::max(happened, number);
    changed.notify_all();
  }
  void await(uint64_t number) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return happened >= number; });
  }
};

SoftwareDevice::SoftwareDevice(const Options& options)
    : options_(options), rules_(options.habits.strict), blocks_max_(options.blocks_max) {
  for (int i = 0; i < options.devices; ++i) {
    cooperative_.try_emplace(i);
  }
  for (int i = 0; i < options.habits.queues; ++i) {
    queues_.push_back(std::make_unique<HardwareQueue>());
  }
}
SoftwareDevice::~SoftwareDevice() = default;

// ---- calls of a CUDA user ----

void SoftwareDevice::set_current(int device) noexcept { current_device = device; }

DeviceStream SoftwareDevice::make_stream() {
  const std::lock_guard lock(mutex_);
  auto stream = std::make_unique<SoftwareStream>(next_queue());
  auto* const handle = reinterpret_cast<DeviceStream>(stream.get());
  made_.emplace(handle, std::move(stream));
  return handle;
}

void SoftwareDevice::destroy_stream(DeviceStream stream) {
  std::unique_ptr<SoftwareStream> owner;  // joins the thread outside of the lock
  const std::lock_guard lock(mutex_);
  owner = std::move(made_.at(stream));
  made_.erase(stream);
}

SoftwareStream& SoftwareDevice::stream_of(int device, DeviceStream stream) {
  const std::lock_guard lock(mutex_);
  if (stream != nullptr) {
    const auto at = made_.find(stream);
    if (at == made_.end()) {
      fault("use of a stream that does not exist", stream);
    }
    return *at->second;
  }
  auto& legacy = legacy_[device];
  if (legacy == nullptr) {
    legacy = std::make_unique<SoftwareStream>(next_queue());
  }
  return *legacy;
}

HardwareQueue* SoftwareDevice::next_queue() {
  return queues_.empty() ? nullptr : queues_[streams_made_++ % queues_.size()].get();
}

void SoftwareDevice::load_kernel_of_user() {
  if (options_.habits.driver_lock) {
    const std::lock_guard driver(driver_);
    rules_.await_kernels("a first launch");
  }
}

void SoftwareDevice::await_driver() {
  if (options_.habits.driver_lock) {
    const std::lock_guard driver(driver_);
  }
}
void SoftwareDevice::call_ordered(const char* call) {
  rules_.note_ordered(call);
  await_driver();
}
void SoftwareDevice::call_growing(const char* call) {
  rules_.note_growing(call);
  await_driver();
}
void SoftwareDevice::call_waiting(const char* call) {
  rules_.note_waiting(call);
  std::unique_lock<std::mutex> driver(driver_, std::defer_lock);
  if (options_.habits.driver_lock) {
    driver.lock();
  }
  if (options_.habits.free_waits) {
    rules_.await_kernels(call);
  }
}

void SoftwareDevice::synchronize(DeviceStream stream) {
  stream_of(current_device, stream).synchronize();
}

void SoftwareDevice::begin_capture(DeviceStream stream) {
  auto graph = std::make_shared<SoftwareGraph>();
  {
    const std::lock_guard lock(mutex_);
    graph->id = ++captures_;
  }
  stream_of(current_device, stream).graph = std::move(graph);
}

std::shared_ptr<SoftwareGraph> SoftwareDevice::end_capture(DeviceStream stream) {
  auto graph = stream_of(current_device, stream).graph;
  const std::lock_guard lock(mutex_);
  for (auto& [handle, made] : made_) {
    if (made->graph == graph) {
      made->graph = nullptr;
    }
  }
  return graph;
}

void SoftwareDevice::replay(const std::shared_ptr<SoftwareGraph>& graph, DeviceStream stream) {
  const auto jobs = std::make_shared<std::vector<std::function<void()>>>();
  for (const SoftwareGraph::Job& job : graph->jobs) {
    jobs->push_back(job());
  }
  stream_of(current_device, stream).add([graph, jobs] {
    for (const auto& job : *jobs) {
      job();
    }
  });
}

void SoftwareDevice::enqueue(DeviceStream stream, std::function<void()> job) {
  stream_of(current_device, stream).add(std::move(job));
}

size_t SoftwareDevice::live() const {
  const std::lock_guard lock(mutex_);
  return blocks_.size() + events_;
}

size_t SoftwareDevice::device_bytes() const {
  const std::lock_guard lock(mutex_);
  size_t bytes = 0;
  for (const auto& [address, block] : blocks_) {
    bytes += is_of_device(block.kind) ? block.size_bytes : 0;
  }
  return bytes;
}

size_t SoftwareDevice::imports() const {
  const std::lock_guard lock(mutex_);
  return static_cast<size_t>(std::count_if(blocks_.begin(), blocks_.end(), [](const auto& entry) {
    return entry.second.kind == Kind::kImported;
  }));
}

// ---- devices ----

Result<int> SoftwareDevice::current() { return current_device; }

Result<DeviceFacts> SoftwareDevice::describe(int device) {
  DeviceFacts facts;
  facts.name = "software device";
  facts.bus_id = fmt::format("0000:{:02x}:00.0", device + 1);
  std::memcpy(facts.uuid.data(), "software-device", facts.uuid.size() - 1);
  facts.uuid.back() = static_cast<uint8_t>(device);
  facts.compute_capability = 90;
  facts.memory_gb_per_s = 3000;
  return facts;
}

Result<bool> SoftwareDevice::can_reach(int device, int peer) {
  call_ordered("cudaDeviceCanAccessPeer");
  return device == peer || options_.reach_peers;
}

Result<void> SoftwareDevice::enable_reach(int device, int peer) {
  if (device != peer && !options_.reach_peers) {
    return fail(Code::kUnhandledCudaError, "cuda:{} cannot access cuda:{}", device, peer);
  }
  if (device != peer) {
    call_growing("cudaDeviceEnablePeerAccess");
  }
  const std::lock_guard lock(mutex_);
  enabled_.emplace(device, peer);
  return ok();
}

// ---- memory ----

void SoftwareDevice::add_block(void* memory, Block block) {
  const std::lock_guard lock(mutex_);
  blocks_.emplace(static_cast<const std::byte*>(memory), std::move(block));
}

void SoftwareDevice::remove_block(Kind kind, void* memory) noexcept {
  const std::lock_guard lock(mutex_);
  const auto at = blocks_.find(static_cast<const std::byte*>(memory));
  if (at == blocks_.end() || at->second.kind != kind) {
    fault("memory is given back that was not taken", memory);
  }
  blocks_.erase(at);
}

void* SoftwareDevice::allocate_private(int device, size_t size_bytes) {
  void* const memory = allocate(device, size_bytes).value();
  const std::lock_guard lock(mutex_);
  blocks_.at(static_cast<const std::byte*>(memory)).is_private = true;
  return memory;
}

bool SoftwareDevice::is_open_to_peers(int /*device*/, const void* pointer) noexcept {
  call_ordered("cuPointerGetAttribute");
  const std::lock_guard lock(mutex_);
  const auto after = blocks_.upper_bound(static_cast<const std::byte*>(pointer));
  return after == blocks_.begin() || !std::prev(after)->second.is_private;
}

bool SoftwareDevice::has_kind(Kind kind, const void* memory) const {
  const std::lock_guard lock(mutex_);
  const auto at = blocks_.find(static_cast<const std::byte*>(memory));
  return at != blocks_.end() && at->second.kind == kind;
}

Result<void*> SoftwareDevice::allocate_kind(Kind kind, int device, size_t size_bytes) {
  call_growing("cudaMalloc");
  clear();
  PLEXUS_TRY(shared, SharedMemory::create(size_bytes));
  void* const memory = shared.data();
  add_block(memory, {kind, device, size_bytes, std::move(shared)});
  return memory;
}
Result<void*> SoftwareDevice::allocate(int device, size_t size_bytes) {
  return allocate_kind(is_kept_for_reuse(size_bytes) ? Kind::kLasting : Kind::kDevice, device,
                       size_bytes);
}
Result<void*> SoftwareDevice::allocate_lasting(int device, size_t size_bytes) {
  return allocate_kind(Kind::kLasting, device, size_bytes);
}
void SoftwareDevice::release(int /*device*/, void* memory) noexcept {
  if (has_kind(Kind::kLasting, memory)) {  // no call of the driver
    remove_block(Kind::kLasting, memory);
    return;
  }
  if (has_kind(Kind::kPiece, memory)) {
    call_waiting("cuMemUnmap");
    remove_block(Kind::kPiece, memory);
    return;
  }
  call_waiting("cudaFree");
  remove_block(Kind::kDevice, memory);
}

/// Clearing memory and copies run on a stream of the library.
void SoftwareDevice::clear() {
  if (options_.habits.clearing_needs_room) {
    SoftwareStream& own = own_stream();
    own.add([] {});
    own.synchronize();
  }
}
SoftwareStream& SoftwareDevice::own_stream() {
  const std::lock_guard lock(mutex_);
  if (own_ == nullptr) {
    own_ = std::make_unique<SoftwareStream>(next_queue());
  }
  return *own_;
}

Result<void*> SoftwareDevice::allocate_pinned(int /*device*/, size_t size_bytes) {
  call_growing("cudaHostAlloc");
  PLEXUS_TRY(shared, SharedMemory::create(size_bytes));
  void* const memory = shared.data();
  add_block(memory, {Kind::kPinned, -1, size_bytes, std::move(shared)});
  return memory;
}
void SoftwareDevice::release_pinned(int /*device*/, void* memory) noexcept {
  call_waiting("cudaFreeHost");
  remove_block(Kind::kPinned, memory);
}

Result<void*> SoftwareDevice::register_host(int /*device*/, void* memory, size_t size_bytes) {
  call_growing("cudaHostRegister");
  const std::lock_guard lock(mutex_);
  const auto [at, is_new] = blocks_.try_emplace(static_cast<const std::byte*>(memory),
                                                Block{Kind::kRegistered, -1, size_bytes, {}});
  if (!is_new) {
    return fail(Code::kUnhandledCudaError, "the memory is registered already");
  }
  return memory;
}
void SoftwareDevice::unregister_host(int /*device*/, void* memory) noexcept {
  call_waiting("cudaHostUnregister");
  remove_block(Kind::kRegistered, memory);
}

Result<int> SoftwareDevice::blocks_max(int device) {
  call_ordered("cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  if (blocks_max_ == 0) {
    return fail(Code::kUnhandledCudaError, "this build has no code for cuda:{}", device);
  }
  return blocks_max_.load();
}

PointerFacts SoftwareDevice::describe_pointer(const void* pointer) noexcept {
  call_ordered("cudaPointerGetAttributes");
  const auto* const address = static_cast<const std::byte*>(pointer);
  const std::lock_guard lock(mutex_);
  auto at = blocks_.upper_bound(address);
  if (at == blocks_.begin() || address >= std::prev(at)->first + std::prev(at)->second.size_bytes) {
    return {};
  }
  --at;
  if (at->second.device < 0) {
    return {.place = PointerFacts::Place::kPinned};
  }
  return {.place = PointerFacts::Place::kDevice, .device = at->second.device};
}

Result<void> SoftwareDevice::copy(int /*device*/, void* to, const void* from, size_t size_bytes) {
  call_growing("cudaStreamSynchronize");
  clear();
  std::memcpy(to, from, size_bytes);
  return ok();
}

Result<Allocation> SoftwareDevice::find_allocation(int device,
                                                   const void* pointer,
                                                   size_t size_bytes) {
  call_ordered("cuMemGetAddressRange");
  const auto* const address = static_cast<const std::byte*>(pointer);
  const std::lock_guard lock(mutex_);
  auto at = blocks_.upper_bound(address);
  if (at == blocks_.begin() || address >= std::prev(at)->first + std::prev(at)->second.size_bytes ||
      !is_of_device(std::prev(at)->second.kind) || std::prev(at)->second.device != device) {
    return fail(Code::kInvalidArgument, "{} is not memory of cuda:{}", pointer, device);
  }
  --at;
  if (at->second.piece != nullptr) {
    return find_pieces(at, address + size_bytes);
  }
  return Allocation{.base = at->second.shared.data(),
                    .size_bytes = at->second.size_bytes,
                    .id = at->second.shared.id()};
}

Result<MemoryHandle> SoftwareDevice::export_memory(int /*device*/, void* memory) {
  call_growing("cudaIpcGetMemHandle");
  const std::lock_guard lock(mutex_);
  const Block& block = blocks_.at(static_cast<const std::byte*>(memory));
  if (block.size_bytes % kExportGranule != 0 || block.is_private) {
    return fail(Code::kUnhandledCudaError, "{} bytes cannot be exported", block.size_bytes);
  }
  const ExportedPlace place{block.shared.id(), block.shared.size(), getpid(), block.shared.fd()};
  MemoryHandle handle;
  std::memcpy(handle.bytes.data(), &place, sizeof(place));
  return handle;
}

Result<void*> SoftwareDevice::import_memory(int device, const MemoryHandle& handle) {
  ExportedPlace place{};
  std::memcpy(&place, handle.bytes.data(), sizeof(place));
  call_growing("cudaIpcOpenMemHandle");
  if (options_.habits.refuses_ipc) {
    return fail(Code::kUnhandledCudaError, "cudaIpcOpenMemHandle: operation not supported");
  }
  if (place.pid == getpid()) {
    return fail(Code::kUnhandledCudaError, "the handle is of this process");
  }
  PLEXUS_TRY(
      shared,
      SharedMemory::open_peer(
          {.pid = place.pid, .fd = place.fd, .size_bytes = place.size_bytes, .id = place.id}));
  void* const memory = shared.data();
  add_block(memory, {Kind::kImported, device, place.size_bytes, std::move(shared)});
  return memory;
}
void SoftwareDevice::close_imported(int /*device*/, void* memory) noexcept {
  call_waiting("cudaIpcCloseMemHandle");
  remove_block(Kind::kImported, memory);
}

/// A memfd replaces the dma-buf: its pages after the one with the mark are the memory.
Result<Dmabuf> SoftwareDevice::export_dmabuf(int device, void* memory, size_t size_bytes) {
  constexpr uint64_t kPage = 4096;
  call_growing("cuMemGetHandleForAddressRange");
  const std::lock_guard lock(mutex_);
  const auto at = blocks_.find(static_cast<const std::byte*>(memory));
  if (!options_.exports_dmabufs || at == blocks_.end() || !is_of_device(at->second.kind) ||
      at->second.piece != nullptr || at->second.device != device || size_bytes % kPage != 0) {
    return fail(Code::kUnhandledCudaError, "cuda:{} cannot export {} bytes as a dma-buf", device,
                size_bytes);
  }
  return Dmabuf{.fd = fcntl(at->second.shared.fd(), F_DUPFD_CLOEXEC, 0), .offset_bytes = kPage};
}

// ---- order ----

Result<DeviceEvent> SoftwareDevice::make_event(int /*device*/) {
  call_growing("cudaEventCreateWithFlags");
  const auto made = std::make_shared<Event>();
  made->self = made;
  const std::lock_guard lock(mutex_);
  ++events_;
  return reinterpret_cast<DeviceEvent>(made.get());
}
void SoftwareDevice::destroy_event(int /*device*/, DeviceEvent event) noexcept {
  call_growing("cudaEventDestroy");
  // As in CUDA, streams that are still to record it or wait for it do so.
  const std::shared_ptr<Event> owner = std::move(reinterpret_cast<Event*>(event)->self);
  const std::lock_guard lock(mutex_);
  --events_;
}

Result<void> SoftwareDevice::record(int device, DeviceEvent event, DeviceStream stream) {
  call_ordered("cudaEventRecord");
  auto& made = *reinterpret_cast<Event*>(event);
  SoftwareStream& on = stream_of(device, stream);
  const std::lock_guard lock(made.mutex);
  made.graph = on.graph;
  if (on.graph == nullptr) {
    on.add([kept = made.self, number = ++made.recorded] { kept->happen(number); });
  }
  return ok();
}

Result<void> SoftwareDevice::wait(int device, DeviceStream stream, DeviceEvent event) {
  call_ordered("cudaStreamWaitEvent");
  auto& made = *reinterpret_cast<Event*>(event);
  SoftwareStream& on = stream_of(device, stream);
  const std::lock_guard lock(made.mutex);
  if (made.graph != nullptr) {  // the stream joins the capture
    if (on.graph != nullptr && on.graph != made.graph) {
      return fail(Code::kUnhandledCudaError, "the event is of another graph");
    }
    on.graph = made.graph;
    return ok();
  }
  if (on.graph != nullptr) {
    return fail(Code::kUnhandledCudaError, "the event is of no graph, the stream is captured");
  }
  on.add([kept = made.self, number = made.recorded] { kept->await(number); }, true);
  return ok();
}

Result<void> SoftwareDevice::record_at_replay(int device, DeviceEvent event, DeviceStream stream) {
  call_ordered("cudaEventRecordWithFlags");
  SoftwareStream& on = stream_of(device, stream);
  if (on.graph == nullptr) {
    return fail(Code::kUnhandledCudaError, "the stream is not captured");
  }
  on.add_to_graph([kept = reinterpret_cast<Event*>(event)->self]() -> std::function<void()> {
    const std::lock_guard lock(kept->mutex);
    return [kept, number = ++kept->recorded] { kept->happen(number); };
  });
  return ok();
}

Result<void> SoftwareDevice::wait_at_replay(int device, DeviceStream stream, DeviceEvent event) {
  call_ordered("cudaStreamWaitEvent");
  SoftwareStream& on = stream_of(device, stream);
  if (on.graph == nullptr) {
    return fail(Code::kUnhandledCudaError, "the stream is not captured");
  }
  on.add_to_graph([kept = reinterpret_cast<Event*>(event)->self]() -> std::function<void()> {
    const std::lock_guard lock(kept->mutex);
    return [kept, number = kept->recorded] { kept->await(number); };
  });
  return ok();
}

bool SoftwareDevice::has_happened(DeviceEvent event) {
  auto& made = *reinterpret_cast<Event*>(event);
  const std::lock_guard lock(made.mutex);
  return made.happened == made.recorded;
}

Result<Capture> SoftwareDevice::capture(int device, DeviceStream stream) {
  call_ordered("cudaStreamGetCaptureInfo");
  const auto graph = stream_of(device, stream).graph;
  return graph == nullptr ? Capture{} : Capture{.active = true, .id = graph->id};
}

Result<void> SoftwareDevice::call_host(int device,
                                       DeviceStream stream,
                                       void (*function)(void*),
                                       void* argument) {
  call_ordered("cudaLaunchHostFunc");
  stream_of(device, stream).add([function, argument] {
    call_in_drivers_thread(function, argument);
  });
  return ok();
}

Result<void> SoftwareDevice::call_after_graph(int device,
                                              DeviceStream stream,
                                              void (*function)(void*),
                                              void* argument) {
  call_ordered("cudaGraphRetainUserObject");
  const auto graph = stream_of(device, stream).graph;
  if (graph == nullptr) {
    return fail(Code::kUnhandledCudaError, "the stream is not captured");
  }
  graph->afterwards.emplace_back([function, argument] { function(argument); });
  return ok();
}

Result<void> SoftwareDevice::find_fault(int device) {
  rules_.note_waiting("cudaStreamQuery");
  await_driver();
  if (faulty_ == device) {
    return fail(Code::kUnhandledCudaError, "a kernel failed on cuda:{}", device);
  }
  return ok();
}

// ---- launches ----

bool SoftwareDevice::reaches(int device, const void* memory, size_t size_bytes) const {
  const auto* const address = static_cast<const std::byte*>(memory);
  const std::lock_guard lock(mutex_);
  auto at = blocks_.upper_bound(address);
  if (at == blocks_.begin()) {
    return false;
  }
  --at;
  const Block& block = at->second;
  return address + size_bytes <= at->first + block.size_bytes &&
         (block.device < 0 || block.device == device ||
          (!block.is_private && enabled_.count({device, block.device}) != 0));
}

/// The receiver's kernels read what a sender's address names.
void SoftwareDevice::check_borrowing(int device,
                                     const DeviceWork& work,
                                     const DeviceSend& send) const {
  const auto block_of = [this](const void* memory) {
    return std::prev(blocks_.upper_bound(static_cast<const std::byte*>(memory)))->second.device;
  };
  const std::lock_guard lock(mutex_);
  const auto at = blocks_.upper_bound(work.input);
  if (send.by_address == 0 || work.input == nullptr || at == blocks_.begin() ||
      !std::prev(at)->second.is_private || block_of(send.fifo) == device) {
    return;
  }
  if (!work.closes_output || work.borrow_bytes_min != UINT32_MAX) {
    fault("an address is sent that the peer's device cannot read", work.input);
  }
}

void SoftwareDevice::check_work(int device, const DeviceWork& work) const {
  const auto check = [&](const void* memory, size_t size_bytes, const char* what) {
    if (!reaches(device, memory, size_bytes)) {
      fault(what, memory);
    }
  };
  const auto check_slots = [&](const std::byte* slots, uint64_t stride) {
    if (slots != nullptr) {
      check(slots, kSlots * stride - sizeof(SlotHeader), "slots out of reach");
    }
  };
  check(&work, sizeof(work), "a work out of reach");
  check(work.control, sizeof(DeviceControl), "a control out of reach");
  if (work.geometry.part_count > 0 && work.input != nullptr) {
    check(work.input, 1, "an input out of reach");
  }
  if (work.geometry.part_count > 0 && work.output != nullptr) {
    check(work.output, 1, "an output out of reach");
  }
  for (uint32_t lane = 0; lane < work.lane_count; ++lane) {
    const DeviceLane& steps = work.lanes[lane];
    check(steps.steps, steps.step_count * sizeof(Step), "steps out of reach");
    for (uint32_t s = 0; s < steps.step_count; ++s) {
      const Step& step = steps.steps[s];
      // A step that moves nothing has no connections.
      for (int peer = 0; peer < step.receives; ++peer) {
        if (const DeviceRecv* const recv = work.recvs[step.peers_first + peer]; recv != nullptr) {
          check(recv->fifo, sizeof(Fifo), "a Fifo out of reach");
          check_slots(recv->data, recv->slot_stride);
        }
      }
      for (int peer = 0; peer < step.sends; ++peer) {
        if (const DeviceSend* const send = work.sends[step.peers_first + step.receives + peer];
            send != nullptr) {
          check_borrowing(device, work, *send);
          check(send->fifo, sizeof(Fifo), "a Fifo out of reach");
          const int index = step.peers_first + step.receives + peer;
          check_slots(work.slots == nullptr ? send->data : work.slots[index], send->slot_stride);
        }
      }
    }
  }
}

void SoftwareDevice::check_launch(int device, const DeviceBlock* blocks, uint32_t count) const {
  const auto check = [&](const void* memory, size_t size_bytes, const char* what) {
    if (!reaches(device, memory, size_bytes)) {
      fault(what, memory);
    }
  };
  check(blocks, count * sizeof(DeviceBlock), "blocks out of reach");
  for (uint32_t i = 0; i < count; ++i) {
    for (const DeviceQueue* queue = &blocks[i].queue; queue != nullptr; queue = queue->next) {
      check(queue, sizeof(*queue), "a queue out of reach");
      check(queue->barrier, sizeof(DeviceBarrier), "a queue's counter out of reach");
      for (uint32_t w = 0; w < queue->work_count; ++w) {
        check_work(device, queue->works[w]);
      }
    }
  }
}

void SoftwareDevice::count_loans(const DeviceBlock* blocks, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    const DeviceQueue& queue = blocks[i].queue;  // the first one of those in turn
    for (uint32_t w = 0; w < queue.work_count; ++w) {
      const DeviceWork& work = queue.works[w];
      const DeviceLane& lane = work.lanes[std::min(blocks[i].lane, work.lane_count - 1)];
      for (uint32_t s = 0; work.loans != nullptr && s < lane.step_count; ++s) {
        const int first = lane.steps[s].peers_first + lane.steps[s].receives;
        for (int peer = first; peer < first + lane.steps[s].sends; ++peer) {
          const DeviceLoan& loan = work.loans[peer];
          loans_ += (loan.input != kNotMapped ? 1 : 0) + (loan.output != kNotMapped ? 1 : 0);
        }
      }
    }
  }
}

void SoftwareDevice::run_blocks(int device, const DeviceBlock* blocks, uint32_t count) {
  check_launch(device, blocks, count);
  count_loans(blocks, count);
  std::unique_lock<std::mutex> alone;
  if (options_.habits.cooperative_alone) {
    alone = std::unique_lock(cooperative_.at(device));
  }
  struct Running {
    explicit Running(uint32_t threads) : rendezvous(threads) {}
    BlockState state;
    test::Rendezvous rendezvous;
  };
  const uint32_t members = options_.habits.block_threads;
  std::deque<Running> running;
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < count; ++i) {
    Running& mine = running.emplace_back(members);
    for (uint32_t member = 0; member < members; ++member) {
      threads.emplace_back([&block = blocks[i], &mine, member, members] {
        run_block(test::HostBlock(member, members, mine.rendezvous), mine.state, block);
      });
    }
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

/// As a kernel of which a thread accesses memory that is not there: it tells nobody of its end.
void SoftwareDevice::run_or_fail(int device, const DeviceBlock* blocks, uint32_t count) {
  if (breaks_ == device) {
    faulty_ = device;
  }
  if (faulty_ != device) {
    run_blocks(device, blocks, count);
  }
  rules_.end_kernel();
}

Result<void> SoftwareDevice::launch(
    int device, DeviceStream stream, const DeviceBlock* blocks, uint32_t count, uint32_t threads) {
  constexpr uint32_t kWarp = 32;
  call_ordered("cudaLaunchCooperativeKernel");
  if (threads == 0 || threads % kWarp != 0 || threads > kDeviceThreadsMax) {
    return fail(Code::kUnhandledCudaError, "a launch of blocks of {} threads", threads);
  }
  if (count > static_cast<uint32_t>(blocks_max_.load())) {
    return fail(Code::kUnhandledCudaError, "a launch of {} blocks is too large", count);
  }
  uint32_t most = blocks_most_.load();
  while (most < count && !blocks_most_.compare_exchange_weak(most, count)) {
  }
  SoftwareStream& on = stream_of(device, stream);
  const auto run = [this, device, blocks, count] { run_or_fail(device, blocks, count); };
  if (on.graph != nullptr) {
    on.graph->kernels.push_back({.blocks = count, .threads = threads});
    on.add_to_graph([this, run]() -> std::function<void()> {
      rules_.begin_kernel();
      return run;
    });
    return ok();
  }
  rules_.begin_kernel();
  on.add(run);
  if (options_.habits.launch_blocking) {
    on.synchronize();
  }
  return ok();
}

}  // namespace plexus::testing_device
