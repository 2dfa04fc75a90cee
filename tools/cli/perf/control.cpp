// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/perf/control.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <sched.h>
#include <sys/mman.h>
#include <system_error>

namespace plexus::perf {
namespace {

constexpr size_t kLineBytes = 64;
constexpr size_t kMessageBytes = 2048;
constexpr int kSpins = 64;  // then yield, because there may be more workers than cores

Error others_failed() { return fail(Code::kRemoteError, "another rank failed"); }

}  // namespace

double fold_values(double mine, double theirs, Fold how) noexcept {
  switch (how) {
    case Fold::kMax:
      return std::max(mine, theirs);
    case Fold::kMin:
      return std::min(mine, theirs);
    case Fold::kSum:
      break;
  }
  return mine + theirs;
}

// The first part is followed by one Worker per worker.
struct SharedArea::Layout {
  alignas(kLineBytes) std::atomic<uint32_t> arrived{0};
  alignas(kLineBytes) std::atomic<uint32_t> generation{
      0};  // generation of the barrier; release by the last to arrive pairs with acquire by those
           // that wait
  alignas(kLineBytes) std::atomic<uint32_t> stop{0};
  std::atomic<uint32_t> id_ready{0};  // release after `id` is written
  std::array<std::byte, kIdBytes> id{};

  struct Worker {
    alignas(kLineBytes) std::atomic<uint32_t> failed{
        0};  // release after code and message are written
    Code code{};
    std::array<char, kMessageBytes> message{};
    alignas(kLineBytes) std::array<double, Control::kFoldMax> values{};
  };

  [[nodiscard]] Worker& worker(int index) noexcept {
    auto* first = reinterpret_cast<std::byte*>(this) + sizeof(Layout);
    return *std::launder(
        reinterpret_cast<Worker*>(first + static_cast<size_t>(index) * sizeof(Worker)));
  }
};

class SharedControl final : public Control {
 public:
  SharedControl(SharedArea::Layout* layout, int worker, int nworkers)
      : layout_(layout), worker_(worker), nworkers_(nworkers) {}

  Result<void> barrier() override {
    const uint32_t generation = layout_->generation.load(std::memory_order_acquire);
    if (layout_->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 ==
        static_cast<uint32_t>(nworkers_)) {
      layout_->arrived.store(0, std::memory_order_relaxed);
      layout_->generation.store(generation + 1, std::memory_order_release);
      return ok();
    }
    for (int spin = 0; layout_->generation.load(std::memory_order_acquire) == generation; ++spin) {
      if (layout_->stop.load(std::memory_order_acquire) != 0) {
        return others_failed();
      }
      if (spin >= kSpins) {
        sched_yield();
      }
    }
    return ok();
  }

  Result<void> fold(std::span<double> values, Fold how) override {
    std::copy(values.begin(), values.end(), layout_->worker(worker_).values.begin());
    PLEXUS_TRY(barrier());
    for (int other = 0; other < nworkers_; ++other) {
      const auto& theirs = layout_->worker(other).values;
      for (size_t i = 0; i < values.size(); ++i) {
        if (other != worker_) {
          values[i] = fold_values(values[i], theirs[i], how);
        }
      }
    }
    return barrier();  // so that no worker writes new values while others read these
  }

 private:
  SharedArea::Layout* layout_;
  int worker_;
  int nworkers_;
};

void SharedArea::Unmap::operator()(Layout* layout) const noexcept { munmap(layout, size_bytes); }

Result<SharedArea> SharedArea::create(int nworkers) {
  const size_t size_bytes = sizeof(Layout) + static_cast<size_t>(nworkers) * sizeof(Layout::Worker);
  void* memory =
      mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return fail(Code::kSystemError, "cannot map {} bytes of shared memory for {} ranks: {}",
                size_bytes, nworkers, std::generic_category().message(errno));
  }
  std::unique_ptr<Layout, Unmap> layout(new (memory) Layout, Unmap{size_bytes});
  auto* workers = static_cast<std::byte*>(memory) + sizeof(Layout);
  for (int i = 0; i < nworkers; ++i) {
    new (workers + static_cast<size_t>(i) * sizeof(Layout::Worker)) Layout::Worker;
  }
  return SharedArea(std::move(layout), nworkers);
}

void SharedArea::put_id(std::span<const std::byte> id) noexcept {
  std::copy(id.begin(), id.end(), layout_->id.begin());
  layout_->id_ready.store(1, std::memory_order_release);
}

Result<void> SharedArea::wait_id(std::span<std::byte> id) const {
  while (layout_->id_ready.load(std::memory_order_acquire) == 0) {
    if (layout_->stop.load(std::memory_order_acquire) != 0) {
      return others_failed();
    }
    sched_yield();
  }
  std::copy(layout_->id.begin(), layout_->id.begin() + static_cast<ptrdiff_t>(id.size()),
            id.begin());
  return ok();
}

void SharedArea::give_up(int worker, const Error& error) noexcept {
  Layout::Worker& mine = layout_->worker(worker);
  mine.code = error.code();
  const size_t length = std::min(error.message().size(), mine.message.size() - 1);
  std::memcpy(mine.message.data(), error.message().data(), length);
  mine.failed.store(1, std::memory_order_release);
  layout_->stop.store(1, std::memory_order_release);
}

std::optional<SharedArea::Failure> SharedArea::failure_of(int worker) const {
  const Layout::Worker& theirs = layout_->worker(worker);
  if (theirs.failed.load(std::memory_order_acquire) == 0) {
    return std::nullopt;
  }
  return Failure{theirs.code, theirs.message.data()};
}

std::unique_ptr<Control> SharedArea::make_control(int worker) {
  return std::make_unique<SharedControl>(layout_.get(), worker, nworkers_);
}

}  // namespace plexus::perf
