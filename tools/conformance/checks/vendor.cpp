// SPDX-License-Identifier: Apache-2.0
// Properties of NCCL's ABI that only its raw table shows: sizes, names, and properties before
// conversion. Everything else of a vendor's plugin is checked through core/plugin/nccl_net.
#include <algorithm>
#include <array>
#include <cstring>

#include "plugin-api/nccl/net_v11_cross_dc.h"
#include "plugin-api/nccl/net_v12.h"

#include "core/plugin/nccl_net/choose.hpp"
#include "tools/conformance/check.hpp"
#include "tools/conformance/library.hpp"
#include "tools/conformance/raw_net.hpp"

namespace plexus::conformance {
namespace {

constexpr CheckOptions kVendor = {.abi = CheckOptions::Abi::kVendor};

Result<void> symbol_sizes(Fixture& fixture) {
  constexpr std::array<size_t, 7> kBytes = {136, 152, 152, 160, 160, 176, 176};  // v6 to v12
  PLEXUS_TRY(library, load_library(fixture));
  for (int version = nccl_net::kVersionLeast; version <= nccl_net::kVersionMost; ++version) {
    const auto object = library.find_object(fmt::format("ncclNetPlugin_v{}", version).c_str());
    if (!object.has_value() || object->size_bytes == 0) {
      continue;
    }
    const size_t expected = kBytes[static_cast<size_t>(version - nccl_net::kVersionLeast)];
    const bool is_cross_dc = version == 11 && object->size_bytes == sizeof(nccl_net_v11_cross_dc_t);
    PLEXUS_TRY(expect(object->size_bytes == expected || is_cross_dc,
                      "ncclNetPlugin_v{} has {} bytes, expected {}", version, object->size_bytes,
                      expected));
  }
  return ok();
}

Result<void> table_entries(Fixture& fixture) {
  PLEXUS_TRY(raw, RawNet::choose(fixture));
  PLEXUS_TRY(net, Net::load(fixture));
  PLEXUS_TRY(Context::open(net));  // some fill in their tables during init
  const char* const missing = raw.net->find_missing_entry();
  return expect(missing == nullptr, "the entry {} is null", missing == nullptr ? "" : missing);
}

Result<void> name(Fixture& fixture) {
  PLEXUS_TRY(raw, RawNet::choose(fixture));
  PLEXUS_TRY(net, Net::load(fixture));
  PLEXUS_TRY(Context::open(net));
  const char* const text = raw.net->name();
  PLEXUS_TRY(expect(text != nullptr && *text != '\0', "its name is null or empty after init"));
  return expect(
      std::all_of(text, text + std::strlen(text), [](char c) { return c >= ' ' && c <= '~'; }),
      "its name is not printable");
}

/// `f` with the raw properties of each device.
template <Result<void> (*f)(const nccl_net::ForeignProperties&)>
Result<void> on_raw_devices(Fixture& fixture) {
  PLEXUS_TRY(raw, RawNet::choose(fixture));
  PLEXUS_TRY(net, Net::load(fixture));
  PLEXUS_TRY(context, Context::open(net));
  for (uint32_t device = 0; device < context.devices(); ++device) {
    nccl_net::ForeignProperties properties;
    const int32_t code = fixture.monitor().call(Place::kProperties, [&] {
      return raw.net->get_properties(static_cast<int>(device), properties);
    });
    PLEXUS_TRY(expect(code == PLEXUS_OK, "getProperties failed with {}", code));
    if (auto checked = f(properties); checked.has_error()) {
      return std::move(checked).error().with_context(fmt::format("device {}", device));
    }
  }
  return ok();
}

Result<void> raw_name(const nccl_net::ForeignProperties& p) {
  return expect(p.v12.name != nullptr && *p.v12.name != '\0', "its name is null or empty");
}
Result<void> raw_memory(const nccl_net::ForeignProperties& p) {
  constexpr int kAll = NCCL_MEMORY_HOST | NCCL_MEMORY_CUDA | NCCL_MEMORY_DMABUF;
  return expect(
      (p.v12.pointer_support & NCCL_MEMORY_HOST) != 0 && (p.v12.pointer_support & ~kAll) == 0,
      "ptrSupport is {:#x}", p.v12.pointer_support);
}
Result<void> raw_counts(const nccl_net::ForeignProperties& p) {
  return expect(p.v12.recvs_max >= 1, "maxRecvs is {}", p.v12.recvs_max);
}
Result<void> raw_bytes(const nccl_net::ForeignProperties& p) {
  return expect(p.v12.p2p_bytes_max > 0 && p.v12.p2p_bytes_max <= NCCL_NET_BYTES_MAX,
                "maxP2pBytes is {}", p.v12.p2p_bytes_max);
}
Result<void> raw_unused(const nccl_net::ForeignProperties& p) {
  return expect(p.v12.comms_max >= 1 && p.v12.coll_bytes_max > 0 &&
                    p.v12.coll_bytes_max <= NCCL_NET_BYTES_MAX,
                "maxComms is {}, maxCollBytes is {}", p.v12.comms_max, p.v12.coll_bytes_max);
}
Result<void> raw_type(const nccl_net::ForeignProperties& p) {
  return expect(p.v12.device_type == NCCL_DEVICE_TYPE_HOST,
                "netDeviceType is {}, but a host can drive only 0", p.v12.device_type);
}

Result<void> strings_live(Fixture& fixture) {
  PLEXUS_TRY(raw, RawNet::choose(fixture));
  PLEXUS_TRY(net, Net::load(fixture));
  PLEXUS_TRY(Context::open(net));
  nccl_net::ForeignProperties first;
  nccl_net::ForeignProperties again;
  fixture.monitor().call(Place::kProperties, [&] { return raw.net->get_properties(0, first); });
  const std::string name = first.v12.name == nullptr ? "" : first.v12.name;
  for (int i = 0; i < 100; ++i) {
    const int32_t code = fixture.monitor().call(Place::kProperties,
                                                [&] { return raw.net->get_properties(0, again); });
    PLEXUS_TRY(expect(code == PLEXUS_OK, "getProperties failed with {}", code));
  }
  return expect(first.v12.name != nullptr && name == first.v12.name,
                "the device's name was overwritten by later calls");
}

/// Messages with what NCCL passes, from version `kSince` of the ABI on.
template <RawArguments kArguments, int kSince>
Result<void> messages(Fixture& fixture) {
  PLEXUS_TRY(raw, RawNet::choose(fixture));
  if (raw.version < kSince) {
    return skip("the ABI has it from v{} on", kSince);
  }
  PLEXUS_TRY(net, Net::load(fixture));
  PLEXUS_TRY(context, Context::open(net));
  PLEXUS_TRY(pair, RawPair::connect(raw, kArguments));
  for (const uint64_t size : {uint64_t{8}, uint64_t{0}, longest_message(context, 100'000)}) {
    PLEXUS_TRY(pair->deliver(size));
  }
  return ok();
}

constexpr std::array kChecks = {
    Check{"vendor.size", "has tables of their ABI's size",
          "plugin ABI 3.1: sizeof of each version's table", symbol_sizes, kVendor},
    Check{"vendor.entries", "has every mandatory entry after init",
          "plugin ABI 3.1: may be NULL: regMrDmaBuf, getDeviceMr, irecvConsumed, makeVDevice, "
          "setNetAttr, iflush without GPU memory",
          table_entries, kVendor},
    Check{"vendor.name", "has a name after init",
          "plugin ABI 11: the name is read again after init", name, kVendor},
    Check{"vendor.device_name", "names its devices", "plugin ABI 3.2: name",
          on_raw_devices<raw_name>, kVendor},
    Check{"vendor.memory", "supports host memory", "plugin ABI 3.2: ptrSupport, bit mask",
          on_raw_devices<raw_memory>, kVendor},
    Check{"vendor.counts", "reports how many buffers a receive may have",
          "plugin ABI 13: validate maxRecvs >= 1", on_raw_devices<raw_counts>, kVendor},
    Check{"vendor.bytes", "reports the longest message",
          "plugin ABI 2: legal range of maxP2pBytes is (0, 2^40]", on_raw_devices<raw_bytes>,
          kVendor},
    Check{"vendor.unused", "reports what no host reads of a net plugin",
          "plugin ABI 3.2: maxComms; plugin ABI 2: legal range of maxCollBytes is (0, 2^40]",
          on_raw_devices<raw_unused>, kVendor},
    Check{"vendor.type", "is driven by the host", "plugin ABI 3.2: netDeviceType must be HOST",
          on_raw_devices<raw_type>, kVendor},
    Check{"vendor.arguments", "takes what NCCL passes with each message",
          "plugin ABI 7: listen fills up to 128 bytes; test always sets `done` and writes one size "
          "for a send; deregMr gets what regMr gave, null too",
          messages<RawArguments{}, 6>, kVendor},
    Check{"vendor.no_offload", "connects without a place for a device handle",
          "plugin ABI 7: `DevH**` of connect and accept may be null",
          messages<RawArguments{.has_offload = false}, 7>, kVendor},
    Check{"vendor.early", "sets the request of a receive that may complete early",
          "plugin ABI 7: irecv with `*request` = 0x1 must overwrite it",
          messages<RawArguments{.is_early = true}, 9>, kVendor},
    Check{"vendor.bootstrap", "needs no sizes and no profiler handles",
          "plugin ABI 7: NCCL's bootstrap over the network (NCCL_OOB_NET_ENABLE) passes neither",
          messages<RawArguments{.has_sizes = false, .has_profiles = false}, 6>, kVendor},
    Check{"vendor.strings", "keeps its strings",
          "plugin ABI 3.2: name and pciPath are valid for the life of the library", strings_live,
          kVendor},
};

}  // namespace

CheckTable vendor_checks() { return kChecks; }

}  // namespace plexus::conformance
