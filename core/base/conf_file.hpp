// SPDX-License-Identifier: Apache-2.0
// Files of settings: $NCCL_CONF_FILE (else ~/.nccl.conf), then /etc/nccl.conf, with NAME=value
// lines. As NCCL does, Plexus puts all that they name into the process's environment, where plugins
// and the libraries that they use find it too. What the environment has already, it keeps.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace plexus {

/// Puts the variables of the files that are not set into the environment. Cheap when they are: the
/// files are read, nothing is set. The caller holds hold_environment().
void export_conf_files();

struct ConfValue {
  std::string value;
  std::string file;
};
/// The value of `name` in the first file that has it.
std::optional<ConfValue> find_in_conf_files(std::string_view name);

}  // namespace plexus
