// SPDX-License-Identifier: Apache-2.0
// An XML text as a value: elements with their attributes and line numbers. Accepts what NCCL's
// files contain (no text between elements, no repeated attributes) and reports line and cause of
// anything else. Writes as NCCL does: two spaces per level, key="value", and `/>` for an element
// without children.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/result.hpp"

namespace plexus {

struct XmlElement {
  std::string tag;
  std::vector<std::pair<std::string, std::string>> attributes;
  std::vector<XmlElement> children;
  int line = 0;  // 0: not read from a file

  [[nodiscard]] const std::string* find(std::string_view key) const;
  [[nodiscard]] const XmlElement* find_child(std::string_view child_tag) const;
  /// Replaces the attribute or adds it.
  void set(std::string_view key, std::string value);

  /// "<gpu> of line 4"
  [[nodiscard]] std::string where() const;

  /// The attribute's text; an Error names what is missing and where.
  [[nodiscard]] Result<std::string> text(std::string_view key) const;
  /// Decimal, 0x or octal. Without `otherwise` the attribute is required.
  [[nodiscard]] Result<int64_t> integer(std::string_view key,
                                        std::optional<int64_t> otherwise = {}) const;
  /// Hexadecimal with or without 0x, up to 64 bits.
  [[nodiscard]] Result<uint64_t> hex(std::string_view key,
                                     std::optional<uint64_t> otherwise = {}) const;
  [[nodiscard]] Result<double> number(std::string_view key,
                                      std::optional<double> otherwise = {}) const;

  /// Compares tags, attributes and children, not line numbers.
  friend bool operator==(const XmlElement& left, const XmlElement& right) {
    return left.tag == right.tag && left.attributes == right.attributes &&
           left.children == right.children;
  }
};

/// The error of what a file says, with the file before its line; `from` empty: as it is.
[[nodiscard]] inline Error in_file(const std::string& from, Error error) {
  return from.empty() ? std::move(error) : std::move(error).with_context(from);
}

Result<XmlElement> parse_xml(std::string_view text);
std::string format_xml(const XmlElement& root);

}  // namespace plexus
