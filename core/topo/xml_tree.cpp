// SPDX-License-Identifier: Apache-2.0
#include "core/topo/xml_tree.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <limits>

#include <fmt/format.h>
#include <pugixml.hpp>

namespace plexus {
namespace {

constexpr int kDepthMax = 64;
constexpr size_t kAttributesMax = 64;
constexpr size_t kElementsMax = 100'000;
constexpr size_t kTextBytesMax = 255;

class TreeReader {
 public:
  explicit TreeReader(std::string_view text) : text_(text) {}

  Result<XmlElement> read(const pugi::xml_node& node, int depth) {
    XmlElement element;
    element.tag = node.name();
    element.line = line_of(node.offset_debug());
    if (depth > kDepthMax) {
      return fail(Code::kInvalidUsage, "line {}: <{}> is nested more than {} elements deep",
                  element.line, element.tag, kDepthMax);
    }
    if (++elements_ > kElementsMax) {
      return fail(Code::kInvalidUsage, "line {}: more than {} elements", element.line,
                  kElementsMax);
    }
    PLEXUS_TRY(read_attributes(node, element));
    for (const pugi::xml_node& child : node.children()) {
      if (child.type() == pugi::node_element) {
        PLEXUS_TRY(inner, read(child, depth + 1));
        element.children.push_back(std::move(inner));
      } else if (child.type() == pugi::node_pcdata || child.type() == pugi::node_cdata) {
        return fail(Code::kInvalidUsage,
                    "line {}: text inside <{}>; only elements are allowed there",
                    line_of(child.offset_debug()), element.tag);
      }
    }
    return element;
  }

  [[nodiscard]] int line_of(ptrdiff_t offset) const {
    const auto end =
        text_.begin() + std::clamp<ptrdiff_t>(offset, 0, static_cast<ptrdiff_t>(text_.size()));
    // Elements come in file order, so counting continues from the previous one.
    if (end >= text_.begin() + counted_to_) {
      line_ += static_cast<int>(std::count(text_.begin() + counted_to_, end, '\n'));
      counted_to_ = end - text_.begin();
      return line_;
    }
    return 1 + static_cast<int>(std::count(text_.begin(), end, '\n'));
  }

 private:
  static Result<void> read_attributes(const pugi::xml_node& node, XmlElement& element) {
    for (const pugi::xml_attribute& attribute : node.attributes()) {
      const std::string_view key = attribute.name();
      const std::string_view value = attribute.value();
      if (element.find(key) != nullptr) {
        return fail(Code::kInvalidUsage, "line {}: <{}> has the attribute '{}' twice", element.line,
                    element.tag, key);
      }
      if (key.size() > kTextBytesMax || value.size() > kTextBytesMax ||
          element.attributes.size() >= kAttributesMax) {
        return fail(Code::kInvalidUsage,
                    "line {}: <{}> has more than {} attributes, or one of more than {} characters",
                    element.line, element.tag, kAttributesMax, kTextBytesMax);
      }
      element.attributes.emplace_back(key, value);
    }
    return ok();
  }

  std::string_view text_;
  size_t elements_ = 0;
  mutable ptrdiff_t counted_to_ = 0;
  mutable int line_ = 1;
};

std::string escape(std::string_view value) {
  std::string escaped;
  for (const char character : value) {
    switch (character) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        if (static_cast<unsigned char>(character) < ' ') {
          fmt::format_to(std::back_inserter(escaped), "&#{};", static_cast<int>(character));
        } else {
          escaped += character;
        }
    }
  }
  return escaped;
}

void write(const XmlElement& element, int depth, std::string& out) {
  const std::string indent(static_cast<size_t>(depth) * 2, ' ');
  out += indent + "<" + element.tag;
  for (const auto& [key, value] : element.attributes) {
    out += fmt::format(" {}=\"{}\"", key, escape(value));
  }
  if (element.children.empty()) {
    out += "/>\n";
    return;
  }
  out += ">\n";
  for (const XmlElement& child : element.children) {
    write(child, depth + 1, out);
  }
  out += indent + "</" + element.tag + ">\n";
}

Error bad_value(const XmlElement& element,
                std::string_view key,
                std::string_view value,
                std::string_view wanted) {
  return fail(Code::kInvalidUsage, "{}: {}=\"{}\" is not {}", element.where(), key, value, wanted);
}

}  // namespace

