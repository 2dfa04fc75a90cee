// SPDX-License-Identifier: Apache-2.0
// Fabric files, Slurm's topology.conf, HCA lists and claims of other ranks: any bytes. A fabric
// file that is accepted gives claims within their bound; a topology.conf that is accepted gives a
// fabric file that is.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/centres/centre_map.hpp"
#include "core/centres/fabric_file.hpp"
#include "core/centres/fabric_id.hpp"
#include "core/centres/slurm.hpp"

namespace plexus {
namespace {

void require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

void fuzz(std::string_view text) {
  if (const auto file = parse_fabric_file(text)) {
    const std::string bytes = encode(file.value().claim_of("node01"));
    require(bytes.size() <= kClaimBytesMax);
    require(decode_claim(bytes).has_value());
  }
  if (const auto file = fabric_file_of_slurm(text)) {
    require(parse_fabric_file(file.value()).has_value());
  }
  (void)parse_hca_list(text, HcaSyntax::kFabricId);
  (void)parse_hca_list(text, HcaSyntax::kRailAndPlane);
  if (auto claim = decode_claim(text)) {
    const CentreNode node{.host = "a", .claim = std::move(claim).value(), .answers = {}};
    (void)make_centre_map(std::vector<CentreNode>{node, node});
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
