// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/puts.hpp"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <utility>

namespace plexus::soak {
namespace {

constexpr size_t kHalfBytes = size_t{300} * 1024;  // more than a piece of a message

std::byte byte_of(uint64_t salt, int source, size_t at) {
  return static_cast<std::byte>((salt * 31 + static_cast<uint64_t>(source) * 7 + at * 13) % 251);
}

/// One rank's memory: what it puts, then what it receives.
class PutWindow {
 public:
  PutWindow(ncclComm_t comm, uint64_t salt)
      : comm_(comm), salt_(salt), put_bytes_((salt * 7919) % kHalfBytes) {}
  ~PutWindow() {
    if (window_ != nullptr) {
      (void)ncclCommWindowDeregister(comm_, window_);
    }
    if (memory_ != nullptr) {
      (void)ncclMemFree(memory_);
    }
  }
  PutWindow(const PutWindow&) = delete;
  PutWindow& operator=(const PutWindow&) = delete;

  ncclResult_t open() {
    for (const ncclResult_t result :
         {ncclCommUserRank(comm_, &rank_), ncclCommCount(comm_, &nranks_),
          ncclMemAlloc(&memory_, 2 * kHalfBytes)}) {
      if (result != ncclSuccess) {
        return result;
      }
    }
    for (size_t at = 0; at < put_bytes_; ++at) {
      half(0)[at] = byte_of(salt_, rank_, at);
    }
    return ncclCommWindowRegister(comm_, memory_, 2 * kHalfBytes, &window_,
                                  NCCL_WIN_COLL_SYMMETRIC);
  }
  ncclResult_t put() {
    return ncclPutSignal(half(0), put_bytes_, ncclUint8, (rank_ + 1) % nranks_, window_, kHalfBytes,
                         0, 0, 0, comm_, nullptr);
  }
  ncclResult_t wait() {
    ncclWaitSignalDesc_t from{1, source(), 0, 0};
    return ncclWaitSignal(1, &from, comm_, nullptr);
  }
  [[nodiscard]] bool has_right_bytes() const {
    size_t at = 0;
    return std::all_of(half(1), half(1) + put_bytes_,
                       [&](std::byte byte) { return byte == byte_of(salt_, source(), at++); });
  }

 private:
  [[nodiscard]] int source() const { return (rank_ + nranks_ - 1) % nranks_; }
  [[nodiscard]] std::byte* half(int number) const {
    return static_cast<std::byte*>(memory_) + static_cast<size_t>(number) * kHalfBytes;
  }

  ncclComm_t comm_;
  uint64_t salt_;
  size_t put_bytes_;
  int rank_ = 0;
  int nranks_ = 1;
  void* memory_ = nullptr;
  ncclWindow_t window_ = nullptr;
};

}  // namespace

PutOutcome put_around(const std::vector<ncclComm_t>& comms, uint64_t salt) {
  std::deque<PutWindow> windows;
  PutOutcome outcome;
  for (const ncclComm_t comm : comms) {
    windows.emplace_back(comm, salt);
  }
  // All of a step before any of the next: the ranks wait for each other.
  for (const auto& [step, name] : {std::pair{&PutWindow::open, "ncclCommWindowRegister"},
                                   {&PutWindow::put, "ncclPutSignal"},
                                   {&PutWindow::wait, "ncclWaitSignal"}}) {
    for (PutWindow& window : windows) {
      outcome.result = (window.*step)();
      outcome.what = name;
      if (outcome.result != ncclSuccess) {
        return outcome;
      }
    }
  }
  const bool is_right = std::all_of(windows.begin(), windows.end(), [](const PutWindow& window) {
    return window.has_right_bytes();
  });
  return is_right ? outcome : PutOutcome{ncclInternalError, "WRONG DATA: a put"};
}

}  // namespace plexus::soak
