// SPDX-License-Identifier: Apache-2.0
// Simulates libfabric and the CUDA driver of a host with a NIC that supports GPU memory: two small
// libraries that the process loads before net-ofi looks for libfabric.so.1 and libcuda.so.1, and
// which therefore replace these.
//
// card_libfabric.cpp forwards every call to the real libfabric, but reports that the provider has
// FI_HMEM, records the arguments for it, and treats GPU memory, which is host memory here,
// accordingly. card_cuda.cpp reports one range as memory of GPU 3.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

namespace plexus::test {

struct CardRegistration {
  const void* data = nullptr;  // for a dma-buf: base + offset
  uint64_t size_bytes = 0;
  uint64_t access = 0;
  int iface = 0;
  int device = -1;
  bool is_dmabuf = false;
  int dmabuf_fd = -1;
  uint64_t dmabuf_offset = 0;
  uint64_t beyond_known = 0;  // the bytes after fi_mr_attr of 1.17, which newer versions read
};

struct CardRead {
  uint64_t address = 0;
  uint64_t size_bytes = 0;
  uint64_t key = 0;
};

struct CardAsk {
  uint32_t version = 0;
  uint64_t caps = 0;
  int mr_mode = 0;
  int threading = 0;
};

/// Set before use; records are guarded by `mutex`.
struct Card {
  // -- its properties --
  uint32_t version = 0;  // libfabric's; 0: the real one's
  bool has_hmem = true;
  int direct_result = 0;     // result of the endpoint option FI_OPT_FI_HMEM_P2P
  int no_cuda_result = 0;    // result of FI_OPT_CUDA_API_PERMITTED
  int register_result = 0;   // result of registering GPU memory
  bool holds_reads = false;  // they end after release_reads()
  // 0: sends are real; above: it loses as many, which never end, and then takes no more
  std::atomic<int> sends_until_full = 0;

  // -- recorded calls --
  std::mutex mutex;
  std::vector<CardAsk> asks;     // fi_getinfo with FI_HMEM
  std::vector<CardAsk> domains;  // opened with FI_HMEM
  std::vector<CardRegistration> registrations;
  std::vector<CardRead> reads;
  uint32_t direct_endpoints = 0;   // which were given FI_HMEM_P2P_REQUIRED
  uint32_t no_cuda_endpoints = 0;  // which were told not to call CUDA
  /// Starts the held reads, and ends the holding.
  void (*release_reads)() = nullptr;
};

/// Exported by card_libfabric.cpp as plexus_test_card.
using FindCard = Card* (*)();

struct GpuRange {
  std::atomic<const void*> begin{nullptr};
  std::atomic<uint64_t> size_bytes{0};
};
inline constexpr int kGpu = 3;
/// Exported by card_cuda.cpp as plexus_test_gpu.
using FindGpu = GpuRange* (*)();

}  // namespace plexus::test
