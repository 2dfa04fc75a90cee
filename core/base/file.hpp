// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include "core/base/result.hpp"

namespace plexus {

/// The bytes of a file. kInvalidArgument: it cannot be read, or has more than `bytes_max`.
Result<std::string> read_file(const std::string& path, size_t bytes_max = SIZE_MAX);

/// The file of the library or program that this code is in; empty where that is unknown.
[[nodiscard]] std::filesystem::path find_own_file();

}  // namespace plexus
