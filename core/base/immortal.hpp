// SPDX-License-Identifier: Apache-2.0
// Objects of the process that are never destroyed, because threads may use them while it ends.
#pragma once

#include <cstddef>
#include <new>

namespace plexus {

/// The one T of this process, made at the first call. A T with a private constructor befriends
/// `Immortal<T>`.
template <class T>
class Immortal {
 public:
  static T& instance() {
    alignas(T) static std::byte storage[sizeof(T)];
    // NOLINTBEGIN(cppcoreguidelines-owning-memory,cppcoreguidelines-avoid-non-const-global-variables)
    static T& object = *new (storage) T();  // never destroyed and global: its purpose
    // NOLINTEND(cppcoreguidelines-owning-memory,cppcoreguidelines-avoid-non-const-global-variables)
    return object;
  }
};

}  // namespace plexus
