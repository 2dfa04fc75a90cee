// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-ofi/endpoint.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <unistd.h>

namespace plexus::net_ofi {
namespace {

/// Receives and sends that can complete before they are polled.
constexpr size_t kQueueEntries = 1024;
constexpr size_t kEventsPerPoll = 16;
/// For ofi_rxm's steps of accepting a connection, whose interval library.cpp sets to 1 ms.
constexpr auto kSettleTime = std::chrono::milliseconds(3);

/// An endpoint of shm is a file whose name contains the process id and the endpoint's number. A
/// killed process leaves its files behind, and a new process with the same id finds those names
/// taken.
constexpr int kNamesMax = 1000;

/// ofi_rxm sends longer messages than this limit by a rendezvous, which takes three messages. Over
/// tcp it has a better way for all others: from and into the user's memory, in one message, which
/// is copied only if it comes before its receive. Both ends must have the same limit. Over other
/// providers it must be the size of ofi_rxm's buffers.
constexpr const char* kTcp = "tcp;ofi_rxm";
constexpr std::array<const char*, 1> kTcpVariables = {"FI_OFI_RXM_EAGER_LIMIT=1048576"};

}  // namespace

Result<Endpoint> Endpoint::open(const std::shared_ptr<Domain>& owner) {
  for (int names = 1;; ++names) {
    PLEXUS_TRY(endpoint, make(owner));
    const int enabled = ::fi_enable(endpoint.ep_.get());
    if (enabled == -FI_EBUSY && owner->provider() == "shm" && names < kNamesMax) {
      continue;  // the next endpoint has another name
    }
    PLEXUS_TRY(check_call(enabled, "enable an endpoint", owner->name()));
    return std::move(endpoint);
  }
}

Result<Endpoint> Endpoint::make(const std::shared_ptr<Domain>& owner) {
  Endpoint endpoint;
  Domain& domain = *owner;
  std::optional<KeptSignals> signals;
  if (domain.provider() == "shm") {
    signals.emplace();  // the first endpoint changes the handlers of SIGINT and other signals
  }
  endpoint.domain_ = owner;
  fi_av_attr av_attributes{};
  av_attributes.type = FI_AV_TABLE;
  fid_av* av = nullptr;
  PLEXUS_TRY(check_call(::fi_av_open(domain.raw(), &av_attributes, &av, nullptr),
                        "make an address table", domain.name()));
  endpoint.av_.reset(av);
  fi_cq_attr cq_attributes{};
  cq_attributes.format = FI_CQ_FORMAT_TAGGED;
  cq_attributes.size = kQueueEntries;
  cq_attributes.wait_obj = FI_WAIT_NONE;
  fid_cq* cq = nullptr;
  PLEXUS_TRY(check_call(::fi_cq_open(domain.raw(), &cq_attributes, &cq, nullptr),
                        "make a completion queue", domain.name()));
  endpoint.cq_.reset(cq);
  fid_ep* ep = nullptr;
  std::optional<ExtraVariables> variables;
  if (domain.provider() == kTcp) {
    variables.emplace(kTcpVariables);
  }
  PLEXUS_TRY(check_call(::fi_endpoint(domain.raw(), domain.info(), &ep, nullptr),
                        "make an endpoint", domain.name()));
  variables.reset();
  endpoint.ep_.reset(ep);
  PLEXUS_TRY(check_call(::fi_ep_bind(ep, &av->fid, 0), "bind an address table", domain.name()));
  PLEXUS_TRY(check_call(::fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV),
                        "bind a completion queue", domain.name()));
  if (domain.takes_device_memory()) {  // after binding: 1.17 cannot close an unbound endpoint
    PLEXUS_TRY(demand_direct_access(*ep, domain.provider() + " on " + domain.name()));
  }
  return endpoint;
}

