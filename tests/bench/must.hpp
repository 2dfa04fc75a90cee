// SPDX-License-Identifier: Apache-2.0
// For benchmark programs: what fails ends them with one sentence and exit code 1.
#pragma once

#include <cerrno>
#include <cstdlib>
#include <string>
#include <utility>

#include <fmt/core.h>

#include "core/base/result.hpp"

namespace plexus {

[[noreturn]] inline void die(const std::string& why) {
  fmt::print(stderr, "{}: {}\n", program_invocation_short_name, why);
  std::exit(1);  // NOLINT(concurrency-mt-unsafe): a benchmark program
}

/// The value of `result`, or the end.
template <class T>
T must(Result<T> result) {
  if (result.has_error()) {
    die(result.error().message());
  }
  return std::move(result).value();
}

}  // namespace plexus
