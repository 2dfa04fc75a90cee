// SPDX-License-Identifier: Apache-2.0
// The native descriptor and the plugin's own table.
#include <algorithm>
#include <array>
#include <cstring>
#include <regex>
#include <thread>

#include "plugin-api/plexus_net.h"
#include "plugin-api/plexus_tuner.h"

#include "tools/conformance/check.hpp"
#include "tools/conformance/library.hpp"
#include "tools/conformance/process_state.hpp"

namespace plexus::conformance {
namespace {

using Query = const plexus_plugin_t*(uint32_t);
constexpr CheckOptions kNative = {.abi = CheckOptions::Abi::kNative};

Result<Query*> find_query(Fixture& fixture) {
  PLEXUS_TRY(library, load_library(fixture));
  Query* const query = library.find_function<Query>("plexus_plugin_query");
  if (query == nullptr) {
    return wrong("it has no plexus_plugin_query");
  }
  return query;
}

const plexus_plugin_t* ask(Fixture& fixture, Query* query, uint32_t host_abi = PLEXUS_HOST_ABI) {
  const plexus_plugin_t* plugin = nullptr;
  fixture.monitor().call_void(Place::kQuery, [&] { plugin = query(host_abi); });
  return plugin;
}

Result<const plexus_plugin_t*> descriptor(Fixture& fixture) {
  PLEXUS_TRY(query, find_query(fixture));
  const plexus_plugin_t* const plugin = ask(fixture, query);
  if (plugin == nullptr) {
    return wrong("plexus_plugin_query returns no descriptor to this host");
  }
  return plugin;
}

Result<void> is_given(Fixture& fixture) {
  PLEXUS_TRY(descriptor(fixture));
  return ok();
}

Result<void> magic(Fixture& fixture) {
  PLEXUS_TRY(plugin, descriptor(fixture));
  return expect(plugin->magic == PLEXUS_PLUGIN_MAGIC, "magic is {:#x}, expected {:#x}",
                plugin->magic, PLEXUS_PLUGIN_MAGIC);
}

Result<void> abi_version(Fixture& fixture) {
  PLEXUS_TRY(plugin, descriptor(fixture));
  return expect(plugin->abi_major == PLEXUS_ABI_MAJOR, "abi_major is {}, expected {}",
                plugin->abi_major, PLEXUS_ABI_MAJOR);
}

Result<void> size(Fixture& fixture) {
  PLEXUS_TRY(plugin, descriptor(fixture));
  constexpr uint32_t kLeast = offsetof(plexus_plugin_t, tuner);  // size in ABI 1.0
  const uint32_t least = plugin->abi_minor == 0 ? kLeast : sizeof(plexus_plugin_t);
  return expect(plugin->struct_size >= least && plugin->struct_size % sizeof(void*) == 0,
                "struct_size is {}, ABI {}.{} has {}", plugin->struct_size, plugin->abi_major,
                plugin->abi_minor, least);
}

Result<void> kind(Fixture& fixture) {
  PLEXUS_TRY(plugin, descriptor(fixture));
  PLEXUS_TRY(expect(plugin->kind == PLEXUS_KIND_NET || plugin->kind == PLEXUS_KIND_TUNER,
                    "kind is {}, which does not exist", plugin->kind));
  const bool has_tuner = plugin->struct_size >= sizeof(plexus_plugin_t) && plugin->tuner != nullptr;
  return expect((plugin->net != nullptr) == (plugin->kind == PLEXUS_KIND_NET) &&
                    has_tuner == (plugin->kind == PLEXUS_KIND_TUNER),
                "the table of its kind is missing, or it has a table of another kind");
}

Result<void> reserved(Fixture& fixture) {
  PLEXUS_TRY(plugin, descriptor(fixture));
  return expect(plugin->reserved == 0, "reserved is {}, expected 0", plugin->reserved);
}

bool is_text(const char* text, const char* pattern) {
  if (text == nullptr || ::strnlen(text, PLEXUS_NAME_BYTES) >= PLEXUS_NAME_BYTES) {
    return false;
  }
  return std::regex_match(text, std::regex(pattern));
}

Result<void> name(Fixture& fixture) {
  PLEXUS_TRY(plugin, descriptor(fixture));
  return expect(is_text(plugin->name, "[A-Za-z0-9_.-]+"),
                "name is null, empty, too long or has an invalid character");
}

Result<void> version(Fixture& fixture) {
  PLEXUS_TRY(plugin, descriptor(fixture));
  return expect(is_text(plugin->version, "[ -~]+"),
                "version is null, empty, too long or not printable");
}

Result<void> is_constant(Fixture& fixture) {
  PLEXUS_TRY(query, find_query(fixture));
  const plexus_plugin_t* const first = ask(fixture, query);
  PLEXUS_TRY(expect(first != nullptr, "plexus_plugin_query returns no descriptor"));
  const plexus_plugin_t copy = *first;
  constexpr int kTimes = 100;
  for (int i = 0; i < kTimes; ++i) {
    const plexus_plugin_t* const again = ask(fixture, query);
    PLEXUS_TRY(expect(
        again != nullptr && std::memcmp(again, &copy, sizeof copy) == 0,
        "call number {} of plexus_plugin_query returned another descriptor than the first", i + 2));
  }
  return ok();
}

Result<void> newer_host(Fixture& fixture) {
  PLEXUS_TRY(query, find_query(fixture));
  constexpr uint32_t kLater = 5;
  return expect(ask(fixture, query, PLEXUS_HOST_ABI + kLater) != nullptr,
                "it refuses a host of a newer minor version");
}

Result<void> other_major(Fixture& fixture) {
  PLEXUS_TRY(query, find_query(fixture));
  for (const uint32_t major : {0u, PLEXUS_ABI_MAJOR + 1, 65535u}) {
    const plexus_plugin_t* const plugin = ask(fixture, query, major << 16);
    PLEXUS_TRY(expect(plugin == nullptr || plugin->abi_major == PLEXUS_ABI_MAJOR,
                      "it reports major version {1} to a host of major version {0}", major,
                      plugin == nullptr ? 0 : plugin->abi_major));
  }
  return expect(ask(fixture, query) != nullptr,
                "after a query by a host of another major version it refuses this one");
}

Result<void> from_threads(Fixture& fixture) {
  PLEXUS_TRY(query, find_query(fixture));
  std::array<const plexus_plugin_t*, 8> found{};
  std::vector<std::thread> threads;
  for (auto& each : found) {
    threads.emplace_back([&] { each = ask(fixture, query); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return expect(
      std::all_of(found.begin(), found.end(), [&](const auto* each) { return each != nullptr; }),
      "one of 8 threads that queried concurrently got no descriptor");
}

Result<void> query_leaves_nothing(Fixture& fixture) {
  PLEXUS_TRY(query, find_query(fixture));
  const Holdings before;
  ask(fixture, query);
  return before.expect_nothing_more("plexus_plugin_query");
}

Result<void> table_size(Fixture& fixture) {
  PLEXUS_TRY(plugin, descriptor(fixture));
  const uint32_t size =
      plugin->kind == PLEXUS_KIND_NET ? plugin->net->struct_size : plugin->tuner->struct_size;
  const auto least = plugin->kind == PLEXUS_KIND_NET
                         ? static_cast<uint32_t>(offsetof(plexus_net_ops_t, net_path))
                         : static_cast<uint32_t>(offsetof(plexus_tuner_ops_t, links_changed));
  return expect(size >= least && size % sizeof(void*) == 0,
                "struct_size of its table is {}, expected {} or more", size, least);
}

Result<void> table_reserved(Fixture& fixture) {
  PLEXUS_TRY(plugin, descriptor(fixture));
  const uint32_t value =
      plugin->kind == PLEXUS_KIND_NET ? plugin->net->reserved : plugin->tuner->reserved;
  return expect(value == 0, "reserved of its table is {}, expected 0", value);
}

Result<void> table_entries(Fixture& fixture) {
  PLEXUS_TRY(plugin, descriptor(fixture));
  if (plugin->kind == PLEXUS_KIND_TUNER) {
    return expect(plugin->tuner->init != nullptr && plugin->tuner->get_times != nullptr &&
                      plugin->tuner->finalize != nullptr,
                  "an entry of its table is null");
  }
  const plexus_net_ops_t& ops = *plugin->net;
  return expect(ops.init != nullptr && ops.finalize != nullptr && ops.device_count != nullptr &&
                    ops.properties != nullptr && ops.listen != nullptr && ops.connect != nullptr &&
                    ops.accept != nullptr && ops.register_send != nullptr &&
                    ops.register_recv != nullptr && ops.deregister != nullptr &&
                    ops.isend != nullptr && ops.irecv != nullptr && ops.test != nullptr &&
                    ops.close_send != nullptr && ops.close_recv != nullptr &&
                    ops.close_listen != nullptr,
                "an entry of its table other than flush and net_path is null");
}

constexpr const char* kQueryRule =
    "plexus_plugin.h: called at least once after loading, before anything else; must not block, "
    "start threads or open devices";

constexpr std::array kChecks = {
    Check{"query.given", "returns a descriptor to this host", kQueryRule, is_given, kNative},
    Check{"query.magic", "begins with the magic number",
          "plexus_plugin.h: first word of the descriptor", magic, kNative},
    Check{"query.abi", "has this host's ABI version",
          "plexus_plugin.h: a host accepts a plugin with its own major and any minor", abi_version,
          kNative},
    Check{"query.size", "reports the size of its descriptor",
          "ABI.md: tables and the descriptor begin with their size", size, kNative},
    Check{"query.kind", "has one kind and the table of that kind",
          "plexus_plugin.h: a library is of one kind", kind, kNative},
    Check{"query.reserved", "leaves reserved fields 0", "plexus_plugin.h: reserved, 0", reserved,
          kNative},
    Check{"query.name", "has a name that NCCL_NET can match",
          "plexus_plugin.h: [A-Za-z0-9_.-]+, shorter than PLEXUS_NAME_BYTES", name, kNative},
    Check{"query.version", "has a printable version",
          "plexus_plugin.h: printable, shorter than PLEXUS_NAME_BYTES", version, kNative},
    Check{"query.constant", "returns the same descriptor every time",
          "plexus_plugin.h: static storage of the plugin, valid and unchanged for ever",
          is_constant, kNative},
    Check{"query.newer_host", "serves a host of a newer minor version",
          "ABI.md: PLEXUS_ABI_MINOR moves when something is appended", newer_host, kNative},
    Check{"query.other_major", "survives a host of another major version",
          "plexus_plugin.h: null if the plugin cannot work with this host", other_major, kNative},
    Check{"query.threads", "can be queried by several threads concurrently", kQueryRule,
          from_threads, kNative},
    Check{"query.leaves", "leaks nothing", kQueryRule, query_leaves_nothing, kNative},
    Check{"table.size", "has a table of at least the size of this ABI version",
          "ABI.md: the host copies min(struct_size, sizeof)", table_size, kNative},
    Check{"table.reserved", "leaves the table's reserved field 0", "plexus_net.h: reserved, 0",
          table_reserved, kNative},
    Check{"table.entries", "has every mandatory entry",
          "plexus_net.h: only flush and net_path may be null", table_entries, kNative},
};

}  // namespace

CheckTable descriptor_checks() { return kChecks; }

}  // namespace plexus::conformance