Result<size_t> Endpoint::read_address(AddressBytes& address) const {
  if (!is_open()) {
    return fail(PLEXUS_REMOTE_ERROR, "the endpoint on {} was closed", domain_->name());
  }
  address = {};
  size_t size = address.size();
  const int result = ::fi_getname(&ep_->fid, address.data(), &size);
  if (result == -FI_ETOOSMALL || size > address.size()) {
    return fail(PLEXUS_INTERNAL_ERROR,
                "an address of {} has {} bytes, but a handle has room for {}", domain_->name(),
                size, address.size());
  }
  PLEXUS_TRY(check_call(result, "read an endpoint's address", domain_->name()));
  // Text addresses differ in length and end with zeros.
  return domain_->info()->addr_format == FI_ADDR_STR ? address.size() : size;
}

Result<fi_addr_t> Endpoint::insert(const AddressBytes& address) const {
  const bool is_gone = domain_->provider() == "shm" &&
                       ::access(("/dev/shm/" + address_text(address)).c_str(), F_OK) != 0;
  if (is_gone) {  // 1.17 crashes on the attempt
    return fail(PLEXUS_REMOTE_ERROR, "the endpoint {} of the provider shm does not exist",
                address_text(address));
  }
  fi_addr_t peer = FI_ADDR_UNSPEC;
  const int result = ::fi_av_insert(av_.get(), address.data(), 1, &peer, 0, nullptr);
  if (result != 1) {
    return fail(PLEXUS_REMOTE_ERROR, "libfabric rejected the peer's address {} on {}: {}",
                address_text(address), domain_->name(), error_text(result));
  }
  return peer;
}

std::string Endpoint::address_text(const AddressBytes& address) const {
  std::array<char, 128> text{};
  size_t size = text.size();
  ::fi_av_straddr(av_.get(), address.data(), text.data(), &size);
  text.back() = '\0';
  std::string result = readable(text);
  const size_t scheme = result.find("://");
  return scheme == std::string::npos ? result : result.substr(scheme + 3);
}

void Endpoint::settle() const {
  if (!domain_->provider().ends_with("ofi_rxm")) {
    return;
  }
  std::array<Event, kEventsPerPoll> ignored;
  const auto end = std::chrono::steady_clock::now() + kSettleTime;
  while (std::chrono::steady_clock::now() < end) {
    static_cast<void>(poll(ignored));
  }
}

void Endpoint::drop_unexpected() const {
  if (FI_MAJOR(library().version()) < 2) {
    return;
  }
  fi_context2 context{};
  fi_msg_tagged any{};
  any.context = &context;
  any.addr = FI_ADDR_UNSPEC;
  any.ignore = ~uint64_t{0};
  // Whether there was one is in the completion queue. To read that would drive the provider, and
  // with it operations whose buffers are the host's again.
  for (size_t i = 0; i < kQueueEntries; ++i) {
    static_cast<void>(::fi_trecvmsg(ep_.get(), &any, FI_PEEK | FI_DISCARD));
  }
}

size_t Endpoint::poll(std::span<Event> events) const {
  std::array<fi_cq_tagged_entry, kEventsPerPoll> entries;  // written by libfabric
  const size_t room = std::min(events.size(), entries.size());
  const ssize_t count = ::fi_cq_read(cq_.get(), entries.data(), room);
  if (count == -FI_EAGAIN) {
    return 0;
  }
  if (count == -FI_EAVAIL) {
    events[0] = read_error();
    return 1;
  }
  if (count < 0) {
    events[0] = Event{nullptr, 0, 0, static_cast<int>(-count), 0};
    return 1;
  }
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    const fi_cq_tagged_entry& entry = entries[i];
    Event& event = events[i];
    event.operation = static_cast<Operation*>(entry.op_context);
    event.size_bytes = entry.len;
    event.data = (entry.flags & FI_REMOTE_CQ_DATA) != 0 ? entry.data : 0;
    event.error = 0;
  }
  return static_cast<size_t>(count);
}

Event Endpoint::read_error() const {
  fi_cq_err_entry entry{};
  const ssize_t count = ::fi_cq_readerr(cq_.get(), &entry, 0);
  if (count < 0) {
    return {nullptr, 0, 0, static_cast<int>(-count), 0};
  }
  const int error = std::abs(entry.err);  // shm's error numbers are negative
  return {static_cast<Operation*>(entry.op_context), entry.len, 0, error, entry.olen};
}

}  // namespace plexus::net_ofi
