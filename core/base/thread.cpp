// SPDX-License-Identifier: Apache-2.0
#include "core/base/thread.hpp"

#include <string>
#include <sys/resource.h>

namespace plexus {
namespace {

std::string limit_of_user() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NPROC, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return "unlimited";
  }
  return std::to_string(limit.rlim_cur);
}

}  // namespace

Error describe_refused_thread(std::string_view purpose, const std::system_error& refusal) {
  return fail(Code::kSystemError,
              "cannot start a thread for {}: {}; raise the user's limit of processes and threads "
              "(ulimit -u is {}), the container's (pids.max of its cgroup) or the machine's "
              "(kernel.threads-max), or run fewer ranks here",
              purpose, refusal.code().message(), limit_of_user());
}

}  // namespace plexus
