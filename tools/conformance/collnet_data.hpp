// SPDX-License-Identifier: Apache-2.0
// The inputs and expected results of a reduction, bit for bit: integers of any value, which wrap
// around; floats that are small integers (powers of two for products), so that every order of the
// members gives the same exact result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace plexus::conformance {

/// Bytes of an element; 0: there is no such type.
[[nodiscard]] size_t collnet_element_bytes(int32_t type);
/// "float16"; "?" if unknown.
[[nodiscard]] const char* collnet_type_name(int32_t type);
[[nodiscard]] const char* collnet_op_name(int32_t op);

struct CollnetData {
  int32_t type;
  int32_t op;
  uint64_t count;
  uint32_t salt;
};
/// The input of a member.
[[nodiscard]] std::vector<std::byte> make_part(const CollnetData& data, uint32_t member);
/// The result over `members` members.
[[nodiscard]] std::vector<std::byte> make_result(const CollnetData& data, uint32_t members);

}  // namespace plexus::conformance
