// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-ib/neighbours.hpp"

#include <atomic>
#include <memory>

#include "plugins/net-ib/connection.hpp"
#include "plugins/support/unique_fd.hpp"

namespace plexus::net_ib {
namespace {

/// A look at a connection takes some system calls, and there may be thousands.
constexpr std::chrono::milliseconds kPause{20};

}  // namespace

Neighbours::Neighbours() : forks_(plugin::OpenFds::forks()) {}

Neighbours& Neighbours::instance() {
  static std::atomic<Neighbours*> current{nullptr};
  Neighbours* found = current.load(std::memory_order_acquire);  // pairs with the exchange below
  if (found != nullptr && found->forks_ == plugin::OpenFds::forks()) {
    return *found;
  }
  // Never freed: threads may outlive exit, and another thread may have held the parent's mutex.
  std::unique_ptr<Neighbours> fresh(new Neighbours);
  if (current.compare_exchange_strong(found, fresh.get(), std::memory_order_acq_rel)) {
    return *fresh.release();
  }
  return *found;
}

void Neighbours::add(Connection& connection) {
  const std::scoped_lock lock(mutex_);
  all_.push_back(&connection);
}

void Neighbours::remove(Connection& connection) {
  const std::scoped_lock lock(mutex_);
  std::erase(all_, &connection);
}

void Neighbours::serve_others(const Connection& self) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  const auto now = std::chrono::steady_clock::now();
  if (!lock.owns_lock() || now < next_) {
    return;
  }
  next_ = now + kPause;
  for (Connection* const each : all_) {
    if (each != &self) {
      each->try_serve();
    }
  }
}

}  // namespace plexus::net_ib
