// SPDX-License-Identifier: Apache-2.0
// CUDA ranks on one GPU in a single launch: a small version of what the library's device backend
// sets up. Everything but the words shared by host and device and the launch's tables is in one
// block of device memory that is written once.
#pragma once

#include <cuda_runtime_api.h>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/cuda/device_work.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/host/executor.hpp"
#include "tests/unit/kernels/cuda/world.hpp"

namespace plexus::test {

/// Ends the test with the runtime's error text.
inline void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) {
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
  }
}

struct FreeEither {
  bool pinned = false;
  void operator()(void* memory) const { pinned ? cudaFreeHost(memory) : cudaFree(memory); }
};
struct FreePinned {
  void operator()(void* memory) const { cudaFreeHost(memory); }
};

/// Device memory, or pinned host memory; zeroed.
using Memory = std::unique_ptr<void, FreeEither>;
Memory allocate(size_t size_bytes, bool pinned);

/// Zeroed pinned memory, at the same address for host and device.
template <class T>
class Pinned {
 public:
  explicit Pinned(size_t count) {
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, count * sizeof(T), cudaHostAllocMapped), "pinned memory");
    std::memset(memory, 0, count * sizeof(T));
    memory_.reset(static_cast<T*>(memory));
  }
  [[nodiscard]] T* get() const { return memory_.get(); }

 private:
  std::unique_ptr<T, FreePinned> memory_;
};

/// One block of device memory, or of pinned host memory, that is filled from an image with the same
/// layout.
class Arena {
 public:
  Arena(size_t capacity_bytes, bool pinned);
  /// Reserves zeroed memory at a device address; write() copies what is stored there.
  std::byte* reserve(size_t size_bytes);
  template <class T>
  T* put(std::span<T> values) {
    std::byte* const place = reserve(values.size_bytes());
    std::memcpy(image_.data() + (place - base()), values.data(), values.size_bytes());
    return reinterpret_cast<T*>(place);
  }
  /// Copies the image to the device.
  void write();

 private:
  [[nodiscard]] std::byte* base() const { return static_cast<std::byte*>(memory_.get()); }
  Memory memory_;
  std::vector<std::byte> image_;
  size_t used_ = 0;
};

struct GpuOptions {
  uint32_t threads = 256;
  uint32_t channels = 1;  // each works on a part of the call
  bool by_address = true;
  int host_rank = -1;  // this rank runs the host executor; all memory is then pinned host memory
};

class GpuWorld {
 public:
  GpuWorld(const Call& call, const GpuOptions& options);

  [[nodiscard]] uint32_t block_count() const { return block_count_; }
  [[nodiscard]] size_t buffer_bytes() const { return buffer_bytes_; }
  void set_input(size_t rank, const std::byte* bytes);
  [[nodiscard]] std::vector<std::byte> output(size_t rank) const;
  [[nodiscard]] DeviceControl& control(size_t rank) { return controls_.get()[rank]; }
  /// Sets the hash of `rank`'s call; to be used before the first start().
  void set_hash(size_t rank, uint32_t hash);

  void start(cudaStream_t stream);
  /// Starts, runs the host rank if there is one, and waits.
  void run();

 private:
  struct Link {
    Fifo* fifo;
    std::byte* data;
    std::byte* lines;
  };
  struct RankMemory {
    Memory input;
    Memory output;
    uint32_t* claimed;
  };
  [[nodiscard]] static size_t arena_bytes(const Call& call, const GpuOptions& options);
  [[nodiscard]] static size_t table_bytes(const Call& call, const GpuOptions& options);
  [[nodiscard]] std::vector<Link> make_links();
  DeviceSend* put_send(size_t peer, const Link& link);
  DeviceRecv* put_recv(size_t peer, const Link& link);
  void put_ends(DeviceWork& work, size_t rank, std::span<const Link> links);
  void put_lanes(DeviceWork& work, const Program& program);
  DeviceQueue make_queue(size_t rank, uint32_t channel, std::span<const Link> links);
  DeviceWork make_work(size_t rank, uint32_t channel, std::span<const Link> links);
  void build();
  /// The rank that runs on the host, with its ends.
  struct HostRank {
    Work work;
    std::map<size_t, SendConnection> sends;
    std::map<size_t, RecvConnection> recvs;
    std::vector<LaneRun> lanes;
  };
  void make_host_rank(size_t rank, std::span<const Link> links);
  void run_host_rank();

  Call call_;
  GpuOptions options_;
  size_t nranks_;
  size_t buffer_bytes_;
  Arena arena_;
  Arena tables_;  // blocks and works, which the launch may read: pinned
  Pinned<DeviceControl> controls_;
  Pinned<uint64_t> done_;
  std::vector<RankMemory> memory_;
  std::vector<uint32_t> hashes_;
  const DeviceBlock* blocks_ = nullptr;
  uint32_t block_count_ = 0;
  std::unique_ptr<HostRank> host_;
};

}  // namespace plexus::test
