// SPDX-License-Identifier: Apache-2.0
// Copies and memsets. Small ones are done at their turn by the thread that moves the data of all
// streams, larger ones by threads of their own. As CUDA has it, calls that name pageable memory
// have read or written it when they return.
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/units.hpp"
#include "integrations/cudart/call.hpp"
#include "integrations/cudart/include/cuda_runtime_api.h"
#include "integrations/cudart/runtime.hpp"

namespace plexus::cudart {
namespace {

constexpr size_t kShortMax = 64_KiB;

/// `depth` times `height` rows of `width` bytes.
struct Box {
  size_t width = 0;
  size_t height = 1;
  size_t depth = 1;
  [[nodiscard]] size_t bytes() const noexcept { return width * height * depth; }
};

/// Where its rows are: `pitch` bytes from one to the next, `rows` rows from one layer to the next.
struct Side {
  std::byte* data = nullptr;
  size_t pitch = 0;
  size_t rows = 1;

  [[nodiscard]] std::byte* row(size_t y, size_t z) const noexcept {
    return data + (z * rows + y) * pitch;
  }
  /// From the first byte to behind the last.
  [[nodiscard]] size_t span(const Box& box) const noexcept {
    return box.bytes() == 0
               ? 0
               : static_cast<size_t>(row(box.height - 1, box.depth - 1) - data) + box.width;
  }
};

Side side(const void* memory, size_t pitch = 0, size_t rows = 1) {
  // NOLINTNEXTLINE(*-const-cast): one type for both sides; what is read is not written
  return {.data = static_cast<std::byte*>(const_cast<void*>(memory)), .pitch = pitch, .rows = rows};
}

void move_box(const Side& to, const Side& from, const Box& box) {
  for (size_t z = 0; z < box.depth; ++z) {
    for (size_t y = 0; y < box.height; ++y) {
      std::memmove(to.row(y, z), from.row(y, z), box.width);
    }
  }
}

void fill_box(const Side& to, int value, const Box& box) {
  for (size_t z = 0; z < box.depth; ++z) {
    for (size_t y = 0; y < box.height; ++y) {
      std::memset(to.row(y, z), value, box.width);
    }
  }
}

/// What one side of a copy is.
struct Place {
  bool is_known = false;  // CUDA's
  bool is_host = true;    // the host reads it as its own: pageable, pinned, registered
};

cudaError_t find_place(const Side& at, size_t bytes, const char* what, Place* place) {
  PLEXUS_CUDART_TRY(check_pointer(at.data, what));
  const auto found = Runtime::instance().memory.find(at.data);
  if (!found.has_value()) {
    *place = {};
    return cudaSuccess;
  }
  const auto offset = static_cast<size_t>(at.data - found->data);
  if (bytes > found->size_bytes - offset && found->kind != MemoryKind::kRegistered) {
    return refuse(cudaErrorInvalidValue,
                  "{} bytes at {} ({}) pass the end of its allocation, which has {} from there on",
                  bytes, fmt::ptr(at.data), what, found->size_bytes - offset);
  }
  *place = {.is_known = true, .is_host = found->is_host()};
  return cudaSuccess;
}

cudaError_t check_kind(cudaMemcpyKind kind, const Place& to, const Place& from) {
  switch (kind) {
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
      return cudaSuccess;
    case cudaMemcpyHostToDevice:
    case cudaMemcpyDeviceToHost:
    case cudaMemcpyDeviceToDevice:
      break;
    default:
      return refuse(cudaErrorInvalidMemcpyDirection, "the kind of the copy is {}",
                    static_cast<int>(kind));
  }
  const bool to_device = kind != cudaMemcpyDeviceToHost;
  const bool from_device = kind != cudaMemcpyHostToDevice;
  if ((to_device && !to.is_known) || (from_device && !from.is_known)) {
    return refuse(cudaErrorInvalidValue,
                  "the kind of the copy says that the {} is memory of a device, but CUDA does not "
                  "know it",
                  to_device && !to.is_known ? "destination" : "source");
  }
  return cudaSuccess;
}

enum class Wait { kYes, kIfPageable };

/// A copy or memset as PLEXUS_CHECK=1 sees it: which memory it uses, in whole rows.
using Uses = std::vector<plexusUse>;

void add_use(Uses& uses, const Side& at, const Box& box, bool writes) {
  const bool is_dense = box.height * box.depth == 1 || at.pitch == box.width;
  if (is_dense) {  // else rows of others may lie between
    uses.push_back({.data = at.data, .size_bytes = at.span(box), .writes = writes ? 1 : 0});
  }
}

void note_work(cudaStream_t handle, const Uses& uses) {
  if (Runtime::instance().checks) {
    plexusNoteWork(current_function(), handle, uses.data(), static_cast<int>(uses.size()));
  }
}

struct Piece {
  size_t bytes;
  cudaGraphNodeType type;
  Uses uses{};
};

/// Puts `work` on the stream, or does it here where the stream is idle and the caller waits anyway.
cudaError_t put_on(cudaStream_t stream, bool waits, Piece piece, std::function<void()> work) {
  Runtime& runtime = Runtime::instance();
  std::shared_ptr<Stream> found;
  PLEXUS_CUDART_TRY(runtime.streams.find(stream, &found));
  const bool is_captured = runtime.streams.capture_of(*found) != nullptr;
  if (waits && is_captured && found->is_legacy) {
    return refuse(cudaErrorStreamCaptureUnsupported, "the stream is captured");
  }
  if (waits && !is_captured) {
    PLEXUS_CUDART_TRY(runtime.streams.begin_work(*found));
    if (plexusStreamIsIdle(found->handle) != 0) {
      note_work(found->handle, piece.uses);
      work();
      return runtime.checks ? runtime.streams.synchronize(stream) : cudaSuccess;
    }
  }
  Worker* const worker = piece.bytes > kShortMax ? &runtime.copies : nullptr;
  PLEXUS_CUDART_TRY(runtime.streams.enqueue(
      stream, piece.type,
      [worker, uses = std::move(piece.uses), work = std::move(work)](cudaStream_t handle) {
        note_work(handle, uses);
        return issue_work(handle, worker, work);
      }));
  return waits && !is_captured ? runtime.streams.synchronize(stream) : cudaSuccess;
}

cudaError_t copy(const Side& to,
                 const Side& from,
                 const Box& box,
                 cudaMemcpyKind kind,
                 std::pair<cudaStream_t, Wait> where) {
  const auto [stream, wait] = where;
  PLEXUS_CUDART_TRY(check_device(current_device()));
  PLEXUS_CUDART_TRY(Runtime::instance().streams.check(stream));
  if (box.bytes() == 0) {
    return cudaSuccess;
  }
  Place to_place;
  Place from_place;
  PLEXUS_CUDART_TRY(find_place(to, to.span(box), "the destination", &to_place));
  PLEXUS_CUDART_TRY(find_place(from, from.span(box), "the source", &from_place));
  PLEXUS_CUDART_TRY(check_kind(kind, to_place, from_place));
  Piece piece{.bytes = box.bytes(), .type = cudaGraphNodeTypeMemcpy};
  if (Runtime::instance().checks) {
    add_use(piece.uses, from, box, false);
    add_use(piece.uses, to, box, true);
  }
  // A copy within devices does not hold up the host, even when it is not asynchronous.
  const bool is_within_devices = !to_place.is_host && !from_place.is_host;
  const bool waits = wait == Wait::kYes ? !is_within_devices : !to_place.is_known;
  if (!waits && !from_place.is_known && box.bytes() <= kShortMax) {
    auto staged = std::make_shared<std::vector<std::byte>>(box.bytes());
    const Side stage{.data = staged->data(), .pitch = box.width, .rows = box.height};
    std::shared_ptr<Stream> found;
    PLEXUS_CUDART_TRY(Runtime::instance().streams.find(stream, &found));
    if (Runtime::instance().streams.capture_of(*found) == nullptr) {
      move_box(stage, from, box);
      return put_on(stream, false, std::move(piece),
                    [to, stage, box, staged = std::move(staged)] { move_box(to, stage, box); });
    }
  }
  return put_on(stream, waits || !from_place.is_known, std::move(piece),
                [to, from, box] { move_box(to, from, box); });
}

cudaError_t fill(const Side& to, int value, const Box& box, std::pair<cudaStream_t, Wait> where) {
  PLEXUS_CUDART_TRY(check_device(current_device()));
  PLEXUS_CUDART_TRY(Runtime::instance().streams.check(where.first));
  if (box.bytes() == 0) {
    return cudaSuccess;
  }
  Place place;
  PLEXUS_CUDART_TRY(find_place(to, to.span(box), "the memory", &place));
  if (!place.is_known) {
    return refuse(cudaErrorInvalidValue, "{} is no memory that CUDA knows", fmt::ptr(to.data));
  }
  const bool waits = where.second == Wait::kYes && place.is_host;
  Piece piece{.bytes = box.bytes(), .type = cudaGraphNodeTypeMemset};
  if (Runtime::instance().checks) {
    add_use(piece.uses, to, box, true);
  }
  return put_on(where.first, waits, std::move(piece),
                [to, value, box] { fill_box(to, value, box); });
}

cudaError_t check_pitch(size_t width, size_t pitch) {
  return width <= pitch ? cudaSuccess
                        : refuse(cudaErrorInvalidPitchValue,
                                 "rows of {} bytes do not fit into a pitch of {}", width, pitch);
}

struct Rows {
  size_t to_pitch;
  size_t from_pitch;
  size_t width;
  size_t height;
};

cudaError_t copy_2d(void* to,
                    const void* from,
                    const Rows& rows,
                    cudaMemcpyKind kind,
                    std::pair<cudaStream_t, Wait> where) {
  PLEXUS_CUDART_TRY(check_pitch(rows.width, rows.to_pitch));
  PLEXUS_CUDART_TRY(check_pitch(rows.width, rows.from_pitch));
  return copy(side(to, rows.to_pitch), side(from, rows.from_pitch),
              {.width = rows.width, .height = rows.height}, kind, where);
}

cudaError_t copy_3d(const cudaMemcpy3DParms* parameters, std::pair<cudaStream_t, Wait> where) {
  PLEXUS_CUDART_TRY(check_pointer(parameters, "the parameters"));
  const cudaMemcpy3DParms& p = *parameters;
  if (p.srcArray != nullptr || p.dstArray != nullptr) {
    return refuse(cudaErrorNotSupported, "there are no arrays over host memory");
  }
  PLEXUS_CUDART_TRY(check_pitch(p.extent.width, p.dstPtr.pitch));
  PLEXUS_CUDART_TRY(check_pitch(p.extent.width, p.srcPtr.pitch));
  Side to = side(p.dstPtr.ptr, p.dstPtr.pitch, p.dstPtr.ysize);
  Side from = side(p.srcPtr.ptr, p.srcPtr.pitch, p.srcPtr.ysize);
  to.data = to.row(p.dstPos.y, p.dstPos.z) + p.dstPos.x;
  from.data = from.row(p.srcPos.y, p.srcPos.z) + p.srcPos.x;
  return copy(to, from,
              {.width = p.extent.width, .height = p.extent.height, .depth = p.extent.depth}, p.kind,
              where);
}

cudaError_t copy_peer(void* to,
                      const void* from,
                      size_t bytes,
                      std::pair<int, int> devices,
                      std::pair<cudaStream_t, Wait> where) {
  PLEXUS_CUDART_TRY(check_device(devices.first));
  PLEXUS_CUDART_TRY(check_device(devices.second));
  return copy(side(to), side(from), {.width = bytes}, cudaMemcpyDeviceToDevice, where);
}

}  // namespace
}  // namespace plexus::cudart

