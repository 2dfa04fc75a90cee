// SPDX-License-Identifier: Apache-2.0
// One endpoint of libfabric with its own address vector and completion queue, so that closing it
// ends everything that was started on it and nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

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

/// What libfabric hands back when an operation ends. `context` is libfabric's while it runs, and
/// first, so that its address is the operation's.
struct Operation {
  fi_context2 context{};
  void* owner = nullptr;  // by kind
  uint32_t index = 0;     // by kind
  OperationKind kind = OperationKind::kMessage;
};

/// An operation that ended.
struct Event {
  Operation* operation = nullptr;  // null: trouble of the endpoint as a whole
  uint64_t size_bytes = 0;
  uint64_t data = 0;          // immediate data; 0 without
  int error = 0;              // FI_E*; 0: done
  uint64_t excess_bytes = 0;  // of a message that was too long
  std::string text;           // the provider's words for the error
};

/// The bytes of a send or a receive.
struct Bytes {
  void* data;  // libfabric's interface has no const where it only reads
  uint64_t size_bytes;
  void* descriptor;  // of their registration, null without
};

class Endpoint {
 public:
  [[nodiscard]] static Result<Endpoint> open(const std::shared_ptr<Domain>& domain);

  /// Its own address, for a peer.
  [[nodiscard]] Result<size_t> read_address(AddressBytes& address) const;
  /// Makes a peer's address usable here.
  [[nodiscard]] Result<fi_addr_t> insert(const AddressBytes& address) const;
  /// "10.0.0.1:1234", or what the provider has.
  [[nodiscard]] std::string address_text(const AddressBytes& address) const;

  /// 0, or libfabric's error; -FI_EAGAIN: not now.
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

  /// Reads registered memory of this process through the card, from `self`, its own address.
  [[nodiscard]] ssize_t read(Bytes into,
                             fi_addr_t self,
                             uint64_t address,
                             uint64_t key,
                             Operation& operation) const noexcept {
    return ::fi_read(ep_.get(), into.data, into.size_bytes, into.descriptor, self, address, key,
                     &operation.context);
  }

  /// To be called before closing what strangers may have called: ofi_rxm of 1.17 never closes the
  /// socket of who is accepted and not yet heard.
  void settle() const;
  /// Lets the provider work and takes what ended. Events after the returned number are not written.
  [[nodiscard]] size_t poll(std::span<Event> events) const;

  [[nodiscard]] Domain& domain() const noexcept { return *domain_; }
  void close() noexcept { ep_.reset(); }
  [[nodiscard]] bool is_open() const noexcept { return ep_ != nullptr; }

 private:
  Endpoint() = default;
  /// Bound, not yet enabled.
  [[nodiscard]] static Result<Endpoint> make(const std::shared_ptr<Domain>& domain);
  [[nodiscard]] Event read_error() const;

  std::shared_ptr<Domain> domain_;
  FidPtr<fid_av> av_;
  FidPtr<fid_cq> cq_;
  FidPtr<fid_ep> ep_;  // last: it goes first
};

}  // namespace plexus::net_ofi
