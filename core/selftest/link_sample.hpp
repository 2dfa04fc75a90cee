// SPDX-License-Identifier: Apache-2.0
// What one end of a link saw of it, in both directions, and the same as bytes for the other ranks.
//
//   const std::vector<LinkSample> mine = {{.peer = 1, .network = "Socket", .latency_us = 12}};
//   PLEXUS_TRY(back, decode_samples(encode(mine), 2));  // of a communicator of 2 ranks
//   return back.size();
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"

namespace plexus {

struct LinkSample {
  int peer = 0;
  uint32_t channel = 0;          // that took this route; with `peer`, it says which link
  std::string network = {};      // "Socket"; "": memory that both ranks reach
  std::string send_device = {};  // by which this rank sends; "": memory
  std::string recv_device = {};
  double latency_us = 0;     // one way, half of the shortest round trip; 0: not measured
  double gb_per_s = 0;       // of what this rank sends; 0: not measured
  double gb_per_s_most = 0;  // it may be, had the ranks not waited for their cores
  double waited = 0;         // share of the time for which this rank's thread wanted a core in vain
  uint64_t sent = 0;         // messages
  uint64_t received = 0;
  uint64_t corrupt = 0;    // of `received`: not as they were sent
  std::string error = {};  // why the trial ended early; "": it did not
};

[[nodiscard]] std::string encode(std::span<const LinkSample> samples);
/// What a rank of the same library version encoded; everything is checked.
[[nodiscard]] Result<std::vector<LinkSample>> decode_samples(std::string_view bytes, int nranks);

}  // namespace plexus
