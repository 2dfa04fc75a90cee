/* SPDX-License-Identifier: Apache-2.0
 *
 * Simple kernels as C++, run by the threads of this machine: what plexus-nvcc includes before a
 * source. The threads of a block take turns on one thread of the system, and change at
 * __syncthreads, __syncwarp and shuffles only; blocks run one after the other, so a kernel whose
 * blocks wait for each other hangs. There is no PTX but a few instructions, and no speed.
 */
#ifndef PLEXUS_CPU_KERNELS_H_
#define PLEXUS_CPU_KERNELS_H_

#include <chrono>
#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tuple>
#include <type_traits>
#include <utility>

#include "kernel_calls.h"

namespace plexus_cuda {

template <class... P>
struct Arguments {
  template <void (*F)(P...)>
  static void run(void* arguments) {
    std::apply(F, *static_cast<std::tuple<std::decay_t<P>...>*>(arguments));
  }
  static void release(void* arguments) {
    delete static_cast<std::tuple<std::decay_t<P>...>*>(arguments);
  }
  static void* copy(void** addresses) {
    return copy_all(addresses, std::index_sequence_for<P...>());
  }
  template <size_t... I>
  static void* copy_all(void** addresses, std::index_sequence<I...>) {
    (void)addresses;
    return new std::tuple<std::decay_t<P>...>(*static_cast<std::decay_t<P>*>(addresses[I])...);
  }
};

/* plexus-nvcc makes each kernel name it, so that cudaLaunchKernel finds the kernel. */
template <auto F>
struct Registered;
template <class... P, void (*F)(P...)>
struct Registered<F> {
  static bool add() {
    static const plexusKernelEntry entry = {Arguments<P...>::template run<F>,
                                            Arguments<P...>::release, Arguments<P...>::copy};
    plexusKernelRegister(reinterpret_cast<const void*>(F), &entry);
    return true;
  }
  static inline const bool is_added = add();
};

/* kernel<<<grid, block, bytes, stream>>>(arguments...) */
struct Configuration {
  dim3 grid, block;
  size_t shared_bytes = 0;
  cudaStream_t stream = nullptr;

  Configuration(dim3 g, dim3 b, size_t bytes = 0, cudaStream_t s = nullptr)
      : grid(g), block(b), shared_bytes(bytes), stream(s) {
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
    stream = s == nullptr ? cudaStreamPerThread : s;
#endif
  }

  template <class Kernel, class... A>
  void launch(Kernel kernel, A... arguments) const {
    auto* const all = new std::tuple<Kernel, A...>(kernel, arguments...);
    using All = std::remove_pointer_t<decltype(all)>;
    const plexusKernelWork what = {[](void* a) {
                                     std::apply([](auto& f, auto&... rest) { f(rest...); },
                                                *static_cast<All*>(a));
                                   },
                                   [](void* a) { delete static_cast<All*>(a); },
                                   all,
                                   grid,
                                   block,
                                   shared_bytes,
                                   stream};
    plexusKernelStart(&what);
  }
};

[[noreturn]] inline void no_ptx(const char* text) {
  fprintf(stderr, "plexus-nvcc: a kernel needs the PTX instruction '%s', which is not there\n",
          text);
  abort();
}
template <class P, class V>
void red_add(P address, V value) {
  __atomic_fetch_add(reinterpret_cast<V*>(address), value, __ATOMIC_RELAXED);
}

template <class T>
T shuffle(unsigned mask, T value, int source) {
  static_assert(sizeof(T) <= sizeof(uint64_t), "shuffles exchange up to 8 bytes");
  uint64_t mine = 0;
  uint64_t all[32];
  memcpy(&mine, &value, sizeof(T));
  plexusKernelSyncWarp(mask, mine, all);
  memcpy(&value, &all[source & 31], sizeof(T));
  return value;
}
inline int lane() {
  const plexusKernelThread* self = plexusKernelSelf();
  return static_cast<int>(
      (self->thread.x +
       self->block_size.x * (self->thread.y + self->block_size.y * self->thread.z)) %
      32);
}

}  // namespace plexus_cuda

#define threadIdx (plexusKernelSelf()->thread)
#define blockIdx (plexusKernelSelf()->block)
#define blockDim (plexusKernelSelf()->block_size)
#define gridDim (plexusKernelSelf()->grid_size)
static const int warpSize = 32; /* a constant, as cudaDeviceProp has a member of that name */

inline void __syncthreads() { plexusKernelSyncBlock(); }
inline void __syncwarp(unsigned mask = 0xffffffffU) {
  uint64_t all[32];
  plexusKernelSyncWarp(mask, 0, all);
}
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

