// SPDX-License-Identifier: Apache-2.0
// Any bytes as a program file, JSON or MSCCL's XML: refused with a reason, or proved or refused by
// the proof with a reason; what is proved is written and read again, and proved alike.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/programs/program_file.hpp"
#include "core/programs/program_json.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto parsed = plexus::parse_program_file({reinterpret_cast<const char*>(data), size});
  if (!parsed) {
    if (parsed.error().message().empty()) {
      std::abort();
    }
    return 0;
  }
  plexus::ProgramFile file = std::move(parsed).value();
  const plexus::ProgramProof proof = plexus::prove(file);
  if (!proof.proved) {
    if (proof.reason.empty()) {
      std::abort();
    }
    return 0;
  }
  file.root = proof.root;
  file.out_of_place = proof.out_of_place.proved;
  file.in_place = proof.in_place.proved || !plexus::has_in_place(file.collective);
  auto again = plexus::parse_program_file(plexus::format_program_json(file));
  if (!again) {
    std::abort();
  }
  const plexus::ProgramProof second = plexus::prove(again.value());
  if (!second.proved || second.unfit != proof.unfit || second.any().rounds != proof.any().rounds ||
      second.any().chunks_in_all != proof.any().chunks_in_all) {
    std::abort();
  }
  return 0;
}
