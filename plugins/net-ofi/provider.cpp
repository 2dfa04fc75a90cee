// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-ofi/provider.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <netinet/in.h>
#include <set>

#include <fmt/ranges.h>

#include "guest/interface_choice.hpp"
#include "plugins/net-ofi/device_memory.hpp"
#include "plugins/net-ofi/wire.hpp"

namespace plexus::net_ofi {
namespace {

std::string text_or_empty(const char* text) { return text == nullptr ? "" : text; }

/// The preference among providers with equal abilities. Providers not in the list come last in
/// libfabric's order, including emulations (sockets, UDP).
size_t preference(std::string_view provider) {
  constexpr std::array<std::string_view, 5> kOrder = {"efa", "verbs;ofi_rxm", "tcp;ofi_rxm", "tcp",
                                                      "net"};
  return static_cast<size_t>(std::find(kOrder.begin(), kOrder.end(), provider) - kOrder.begin());
}

/// Whether `a` is better than `b`.
bool is_better(const Offer& a, const Offer& b) {
  if (a.is_hardware != b.is_hardware) {
    return a.is_hardware;
  }
  return preference(a.provider) < preference(b.provider);
}

std::vector<Offer> select(const std::vector<Offer>& offers, auto keep) {
  std::vector<Offer> kept;
  std::copy_if(offers.begin(), offers.end(), std::back_inserter(kept), keep);
  return kept;
}

template <class Member>
std::vector<std::string> names_of(const std::vector<Offer>& offers, Member member) {
  std::vector<std::string> names;
  for (const Offer& offer : offers) {
    if (std::find(names.begin(), names.end(), offer.*member) == names.end()) {
      names.push_back(offer.*member);
    }
  }
  return names;
}

Result<std::vector<Offer>> choose_domains(const std::vector<Offer>& offers,
                                          const Settings& settings) {
  const std::vector<std::string> all = names_of(offers, &Offer::domain);
  const bool is_by_interface = settings.domains.empty() && offers.front().is_over_ip;
  const std::string& filter = is_by_interface ? settings.interfaces : settings.domains;
  if (filter.empty() && !is_by_interface) {
    return offers;
  }
  const std::vector<std::string> interfaces = choose_interfaces(all, filter);
  const NameFilter names(filter);
  std::vector<Offer> chosen = select(offers, [&](const Offer& offer) {
    return is_by_interface
               ? std::find(interfaces.begin(), interfaces.end(), offer.domain) != interfaces.end()
               : names.keeps(offer.domain);
  });
  if (chosen.empty()) {
    return fail(PLEXUS_INVALID_USAGE,
                "{}={} matches no domain of libfabric's provider {}; available: {}",
                is_by_interface ? "NCCL_SOCKET_IFNAME" : "PLEXUS_OFI_DOMAIN", filter,
                offers.front().provider, fmt::join(all, ", "));
  }
  return chosen;
}

/// IPv4 before IPv6, as in net-socket; the first of equal entries.
std::vector<Offer> one_per_domain(std::vector<Offer> offers) {
  std::stable_sort(offers.begin(), offers.end(), [](const Offer& a, const Offer& b) {
    return a.domain != b.domain ? a.domain < b.domain : a.is_ipv6 < b.is_ipv6;
  });
  const auto is_same = [](const Offer& a, const Offer& b) { return a.domain == b.domain; };
  offers.erase(std::unique(offers.begin(), offers.end(), is_same), offers.end());
  return offers;
}

// ---- queries to libfabric ----

InfoPtr make_hints(const Settings& settings, uint64_t more_caps) {
  InfoPtr hints(library().dupinfo(nullptr));
  if (hints == nullptr) {
    return hints;
  }
  hints->caps = FI_TAGGED | FI_SEND | FI_RECV | more_caps;
  if (FI_MAJOR(library().version()) >= 2) {
    hints->caps |= FI_SOURCE;  // without it ofi_rxm of 2.1 crashes when a peer becomes known while
                               // messages wait for their receives
  }
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  // Several connections use one domain, each with its own thread.
  hints->domain_attr->threading = FI_THREAD_SAFE;
  // The waiting thread calls test(), so libfabric needs no thread of its own.
  hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
  hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
  hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  hints->domain_attr->av_type = FI_AV_TABLE;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  hints->tx_attr->msg_order = FI_ORDER_SAS;
  hints->rx_attr->msg_order = FI_ORDER_SAS;
  if (settings.rails > 1) {
    hints->domain_attr->cq_data_size = sizeof(uint32_t);
  }
  return hints;
}

/// The list; empty when nothing matches.
Result<InfoPtr> ask(const fi_info* hints, uint32_t version = kApiVersion) {
  fi_info* list = nullptr;
  const int result = library().getinfo(version, nullptr, nullptr, 0, hints, &list);
  InfoPtr owner(list);
  if (result != 0 && result != -FI_ENODATA) {
    return fail(PLEXUS_SYSTEM_ERROR, "{} cannot list its providers: {}", library_text(),
                error_text(result));
  }
  return owner;
}

std::vector<Offer> read_offers(const fi_info* list) {
  std::vector<Offer> offers;
  for (size_t index = 0; list != nullptr; list = list->next) {
    offers.push_back(read_offer(*list, index++));
  }
  return offers;
}

/// Reduces the queue sizes, because libfabric allocates for all of them: 1 MB per ofi_rxm endpoint.
void take_smaller_buffers(fi_info& info) {
  info.tx_attr->size = std::min(info.tx_attr->size, kOperationsMax);
  info.rx_attr->size = std::min(info.rx_attr->size, kOperationsMax);
}

/// A provider limited to one host (shm) is used only if named, because other hosts may join.
uint64_t reach_of(const Settings& settings) {
  return settings.provider.empty() ? FI_REMOTE_COMM : 0;
}

bool is_same_card(const Offer& a, const Offer& b) {
  return a.provider == b.provider && a.domain == b.domain && a.is_ipv6 == b.is_ipv6 &&
         a.is_link_local == b.is_link_local;
}

Result<InfoPtr> ask_for_usable(const Settings& settings) {
  const InfoPtr hints = make_hints(settings, reach_of(settings));
  if (hints == nullptr) {
    return fail(PLEXUS_SYSTEM_ERROR, "out of memory");
  }
  return ask(hints.get());
}

const char* endpoint_text(fi_ep_type type) {
  switch (type) {
    case FI_EP_MSG:
      return "MSG";
    case FI_EP_DGRAM:
      return "DGRAM";
    case FI_EP_RDM:
      return "RDM";
    default:
      return "other";
  }
}

/// Excludes providers that do not work as described. libfabric 1.17 ships a preview of its later
/// tcp as `net`, which aborts the process when a message is longer than its receive.
bool is_sound(const Offer& offer) {
  return !offer.provider.starts_with("net") ||
         FI_VERSION_GE(library().version(), FI_VERSION(1, 18));
}

/// Why a named provider is not among the usable ones.
Failure explain_absence(const Settings& settings, const std::vector<Offer>& usable) {
  const std::vector<std::string> names = names_of(usable, &Offer::provider);
  const std::string choice = names.empty() ? "no provider is usable here"
                                           : fmt::format("usable here: {}", fmt::join(names, ", "));
  std::set<std::string> types;
  if (auto everything = ask(nullptr); everything.has_value()) {
    for (const fi_info* entry = everything.value().get(); entry != nullptr; entry = entry->next) {
      if (text_or_empty(entry->fabric_attr->prov_name) == settings.provider) {
        types.insert(endpoint_text(entry->ep_attr->type));
      }
    }
  }
  if (types.empty()) {
    return fail(PLEXUS_INVALID_USAGE,
                "PLEXUS_OFI_PROVIDER={}: {} has no such provider on this host, or FI_PROVIDER "
                "excludes it; {}",
                settings.provider, library_text(), choice);
  }
  const bool lacks_type = types.count("RDM") == 0;
  return fail(
      PLEXUS_INVALID_USAGE, "PLEXUS_OFI_PROVIDER={}: the provider of {} {}; {}", settings.provider,
      library_text(),
      lacks_type
          ? fmt::format("has only endpoints of type {}, and net-ofi needs RDM with tagged messages",
                        fmt::join(types, ", "))
          : std::string("lacks ordered tagged messages between RDM endpoints, which "
                        "net-ofi needs, or is a preview known to crash"),
      choice);
}

}  // namespace

Offer read_offer(const fi_info& info, size_t index) {
  Offer offer;
  offer.provider = text_or_empty(info.fabric_attr->prov_name);
  offer.domain = text_or_empty(info.domain_attr->name);
  offer.is_hardware = info.nic != nullptr && info.nic->bus_attr != nullptr &&
                      info.nic->bus_attr->bus_type == FI_BUS_PCI;
  const bool is_ipv4 = info.addr_format == FI_SOCKADDR_IN;
  offer.is_ipv6 = info.addr_format == FI_SOCKADDR_IN6;
  offer.is_over_ip = !offer.is_hardware && (is_ipv4 || offer.is_ipv6);
  if (offer.is_ipv6 && info.src_addr != nullptr) {
    sockaddr_in6 address{};
    std::memcpy(&address, info.src_addr, std::min(sizeof address, info.src_addrlen));
    offer.is_link_local = IN6_IS_ADDR_LINKLOCAL(&address.sin6_addr);
  }
  if (info.ep_attr->mem_tag_format != 0) {
    offer.tag_bits = static_cast<uint32_t>(std::bit_width(info.ep_attr->mem_tag_format));
  }
  offer.index = index;
  return offer;
}

Result<std::vector<Offer>> choose_offers(const std::vector<Offer>& offers,
                                         const Settings& settings) {
  // A link-local address needs an interface number, which has no meaning at the peer.
  std::vector<Offer> usable = select(offers, [&](const Offer& offer) {
    const bool is_family_wanted = !offer.is_over_ip || settings.family == AddressFamily::kAny ||
                                  offer.is_ipv6 == (settings.family == AddressFamily::kIpv6);
    return is_sound(offer) && offer.tag_bits >= kTagBitsMin && !offer.is_link_local &&
           is_family_wanted;
  });
  std::vector<Offer> wanted = select(usable, [&](const Offer& offer) {
    return settings.provider.empty() || offer.provider == settings.provider;
  });
  if (wanted.empty()) {
    if (!settings.provider.empty()) {
      return explain_absence(settings, usable);
    }
    return fail(PLEXUS_INVALID_USAGE,
                "{} has no provider here that reaches other hosts with tagged messages between RDM "
                "endpoints; see `fi_info -t FI_EP_RDM -c FI_TAGGED`",
                library_text());
  }
  std::stable_sort(wanted.begin(), wanted.end(), is_better);
  const std::string best = wanted.front().provider;
  PLEXUS_TRY(chosen, choose_domains(
                         select(wanted, [&](const Offer& offer) { return offer.provider == best; }),
                         settings));
  return one_per_domain(std::move(chosen));
}

Result<std::vector<Nic>> find_nics(const Settings& settings) {
  if (!library().problem.empty()) {
    return fail(PLEXUS_SYSTEM_ERROR, "net-ofi needs libfabric 1.17 or newer: {}; install it",
                library().problem);
  }
  PLEXUS_TRY(list, ask_for_usable(settings));
  PLEXUS_TRY(chosen, choose_offers(read_offers(list.get()), settings));
  std::vector<Nic> nics;
  for (const Offer& offer : chosen) {
    const fi_info* entry = list.get();
    for (size_t i = 0; i < offer.index; ++i) {
      entry = entry->next;
    }
    InfoPtr copy(library().dupinfo(entry));
    if (copy == nullptr) {
      return fail(PLEXUS_SYSTEM_ERROR, "out of memory");
    }
    take_smaller_buffers(*copy);
    nics.push_back({offer, std::move(copy)});
  }
  return nics;
}

Result<std::vector<Nic>> find_for_device_memory(const std::vector<Nic>& nics,
                                                const Settings& settings) {
  if (!FI_VERSION_GE(library().version(), kDeviceMemoryVersion)) {
    return fail(PLEXUS_SYSTEM_ERROR,
                "{} is older than 1.18, the first version that works without CUDA calls",
                library_text());
  }
  const std::string& provider = nics.front().offer.provider;
  const InfoPtr hints =
      make_hints(settings, reach_of(settings) | FI_HMEM | FI_RMA | FI_READ | FI_REMOTE_READ);
  if (hints == nullptr) {
    return fail(PLEXUS_SYSTEM_ERROR, "out of memory");
  }
  hints->domain_attr->mr_mode |= FI_MR_HMEM;
  hints->fabric_attr->prov_name = ::strdup(provider.c_str());
  PLEXUS_TRY(list, ask(hints.get(), device_memory_version()));
  std::vector<Nic> found;
  for (const Nic& nic : nics) {
    size_t index = 0;
    const fi_info* entry = list.get();
    while (entry != nullptr && !is_same_card(nic.offer, read_offer(*entry, index))) {
      entry = entry->next;
      ++index;
    }
    if (entry == nullptr || (entry->caps & FI_HMEM) == 0) {
      return fail(PLEXUS_SYSTEM_ERROR, "{} of {} has no FI_HMEM with FI_RMA on {}", provider,
                  library_text(), nic.offer.domain);
    }
    InfoPtr copy(library().dupinfo(entry));
    if (copy == nullptr) {
      return fail(PLEXUS_SYSTEM_ERROR, "out of memory");
    }
    found.push_back({read_offer(*entry, index), std::move(copy)});
  }
  return found;
}

}  // namespace plexus::net_ofi
