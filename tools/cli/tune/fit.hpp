// SPDX-License-Identifier: Apache-2.0
// From measured times to the numbers of tuner-default's model (docs/tuning.md has its formula):
// each number follows from a few calls that differ in little but that. Pure; `plexus tune`
// measures.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace plexus::tune {

/// Times in microseconds of 2 ranks over one class of link.
struct LinkTimes {
  double broadcast_small;   // `ring`, one after the other: messages that nobody waits for
  double all_reduce_small;  // `allpairs`: each waits for the other's message
  double ring_large;        // all-reduce; moves as much as `doubling` and combines half as much
  double doubling_large;
};

/// Times in microseconds of all-reduces of more ranks on one host.
struct HostTimes {
  int cores;
  int shared_ranks;            // a power of two above `cores`; 0: not measured
  double shared_doubling;      // smallest message
  double crowd_ring_large;     // of kCrowdRanks; each sends to one peer
  double crowd_twoshot_large;  // each sends to all
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

/// A power of two above `cores` that is worth starting; 0: there is none.
int choose_shared_ranks(int cores);

LinkNumbers fit_link(const LinkTimes& times);
/// `near`: times and numbers of the link that the ranks of `times` are joined by.
HostNumbers fit_host(const HostTimes& times, const LinkTimes& near, const LinkNumbers& link);

struct NamedLink {
  std::string name;  // process, host, net
  LinkNumbers numbers;
};
/// One collective by so many ranks of one host: by algorithm, a time for each size.
struct MeasuredCall {
  std::string link;  // class of the slowest between two of the ranks
  int nranks;
  std::string collective;
  std::vector<size_t> bytes;
  std::map<std::string, std::vector<double>> time_us;
};
/// The text of a calibration file. `about`: for people, what was measured where.
std::string format_calibration(const std::vector<NamedLink>& links,
                               const HostNumbers& host,
                               const std::vector<MeasuredCall>& measured,
                               const std::string& about);

}  // namespace plexus::tune
