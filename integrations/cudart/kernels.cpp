// SPDX-License-Identifier: Apache-2.0
#include "integrations/cudart/kernels.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <ucontext.h>
#include <utility>
#include <vector>

#include "integrations/cudart/call.hpp"
#include "integrations/cudart/devices.hpp"
#include "integrations/cudart/include/plexus/kernel_calls.h"
#include "integrations/cudart/runtime.hpp"

namespace plexus::cudart {
namespace {

constexpr size_t kStackBytes = size_t{64} * 1024;

/// One context that runs threads of the block, one after the other; while one waits for others, it
/// is that one's alone.
struct Fiber {
  ucontext_t context{};
  std::unique_ptr<std::byte[]> stack = std::make_unique<std::byte[]>(kStackBytes);
  plexusKernelThread self{};
  unsigned number = 0;  // of the thread in its block
  bool waits = false;
  bool waits_for_warp = false;
  unsigned mask = 0;   // waits_for_warp: for these lanes
  uint64_t given = 0;  // likewise: what it gives
  std::array<uint64_t, kWarp> got{};
};

[[noreturn]] void end_program(const char* why) {
  std::fprintf(stderr, "plexus: a kernel cannot go on: %s\n", why);
  std::abort();
}

/// Runs blocks in one thread of the system.
class BlockRunner {
 public:
  BlockRunner(const KernelBody& body, const Grid& grid)
      : body_(body),
        grid_(grid),
        threads_(grid.block.x * grid.block.y * grid.block.z),
        shared_(std::make_unique<std::byte[]>(std::max<size_t>(grid.shared_bytes, 1))) {}

  void run(uint3 block) {
    block_ = block;
    next_ = 0;
    live_.clear();
    while (next_ < threads_) {
      if (free_.empty()) {
        free_.push_back(std::make_unique<Fiber>());
      }
      live_.push_back(std::move(free_.back()));
      free_.pop_back();
      start(*live_.back());
      retire();
    }
    while (!live_.empty()) {
      if (!release_some()) {
        end_program("threads of a block wait at different places (__syncthreads, shuffles)");
      }
      for (size_t i = 0; i < live_.size(); ++i) {
        if (!live_[i]->waits) {
          resume(*live_[i]);
        }
      }
      retire();
    }
  }

  [[nodiscard]] Fiber& current() const noexcept { return *current_; }
  [[nodiscard]] std::byte* shared() const noexcept { return shared_.get(); }
  /// Lets the current fiber give way until it is released.
  void wait() {
    Fiber& fiber = *current_;
    fiber.waits = true;
    swapcontext(&fiber.context, &home_);
  }

 private:
  static void enter();

  void start(Fiber& fiber) {
    fiber.waits = false;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStackBytes;
    fiber.context.uc_link = &home_;
    makecontext(&fiber.context, enter, 0);
    resume(fiber);
  }
  void resume(Fiber& fiber) {
    current_ = &fiber;
    swapcontext(&home_, &fiber.context);
    current_ = nullptr;
  }
  /// The threads that are left, while none waits.
  void run_threads() {
    Fiber& fiber = *current_;
    while (next_ < threads_) {
      fiber.number = next_++;
      fiber.self = {
          .thread = {fiber.number % grid_.block.x, fiber.number / grid_.block.x % grid_.block.y,
                     fiber.number / (grid_.block.x * grid_.block.y)},
          .block = block_,
          .block_size = grid_.block,
          .grid_size = grid_.grid};
      body_.run(body_.arguments);
    }
    fiber.waits = false;
  }
  /// Those that have ended may run other threads.
  void retire() {
    for (auto& fiber : live_) {
      if (!fiber->waits) {
        free_.push_back(std::move(fiber));
      }
    }
    std::erase(live_, nullptr);
  }
  /// False: nobody can go on.
  bool release_some() {
    if (std::none_of(live_.begin(), live_.end(),
                     [](const auto& fiber) { return fiber->waits_for_warp; })) {
      for (const auto& fiber : live_) {
        fiber->waits = false;
      }
      return true;
    }
    bool any = false;
    for (size_t i = 0; i < live_.size(); ++i) {
      any = release_warp(live_[i]->number / kWarp) || any;
    }
    return any;
  }
  bool release_warp(unsigned warp) {
    std::array<uint64_t, kWarp> values{};
    std::vector<Fiber*> members;
    for (const auto& fiber : live_) {
      if (fiber->number / kWarp == warp) {
        members.push_back(fiber.get());
      }
    }
    unsigned waiting = 0;
    unsigned wished = 0;
    for (Fiber* const fiber : members) {
      if (fiber->waits && fiber->waits_for_warp) {
        waiting |= 1U << fiber->number % kWarp;
        wished |= fiber->mask;
        values.at(fiber->number % kWarp) = fiber->given;
      }
    }
    const bool are_all_there = std::all_of(members.begin(), members.end(), [&](const Fiber* fiber) {
      const unsigned bit = 1U << fiber->number % kWarp;
      return (wished & bit) == 0 || (waiting & bit) != 0;
    });
    if (waiting == 0 || !are_all_there) {
      return false;
    }
    for (Fiber* const fiber : members) {
      if (fiber->waits_for_warp) {
        fiber->got = values;
        fiber->waits = false;
        fiber->waits_for_warp = false;
      }
    }
    return true;
  }

