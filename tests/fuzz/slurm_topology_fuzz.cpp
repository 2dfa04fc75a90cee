// SPDX-License-Identifier: Apache-2.0
// Any bytes as Slurm's topology.conf or topology.yaml, which may include itself. What is accepted
// gives a fabric file that is accepted.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/datacenter/fabric_file.hpp"
#include "tools/slurm/slurm.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto read = [&](const std::string& path) -> plexus::Result<std::string> {
    if (path != "file") {
      return plexus::fail(plexus::Code::kInvalidArgument, "no '{}'", path);
    }
    return std::string(text);
  };
  const auto fabric = plexus::fabric_file_of_slurm(text, {.path = "file"}, read);
  if (fabric && !plexus::parse_fabric_file(fabric.value().text)) {
    std::abort();
  }
  return 0;
}
