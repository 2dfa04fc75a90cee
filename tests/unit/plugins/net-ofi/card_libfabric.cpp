// SPDX-License-Identifier: Apache-2.0
// The simulated libfabric with a NIC that supports GPU memory. See card.hpp.
//
// libfabric's objects are tables of functions. An object made by the real libfabric gets a copy of
// its table in which some functions are replaced; the real table is kept as well.
#include <algorithm>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <memory>
#include <optional>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <sys/uio.h>

#include "tests/unit/plugins/net-ofi/card.hpp"

#define PLEXUS_TEST_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using plexus::test::Card;
using plexus::test::CardAsk;
using plexus::test::CardRead;
using plexus::test::CardRegistration;

// As published for 1.18 and 1.20; independent of the plugin's definition.
constexpr int kOptCudaApiPermitted = 10;
constexpr uint64_t kMrDmabuf = uint64_t{1} << 40;
struct Dmabuf {
  int fd;
  uint64_t offset;
  size_t len;
  void* base_addr;
};
struct AttributesOf120 {
  fi_mr_attr known;
  void* hmem_data;
  size_t page_size;
  const fid_mr* base_mr;
  size_t sub_mr_cnt;
};

Card& card() {
  static Card made;
  return made;
}

template <class Function>
Function real(const char* name, Function /*type*/) {
  static void* const file = ::dlopen(PLEXUS_REAL_LIBFABRIC, RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<Function>(file == nullptr ? nullptr : ::dlsym(file, name));
}
#define PLEXUS_REAL(function) real(#function, &function)

/// The real and the replaced tables of objects. An address may be reused after its object is gone.
template <class Ops>
class Tables {
 public:
  /// A copy of `ops` for `object`, to be changed.
  Ops* replace(const void* object, Ops* ops) {
    const std::scoped_lock lock(mutex_);
    Entry& entry = entries_[object];
    if (entry.ours == nullptr || ops != entry.ours.get()) {
      entry.real = ops;
      entry.ours = std::make_shared<Ops>(*ops);
      kept_.push_back(entry.ours);
    }
    return entry.ours.get();
  }
  Ops* real_of(const void* object) {
    const std::scoped_lock lock(mutex_);
    return entries_.at(object).real;
  }

 private:
  struct Entry {
    Ops* real = nullptr;
    std::shared_ptr<Ops> ours;
  };
  std::mutex mutex_;
  std::map<const void*, Entry> entries_;
  std::vector<std::shared_ptr<Ops>> kept_;  // an object that is being closed may still use it
};

template <class Ops>
Tables<Ops>& tables() {
  static Tables<Ops> made;
  return made;
}

struct HeldRead {
  fid_ep* ep;
  void* buf;
  size_t len;
  void* desc;
  fi_addr_t source;
  uint64_t address;
  uint64_t key;
  void* context;
};
std::vector<HeldRead>& held_reads() {
  static std::vector<HeldRead> made;
  return made;
}

// ---- endpoints ----

int set_option(fid_t fid, int level, int name, const void* value, size_t size) {
  Card& it = card();
  if (level == FI_OPT_ENDPOINT && name == FI_OPT_FI_HMEM_P2P) {
    int wish = -1;
    std::memcpy(&wish, value, std::min(size, sizeof wish));
    const std::scoped_lock lock(it.mutex);
    it.direct_endpoints += wish == FI_HMEM_P2P_REQUIRED && size == sizeof wish ? 1 : 0;
    return it.direct_result;
  }
  if (level == FI_OPT_ENDPOINT && name == kOptCudaApiPermitted) {
    bool permitted = true;
    std::memcpy(&permitted, value, std::min(size, sizeof permitted));
    const std::scoped_lock lock(it.mutex);
    it.no_cuda_endpoints += !permitted && size == sizeof permitted ? 1 : 0;
    return it.no_cuda_result;
  }
  return tables<fi_ops_ep>().real_of(fid)->setopt(fid, level, name, value, size);
}

ssize_t read_remote(fid_ep* ep,
                    void* buf,
                    size_t len,
                    void* desc,
                    fi_addr_t source,
                    uint64_t address,
                    uint64_t key,
                    void* context) {
  Card& it = card();
  {
    const std::scoped_lock lock(it.mutex);
    if (it.holds_reads) {
      it.reads.push_back({address, len, key});
      held_reads().push_back({ep, buf, len, desc, source, address, key, context});
      return 0;
    }
  }
  const ssize_t result =
      tables<fi_ops_rma>().real_of(ep)->read(ep, buf, len, desc, source, address, key, context);
  if (result == 0) {
    const std::scoped_lock lock(it.mutex);
    it.reads.push_back({address, len, key});
  }
  return result;
}

/// What becomes of a send on this NIC; nullopt: it is real.
std::optional<ssize_t> lose_send() {
  std::atomic<int>& left = card().sends_until_full;
  if (left == 0) {
    return std::nullopt;
  }
  if (left == 1) {
    return -FI_EAGAIN;
  }
  --left;
  return 0;
}

ssize_t send_tagged(fid_ep* ep,
                    const void* buf,
                    size_t len,
                    void* desc,
                    fi_addr_t target,
                    uint64_t tag,
                    void* context) {
  const auto lost = lose_send();
  return lost ? *lost
              : tables<fi_ops_tagged>().real_of(ep)->send(ep, buf, len, desc, target, tag, context);
}

ssize_t send_message_tagged(fid_ep* ep, const fi_msg_tagged* message, uint64_t flags) {
  const auto lost = lose_send();
  return lost ? *lost : tables<fi_ops_tagged>().real_of(ep)->sendmsg(ep, message, flags);
}

void release_reads() {
  std::vector<HeldRead> reads;
  {
    const std::scoped_lock lock(card().mutex);
    reads.swap(held_reads());
    card().holds_reads = false;
  }
  for (const HeldRead& read : reads) {
    ssize_t result = -FI_EAGAIN;
    while (result == -FI_EAGAIN) {  // connecting to itself takes several rounds
      result = tables<fi_ops_rma>().real_of(read.ep)->read(read.ep, read.buf, read.len, read.desc,
                                                           read.source, read.address, read.key,
                                                           read.context);
    }
  }
}

// ---- domains ----

int register_memory(fid* domain, const fi_mr_attr* attr, uint64_t flags, fid_mr** mr) {
  Card& it = card();
  const auto& whole = *reinterpret_cast<const AttributesOf120*>(attr);
  CardRegistration registration;
  fi_mr_attr passed = *attr;
  iovec range = *attr->mr_iov;
  if ((flags & kMrDmabuf) != 0) {
    const auto& dmabuf = *reinterpret_cast<const Dmabuf*>(attr->mr_iov);
    range = {static_cast<std::byte*>(dmabuf.base_addr) + dmabuf.offset, dmabuf.len};
    passed.mr_iov = &range;
    registration.is_dmabuf = true;
    registration.dmabuf_fd = dmabuf.fd;
    registration.dmabuf_offset = dmabuf.offset;
  }
  registration.data = range.iov_base;
  registration.size_bytes = range.iov_len;
  registration.access = attr->access;
  registration.iface = attr->iface;
  registration.device = attr->device.cuda;
  registration.beyond_known = reinterpret_cast<uintptr_t>(whole.hmem_data) | whole.page_size |
                              reinterpret_cast<uintptr_t>(whole.base_mr) | whole.sub_mr_cnt;
  {
    const std::scoped_lock lock(it.mutex);
    it.registrations.push_back(registration);
  }
  if (attr->iface != FI_HMEM_SYSTEM && it.register_result != 0) {
    return it.register_result;
  }
  passed.iface = FI_HMEM_SYSTEM;
  passed.device.reserved = 0;
  return tables<fi_ops_mr>().real_of(domain)->regattr(domain, &passed, flags & ~kMrDmabuf, mr);
}

/// Hints for the real provider, without the abilities of the simulated NIC.
struct FreeInfo {
  void operator()(fi_info* info) const { PLEXUS_REAL(fi_freeinfo)(info); }
};
using InfoPtr = std::unique_ptr<fi_info, FreeInfo>;

InfoPtr without_card(const fi_info& info) {
  InfoPtr copy(PLEXUS_REAL(fi_dupinfo)(&info));
  copy->caps &= ~FI_HMEM;
  copy->domain_attr->mr_mode &= ~FI_MR_HMEM;
  return copy;
}

int open_endpoint(fid_domain* domain, fi_info* info, fid_ep** ep, void* context) {
  const InfoPtr known = without_card(*info);
  const int result =
      tables<fi_ops_domain>().real_of(domain)->endpoint(domain, known.get(), ep, context);
  if (result == 0) {
    auto* const ops = tables<fi_ops_ep>().replace(*ep, (*ep)->ops);
    ops->setopt = set_option;
    (*ep)->ops = ops;
    if ((*ep)->rma != nullptr) {
      auto* const rma = tables<fi_ops_rma>().replace(*ep, (*ep)->rma);
      rma->read = read_remote;
      (*ep)->rma = rma;
    }
    auto* const tagged = tables<fi_ops_tagged>().replace(*ep, (*ep)->tagged);
    tagged->send = send_tagged;
    tagged->sendmsg = send_message_tagged;
    (*ep)->tagged = tagged;
  }
  return result;
}

int open_domain(fid_fabric* fabric, fi_info* info, fid_domain** domain, void* context) {
  if ((info->caps & FI_HMEM) != 0) {
    const std::scoped_lock lock(card().mutex);
    card().domains.push_back({0, info->caps, info->domain_attr->mr_mode,
                              static_cast<int>(info->domain_attr->threading)});
  }
  const InfoPtr known = without_card(*info);
  const int result =
      tables<fi_ops_fabric>().real_of(fabric)->domain(fabric, known.get(), domain, context);
  if (result == 0) {
    auto* const ops = tables<fi_ops_domain>().replace(*domain, (*domain)->ops);
    ops->endpoint = open_endpoint;
    (*domain)->ops = ops;
    auto* const memory = tables<fi_ops_mr>().replace(*domain, (*domain)->mr);
    memory->regattr = register_memory;
    (*domain)->mr = memory;
  }
  return result;
}

}  // namespace

