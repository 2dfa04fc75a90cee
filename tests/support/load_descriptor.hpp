// SPDX-License-Identifier: Apache-2.0
// For test plugins that wrap another plugin and replace some entries of its table; handles are the
// wrapped plugin's own.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <dlfcn.h>

#include "plugin-api/plexus_plugin.h"

namespace plexus::test {

/// The result of `query` in the library at `path`. Ends the program if there is none.
template <class Descriptor>
const Descriptor& load_descriptor(const char* path, const char* query) {
  void* const library = path == nullptr ? nullptr : dlopen(path, RTLD_NOW | RTLD_LOCAL);
  void* const entry = library == nullptr ? nullptr : dlsym(library, query);
  if (entry == nullptr) {
    std::abort();
  }
  return *reinterpret_cast<const Descriptor* (*)(uint32_t)>(entry)(PLEXUS_HOST_ABI);
}

}  // namespace plexus::test
