// SPDX-License-Identifier: Apache-2.0
// Why a call that was to return a descriptor failed, with the limit of open files when that is the
// reason.
#pragma once

#include <cerrno>
#include <string>
#include <sys/resource.h>

#include <fmt/core.h>

#include "plugins/support/errno_text.hpp"

namespace plexus::plugin {

[[nodiscard]] inline std::string refused_descriptor_text(int error = errno) {
  if (error == EMFILE) {
    rlimit limit{};
    (void)::getrlimit(RLIMIT_NOFILE, &limit);
    return fmt::format(
        "{}; raise the limit of open files (ulimit -n is {}, or set PLEXUS_RAISE_NOFILE=1), or run "
        "fewer ranks in this process",
        errno_text(error), limit.rlim_cur);
  }
  if (error == ENFILE) {
    return errno_text(error) +
           "; raise the machine's limit of open files (fs.file-max), or run fewer ranks here";
  }
  return errno_text(error);
}

}  // namespace plexus::plugin
