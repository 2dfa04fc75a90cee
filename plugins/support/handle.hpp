// SPDX-License-Identifier: Apache-2.0
// Handles cross the C boundary as raw pointers; these two functions release and take ownership.
#pragma once

#include <memory>

namespace plexus::plugin {

template <class T>
T* give_to_host(std::unique_ptr<T> owner) {
  return owner.release();
}
template <class T>
void take_from_host(T* handle) {
  const std::unique_ptr<T> owner(handle);
}

}  // namespace plexus::plugin
