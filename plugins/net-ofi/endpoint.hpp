// SPDX-License-Identifier: Apache-2.0
// One libfabric endpoint with its own address vector and completion queue, so that closing it ends
// exactly the operations that were started on it. The connections of one link share it (link.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <boost/intrusive/list.hpp>

#include "plugins/net-ofi/device.hpp"
#include "plugins/net-ofi/fabric.hpp"
#include "plugins/net-ofi/wire.hpp"

namespace plexus::net_ofi {

enum class OperationKind : uint8_t {
  kMessage,
  kPart,
  kFlush,
  kControlSend,
  kControlReceive,
  kGreetingSend,
  kGreetingReceive,
};

class EventSink;

/// What libfabric returns when an operation ends. libfabric uses `context` meanwhile; it is the
/// first member, so that its address is the operation's.
struct Operation {
  fi_context2 context{};
  EventSink* sink = nullptr;  // is told of the end
  void* owner = nullptr;      // meaning depends on the kind
  uint32_t index = 0;         // meaning depends on the kind
  OperationKind kind = OperationKind::kMessage;
  boost::intrusive::list_member_hook<> hook;  // of the list of operations that have not ended
};
using Operations =
    boost::intrusive::list<Operation,
                           boost::intrusive::member_hook<Operation,
                                                         boost::intrusive::list_member_hook<>,
                                                         &Operation::hook>>;

/// An operation that has ended.
struct Event {
  Operation* operation = nullptr;  // null: an error of the whole endpoint
  uint64_t size_bytes = 0;
  uint64_t data = 0;          // immediate data; 0: none
  int error = 0;              // FI_E*; 0: success
  uint64_t excess_bytes = 0;  // by which the message was too long
};

class EventSink {
 public:
  virtual void take(const Event& event) = 0;

 protected:
  ~EventSink() = default;
};

/// The buffer of a send or a receive.
struct Bytes {
  void* data;  // not const, because libfabric's interface has no const for reads
  uint64_t size_bytes;
  void* descriptor;  // descriptor of the registration; null: none
};

class Endpoint {
 public:
  [[nodiscard]] static Result<Endpoint> open(const std::shared_ptr<Domain>& domain);

  /// The endpoint's own address, for a peer.
  [[nodiscard]] Result<size_t> read_address(AddressBytes& address) const;
  /// Adds a peer's address to the address vector.
  [[nodiscard]] Result<fi_addr_t> insert(const AddressBytes& address) const;
  /// "10.0.0.1:1234", or the provider's format.
  [[nodiscard]] std::string address_text(const AddressBytes& address) const;

  /// 0, or libfabric's error; -FI_EAGAIN: not possible now.
  [[nodiscard]] ssize_t send(Bytes bytes,
                             fi_addr_t peer,
                             uint64_t tag,
                             Operation& operation) const noexcept {
    return ::fi_tsend(ep_.get(), bytes.data, bytes.size_bytes, bytes.descriptor, peer, tag,
                      &operation.context);
  }
  [[nodiscard]] ssize_t send_with_data(Bytes bytes,
                                       uint64_t data,
                                       fi_addr_t peer,
                                       uint64_t tag,
                                       Operation& operation) const noexcept {
    return ::fi_tsenddata(ep_.get(), bytes.data, bytes.size_bytes, bytes.descriptor, data, peer,
                          tag, &operation.context);
  }
  [[nodiscard]] ssize_t receive(Bytes bytes, uint64_t tag, Operation& operation) const noexcept {
    return ::fi_trecv(ep_.get(), bytes.data, bytes.size_bytes, bytes.descriptor, FI_ADDR_UNSPEC,
                      tag, 0, &operation.context);
  }

  /// Withdraws a receive that no message has reached; it ends with FI_ECANCELED. Others end as they
  /// would.
  void cancel(Operation& operation) const noexcept { ::fi_cancel(&ep_->fid, &operation.context); }

  /// Reads registered memory of this process through the NIC, from `self`, the endpoint's own
  /// address.
  [[nodiscard]] ssize_t read(Bytes into,
                             fi_addr_t self,
                             uint64_t address,
                             uint64_t key,
                             Operation& operation) const noexcept {
    return ::fi_read(ep_.get(), into.data, into.size_bytes, into.descriptor, self, address, key,
                     &operation.context);
  }

  /// To be called before closing an endpoint that unauthenticated peers may have connected to:
  /// ofi_rxm of 1.17 never closes the socket of a peer that is accepted but has not sent anything.
  void settle() const;
  /// To be called before closing one of two endpoints of shm in this process: drops messages that
  /// came and that nobody has asked for. Since 2.0 shm looks at their sender's memory when it
  /// closes the endpoint, and crashes if that was closed before.
  void drop_unexpected() const;
  /// Drives the provider and returns the number of `events` written.
  [[nodiscard]] size_t poll(std::span<Event> events) const;

  [[nodiscard]] Domain& domain() const noexcept { return *domain_; }
  void close() noexcept { ep_.reset(); }
  [[nodiscard]] bool is_open() const noexcept { return ep_ != nullptr; }

 private:
  Endpoint() = default;
  /// Bound, but not enabled yet.
  [[nodiscard]] static Result<Endpoint> make(const std::shared_ptr<Domain>& domain);
  [[nodiscard]] Event read_error() const;

  std::shared_ptr<Domain> domain_;
  FidPtr<fid_av> av_;
  FidPtr<fid_cq> cq_;
  FidPtr<fid_ep> ep_;  // last member, so that it is closed first
};

}  // namespace plexus::net_ofi
