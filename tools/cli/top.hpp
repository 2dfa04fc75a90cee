// SPDX-License-Identifier: Apache-2.0
// What `plexus top` shows, of two reports of NCCL's RAS protocol in JSON. Pure.
#pragma once

#include <string>

#include "core/base/result.hpp"

namespace plexus {

/// One line of JSON: the communicators with their ranks, calls and rates, and the verdicts.
/// `seconds`: from the first report, which may be "", to the second. An Error: it is no report.
Result<std::string> make_top(const std::string& before, const std::string& now, double seconds);
/// It as `rows` lines at most of `columns` at most, for a terminal.
std::string draw_top(const std::string& top, size_t columns, size_t rows);

}  // namespace plexus
