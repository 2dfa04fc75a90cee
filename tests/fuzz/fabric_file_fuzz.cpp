// SPDX-License-Identifier: Apache-2.0
// Any bytes as a fabric file (PLEXUS_FABRIC_FILE), an HCA list, or the location of another rank. A
// fabric file that is accepted gives locations within their bound.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/datacenter/datacenter_map.hpp"
#include "core/datacenter/fabric_file.hpp"
#include "core/datacenter/fabric_id.hpp"

namespace plexus {
namespace {

void require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

void fuzz(std::string_view text) {
  if (const auto file = parse_fabric_file(text)) {
    const std::string bytes = encode(file.value().location_of("node01"));
    require(bytes.size() <= kLocationBytesMax);
    require(decode_location(bytes).has_value());
  }
  (void)parse_hca_list(text, HcaSyntax::kFabricId);
  (void)parse_hca_list(text, HcaSyntax::kRailAndPlane);
  if (auto location = decode_location(text)) {
    const DatacenterNode node{.host = "a", .location = std::move(location).value(), .answers = {}};
    (void)make_datacenter_map(std::vector<DatacenterNode>{node, node});
  }
  if (auto answers = decode_answers(text)) {
    require(encode(answers.value()) == text);
  }
}

}  // namespace
}  // namespace plexus

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  plexus::fuzz({reinterpret_cast<const char*>(data), size});
  return 0;
}
