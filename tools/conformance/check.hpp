// SPDX-License-Identifier: Apache-2.0
// A check is a function and a row of a table in checks/: id, title, and the sentence of the
// contract that it checks. The function runs in a process of its own (or in two), where the plugin
// may crash or hang.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "tools/conformance/fixture.hpp"
#include "tools/conformance/net.hpp"
#include "tools/conformance/traffic.hpp"

namespace plexus::conformance {

struct CheckOptions {
  uint32_t processes = 1;
  seconds limit{20};
  enum class Abi { kAny, kNative, kVendor } abi = Abi::kAny;
  bool is_alone = false;  // measures time or memory, or moves very much data: nothing else may run
  bool exits = false;     // the process ends by exit(), with destructors and atexit handlers
};

struct Check {
  // "recv.grouped.sizes": words separated by dots; the first is the group
  const char* id = nullptr;
  const char* title = nullptr;  // what is true of a plugin that passes
  const char* rule = nullptr;   // the sentence of the contract
  Result<void> (*run)(Fixture&) = nullptr;
  CheckOptions options = {};
};

using CheckTable = std::span<const Check>;

/// Checks for every library.
[[nodiscard]] CheckTable file_checks();
[[nodiscard]] CheckTable descriptor_checks();
/// Checks for a net plugin, one table per checks/NAME.cpp.
[[nodiscard]] CheckTable context_checks();
[[nodiscard]] CheckTable device_checks();
[[nodiscard]] CheckTable listen_checks();
[[nodiscard]] CheckTable connect_checks();
[[nodiscard]] CheckTable registration_checks();
[[nodiscard]] CheckTable dmabuf_checks();
[[nodiscard]] CheckTable message_checks();
[[nodiscard]] CheckTable pieces_checks();
[[nodiscard]] CheckTable order_checks();
[[nodiscard]] CheckTable group_checks();
[[nodiscard]] CheckTable request_checks();
[[nodiscard]] CheckTable time_checks();
[[nodiscard]] CheckTable parallel_checks();
[[nodiscard]] CheckTable mesh_checks();
[[nodiscard]] CheckTable process_checks();
[[nodiscard]] CheckTable close_checks();
[[nodiscard]] CheckTable fault_checks();
[[nodiscard]] CheckTable log_checks();
[[nodiscard]] CheckTable vendor_checks();
/// Checks for a tuner plugin, of the native ABI and of NCCL's.
[[nodiscard]] CheckTable tuner_checks();
[[nodiscard]] CheckTable nccl_tuner_checks();
[[nodiscard]] CheckTable nccl_costs_checks();
/// Checks for a profiler of NCCL's ABI.
[[nodiscard]] CheckTable profiler_checks();
[[nodiscard]] CheckTable event_checks();
/// Checks for a collnet plugin.
[[nodiscard]] CheckTable collnet_checks();
[[nodiscard]] CheckTable reduction_checks();

/// The kinds of plugins. A tuner of NCCL's ABI has a different form of answers than a native one
/// and therefore its own checks.
enum class PluginKind { kNone, kNet, kTuner, kNcclTuner, kProfiler, kCollnet };
inline constexpr PluginKind kPluginKinds[] = {PluginKind::kNet, PluginKind::kTuner,
                                              PluginKind::kNcclTuner, PluginKind::kProfiler,
                                              PluginKind::kCollnet};
/// For example "net"; "unknown" for kNone.
[[nodiscard]] const char* kind_word(PluginKind kind);
/// All checks of a kind, in display order.
[[nodiscard]] std::vector<const Check*> checks_of(PluginKind kind);

// ---- adaptors: the usual beginnings of checks ----

/// `f` with a context of the plugin.
template <Result<void> (*f)(const Context&)>
Result<void> on_context(Fixture& fixture) {
  PLEXUS_TRY(net, Net::load(fixture));
  PLEXUS_TRY(context, Context::open(net));
  return f(context);
}

/// `f` with a connection between two contexts, as between two ranks of one process.
template <Result<void> (*f)(Pair&)>
Result<void> on_pair(Fixture& fixture) {
  PLEXUS_TRY(net, Net::load(fixture));
  PLEXUS_TRY(sender, Context::open(net));
  PLEXUS_TRY(receiver, Context::open(net));
  PLEXUS_TRY(pair, connect_pair(sender, receiver));
  return f(pair);
}

/// Two processes: `out` with the sending end in one, `in` with the receiving end in the other.
template <Result<void> (*out)(Send&), Result<void> (*in)(Recv&)>
Result<void> on_processes(Fixture& fixture) {
  PLEXUS_TRY(net, Net::load(fixture));
  PLEXUS_TRY(context, Context::open(net));
  if (fixture.role() == 0) {
    PLEXUS_TRY(send, connect_to_peer(context));
    return out(send);
  }
  PLEXUS_TRY(recv, accept_from_peer(context));
  return in(recv);
}

/// The longest message up to `size_bytes` that device 0 supports.
[[nodiscard]] uint64_t longest_message(const Context& context, uint64_t size_bytes);

}  // namespace plexus::conformance
