// SPDX-License-Identifier: Apache-2.0
// Converts measured times to the parameters of tuner-default's model (docs/tuning.md has its
// formula): each parameter follows from a few calls that differ mainly in it. Pure; `plexus tune`
// measures.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace plexus::tune {

/// Times in us with 2 ranks over one class of link.
struct LinkTimes {
  double broadcast_small;   // `ring`, consecutive calls: messages that no rank waits for
  double all_reduce_small;  // `allpairs`: each rank waits for the other's message
  // all-reduce; moves as many bytes as `doubling` and combines half as many
  double ring_large;
  double doubling_large;
};

/// Times in us of all-reduces with more ranks on one host.
struct HostTimes {
  int cores;
  int shared_ranks;            // a power of two above `cores`; 0: not measured
  double shared_doubling;      // smallest message
  double crowd_ring_large;     // with kCrowdRanks; each rank sends to one peer
  double crowd_twoshot_large;  // each rank sends to all others
};

inline constexpr size_t kSmallBytes = 8;
inline constexpr size_t kLargeBytes = size_t{1} << 20;
inline constexpr size_t kCrowdBytes = size_t{2} << 20;
inline constexpr int kCrowdRanks = 8;

struct LinkNumbers {
  double latency_us;
  double message_us;
  double us_per_byte;
};
struct HostNumbers {
  double reduce_us_per_byte;
  double turn_us;  // < 0: not measured
  double spread;
};

/// A power of two above `cores` for which starting ranks is reasonable; 0: none.
int choose_shared_ranks(int cores);

LinkNumbers fit_link(const LinkTimes& times);
/// `near`: times and parameters of the link between the ranks of `times`.
HostNumbers fit_host(const HostTimes& times, const LinkTimes& near, const LinkNumbers& link);

struct NamedLink {
  std::string name;  // process, host, net
  LinkNumbers numbers;
};
/// Measurements of one collective with this number of ranks on one host: by algorithm, a time per
/// size.
struct MeasuredCall {
  std::string link;  // the slowest class of link between two of the ranks
  int nranks;
  std::string collective;
  std::vector<size_t> bytes;
  std::map<std::string, std::vector<double>> time_us;
};
/// The text of a calibration file. `messages`: of format_messages(). `about`: a description of the
/// measurements for readers. Nothing is written of what has no links.
std::string format_calibration(const std::vector<NamedLink>& links,
                               const HostNumbers& host,
                               const std::vector<MeasuredCall>& measured,
                               const nlohmann::ordered_json& messages,
                               const std::string& about);

}  // namespace plexus::tune
