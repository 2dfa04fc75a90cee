// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-ofi/rails.hpp"

#include <algorithm>
#include <utility>

namespace plexus::net_ofi {

Result<OwnMemory> register_own(Domain& domain, void* data, size_t size_bytes) {
  if (!domain.needs_registration(PLEXUS_MEMORY_HOST)) {
    return OwnMemory();
  }
  const plexus_net_region_t region = {data, size_bytes, 0, -1, PLEXUS_MEMORY_HOST};
  PLEXUS_TRY(registration, domain.memory().acquire(region, domain.name().c_str()));
  return OwnMemory(registration, ReleaseMemory{&domain.memory()});
}

Result<void> Rails::open(std::shared_ptr<Link> link) {
  link_ = std::move(link);
  for (uint32_t rail = 0; rail < count_; ++rail) {
    PLEXUS_TRY(memory, register_own(domain(rail), buffers_.get(), sizeof *buffers_));
    rails_.push_back({FI_ADDR_UNSPEC, FI_ADDR_UNSPEC, std::move(memory)});
  }
  return ok();
}

Result<void> Rails::meet(const WireGreeting& peer) {
  count_ = std::min<uint32_t>(count_, peer.rails);
  for (uint32_t rail = 0; rail < count_; ++rail) {
    PLEXUS_TRY(address, endpoint(rail).insert(peer.addresses[rail]));
    rails_[rail].peer = address;
  }
  return ok();
}

ssize_t Rails::read_back(uint32_t index, ReadBack read, Operation& operation) {
  Rail& rail = rails_[index];
  if (!is_open_) {
    return -FI_ESHUTDOWN;
  }
  if (rail.self == FI_ADDR_UNSPEC) {
    AddressBytes address{};
    auto self = endpoint(index).read_address(address).has_value()
                    ? endpoint(index).insert(address)
                    : Result<fi_addr_t>(FI_ADDR_UNSPEC);
    if (self.has_error() || self.value() == FI_ADDR_UNSPEC) {
      return -FI_EADDRNOTAVAIL;
    }
    rail.self = self.value();
  }
  Bytes target = own(buffers_->read_back[index], index);
  target.size_bytes = std::min(target.size_bytes, read.size_bytes);
  return note(endpoint(index).read(target, rail.self, read.address, read.key, operation),
              operation);
}

void Rails::note_end(Operation& operation) {
  PLEXUS_DCHECK(operation.sink == &sink_ && operation.hook.is_linked(), operation.kind);
  operations_.erase(operations_.iterator_to(operation));
}

void Rails::withdraw() {
  for (Operation& operation : operations_) {
    link_->cancel(operation);
  }
  ShortWait wait;
  do {
    link_->progress();
  } while (!operations_.empty() && !wait.is_over());
}

}  // namespace plexus::net_ofi
