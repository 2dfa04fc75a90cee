// SPDX-License-Identifier: Apache-2.0
// The time that two cores of a host need to exchange data by each copy method of processes: a
// value that is measured (measure.hpp), kept in a file (rates_file.hpp), agreed by all ranks
// (core/setup), and from which the copy method of a call is chosen (core/schedule). Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/result.hpp"

namespace plexus {

/// How bytes get from the memory of one process to that of another.
enum class CopyMethod : uint8_t {
  kThroughSlots,  // copied into shared slots and out of them
  kAttach,        // read from the other's memory by system calls
  kMapped,        // copied from memory that both have mapped
};
inline constexpr size_t kCopyMethods = 3;
const char* name(CopyMethod method);

/// Sizes that are measured, ascending.
inline constexpr std::array<uint64_t, 6> kRatesBytes = {uint64_t{4} << 10,  uint64_t{16} << 10,
                                                        uint64_t{64} << 10, uint64_t{256} << 10,
                                                        uint64_t{1} << 20,  uint64_t{4} << 20};

/// Two cores at some distance.
struct PairRates {
  /// Exchange of a cache line, each core writing its own and reading the other's. 0: there are no
  /// such cores.
  uint64_t line_ns = 0;
  /// [method][size]: each takes as many bytes from the other at the same time. 0: not possible.
  std::array<std::array<uint64_t, kRatesBytes.size()>, kCopyMethods> exchange_ns{};

  /// Interpolated between sizes, by the byte beyond them; 0: not possible.
  [[nodiscard]] double time_ns(CopyMethod method, uint64_t size_bytes) const;
  friend bool operator==(const PairRates&, const PairRates&) = default;
};

/// Trivially copyable: ranks of one version exchange it as bytes.
struct HostRates {
  PairRates near;  // cores that share a cache, but not siblings of one core
  PairRates far;   // cores that share none

  /// Ranks may be on any cores: the slower pair counts.
  [[nodiscard]] const PairRates& slowest() const { return far.line_ns > 0 ? far : near; }
  friend bool operator==(const HostRates&, const HostRates&) = default;
};

/// Whether every number is one that can have been measured.
bool is_plausible(const HostRates& rates);
/// The larger time of each; a method that one host lacks is not possible.
HostRates worst_of(const HostRates& a, const HostRates& b);

/// The numbers where nothing was measured: those of an AMD EPYC with two near cores.
const HostRates& built_in_rates();

/// As text, for `host`: what the numbers depend on, in one line.
std::string format_rates(const HostRates& rates, std::string_view host);
/// Reads what format_rates() wrote for the same host; any other text is an Error.
Result<HostRates> parse_rates(std::string_view text, std::string_view host);

}  // namespace plexus
