// SPDX-License-Identifier: Apache-2.0
// What a hostile or broken peer may send as a probe or a leave record. Whatever is accepted can be
// encoded again and formatted as text.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/stall/stall_probe.hpp"

namespace plexus {
namespace {

void require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

void fuzz(std::string_view bytes) {
  if (const auto probe = decode_stall_probe(bytes); probe.has_value()) {
    require(!probe->hops.empty() && probe->index < probe->hops.size());
    require(encode(*probe).size() == bytes.size());
    require(!describe_circle(probe->hops).message().empty());
    for (const StallHop& hop : probe->hops) {
      (void)depends_on(hop.call, hop.rank, hop.peer);
    }
  }
  if (const auto record = decode_leave_record(bytes); record.has_value()) {
    require(encode(*record) == bytes);
  }
}

}  // namespace
}  // namespace plexus

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  plexus::fuzz({reinterpret_cast<const char*>(data), size});
  return 0;
}