const std::string* XmlElement::find(std::string_view key) const {
  for (const auto& [name, value] : attributes) {
    if (name == key) {
      return &value;
    }
  }
  return nullptr;
}

const XmlElement* XmlElement::find_child(std::string_view child_tag) const {
  for (const XmlElement& child : children) {
    if (child.tag == child_tag) {
      return &child;
    }
  }
  return nullptr;
}

void XmlElement::set(std::string_view key, std::string value) {
  for (auto& [name, old] : attributes) {
    if (name == key) {
      old = std::move(value);
      return;
    }
  }
  attributes.emplace_back(key, std::move(value));
}

std::string XmlElement::where() const {
  return line > 0 ? fmt::format("line {}: <{}>", line, tag) : fmt::format("<{}>", tag);
}

Result<std::string> XmlElement::text(std::string_view key) const {
  const std::string* const value = find(key);
  if (value == nullptr) {
    return fail(Code::kInvalidUsage, "{}: the attribute '{}' is missing", where(), key);
  }
  return *value;
}

Result<int64_t> XmlElement::integer(std::string_view key, std::optional<int64_t> otherwise) const {
  const std::string* const value = find(key);
  if (value == nullptr && otherwise) {
    return *otherwise;
  }
  PLEXUS_TRY(written, text(key));
  constexpr int kDetectBase = 0;
  char* end = nullptr;
  errno = 0;
  const int64_t number = std::strtoll(written.c_str(), &end, kDetectBase);
  if (end == written.c_str() || *end != '\0' || errno != 0) {
    return bad_value(*this, key, written, "a whole number");
  }
  return number;
}

Result<uint64_t> XmlElement::hex(std::string_view key, std::optional<uint64_t> otherwise) const {
  const std::string* const value = find(key);
  if (value == nullptr && otherwise) {
    return *otherwise;
  }
  PLEXUS_TRY(written, text(key));
  constexpr int kHexadecimal = 16;
  char* end = nullptr;
  errno = 0;
  const uint64_t number = std::strtoull(written.c_str(), &end, kHexadecimal);
  if (end == written.c_str() || *end != '\0' || errno != 0 || written.front() == '-') {
    return bad_value(*this, key, written, "a hexadecimal number of 64 bits");
  }
  return number;
}

Result<double> XmlElement::number(std::string_view key, std::optional<double> otherwise) const {
  const std::string* const value = find(key);
  if (value == nullptr && otherwise) {
    return *otherwise;
  }
  PLEXUS_TRY(written, text(key));
  char* end = nullptr;
  const double number = std::strtod(written.c_str(), &end);
  if (end == written.c_str() || *end != '\0' || !std::isfinite(number)) {
    return bad_value(*this, key, written, "a number");
  }
  return number;
}

Result<XmlElement> parse_xml(std::string_view text) {
  pugi::xml_document document;
  const pugi::xml_parse_result parsed = document.load_buffer(
      text.data(), text.size(), pugi::parse_default | pugi::parse_fragment, pugi::encoding_utf8);
  TreeReader reader(text);
  if (!parsed) {
    return fail(Code::kInvalidUsage, "line {}: {}", reader.line_of(parsed.offset),
                parsed.description());
  }
  std::optional<XmlElement> root;
  for (const pugi::xml_node& node : document.children()) {
    if (node.type() != pugi::node_element) {
      return fail(Code::kInvalidUsage, "line {}: text outside the elements",
                  reader.line_of(node.offset_debug()));
    }
    if (root) {
      return fail(Code::kInvalidUsage, "line {}: a second top-level element <{}> after <{}>",
                  reader.line_of(node.offset_debug()), node.name(), root->tag);
    }
    PLEXUS_TRY(element, reader.read(node, 1));
    root = std::move(element);
  }
  if (!root) {
    return fail(Code::kInvalidUsage, "it has no element; it must begin with <system> or <graphs>");
  }
  return *std::move(root);
}

std::string format_xml(const XmlElement& root) {
  std::string out;
  write(root, 0, out);
  return out;
}

}  // namespace plexus
