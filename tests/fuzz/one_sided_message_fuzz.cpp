// SPDX-License-Identifier: Apache-2.0
// Any bytes as a message of another rank about windows, puts and signals. What is accepted is
// written as the same bytes again.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/comm/one_sided_message.hpp"

namespace plexus {
namespace {

void fuzz(std::string_view bytes) {
  if (const auto message = one_sided::from_bytes(bytes);
      message.has_value() && one_sided::to_bytes(message.value()) != bytes) {
    std::abort();
  }
}

}  // namespace
}  // namespace plexus

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  plexus::fuzz({reinterpret_cast<const char*>(data), size});
  return 0;
}
