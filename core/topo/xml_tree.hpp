// SPDX-License-Identifier: Apache-2.0
// An XML text as a value: elements with their attributes and lines. Reads what NCCL's files contain
// (no text between elements, nothing repeated) and says line and reason for everything else; writes
// it as NCCL does: two spaces a level, key="value", an element without children closed at once.
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
  /// Replaces or adds.
  void set(std::string_view key, std::string value);

  /// "<gpu> of line 4"
  [[nodiscard]] std::string where() const;

  /// The attribute's text, or an error that names what is missing and where.
  [[nodiscard]] Result<std::string> text(std::string_view key) const;
  /// Decimal, 0x or octal. Without `otherwise` the attribute must be there.
  [[nodiscard]] Result<int64_t> integer(std::string_view key,
                                        std::optional<int64_t> otherwise = {}) const;
  /// Hexadecimal with or without 0x, up to 64 bits.
  [[nodiscard]] Result<uint64_t> hex(std::string_view key,
                                     std::optional<uint64_t> otherwise = {}) const;
  [[nodiscard]] Result<double> number(std::string_view key,
                                      std::optional<double> otherwise = {}) const;

  /// Equal in tags, attributes and children; the lines do not count.
  friend bool operator==(const XmlElement& left, const XmlElement& right) {
    return left.tag == right.tag && left.attributes == right.attributes &&
           left.children == right.children;
  }
};

Result<XmlElement> parse_xml(std::string_view text);
std::string format_xml(const XmlElement& root);

}  // namespace plexus
