// SPDX-License-Identifier: Apache-2.0
// User-defined reductions, user memory and host streams: the rest of communicator_calls.hpp.
#include <algorithm>

#include <fmt/format.h>

#include "core/comm/communicator.hpp"
#include "core/comm/process.hpp"
#include "core/device/choose_device.hpp"

namespace plexus {
namespace {

constexpr int kSum = 0;
constexpr int kProd = 1;
constexpr int kMax = 2;
constexpr int kMin = 3;
constexpr int kAvg = 4;

}  // namespace

// ---- reductions ----

Result<int> create_premul_sum(Communicator& comm,
                              DataType type,
                              const void* scalar,
                              bool scalar_on_device) {
  Communicator::UserReduction reduction{
      .type = type, .op = ReduceOp::premul_sum(0), .scalar = nullptr};
  if (scalar_on_device) {
    reduction.scalar =
        scalar;  // read when the call runs; on host ranks, "device" memory is host memory
  } else {
    reduction.op.load_scalar(scalar, type);
  }
  return comm.add_reduction(reduction);
}

Result<void> destroy_reduction(Communicator& comm, int op) {
  if (!comm.remove_reduction(op)) {
    return fail(Code::kInvalidArgument, "{} is no user-defined reduction of this communicator", op);
  }
  return ok();
}

Result<void> resolve_reduction(Communicator& comm, int op, DataType type, Task* task) {
  switch (op) {
    case kSum:
      task->op = ReduceOp::plain(ReduceKind::kSum);
      return ok();
    case kProd:
      task->op = ReduceOp::plain(ReduceKind::kProd);
      return ok();
    case kMax:
      task->op = ReduceOp::plain(ReduceKind::kMax);
      return ok();
    case kMin:
      task->op = ReduceOp::plain(ReduceKind::kMin);
      return ok();
    case kAvg:
      task->op = ReduceOp::average(type, static_cast<uint32_t>(comm.nranks()));
      return ok();
    default:
      break;
  }
  const Communicator::UserReduction* const reduction = comm.find_reduction(op);
  if (reduction == nullptr) {
    return fail(
        Code::kInvalidArgument,
        "op {} is neither a built-in reduction nor one that ncclRedOpCreatePreMulSum made for this "
        "communicator",
        op);
  }
  if (reduction->type != type) {
    return fail(Code::kInvalidArgument, "op {} was made for {}, not for {}", op,
                name(reduction->type), name(type));
  }
  task->op = reduction->op;
  task->scalar = reduction->scalar;
  return ok();
}

// ---- memory ----

Result<void*> allocate_memory(size_t size_bytes) {
  Process& process = Process::instance();
  PLEXUS_TRY(config, process.read_settings());
  PLEXUS_TRY(device, choose_device(process.devices(), config.device, kHostDevice));
  return device == kHostDevice ? process.memory.allocate(size_bytes)
                               : process.memory.allocate_on(*process.devices(), device, size_bytes);
}
Result<void> free_memory(void* pointer) { return Process::instance().memory.release(pointer); }

namespace {

/// CUDA ranks in other processes may read it in place.
void begin_peer_mapping(const Communicator& comm, const void* buffer, size_t size_bytes) {
  if (comm.peer_mapped() != nullptr && comm.setup().config.local_register) {
    comm.peer_mapped()->add(buffer, size_bytes);
  }
}

/// Unless the buffer is registered in another way too.
void end_peer_mapping(const Communicator& comm, const void* buffer) {
  const bool in_window =
      std::any_of(comm.windows.begin(), comm.windows.end(),
                  [&](const auto& entry) { return entry.second->buffer == buffer; });
  if (comm.peer_mapped() != nullptr && !in_window && comm.registrations.count(buffer) == 0) {
    comm.peer_mapped()->remove(buffer);
  }
}

}  // namespace

Result<void*> register_buffer(Communicator& comm, void* buffer, size_t size_bytes) {
  ++comm.registrations[buffer];
  begin_peer_mapping(comm, buffer, size_bytes);
  return buffer;
}

Result<void> deregister_buffer(Communicator& comm, void* handle) {
  const auto at = comm.registrations.find(handle);
  if (at == comm.registrations.end()) {
    return fail(Code::kInvalidUsage, "{} is no registration of this communicator",
                fmt::ptr(handle));
  }
  if (--at->second == 0) {
    comm.registrations.erase(at);
    end_peer_mapping(comm, handle);
  }
  return ok();
}

Result<void*> register_window(Communicator& comm, void* buffer, size_t size_bytes, int /*flags*/) {
  auto window = std::make_unique<Communicator::Window>(Communicator::Window{buffer, size_bytes});
  void* const handle = window.get();
  comm.windows.emplace(handle, std::move(window));
  begin_peer_mapping(comm, buffer, size_bytes);
  return handle;
}

Result<void> deregister_window(Communicator& comm, void* window) {
  const auto at = comm.windows.find(window);
  if (at == comm.windows.end()) {
    return fail(Code::kInvalidArgument, "{} is no window of this communicator", fmt::ptr(window));
  }
  const void* const buffer = at->second->buffer;
  comm.windows.erase(at);
  end_peer_mapping(comm, buffer);
  return ok();
}

Result<void*> window_user_pointer(Communicator& comm, void* window) {
  const auto at = comm.windows.find(window);
  if (at == comm.windows.end()) {
    return fail(Code::kInvalidArgument, "{} is no window of this communicator", fmt::ptr(window));
  }
  return at->second->buffer;
}

// ---- streams ----

Result<HostStream*> create_host_stream() {
  PLEXUS_TRY(Process::instance().async.start());
  return Process::instance().create_stream();
}
Result<void> destroy_host_stream(HostStream* stream) {
  return Process::instance().destroy_stream(stream);
}
Result<void> wait_host_stream(HostStream* stream) { return stream->wait(); }
Result<bool> query_host_stream(HostStream* stream) { return stream->query(); }
HostStream* find_host_stream(const void* handle) noexcept {
  return Process::instance().find_stream(handle);
}

Result<void> wait_for_event(HostStream* stream, const HostEvent& event) {
  auto mark = event.last();
  if (mark == nullptr || (mark->reached() && mark->error() == nullptr)) {
    return ok();
  }
  Process::instance().async.submit({.parts = {}, .streams = {stream}, .after = std::move(mark)});
  return ok();
}

Result<void> launch_host_function(HostStream* stream, std::function<void()> function) {
  Process::instance().async.submit(
      {.parts = {}, .streams = {stream}, .function = std::move(function)});
  return ok();
}

// ---- events ----

Result<HostEvent*> create_host_event() { return Process::instance().create_event(); }
Result<void> destroy_host_event(const void* handle) {
  return Process::instance().destroy_event(handle);
}
Result<std::shared_ptr<HostEvent>> find_host_event(const void* handle) {
  auto event = Process::instance().find_event(handle);
  if (event == nullptr) {
    return fail(Code::kInvalidArgument,
                "the event was not made by plexusEventCreate, or is destroyed already");
  }
  return event;
}

}  // namespace plexus
