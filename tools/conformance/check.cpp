// SPDX-License-Identifier: Apache-2.0
#include "tools/conformance/check.hpp"

#include <algorithm>

namespace plexus::conformance {

std::vector<const Check*> checks_of(PluginKind kind) {
  std::vector<CheckTable> tables = {file_checks()};
  if (kind != PluginKind::kNone) {
    tables.push_back(descriptor_checks());
  }
  if (kind == PluginKind::kTuner) {
    tables.push_back(tuner_checks());
  }
  if (kind == PluginKind::kNet) {
    tables.insert(tables.end(),
                  {context_checks(), device_checks(), listen_checks(), connect_checks(),
                   registration_checks(), message_checks(), order_checks(), group_checks(),
                   request_checks(), parallel_checks(), process_checks(), close_checks(),
                   fault_checks(), log_checks(), vendor_checks()});
  }
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
