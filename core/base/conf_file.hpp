// SPDX-License-Identifier: Apache-2.0
// Files of settings: $NCCL_CONF_FILE (else ~/.nccl.conf), then /etc/nccl.conf, with NAME=value
// lines. As NCCL does, Plexus puts all that they name into the process's environment, where plugins
// and the libraries that they use find it too. What the environment has already, it keeps.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace plexus {

struct ConfValue {
  std::string value;
  std::string file;
};

/// The files as they are when they are read: once for all settings of a communicator, since a home
/// folder may be on a network. Pure after that.
///
///   const ConfFiles files = ConfFiles::read();
///   files.export_all();  // the caller holds hold_environment()
class ConfFiles {
 public:
  [[nodiscard]] static ConfFiles read();

  /// Puts the variables that are not set into the environment.
  void export_all() const;
  /// The value of `name` in the first file that has it.
  [[nodiscard]] std::optional<ConfValue> find(std::string_view name) const;

 private:
  struct Variable {
    std::string name;
    ConfValue value;
  };
  std::vector<Variable> variables_;  // in the order of precedence
};

}  // namespace plexus
