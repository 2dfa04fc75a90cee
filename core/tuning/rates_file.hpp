// SPDX-License-Identifier: Apache-2.0
// The file in which the rates of this host are kept between processes: small, validated, replaced
// as a whole. A file that cannot be used is measured anew; none is ever needed.
#pragma once

#include <filesystem>
#include <mutex>
#include <optional>
#include <string>

#include "core/base/result.hpp"
#include "core/tuning/rates.hpp"

namespace plexus {

/// What the rates depend on, in one line: host, processor, kernel and number of cores.
std::string describe_measured_host();

/// Where the rates are by PLEXUS_RATES_FILE (`setting`). nullopt: nowhere, because it is "none" or
/// because this process has no home.
std::optional<std::filesystem::path> rates_path(const std::string& setting);

Result<HostRates> read_rates(const std::filesystem::path& path);
/// Makes its folder, too.
Result<void> write_rates(const std::filesystem::path& path, const HostRates& rates);

/// The rates of this host as one process knows them. Threads: any.
class RatesCache {
 public:
  /// From the file, or measured and written to it; the first call decides. nullopt: switched off,
  /// or this host cannot be measured now.
  std::optional<HostRates> find(const std::string& setting);

 private:
  std::mutex mutex_;
  bool looked_ = false;             // guarded by mutex_
  std::optional<HostRates> rates_;  // likewise
};

}  // namespace plexus
