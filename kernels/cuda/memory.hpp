// SPDX-License-Identifier: Apache-2.0
// How the device executor accesses memory that it shares with others: one function per access and
// memory order, for the device (libcu++, system scope: the other end may be a host thread, a
// network's pump or another GPU) and for the host, where tests run the same executor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/layout/macros.hpp"

#if PLEXUS_COMPILES_CUDA
#include <cuda/atomic>
#else
#include <chrono>
#include <thread>
#endif

namespace plexus {

/// The size of a vector register: one 16-byte access if aligned.
struct alignas(16) Vector {
  uint64_t low;
  uint64_t high;
};

#if PLEXUS_COMPILES_CUDA

template <class T>
PLEXUS_DEVICE cuda::atomic_ref<T, cuda::thread_scope_system> shared_word(const T* word) {
  return cuda::atomic_ref<T, cuda::thread_scope_system>(*const_cast<T*>(word));
}
template <class T>
PLEXUS_DEVICE T load_acquire(const T* word) {
  return shared_word(word).load(cuda::memory_order_acquire);
}
template <class T>
PLEXUS_DEVICE T load_relaxed(const T* word) {
  return shared_word(word).load(cuda::memory_order_relaxed);
}
template <class T>
PLEXUS_DEVICE void store_release(T* word, T value) {
  shared_word(word).store(value, cuda::memory_order_release);
}
template <class T>
PLEXUS_DEVICE void store_relaxed(T* word, T value) {
  shared_word(word).store(value, cuda::memory_order_relaxed);
}
/// Access to words of LL. On the device neither the load nor the store orders memory by itself, so
/// they need no fence and keep the first-level cache. A stored word depends on what its thread has
/// read, and what is stored because of a loaded word depends on that word. A write to memory that
/// an earlier lane of the same rank has read can therefore not come too early, since no value
/// depends on itself (PTX's axiom). C++ has no such rule, so the host version releases and
/// acquires; kernels_cuda_order explores the device's.
PLEXUS_DEVICE inline void store_dependent(uint64_t* word, uint64_t value) {
  store_relaxed(word, value);
}
PLEXUS_DEVICE inline uint64_t load_dependent(const uint64_t* word) { return load_relaxed(word); }
/// For words in device memory only: host and device may not add to the same word atomically.
PLEXUS_DEVICE inline uint64_t fetch_add(uint64_t* word, uint64_t value) {
  return cuda::atomic_ref<uint64_t, cuda::thread_scope_device>(*word).fetch_add(
      value, cuda::memory_order_acq_rel);
}
PLEXUS_DEVICE inline uint32_t exchange(uint32_t* word, uint32_t value) {
  return cuda::atomic_ref<uint32_t, cuda::thread_scope_device>(*word).exchange(
      value, cuda::memory_order_acq_rel);
}

/// A clock that all blocks share, in ns.
PLEXUS_DEVICE inline uint64_t read_clock() {
  uint64_t now_ns;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now_ns));
  return now_ns;
}

inline constexpr uint32_t kPollsPerLook = 1024;  // each look reads pinned memory over the bus
PLEXUS_DEVICE inline void pause_between_polls(uint32_t polls) {
  // about 2 ms; longer waits poll less often to spare memory bandwidth
  constexpr uint32_t kPollsAwake = 4096;
  constexpr uint32_t kSleepNs = 100;
  if (polls > kPollsAwake) {
    __nanosleep(kSleepNs);
  }
}

#else

template <class T>
T load_acquire(const T* word) {
  T value;
  __atomic_load(word, &value, __ATOMIC_ACQUIRE);
  return value;
}
template <class T>
T load_relaxed(const T* word) {
  T value;
  __atomic_load(word, &value, __ATOMIC_RELAXED);
  return value;
}
template <class T>
void store_release(T* word, T value) {
  __atomic_store(word, &value, __ATOMIC_RELEASE);
}
template <class T>
void store_relaxed(T* word, T value) {
  __atomic_store(word, &value, __ATOMIC_RELAXED);
}
inline void store_dependent(uint64_t* word, uint64_t value) { store_release(word, value); }
inline uint64_t load_dependent(const uint64_t* word) { return load_acquire(word); }
inline uint64_t fetch_add(uint64_t* word, uint64_t value) {
  return __atomic_fetch_add(word, value, __ATOMIC_ACQ_REL);
}
inline uint32_t exchange(uint32_t* word, uint32_t value) {
  return __atomic_exchange_n(word, value, __ATOMIC_ACQ_REL);
}

inline uint64_t read_clock() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::nanoseconds(now).count());
}

inline constexpr uint32_t kPollsPerLook = 64;
inline void pause_between_polls(uint32_t /*polls*/) { std::this_thread::yield(); }

#endif

/// The word inside a std::atomic of kernels/layout, whose member functions are host code.
template <class Atomic>
PLEXUS_DEVICE uint64_t* word_of(Atomic* atomic) {
  static_assert(sizeof(Atomic) == sizeof(uint64_t));
  return reinterpret_cast<uint64_t*>(atomic);
}
template <class Atomic>
PLEXUS_DEVICE const uint64_t* word_of(const Atomic* atomic) {
  static_assert(sizeof(Atomic) == sizeof(uint64_t));
  return reinterpret_cast<const uint64_t*>(atomic);
}

/// A value of up to 8 bytes, in the low bytes of the result.
PLEXUS_DEVICE inline uint64_t load_bits(const void* from, size_t size_bytes) {
  const auto* const bytes = static_cast<const uint8_t*>(from);
  uint64_t bits = 0;
  for (size_t i = 0; i < size_bytes; ++i) {
    bits |= uint64_t{bytes[i]} << (8 * i);
  }
  return bits;
}

/// Copies a table that the host or an earlier launch wrote, by all threads of a block: one round of
/// loads, instead of one for each member that is read. A sync must follow.
template <class T, class Block>
PLEXUS_DEVICE void take_table(const Block& block, T& to, const T& from) {
  constexpr uint32_t kWord = sizeof(uint32_t);
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % kWord == 0 && alignof(T) >= kWord);
  for (uint32_t at = block.thread() * kWord; at < sizeof(T); at += block.threads() * kWord) {
    memcpy(__builtin_assume_aligned(reinterpret_cast<std::byte*>(&to) + at, kWord),
           __builtin_assume_aligned(reinterpret_cast<const std::byte*>(&from) + at, kWord), kWord);
  }
}

}  // namespace plexus
