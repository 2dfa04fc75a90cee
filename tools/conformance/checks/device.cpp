// SPDX-License-Identifier: Apache-2.0
// device_count, properties, net_path.
#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <set>
#include <thread>

#include "tools/conformance/check.hpp"

namespace plexus::conformance {
namespace {

/// `f` for every device.
template <Result<void> (*f)(const plexus_net_properties_t&)>
Result<void> on_devices(const Context& context) {
  for (uint32_t device = 0; device < context.devices(); ++device) {
    if (auto checked = f(context.properties(device)); checked.has_error()) {
      return std::move(checked).error().with_context(fmt::format("device {}", device));
    }
  }
  return ok();
}

bool is_printable(const char* text, size_t capacity) {
  const size_t size = ::strnlen(text, capacity);
  return size < capacity &&
         std::all_of(text, text + size, [](char c) { return c >= ' ' && c <= '~'; });
}

Result<void> some(const Context& context) { return expect(context.devices() > 0, "no device"); }

Result<void> count_is_constant(const Context& context) {
  Monitor& monitor = context.net().fixture->monitor();
  for (int i = 0; i < 100; ++i) {
    uint32_t count = 0;
    const int32_t code = monitor.call(Place::kDeviceCount, [&] {
      return context.net().ops().device_count(context.raw(), &count);
    });
    PLEXUS_TRY(expect(code == PLEXUS_OK && count == context.devices(),
                      "device_count returned {} first and {} later", context.devices(), count));
  }
  return ok();
}

Result<void> name(const plexus_net_properties_t& p) {
  return expect(is_printable(p.name, sizeof p.name) && p.name[0] != '\0',
                "name is empty, not printable or not zero-terminated");
}

Result<void> pci_path(const plexus_net_properties_t& p) {
  PLEXUS_TRY(expect(is_printable(p.pci_path, sizeof p.pci_path),
                    "pci_path is not printable or not zero-terminated"));
  if (p.pci_path[0] == '\0') {
    return ok();
  }
  std::error_code error;
  const auto real = std::filesystem::canonical(p.pci_path, error);
  PLEXUS_TRY(expect(!error, "pci_path {} does not exist", p.pci_path));
  return expect(real.string().rfind("/sys/devices/", 0) == 0,
                "pci_path {} is not a path below /sys/devices", p.pci_path);
}

Result<void> message_bytes(const plexus_net_properties_t& p) {
  return expect(p.message_bytes_max >= 1 && p.message_bytes_max <= PLEXUS_NET_MESSAGE_BYTES_MAX,
                "message_bytes_max is {}", p.message_bytes_max);
}

Result<void> memory(const plexus_net_properties_t& p) {
  constexpr uint32_t kAll = PLEXUS_MEMORY_HOST | PLEXUS_MEMORY_CUDA | PLEXUS_MEMORY_DMABUF;
  PLEXUS_TRY(expect(p.pointer_support != 0 && (p.pointer_support & ~kAll) == 0,
                    "pointer_support is {:#x}", p.pointer_support));
  return expect((p.pointer_support & PLEXUS_MEMORY_HOST) != 0,
                "it does not support host memory, which every job uses");
}

Result<void> speed(const plexus_net_properties_t& p) {
  return expect(p.speed_mbit_per_s != 0,
                "speed_mbit_per_s is 0; report an unknown speed as PLEXUS_UNKNOWN_U32");
}

Result<void> latency(const plexus_net_properties_t& p) {
  constexpr uint32_t kSecond = 1'000'000'000;
  return expect(p.latency_ns == PLEXUS_UNKNOWN_U32 || p.latency_ns <= kSecond,
                "latency_ns is {}, more than a second", p.latency_ns);
}

Result<void> comms(const plexus_net_properties_t& p) {
  return expect(p.comms_max >= 1, "comms_max is 0");
}

Result<void> recvs(const plexus_net_properties_t& p) {
  return expect(p.recvs_max >= 1 && p.recvs_max <= PLEXUS_NET_RECVS_MAX, "recvs_max is {}",
                p.recvs_max);
}

Result<void> requests(const plexus_net_properties_t& p) {
  return expect(p.requests_max >= 8, "requests_max is {}", p.requests_max);
}

Result<void> flags(const plexus_net_properties_t& p) {
  return expect(p.registration_is_global <= 1 && p.force_flush <= 1 && p.takes_pieces <= 1,
                "registration_is_global is {}, force_flush is {}, takes_pieces is {}",
                p.registration_is_global, p.force_flush, p.takes_pieces);
}

Result<void> rails(const plexus_net_properties_t& p) {
  return expect(p.rail_id >= -1 && p.plane_id >= -1, "rail_id is {}, plane_id is {}", p.rail_id,
                p.plane_id);
}

Result<void> reserved(const plexus_net_properties_t& p) {
  return expect(std::all_of(std::begin(p.reserved), std::end(p.reserved),
                            [](uint32_t word) { return word == 0; }),
                "a reserved field is not 0");
}

Result<void> flush_entry(const Context& context) {
  for (uint32_t device = 0; device < context.devices(); ++device) {
    const uint32_t gpu =
        context.properties(device).pointer_support & (PLEXUS_MEMORY_CUDA | PLEXUS_MEMORY_DMABUF);
    PLEXUS_TRY(expect(gpu == 0 || context.net().ops().flush != nullptr,
                      "device {} supports GPU memory, but there is no flush", device));
  }
  return ok();
}

Result<void> names_differ(const Context& context) {
  std::set<std::string> names;
  for (uint32_t device = 0; device < context.devices(); ++device) {
    const auto& p = context.properties(device);
    const std::string name = fmt::format("{}:{}", p.name, p.port);
    // Vendors' devices with equal names differ in their guid.
    PLEXUS_TRY(expect(names.insert(fmt::format("{} {}", name, p.guid)).second,
                      "two devices have the name {} and the same guid", name));
  }
  return ok();
}

Result<plexus_net_properties_t> read(const Context& context, uint32_t device) {
  Monitor& monitor = context.net().fixture->monitor();
  plexus_net_properties_t properties{};
  const int32_t code = monitor.call(Place::kProperties, [&] {
    return context.net().ops().properties(context.raw(), device, &properties);
  });
  if (code != PLEXUS_OK) {
    return failed(monitor, "properties", code);
  }
  return properties;
}

Result<void> are_constant(const Context& context) {
  for (int i = 0; i < 20; ++i) {
    for (uint32_t device = 0; device < context.devices(); ++device) {
      PLEXUS_TRY(again, read(context, device));
      PLEXUS_TRY(expect(std::memcmp(&again, &context.properties(device), sizeof again) == 0,
                        "device {} reports other properties in the second call", device));
    }
  }
  return ok();
}

Result<void> equal_in_contexts(Fixture& fixture) {
  PLEXUS_TRY(net, Net::load(fixture));
  PLEXUS_TRY(first, Context::open(net, 1));
  PLEXUS_TRY(second, Context::open(net, 2));
  PLEXUS_TRY(expect(first.devices() == second.devices(), "{} devices in a context, {} in the next",
                    first.devices(), second.devices()));
  for (uint32_t device = 0; device < first.devices(); ++device) {
    PLEXUS_TRY(
        expect(std::strcmp(first.properties(device).name, second.properties(device).name) == 0,
               "device {} is {} in a context and {} in the next", device,
               first.properties(device).name, second.properties(device).name));
  }
  return ok();
}

Result<void> equal_in_processes(Fixture& fixture) {
  struct Names {
    uint32_t count;
    std::array<char, 64> first;
  };
  PLEXUS_TRY(net, Net::load(fixture));
  PLEXUS_TRY(context, Context::open(net));
  Names own{context.devices(), {}};
  std::memcpy(own.first.data(), context.properties().name, own.first.size());
  PLEXUS_TRY(fixture.peer().send(own));
  PLEXUS_TRY(other, fixture.peer().receive<Names>());
  return expect(own.count == other.count && own.first == other.first,
                "{} devices from {} on in a process, {} from {} on in another", own.count,
                own.first.data(), other.count, other.first.data());
}

Result<void> writes_only_its_struct(const Context& context) {
  struct {
    std::array<uint64_t, 16> before;
    plexus_net_properties_t properties;
    std::array<uint64_t, 16> behind;
  } guarded{};
  guarded.before.fill(~uint64_t{0});
  guarded.behind.fill(~uint64_t{0});
  context.net().fixture->monitor().call(Place::kProperties, [&] {
    return context.net().ops().properties(context.raw(), 0, &guarded.properties);
  });
  const auto is_kept = [](uint64_t word) { return word == ~uint64_t{0}; };
  return expect(std::all_of(guarded.before.begin(), guarded.before.end(), is_kept) &&
                    std::all_of(guarded.behind.begin(), guarded.behind.end(), is_kept),
                "properties wrote outside the struct");
}

Result<void> from_threads(const Context& context) {
  std::array<bool, 4> is_well{};
  std::vector<std::thread> threads;
  for (bool& well : is_well) {
    threads.emplace_back([&] {
      well = true;
      for (int i = 0; i < 200; ++i) {
        auto found = read(context, 0);
        well = well && found.has_value() &&
               std::strcmp(found.value().name, context.properties(0).name) == 0;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return expect(std::find(is_well.begin(), is_well.end(), false) == is_well.end(),
                "one of 4 threads that read the properties concurrently got different values");
}

Result<void> paths(const Context& context) {
  const plexus_net_ops_t& ops = context.net().ops();
  if (ops.net_path == nullptr) {
    return skip("it has no net_path");
  }
  for (const uint64_t source : {uint64_t{0}, uint64_t{1}, context.properties().fabric_id}) {
    for (const uint64_t target : {uint64_t{0}, uint64_t{1}, PLEXUS_UNKNOWN_U64}) {
      plexus_net_path_t path{};
      Monitor& monitor = context.net().fixture->monitor();
      const int32_t code = monitor.call(
          Place::kNetPath, [&] { return ops.net_path(context.raw(), source, target, &path); });
      if (code != PLEXUS_OK) {
        return failed(monitor, "net_path", code);
      }
      PLEXUS_TRY(expect(path.level >= PLEXUS_NET_LEVEL_UNKNOWN, "level is {}", path.level));
      PLEXUS_TRY(expect(source != target || source == PLEXUS_UNKNOWN_U64 || path.level <= 0,
                        "a fabric is at level {} from itself", path.level));
      PLEXUS_TRY(expect(
          path.loss_per_billion == PLEXUS_UNKNOWN_U32 || path.loss_per_billion <= 1'000'000'000,
          "loss_per_billion is {}", path.loss_per_billion));
      PLEXUS_TRY(expect(std::all_of(std::begin(path.reserved), std::end(path.reserved),
                                    [](uint64_t word) { return word == 0; }),
                        "a reserved field of the path is not 0"));
    }
  }
  return ok();
}

constexpr const char* kCountRule =
    "plexus_net.h device_count: numbered from 0, constant for the life of the context";
constexpr const char* kFixedRule =
    "ABI.md: structs that the plugin fills have a fixed size, what is reserved stays 0";

constexpr std::array kChecks = {
    Check{"device.some", "has a device on this host",
          "plexus_net.h device_count: 0: unusable on this machine", on_context<some>},
    Check{"device.count", "has a constant number of devices", kCountRule,
          on_context<count_is_constant>},
    Check{"device.name", "names its devices", "plexus_net.h name: zero-terminated, not empty",
          on_context<on_devices<name>>},
    Check{"device.pci_path", "gives real PCI paths, or none",
          "plexus_net.h pci_path: real path below /sys/devices; empty: virtual device",
          on_context<on_devices<pci_path>>},
    Check{"device.message_bytes", "reports the longest message",
          "plexus_net.h message_bytes_max: in 1 .. PLEXUS_NET_MESSAGE_BYTES_MAX",
          on_context<on_devices<message_bytes>>},
    Check{"device.memory", "supports host memory", "plexus_net.h pointer_support: mask, never 0",
          on_context<on_devices<memory>>},
    Check{"device.speed", "reports a speed, or that it is unknown",
          "plexus_net.h: plugins must not guess", on_context<on_devices<speed>>},
    Check{"device.latency", "reports a plausible latency, or that it is unknown",
          "plexus_net.h: times are nanoseconds", on_context<on_devices<latency>>},
    Check{"device.comms", "supports at least one connection", "plexus_net.h comms_max: at least 1",
          on_context<on_devices<comms>>},
    Check{"device.recvs", "reports how many buffers a receive may have",
          "plexus_net.h recvs_max: in 1 .. PLEXUS_NET_RECVS_MAX", on_context<on_devices<recvs>>},
    Check{"device.requests", "supports 8 requests per connection or more",
          "plexus_net.h requests_max: at least 8", on_context<on_devices<requests>>},
    Check{"device.flags", "has flags of 0 or 1", "plexus_net.h: 1: ...",
          on_context<on_devices<flags>>},
    Check{"device.rails", "has rails and planes of -1 or more", "plexus_net.h rail_id: -1: none",
          on_context<on_devices<rails>>},
    Check{"device.reserved", "leaves reserved fields 0", kFixedRule,
          on_context<on_devices<reserved>>},
    Check{"device.flush",
          "has a flush if it supports GPU memory",
          "plexus_net.h flush: null: no CUDA or DMABUF in pointer_support",
          on_context<flush_entry>,
          {.abi = CheckOptions::Abi::kNative}},
    Check{"device.names_differ", "distinguishes its devices",
          "plexus_net.h guid: equal on two devices: same physical port", on_context<names_differ>},
    Check{"device.constant", "reports the same properties in every call", kCountRule,
          on_context<are_constant>},
    Check{"device.contexts", "has the same devices in every context", kCountRule,
          equal_in_contexts},
    Check{"device.processes",
          "has the same devices in every process of a host",
          "ranks of one host choose devices by number",
          equal_in_processes,
          {.processes = 2}},
    Check{"device.struct", "writes only its struct", kFixedRule,
          on_context<writes_only_its_struct>},
    Check{"device.threads", "can be queried by several threads concurrently",
          "plexus_net.h properties: Threads: any, also concurrently", on_context<from_threads>},
    Check{"device.path", "reports plausible paths between fabrics",
          "plexus_net.h net_path: the path from fabric source to fabric target", on_context<paths>},
};

}  // namespace

CheckTable device_checks() { return kChecks; }

}  // namespace plexus::conformance
