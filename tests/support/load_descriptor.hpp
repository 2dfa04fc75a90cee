// SPDX-License-Identifier: Apache-2.0
// For plugins of tests that are another plugin with some entries of its table replaced; handles are
// the other's own.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <dlfcn.h>

#include "plugin-api/plexus_plugin.h"

namespace plexus::test {

/// What `query` of the library at `path` gives. The program ends here when there is none.
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
