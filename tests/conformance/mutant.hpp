// SPDX-License-Identifier: Apache-2.0
// What all mutants share: which fault was asked for.
#pragma once

#include <cstdlib>
#include <string_view>

/// Is it the fault that PLEXUS_MUTANT names?
inline bool is_mutant(std::string_view name) {
  static const char* const kChosen = std::getenv("PLEXUS_MUTANT");
  return kChosen != nullptr && kChosen == name;
}
