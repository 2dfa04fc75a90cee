// SPDX-License-Identifier: Apache-2.0
// Any bytes as a calibration of tuner-default. If accepted, the predicted times are numbers, for
// ranks and sizes inside and outside of it.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "plugins/tuner-default/calibration.hpp"

namespace plexus::tuner_default {
namespace {

void require_time(const CalibrationFile& file, uint32_t nranks, uint64_t size_bytes) {
  plexus_tuner_comm_t comm{};
  comm.struct_size = sizeof(comm);
  comm.nranks = nranks;
  comm.ranks_per_node_max = nranks;
  comm.cores_per_node_min = 2;
  comm.links[PLEXUS_LINK_HOST].count = 1;
  plexus_tuner_call_t call{};
  call.struct_size = sizeof(call);
  call.collective = "all_reduce";
  call.size_bytes = size_bytes;
  plexus_tuner_candidate_t candidate{};
  candidate.struct_size = sizeof(candidate);
  candidate.algorithm = "ring";
  candidate.protocol = "LL";
  candidate.rounds = 2;
  candidate.chunks_per_loop = 2;
  candidate.chunks_moved = 2;
  candidate.chunks_in_all = 4;
  candidate.chunk_bytes = 131072;
  if (std::isnan(predict_us(file.model, file.measured, comm, call, candidate))) {
    std::abort();
  }
}

void fuzz(std::string_view text) {
  const auto file = parse_calibration(text);
  if (file.has_value()) {
    for (const uint32_t nranks : {2U, 3U}) {
      for (const uint64_t size_bytes : {uint64_t{0}, uint64_t{100}, uint64_t{1} << 40}) {
        require_time(file.value(), nranks, size_bytes);
      }
    }
  }
}

}  // namespace
}  // namespace plexus::tuner_default

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  plexus::tuner_default::fuzz({reinterpret_cast<const char*>(data), size});
  return 0;
}
