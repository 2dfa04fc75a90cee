// SPDX-License-Identifier: Apache-2.0
// Objects of the process that are never destroyed, because threads may use them while it exits. A
// child made by fork gets objects of its own, because its parent's may be locked by threads that
// the child does not have.
//
//   struct Counters {
//     std::atomic<uint64_t> calls{0};
//   };
//   Immortal<Counters>::instance().calls.fetch_add(1, std::memory_order_relaxed);
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <thread>
#include <type_traits>

#include "core/base/fork.hpp"

namespace plexus {

/// The one T of this process, made at the first call. Made by T(); in a child whose parent had one,
/// by T(AfterFork, T& parents) if that constructor exists. A T with private constructors befriends
/// `Immortal<T>`.
template <class T>
class Immortal {
 public:
  static T& instance() {
    Node* const node = newest().load(std::memory_order_acquire);  // pairs with the store in make()
    return node != nullptr && node->forks == Forks::count() ? node->object() : make();
  }
  /// The same; nullptr: this process has not made it.
  static T* find() noexcept {
    Node* const node = newest().load(std::memory_order_acquire);  // pairs with the store in make()
    return node != nullptr && node->forks == Forks::count() ? &node->object() : nullptr;
  }

 private:
  struct Node {
    T& object() noexcept { return *std::launder(reinterpret_cast<T*>(storage)); }
    alignas(T) std::byte storage[sizeof(T)];
    Node* parents;  // kept, because the parent's threads may have been using it
    uint64_t forks;
  };

  // NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables): global, its purpose
  static std::atomic<Node*>& newest() noexcept {
    static constinit std::atomic<Node*> node{nullptr};
    return node;
  }
  /// 1 + Forks::count() of the process that made its object or is making it.
  static std::atomic<uint64_t>& maker() noexcept {
    static constinit std::atomic<uint64_t> process{0};
    return process;
  }
  // NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

  static T& make() {
    const uint64_t mine = Forks::count() + 1;
    uint64_t seen = maker().load(std::memory_order_relaxed);
    if (seen != mine && maker().compare_exchange_strong(seen, mine)) {
      try {
        return make_now();
      } catch (...) {
        maker().store(0);
        throw;
      }
    }
    for (;;) {  // wait while another thread makes it
      Node* const node = newest().load(std::memory_order_acquire);
      if (node != nullptr && node->forks == Forks::count()) {
        return node->object();
      }
      if (maker().load() != mine) {
        return make();  // the other thread's constructor threw: try here
      }
      std::this_thread::yield();
    }
  }

  static T& make_now() {
    Node* const parents = newest().load(std::memory_order_relaxed);
    auto* const node = new Node;  // NOLINT(cppcoreguidelines-owning-memory): never destroyed
    node->parents = parents;
    node->forks = Forks::count();
    construct(*node);
    newest().store(node, std::memory_order_release);
    return node->object();
  }

  static void construct(Node& node) {
    // NOLINTBEGIN(cppcoreguidelines-owning-memory)
    if constexpr (requires(T & parents) { ::new (node.storage) T(AfterFork{}, parents); }) {
      if (node.parents != nullptr) {
        ::new (node.storage) T(AfterFork{}, node.parents->object());
        return;
      }
    }
    ::new (node.storage) T();
    // NOLINTEND(cppcoreguidelines-owning-memory)
  }
};

}  // namespace plexus
