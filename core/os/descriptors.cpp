// SPDX-License-Identifier: Apache-2.0
#include "core/os/descriptors.hpp"

#include <cstring>
#include <string>
#include <sys/resource.h>

namespace plexus {
namespace {

std::string text_of(rlim_t limit) {
  return limit == RLIM_INFINITY ? "unlimited" : std::to_string(limit);
}

}  // namespace

Error describe_refused_descriptor(std::string_view what, int error) {
  if (error == EMFILE) {
    rlimit limit{};
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    return fail(Code::kSystemError,
                "{}: {}; raise the limit of open files (ulimit -n is {}, up to {} without "
                "privileges, or set PLEXUS_RAISE_NOFILE=1), or run fewer ranks in this process",
                what, std::strerror(error), text_of(limit.rlim_cur), text_of(limit.rlim_max));
  }
  if (error == ENFILE) {
    return fail(Code::kSystemError,
                "{}: {}; raise the machine's limit of open files (fs.file-max), or run fewer ranks "
                "here",
                what, std::strerror(error));
  }
  return fail(Code::kSystemError, "{}: {}", what, std::strerror(error));
}

void raise_descriptor_limit() noexcept {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);  // the limit stays, and errors name it
  }
}

}  // namespace plexus
