// SPDX-License-Identifier: Apache-2.0
// Shared by all mutants: the selected fault.
#pragma once

#include <cstdlib>
#include <string_view>

/// Whether PLEXUS_MUTANT names this fault.
inline bool is_mutant(std::string_view name) {
  static const char* const kChosen = std::getenv("PLEXUS_MUTANT");
  return kChosen != nullptr && kChosen == name;
}
