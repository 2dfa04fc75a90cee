// SPDX-License-Identifier: Apache-2.0
// NCCL_SOCKET_IFNAME's grammar for any list of names: a comma list of prefixes; a leading `^`
// excludes them; `=` means full names. Also the interfaces that are used without that setting.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace plexus::plugin {

class NameFilter {
 public:
  explicit NameFilter(std::string_view text) {
    excludes_ = text.starts_with('^');
    text.remove_prefix(excludes_ ? 1 : 0);
    is_exact_ = text.starts_with('=');
    text.remove_prefix(is_exact_ ? 1 : 0);
    while (!text.empty()) {
      const size_t end = std::min(text.find(','), text.size());
      if (end > 0) {
        names_.emplace_back(text.substr(0, end));
      }
      text.remove_prefix(std::min(end + 1, text.size()));
    }
  }
  [[nodiscard]] bool keeps(std::string_view name) const {
    const bool is_named = std::any_of(names_.begin(), names_.end(), [&](const std::string& each) {
      return is_exact_ ? name == each : name.starts_with(each);
    });
    return is_named != excludes_;
  }

 private:
  std::vector<std::string> names_;
  bool excludes_ = false;
  bool is_exact_ = false;
};

/// Those named `ib*`, else all but loopback and the bridges of docker and libvirt, else docker's,
/// else any.
inline std::vector<std::string> default_interfaces(const std::vector<std::string>& names) {
  const auto select = [&](auto keep) {
    std::vector<std::string> kept;
    std::copy_if(names.begin(), names.end(), std::back_inserter(kept), keep);
    return kept;
  };
  auto chosen = select([](std::string_view name) { return name.starts_with("ib"); });
  if (chosen.empty()) {
    chosen = select([](std::string_view name) {
      return name != "lo" && !name.starts_with("docker") && !name.starts_with("virbr");
    });
  }
  if (chosen.empty()) {
    chosen = select([](std::string_view name) { return name.starts_with("docker"); });
  }
  return chosen.empty() ? names : chosen;
}

}  // namespace plexus::plugin
