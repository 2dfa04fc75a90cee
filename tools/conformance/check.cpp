// SPDX-License-Identifier: Apache-2.0
#include "tools/conformance/check.hpp"

#include <algorithm>

namespace plexus::conformance {

namespace {

std::vector<CheckTable> tables_of(PluginKind kind) {
  switch (kind) {
    case PluginKind::kNet:
      return {descriptor_checks(), context_checks(),      device_checks(), listen_checks(),
              connect_checks(),    registration_checks(), dmabuf_checks(), message_checks(),
              pieces_checks(),     order_checks(),        group_checks(),  request_checks(),
              time_checks(),       parallel_checks(),     mesh_checks(),   process_checks(),
              close_checks(),      fault_checks(),        log_checks(),    vendor_checks()};
    case PluginKind::kTuner:
      return {descriptor_checks(), tuner_checks()};
    case PluginKind::kNcclTuner:
      return {nccl_tuner_checks(), nccl_costs_checks()};
    case PluginKind::kProfiler:
      return {profiler_checks(), event_checks()};
    case PluginKind::kCollnet:
      return {collnet_checks(), reduction_checks()};
    case PluginKind::kNone:
      return {};
  }
  return {};
}

}  // namespace

const char* kind_word(PluginKind kind) {
  switch (kind) {
    case PluginKind::kNet:
      return "net";
    case PluginKind::kTuner:
    case PluginKind::kNcclTuner:
      return "tuner";
    case PluginKind::kProfiler:
      return "profiler";
    case PluginKind::kCollnet:
      return "collnet";
    case PluginKind::kNone:
      return "unknown";
  }
  return "unknown";
}

std::vector<const Check*> checks_of(PluginKind kind) {
  std::vector<CheckTable> tables = tables_of(kind);
  tables.insert(tables.begin(), file_checks());
  std::vector<const Check*> checks;
  for (const CheckTable& table : tables) {
    for (const Check& check : table) {
      checks.push_back(&check);
    }
  }
  return checks;
}

uint64_t longest_message(const Context& context, uint64_t size_bytes) {
  return std::min(size_bytes, context.properties().message_bytes_max);
}

}  // namespace plexus::conformance
