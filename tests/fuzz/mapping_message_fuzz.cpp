// SPDX-License-Identifier: Apache-2.0
// Any bytes as what another rank says of memory to be mapped. What is accepted is written as the
// same bytes again.
#include <cstdint>
#include <cstdlib>

#include "core/transport/memory/mapping_message.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (const auto message = plexus::mapping_message_of(bytes);
      message.has_value() && plexus::to_bytes(*message) != bytes) {
    std::abort();
  }
  return 0;
}