// ---- what libfabric exports ----

PLEXUS_TEST_EXPORT Card* plexus_test_card() {
  card().release_reads = release_reads;
  return &card();
}

PLEXUS_TEST_EXPORT uint32_t fi_version() {
  return card().version != 0 ? card().version : PLEXUS_REAL(fi_version)();
}

PLEXUS_TEST_EXPORT const char* fi_strerror(int error) { return PLEXUS_REAL(fi_strerror)(error); }
PLEXUS_TEST_EXPORT fi_info* fi_dupinfo(const fi_info* info) {
  return PLEXUS_REAL(fi_dupinfo)(info);
}
PLEXUS_TEST_EXPORT void fi_freeinfo(fi_info* info) { PLEXUS_REAL(fi_freeinfo)(info); }

PLEXUS_TEST_EXPORT int fi_getinfo(uint32_t version,
                                  const char* node,
                                  const char* service,
                                  uint64_t flags,
                                  const fi_info* hints,
                                  fi_info** info) {
  const uint32_t known = std::min(version, PLEXUS_REAL(fi_version)());
  if (hints == nullptr || (hints->caps & FI_HMEM) == 0) {
    return PLEXUS_REAL(fi_getinfo)(known, node, service, flags, hints, info);
  }
  {
    const std::scoped_lock lock(card().mutex);
    card().asks.push_back({version, hints->caps, hints->domain_attr->mr_mode,
                           static_cast<int>(hints->domain_attr->threading)});
  }
  *info = nullptr;
  if (!card().has_hmem) {
    return -FI_ENODATA;
  }
  const int result =
      PLEXUS_REAL(fi_getinfo)(known, node, service, flags, without_card(*hints).get(), info);
  for (fi_info* each = *info; each != nullptr; each = each->next) {
    each->caps |= FI_HMEM;
    each->domain_attr->mr_mode |= FI_MR_HMEM;
  }
  return result;
}

PLEXUS_TEST_EXPORT int fi_fabric(fi_fabric_attr* attr, fid_fabric** fabric, void* context) {
  const int result = PLEXUS_REAL(fi_fabric)(attr, fabric, context);
  if (result == 0) {
    auto* const ops = tables<fi_ops_fabric>().replace(*fabric, (*fabric)->ops);
    ops->domain = open_domain;
    (*fabric)->ops = ops;
  }
  return result;
}
