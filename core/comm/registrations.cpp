// SPDX-License-Identifier: Apache-2.0
#include "core/comm/registrations.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "guest/assert.hpp"

namespace plexus {

void Registrations::begin_mapping(const void* buffer, size_t size_bytes) {
  if (peer_mapped_ != nullptr) {
    peer_mapped_->add(buffer, size_bytes);
  }
  if (registered_ != nullptr) {
    registered_->add(buffer, size_bytes);
  }
}

/// Does nothing if another registration has the buffer too.
void Registrations::end_mapping(const void* buffer) {
  const bool in_window = std::any_of(windows_.begin(), windows_.end(), [&](const auto& entry) {
    return entry.second->buffer == buffer;
  });
  if (in_window || buffers_.count(buffer) != 0) {
    return;
  }
  if (peer_mapped_ != nullptr) {
    peer_mapped_->remove(buffer);
  }
  if (registered_ != nullptr) {
    registered_->remove(buffer);
  }
}

void* Registrations::add_buffer(void* buffer, size_t size_bytes) {
  ++buffers_[buffer];
  begin_mapping(buffer, size_bytes);
  return buffer;
}

Result<void> Registrations::remove_buffer(void* handle) {
  const auto at = buffers_.find(handle);
  if (at == buffers_.end()) {
    return fail(Code::kInvalidUsage, "{} is not a registration of this communicator",
                fmt::ptr(handle));
  }
  PLEXUS_DCHECK(at->second > 0, at->second);
  if (--at->second == 0) {
    buffers_.erase(at);
    end_mapping(handle);
  }
  return ok();
}

/// Whether a buffer begins in a symmetric window.
bool Registrations::is_in_window(const void* address) const noexcept {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  return std::any_of(symmetric_.begin(), symmetric_.end(),
                     [begin](const auto& window) { return begin - window.first < window.second; });
}

void Registrations::note_windows() {
  symmetric_.clear();
  if (registered_ == nullptr) {  // NCCL_LOCAL_REGISTER=0
    return;
  }
  for (const auto& [handle, window] : windows_) {
    if (window->is_symmetric) {
      symmetric_.emplace_back(reinterpret_cast<uintptr_t>(window->buffer), window->size_bytes);
    }
  }
}

void* Registrations::add_window(const Window& made) {
  auto window = std::make_unique<Window>(made);
  void* const handle = window.get();
  windows_.emplace(handle, std::move(window));
  begin_mapping(made.buffer, made.size_bytes);
  note_windows();
  return handle;
}

Result<void> Registrations::remove_window(void* window) {
  PLEXUS_TRY(buffer, window_buffer(window));
  windows_.erase(window);
  note_windows();
  end_mapping(buffer);
  return ok();
}

Result<void*> Registrations::window_buffer(void* window) const {
  PLEXUS_TRY(found, find_window(window));
  return found->buffer;
}

Result<one_sided::WindowNumber> Registrations::window_number(void* window) const {
  PLEXUS_TRY(found, find_window(window));
  return found->number;
}

bool Registrations::has_symmetric(const void* address, size_t size_bytes) const noexcept {
  return std::any_of(windows_.begin(), windows_.end(), [&](const auto& entry) {
    const Window& window = *entry.second;
    const auto offset =
        reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(window.buffer);
    return window.is_symmetric && offset <= window.size_bytes &&
           size_bytes <= window.size_bytes - offset;
  });
}

Result<const Registrations::Window*> Registrations::find_window(void* window) const {
  const auto at = windows_.find(window);
  if (at == windows_.end()) {
    return fail(Code::kInvalidArgument, "{} is not a window of this communicator",
                fmt::ptr(window));
  }
  return at->second.get();
}

}  // namespace plexus
