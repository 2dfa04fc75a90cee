// SPDX-License-Identifier: Apache-2.0
#include "core/topo/machine_xml.hpp"

#include <array>
#include <span>

#include "core/base/file_kind.hpp"
#include "guest/file.hpp"

namespace plexus {
namespace {

enum class Kind : uint8_t { kText, kInteger, kHex, kNumber, kPositive };

struct Attribute {
  std::string_view key;
  Kind kind;
};

struct Tag {
  std::string_view tag;
  std::array<std::string_view, 2> parents;
  std::string_view identity;  // attribute that every such element must have, even in a template
  std::span<const Attribute> attributes;  // attributes whose values are checked
};

constexpr std::array kSystem = {Attribute{"version", Kind::kInteger}};
constexpr std::array kCpu = {
    Attribute{"numaid", Kind::kInteger}, Attribute{"host_hash", Kind::kHex},
    Attribute{"familyid", Kind::kInteger}, Attribute{"modelid", Kind::kInteger}};
constexpr std::array kPci = {Attribute{"busid", Kind::kText}};
constexpr std::array kPciLink = {Attribute{"target", Kind::kText}};
constexpr std::array kGpu = {Attribute{"dev", Kind::kInteger}, Attribute{"sm", Kind::kInteger},
                             Attribute{"rank", Kind::kInteger}, Attribute{"gdr", Kind::kInteger}};
constexpr std::array kHost = {Attribute{"rank", Kind::kInteger}, Attribute{"bw", Kind::kPositive}};
constexpr std::array kNvlink = {Attribute{"count", Kind::kPositive}};
constexpr std::array kC2c = {Attribute{"bw", Kind::kPositive}, Attribute{"count", Kind::kPositive}};
constexpr std::array kNet = {
    Attribute{"dev", Kind::kInteger},     Attribute{"speed", Kind::kInteger},
    Attribute{"latency", Kind::kNumber},  Attribute{"port", Kind::kInteger},
    Attribute{"guid", Kind::kHex},        Attribute{"gdr", Kind::kInteger},
    Attribute{"maxconn", Kind::kInteger}, Attribute{"rail", Kind::kInteger},
    Attribute{"plane", Kind::kInteger},
};

constexpr std::array kTags = {
    Tag{"cpu", {"system", ""}, "numaid", kCpu},
    Tag{"pci", {"cpu", "pci"}, "busid", kPci},
    Tag{"pcilink", {"pci", ""}, "target", kPciLink},
    Tag{"gpu", {"pci", ""}, "", kGpu},
    Tag{"host", {"cpu", ""}, "rank", kHost},  // Plexus's own: a rank that computes on this CPU
    Tag{"nvlink", {"gpu", ""}, "count", kNvlink},
    Tag{"c2c", {"gpu", ""}, "", kC2c},
    Tag{"nic", {"pci", "cpu"}, "", {}},
    Tag{"net", {"nic", ""}, "", kNet},
};

const Tag* find_tag(std::string_view tag) {
  for (const Tag& known : kTags) {
    if (known.tag == tag) {
      return &known;
    }
  }
  return nullptr;
}

Result<void> check_value(const XmlElement& element, const Attribute& attribute) {
  constexpr int64_t kPositiveMax = 1'000'000'000;
  if (element.find(attribute.key) == nullptr) {
    return ok();
  }
  if (attribute.kind == Kind::kText) {
    return ok();
  }
  if (attribute.kind == Kind::kHex) {
    PLEXUS_TRY(element.hex(attribute.key));
    return ok();
  }
  if (attribute.kind == Kind::kNumber) {
    PLEXUS_TRY(element.number(attribute.key));
    return ok();
  }
  PLEXUS_TRY(value, element.integer(attribute.key));
  const bool positive = attribute.kind == Kind::kPositive;
  const int64_t low = positive ? 1 : -kPositiveMax;
  if (value < low || value > kPositiveMax) {
    return fail(Code::kInvalidUsage, "{}: {}=\"{}\" is out of range", element.where(),
                attribute.key, value);
  }
  return ok();
}

/// Checks the element's attributes and removes children that the format does not allow there.
Result<void> check_element(XmlElement& element, std::span<const Attribute> attributes) {
  for (const Attribute& attribute : attributes) {
    PLEXUS_TRY(check_value(element, attribute));
  }
  std::vector<XmlElement> kept;
  for (XmlElement& child : element.children) {
    const Tag* const tag = find_tag(child.tag);
    if (tag == nullptr) {
      continue;
    }
    if (tag->parents[0] != element.tag && tag->parents[1] != element.tag) {
      return fail(Code::kInvalidUsage, "{} is inside <{}>; it belongs inside <{}>", child.where(),
                  element.tag, tag->parents[0]);
    }
    if (!tag->identity.empty()) {
      PLEXUS_TRY(child.text(tag->identity));
    }
    PLEXUS_TRY(check_element(child, tag->attributes));
    kept.push_back(std::move(child));
  }
  element.children = std::move(kept);
  return ok();
}

}  // namespace

Result<XmlElement> parse_machine(std::string_view text) {
  PLEXUS_TRY(check_file_kind(text, FileKind::kTopology));
  PLEXUS_TRY(root, parse_xml(text));
  if (root.tag != "system") {
    return fail(Code::kInvalidUsage, "{} where a topology file must have <system>", root.where());
  }
  PLEXUS_TRY(version, root.integer("version"));
  if (version != 1) {
    return fail(Code::kInvalidUsage, "{} has version {}; only version 1 is supported", root.where(),
                version);
  }
  PLEXUS_TRY(check_element(root, kSystem));
  return root;
}

Result<XmlElement> read_machine_file(const std::string& file_name, const std::string& from) {
  const std::string shown = from.empty() ? "topology file " + file_name : from;
  const FileText file = read_regular_file(file_name);
  if (!file.refusal.empty()) {
    return fail(Code::kInvalidUsage, "{} cannot be read: {}", shown, file.refusal);
  }
  Result<XmlElement> machine = parse_machine(file.text);
  if (!machine) {
    return std::move(machine).error().with_context(shown);
  }
  return machine;
}

}  // namespace plexus