  const KernelBody& body_;
  const Grid& grid_;
  const unsigned threads_;
  const std::unique_ptr<std::byte[]> shared_;
  uint3 block_{};
  unsigned next_ = 0;  // thread that has not begun
  ucontext_t home_{};
  Fiber* current_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> live_;
  std::vector<std::unique_ptr<Fiber>> free_;
};

// The kernel that this thread runs.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
thread_local constinit BlockRunner* runner = nullptr;

void BlockRunner::enter() { runner->run_threads(); }

BlockRunner& here() {
  if (runner == nullptr) {
    end_program("a function for kernels was called by the host");
  }
  return *runner;
}

}  // namespace

cudaError_t check_grid(const Grid& grid) {
  const auto threads = uint64_t{grid.block.x} * grid.block.y * grid.block.z;
  const auto blocks = uint64_t{grid.grid.x} * grid.grid.y * grid.grid.z;
  if (threads == 0 || threads > kThreadsPerBlock || blocks == 0 || grid.grid.x > kGridWidth ||
      grid.grid.y > kGridHeight || grid.grid.z > kGridHeight ||
      grid.shared_bytes > kSharedBytesMost) {
    return refuse(cudaErrorInvalidConfiguration,
                  "a grid of {} blocks of {} threads with {} bytes of shared memory: a block has 1 "
                  "to {} threads and up to {} bytes",
                  blocks, threads, grid.shared_bytes, kThreadsPerBlock, kSharedBytesMost);
  }
  return cudaSuccess;
}

void run_grid(const KernelBody& body, const Grid& grid) {
  BlockRunner blocks(body, grid);
  runner = &blocks;
  uint3 at{};
  for (at.z = 0; at.z < grid.grid.z; ++at.z) {
    for (at.y = 0; at.y < grid.grid.y; ++at.y) {
      for (at.x = 0; at.x < grid.grid.x; ++at.x) {
        blocks.run(at);
      }
    }
  }
  runner = nullptr;
}

cudaError_t launch_grid(const KernelBody& body, const Grid& grid, cudaStream_t stream) {
  const std::shared_ptr<void> arguments(body.arguments, body.release);
  PLEXUS_CUDART_TRY(check_device(current_device()));
  PLEXUS_CUDART_TRY(check_grid(grid));
  Runtime& runtime = Runtime::instance();
  return runtime.streams.enqueue_work(
      stream, &runtime.copies, [body, grid, arguments] { run_grid(body, grid); },
      cudaGraphNodeTypeKernel);
}

}  // namespace plexus::cudart

using namespace plexus::cudart;  // NOLINT(google-build-using-namespace): as all of this file

PLEXUS_CUDART const plexusKernelThread* plexusKernelSelf(void) { return &here().current().self; }
PLEXUS_CUDART void* plexusKernelShared(void) { return here().shared(); }
PLEXUS_CUDART void plexusKernelSyncBlock(void) { here().wait(); }
PLEXUS_CUDART void plexusKernelSyncWarp(unsigned mask, uint64_t value, uint64_t* values) {
  Fiber& fiber = here().current();
  fiber.waits_for_warp = true;
  fiber.mask = mask;
  fiber.given = value;
  here().wait();
  std::copy(fiber.got.begin(), fiber.got.end(), values);
}
PLEXUS_CUDART cudaError_t plexusKernelStart(const plexusKernelWork* work) {
  return call("a kernel's launch", [&] {
    return launch_grid({work->run, work->release, work->arguments},
                       {work->grid, work->block, work->shared_bytes}, work->stream);
  });
}
