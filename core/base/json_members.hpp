// SPDX-License-Identifier: Apache-2.0
// Members of JSON objects from outside: what is not there, or of another type, counts as absent.
//
//   const std::string name = text_of(record, "name");  // "" without it
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace plexus {

inline const nlohmann::json* find_member(const nlohmann::json& object, std::string_view key) {
  const auto at = object.is_object() ? object.find(key) : object.end();
  return at == object.end() ? nullptr : &*at;
}

inline std::string text_of(const nlohmann::json& object, std::string_view key) {
  const nlohmann::json* const at = find_member(object, key);
  return at == nullptr || !at->is_string() ? "" : at->get<std::string>();
}

}  // namespace plexus