using namespace plexus::cudart;  // NOLINT(google-build-using-namespace): as all of this file

PLEXUS_CUDART cudaError_t cudaMemcpy(void* to,
                                     const void* from,
                                     size_t bytes,
                                     cudaMemcpyKind kind) {
  return call("cudaMemcpy", [&] {
    return copy(side(to), side(from), {.width = bytes}, kind, {nullptr, Wait::kYes});
  });
}
PLEXUS_CUDART cudaError_t cudaMemcpy_ptds(void* to,
                                          const void* from,
                                          size_t bytes,
                                          cudaMemcpyKind kind) {
  return call("cudaMemcpy", [&] {
    return copy(side(to), side(from), {.width = bytes}, kind, {cudaStreamPerThread, Wait::kYes});
  });
}
PLEXUS_CUDART cudaError_t cudaMemcpyAsync(
    void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return call("cudaMemcpyAsync", [&] {
    return copy(side(to), side(from), {.width = bytes}, kind, {stream, Wait::kIfPageable});
  });
}
PLEXUS_CUDART cudaError_t
cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device, size_t bytes) {
  return call("cudaMemcpyPeer", [&] {
    return copy_peer(to, from, bytes, {to_device, from_device}, {nullptr, Wait::kYes});
  });
}
// NOLINTBEGIN(readability-function-size): the numbers of parameters are CUDA's
PLEXUS_CUDART cudaError_t cudaMemcpyPeerAsync(
    void* to, int to_device, const void* from, int from_device, size_t bytes, cudaStream_t stream) {
  return call("cudaMemcpyPeerAsync", [&] {
    return copy_peer(to, from, bytes, {to_device, from_device}, {stream, Wait::kIfPageable});
  });
}
PLEXUS_CUDART cudaError_t cudaMemcpy2D(void* to,
                                       size_t to_pitch,
                                       const void* from,
                                       size_t from_pitch,
                                       size_t width,
                                       size_t height,
                                       cudaMemcpyKind kind) {
  return call("cudaMemcpy2D", [&] {
    return copy_2d(to, from, {to_pitch, from_pitch, width, height}, kind, {nullptr, Wait::kYes});
  });
}
PLEXUS_CUDART cudaError_t cudaMemcpy2D_ptds(void* to,
                                            size_t to_pitch,
                                            const void* from,
                                            size_t from_pitch,
                                            size_t width,
                                            size_t height,
                                            cudaMemcpyKind kind) {
  return call("cudaMemcpy2D", [&] {
    return copy_2d(to, from, {to_pitch, from_pitch, width, height}, kind,
                   {cudaStreamPerThread, Wait::kYes});
  });
}
PLEXUS_CUDART cudaError_t cudaMemcpy2DAsync(void* to,
                                            size_t to_pitch,
                                            const void* from,
                                            size_t from_pitch,
                                            size_t width,
                                            size_t height,
                                            cudaMemcpyKind kind,
                                            cudaStream_t stream) {
  return call("cudaMemcpy2DAsync", [&] {
    return copy_2d(to, from, {to_pitch, from_pitch, width, height}, kind,
                   {stream, Wait::kIfPageable});
  });
}
// NOLINTEND(readability-function-size)
PLEXUS_CUDART cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* parameters) {
  return call("cudaMemcpy3D", [&] { return copy_3d(parameters, {nullptr, Wait::kYes}); });
}
PLEXUS_CUDART cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* parameters,
                                            cudaStream_t stream) {
  return call("cudaMemcpy3DAsync", [&] {
    return copy_3d(parameters, {stream, Wait::kIfPageable});
  });
}
PLEXUS_CUDART cudaError_t cudaMemset(void* memory, int value, size_t bytes) {
  return call("cudaMemset", [&] {
    return fill(side(memory), value, {.width = bytes}, {nullptr, Wait::kYes});
  });
}
PLEXUS_CUDART cudaError_t cudaMemset_ptds(void* memory, int value, size_t bytes) {
  return call("cudaMemset", [&] {
    return fill(side(memory), value, {.width = bytes}, {cudaStreamPerThread, Wait::kYes});
  });
}
PLEXUS_CUDART cudaError_t cudaMemsetAsync(void* memory,
                                          int value,
                                          size_t bytes,
                                          cudaStream_t stream) {
  return call("cudaMemsetAsync", [&] {
    return fill(side(memory), value, {.width = bytes}, {stream, Wait::kIfPageable});
  });
}
PLEXUS_CUDART cudaError_t
cudaMemset2D(void* memory, size_t pitch, int value, size_t width, size_t height) {
  return call("cudaMemset2D", [&]() -> cudaError_t {
    PLEXUS_CUDART_TRY(check_pitch(width, pitch));
    return fill(side(memory, pitch), value, {.width = width, .height = height},
                {nullptr, Wait::kYes});
  });
}
PLEXUS_CUDART cudaError_t cudaMemset2DAsync(
    void* memory, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream) {
  return call("cudaMemset2DAsync", [&]() -> cudaError_t {
    PLEXUS_CUDART_TRY(check_pitch(width, pitch));
    return fill(side(memory, pitch), value, {.width = width, .height = height},
                {stream, Wait::kIfPageable});
  });
}
