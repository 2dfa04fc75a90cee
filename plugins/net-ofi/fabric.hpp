// SPDX-License-Identifier: Apache-2.0
// Owners of libfabric's objects, and texts for its error numbers.
#pragma once

#include <memory>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <string>

#include "plugins/net-ofi/library.hpp"
#include "plugins/net-ofi/settings.hpp"

namespace plexus::net_ofi {

struct FreeInfo {
  void operator()(fi_info* info) const noexcept { library().freeinfo(info); }
};
/// A copy of one entry of a list, or a list.
using InfoPtr = std::unique_ptr<fi_info, FreeInfo>;

/// fid_fabric, fid_domain, fid_av, fid_cq, fid_ep, fid_mr: all begin with their fid.
struct CloseFid {
  template <class T>
  void operator()(T* object) const noexcept {
    ::fi_close(&object->fid);
  }
};
template <class T>
using FidPtr = std::unique_ptr<T, CloseFid>;

/// The version of libfabric's interface that the plugin uses.
inline constexpr uint32_t kApiVersion = FI_VERSION(1, 17);

/// libfabric's text for an error number, negative or positive.
[[nodiscard]] std::string error_text(ssize_t error);

/// Whether the error means that the peer is gone, rather than a problem of this host.
[[nodiscard]] bool is_peer_gone(ssize_t error) noexcept;

/// Checks a call that opens an object: `PLEXUS_TRY(check_call(::fi_x(...), "open a domain",
/// nic.name));`
[[nodiscard]] Result<void> check_call(ssize_t result, const char* what, const std::string& where);

/// The library and its version, for messages: "libfabric 1.17".
[[nodiscard]] std::string library_text();

}  // namespace plexus::net_ofi
