// SPDX-License-Identifier: Apache-2.0
// A certificate for people: the page and the badge. Every text goes through the XML library, so
// that nothing of a plugin's becomes markup.
#include <sstream>

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <pugixml.hpp>

#include "tools/conformance/certificate.hpp"

namespace plexus::conformance {
namespace {

using nlohmann::json;

constexpr const char* kStyle =
    "body{font:15px/1.5 sans-serif;max-width:62em;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse;width:100%}"
    "td,th{border-bottom:1px solid #ddd;padding:.2em .6em;text-align:left;vertical-align:top}"
    "pre{background:#f4f4f4;padding:.6em;overflow:auto}code{overflow-wrap:anywhere}";

pugi::xml_node add(pugi::xml_node parent, const char* name, const std::string& text = "") {
  pugi::xml_node made = parent.append_child(name);
  if (!text.empty()) {
    made.text().set(text.c_str());
  }
  return made;
}
void set(pugi::xml_node node, const char* attribute, const std::string& value) {
  node.append_attribute(attribute).set_value(value.c_str());
}
/// "passed", 12, ["a","b"] as people write them.
std::string plain(const json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void add_row(pugi::xml_node table, const std::string& what, const std::string& text) {
  pugi::xml_node row = add(table, "tr");
  add(row, "th", what);
  add(add(row, "td"), "code", text);
}

const char* color_of(const std::string& verdict) {
  return verdict == "passed" ? "#2e7d32" : verdict == "failed" ? "#c62828" : "#757575";
}

/// "net native, net v12", of the tables with that verdict.
std::string list_tables(const json& certificate, const std::string& verdict) {
  std::vector<std::string> tables;
  for (const json& section : certificate["sections"]) {
    if (section["verdict"] == verdict) {
      const std::string entry = section["entry"];
      const size_t version = entry.rfind("_v");
      tables.push_back(
          fmt::format("{} {}", plain(section["kind"]),
                      version == std::string::npos ? "native" : entry.substr(version + 1)));
    }
  }
  return fmt::format("{}", fmt::join(tables, ", "));
}

std::string words_of(const json& certificate) {
  const std::string verdict = verdict_of(certificate);
  const std::string tables = list_tables(certificate, verdict == "incomplete" ? "passed" : verdict);
  return verdict == "failed" || verdict == "passed" ? fmt::format("{}: {}", verdict, tables)
         : verdict == "incomplete"                  ? fmt::format("part of the kit: {}", tables)
                                                    : verdict;
}

void add_badge(pugi::xml_node parent, const json& certificate) {
  constexpr size_t kCharWidth = 7;
  constexpr size_t kLeft = 148;
  constexpr const char* kTitle = "Plexus conformance";
  const std::string words = words_of(certificate);
  const size_t width = kLeft + kCharWidth * words.size() + 16;
  pugi::xml_node svg = add(parent, "svg");
  set(svg, "xmlns", "http://www.w3.org/2000/svg");
  set(svg, "width", std::to_string(width));
  set(svg, "height", "24");
  set(svg, "role", "img");
  add(svg, "title",
      fmt::format("{}, {} of Plexus {}, {}", plain(certificate["library"]["name"]), kTitle,
                  plain(certificate["kit"]["version"]), plain(certificate["times"]["end"])));
  for (const auto& [x, wide, color] :
       {std::tuple{size_t{0}, width, "#424242"},
        std::tuple{kLeft, width - kLeft, color_of(verdict_of(certificate))}}) {
    pugi::xml_node box = add(svg, "rect");
    set(box, "x", std::to_string(x));
    set(box, "width", std::to_string(wide));
    set(box, "height", "24");
    set(box, "fill", color);
  }
  for (const auto& [x, text] :
       {std::pair{size_t{8}, std::string(kTitle)}, std::pair{kLeft + 8, words}}) {
    pugi::xml_node node = add(svg, "text", text);
    set(node, "x", std::to_string(x));
    set(node, "y", "16");
    set(node, "fill", "white");
    set(node, "font-family", "monospace");
    set(node, "font-size", "12");
  }
}

void add_facts(pugi::xml_node body, const json& certificate) {
  pugi::xml_node table = add(body, "table");
  add_row(table, "library", plain(certificate["library"]["name"]));
  add_row(table, "BLAKE2b-256 (b2sum -l 256)", plain(certificate["library"]["blake2b_256"]));
  add_row(table, "kit",
          fmt::format("Plexus {}, ABI {}", plain(certificate["kit"]["version"]),
                      plain(certificate["kit"]["abi"])));
  for (const auto& [name, value] : certificate["kit"]["options"].items()) {
    add_row(table, name, plain(value));
  }
  add_row(table, "seeds", plain(certificate["kit"]["seeds"]));
  for (const char* const part : {"times", "machine", "environment"}) {
    for (const auto& [name, value] : certificate[part].items()) {
      add_row(table, name, plain(value));
    }
  }
}

void add_endurance(pugi::xml_node body, const json& endurance) {
  if (endurance.is_null()) {
    add(body, "p", "No long run.");
  } else if (endurance["failure"] != "") {
    add(body, "p",
        fmt::format("The long run (seed {}) failed: {}", endurance["seed"].dump(),
                    plain(endurance["failure"])));
  } else {
    add(body, "p",
        fmt::format("Long run: {} s, {} messages with {} bytes checked, contexts and connections "
                    "made anew {} times; descriptors, threads and memory flat ({} resident bytes "
                    "after the first epochs, {} at the end). Seed {}.",
                    endurance["seconds"].dump(), endurance["messages"].dump(),
                    endurance["bytes"].dump(), endurance["epochs"].dump(),
                    endurance["resident_bytes_begin"].dump(),
                    endurance["resident_bytes_end"].dump(), endurance["seed"].dump()));
  }
}

void add_section(pugi::xml_node body, const json& section) {
  add(body, "h2",
      fmt::format("{} {}: {}", plain(section["entry"]), plain(section["name"]),
                  plain(section["verdict"])));
  if (section["reason"] != "") {
    add(body, "p", plain(section["reason"]));
  }
  if (section["passed"].empty() && section["others"].empty()) {
    return;
  }
  const json& counts = section["counts"];
  add(body, "p",
      fmt::format("{} checks passed, {} broke jobs, {} were weak under faults, {} were beyond "
                  "NCCL's contract, {} are known limits, {} could not be tested here.",
                  counts["passed"].dump(), counts["failed"].dump(), counts["weak"].dump(),
                  counts["beyond"].dump(), counts["known"].dump(), counts["skipped"].dump()));
  pugi::xml_node table = add(body, "table");
  for (const json& check : section["others"]) {
    pugi::xml_node row = add(table, "tr");
    add(row, "th", plain(check["verdict"]));
    add(add(row, "td"), "code", plain(check["id"]));
    pugi::xml_node cell = add(row, "td",
                              fmt::format("{}: {} (rule: {})", plain(check["title"]),
                                          plain(check["detail"]), plain(check["rule"])));
    if (check["program"] != "") {
      pugi::xml_node details = add(cell, "details");
      add(details, "summary", "a C program that fails in the same way");
      add(details, "pre", plain(check["program"]));
    }
  }
  pugi::xml_node details = add(body, "details");
  add(details, "summary", "checks that passed, with milliseconds");
  std::string passed;
  for (const auto& [id, time_ms] : section["passed"].items()) {
    passed += fmt::format("{}{} {}", passed.empty() ? "" : ", ", id, time_ms.dump());
  }
  add(details, "p", passed);
  if (section["kind"] == "net") {
    add_endurance(body, section["endurance"]);
  }
}

std::string print(const pugi::xml_document& document, const char* head) {
  std::ostringstream text;
  text << head;
  document.save(
      text, "",
      pugi::format_raw | pugi::format_no_declaration | pugi::format_no_empty_element_tags);
  return text.str() + "\n";
}

}  // namespace

std::string format_badge(const json& certificate) {
  pugi::xml_document document;
  add_badge(document, certificate);
  return print(document, "");
}

std::string format_page(const json& certificate, const std::optional<security::SigningKey>& key) {
  pugi::xml_document document;
  pugi::xml_node html = add(document, "html");
  set(html, "lang", "en");
  pugi::xml_node head = add(html, "head");
  set(add(head, "meta"), "charset", "utf-8");
  const std::string title = fmt::format("Certificate of {}", plain(certificate["library"]["name"]));
  add(head, "title", title);
  add(head, "style", kStyle);
  pugi::xml_node body = add(html, "body");
  add(body, "h1", title);
  add_badge(body, certificate);
  add(body, "p",
      "Plexus's conformance kit has called the library as NCCL, or Plexus, does, and has compared "
      "every byte. A check that passes shows that a rule held in this run, on this machine.");
  add_facts(body, certificate);
  for (const json& section : certificate["sections"]) {
    add_section(body, section);
  }
  add(body, "h2", "Who says so");
  add(body, "p",
      key.has_value()
          ? fmt::format("The JSON of this certificate is signed by the Ed25519 key {}. Compare: "
                        "plexus plugin verify-certificate FILE.json --key {} --library {}",
                        security::format_hex(security::public_key_of(*key)),
                        security::format_hex(security::public_key_of(*key)),
                        plain(certificate["library"]["name"]))
          : std::string("Nobody has signed this certificate."));
  return print(document, "<!DOCTYPE html>\n");
}

}  // namespace plexus::conformance
