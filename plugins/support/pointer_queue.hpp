// SPDX-License-Identifier: Apache-2.0
// A ring of pointers with a fixed capacity that is always sufficient, so that queues of requests
// never allocate.
#pragma once

#include <array>
#include <cstdint>

#include "guest/assert.hpp"

namespace plexus::plugin {

template <class T, uint32_t kSize>
class PointerQueue {
 public:
  [[nodiscard]] bool is_empty() const noexcept { return head_ == tail_; }
  [[nodiscard]] uint32_t size() const noexcept { return tail_ - head_; }
  [[nodiscard]] T& front() const noexcept {
    PLEXUS_DCHECK(!is_empty());
    return *items_[head_ % kSize];
  }
  [[nodiscard]] T& at(uint32_t index) const noexcept {
    PLEXUS_DCHECK(index < size(), index, size());
    return *items_[(head_ + index) % kSize];
  }
  void push(T& item) noexcept {
    PLEXUS_DCHECK(size() < kSize, size());
    items_[tail_++ % kSize] = &item;
  }
  T& pop() noexcept {
    PLEXUS_DCHECK(!is_empty());
    return *items_[head_++ % kSize];
  }
  /// Removes an entry from the middle; the entries before it move up.
  void erase(uint32_t index) noexcept {
    PLEXUS_DCHECK(index < size(), index, size());
    for (; index > 0; --index) {
      items_[(head_ + index) % kSize] = items_[(head_ + index - 1) % kSize];
    }
    ++head_;
  }

 private:
  static_assert((kSize & (kSize - 1)) == 0, "the indices wrap around");
  std::array<T*, kSize> items_{};
  uint32_t head_ = 0;
  uint32_t tail_ = 0;
};

}  // namespace plexus::plugin