/* Shuffles within groups of `width` lanes; a lane without a source keeps its value. */
template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const int first = plexus_cuda::lane() & ~(width - 1);
  return plexus_cuda::shuffle(mask, value, first + (source & (width - 1)));
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const int lane = plexus_cuda::lane();
  const bool has = (lane & (width - 1)) >= static_cast<int>(delta);
  return plexus_cuda::shuffle(mask, value, has ? lane - static_cast<int>(delta) : lane);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const int lane = plexus_cuda::lane();
  const bool has = (lane & (width - 1)) + static_cast<int>(delta) < width;
  return plexus_cuda::shuffle(mask, value, has ? lane + static_cast<int>(delta) : lane);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {
  const int lane = plexus_cuda::lane();
  const int source = lane ^ bits;
  return plexus_cuda::shuffle(mask, value,
                              (source & ~(width - 1)) == (lane & ~(width - 1)) ? source : lane);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  uint64_t all[32];
  unsigned result = 0;
  plexusKernelSyncWarp(mask, predicate != 0, all);
  for (unsigned i = 0; i < 32; ++i) {
    result |= (mask >> i & 1) != 0 && all[i] != 0 ? 1U << i : 0U;
  }
  return result;
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }

#define PLEXUS_ATOMIC(name, builtin, type)                             \
  inline type name(type* address, type value) {                        \
    return __atomic_fetch_##builtin(address, value, __ATOMIC_RELAXED); \
  }
#define PLEXUS_ATOMICS(type)          \
  PLEXUS_ATOMIC(atomicAdd, add, type) \
  PLEXUS_ATOMIC(atomicSub, sub, type) \
  PLEXUS_ATOMIC(atomicAnd, and, type) \
  PLEXUS_ATOMIC(atomicOr, or, type)   \
  PLEXUS_ATOMIC(atomicXor, xor, type)
PLEXUS_ATOMICS(int)
PLEXUS_ATOMICS(unsigned)
PLEXUS_ATOMICS(unsigned long long)
#undef PLEXUS_ATOMICS
#undef PLEXUS_ATOMIC

namespace plexus_cuda {
/* Replaces the value by change(value); the old one. */
template <class T, class Change>
T atomic_change(T* address, const Change& change) {
  T old;
  __atomic_load(address, &old, __ATOMIC_RELAXED);
  for (;;) {
    T made = change(old);
    if (__atomic_compare_exchange(address, &old, &made, false, __ATOMIC_RELAXED,
                                  __ATOMIC_RELAXED)) {
      return old;
    }
  }
}
}  // namespace plexus_cuda
inline float atomicAdd(float* address, float value) {
  return plexus_cuda::atomic_change(address, [=](float old) { return old + value; });
}
inline double atomicAdd(double* address, double value) {
  return plexus_cuda::atomic_change(address, [=](double old) { return old + value; });
}
template <class T>
T atomicMin(T* address, std::common_type_t<T> value) {
  return plexus_cuda::atomic_change(address, [=](T old) { return value < old ? value : old; });
}
template <class T>
T atomicMax(T* address, std::common_type_t<T> value) {
  return plexus_cuda::atomic_change(address, [=](T old) { return old < value ? value : old; });
}
template <class T>
T atomicExch(T* address, std::common_type_t<T> value) {
  return plexus_cuda::atomic_change(address, [=](T) { return value; });
}
template <class T>
T atomicCAS(T* address, std::common_type_t<T> expected, std::common_type_t<T> value) {
  T old = expected;
  T made = value;
  __atomic_compare_exchange(address, &old, &made, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return old;
}

template <class T>
T __ldg(const T* address) {
  return *address;
}
inline int __popc(unsigned value) { return __builtin_popcount(value); }
inline int __popcll(unsigned long long value) { return __builtin_popcountll(value); }
inline int __clz(int value) {
  return value == 0 ? 32 : __builtin_clz(static_cast<unsigned>(value));
}
inline int __clzll(long long value) {
  return value == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(value));
}
inline int __ffs(int value) { return __builtin_ffs(value); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((static_cast<unsigned long long>(a) * b) >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  __extension__ typedef unsigned __int128 Wide;
  return static_cast<unsigned long long>((static_cast<Wide>(a) * b) >> 64);
}
inline int __float_as_int(float value) {
  int bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}
inline float __int_as_float(int bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}
/// Nanoseconds: the clock of a virtual device has 1 GHz (cudaDevAttrClockRate).
inline long long clock64() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

#define PLEXUS_MIN_MAX(type)                                \
  inline type min(type a, type b) { return b < a ? b : a; } \
  inline type max(type a, type b) { return a < b ? b : a; }
PLEXUS_MIN_MAX(int)
PLEXUS_MIN_MAX(unsigned)
PLEXUS_MIN_MAX(long)
PLEXUS_MIN_MAX(unsigned long)
PLEXUS_MIN_MAX(long long)
PLEXUS_MIN_MAX(unsigned long long)
PLEXUS_MIN_MAX(float)
PLEXUS_MIN_MAX(double)
#undef PLEXUS_MIN_MAX

#endif
