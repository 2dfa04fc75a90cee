// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/svg.hpp"

namespace plexus {

std::string escape_xml(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '&':
        escaped += "&amp;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    }
  }
  return escaped;
}

Svg::Svg(int width, int height, std::string_view defs)
    : text_(fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
                        "font-family=\"sans-serif\" font-size=\"11\">\n"
                        "<defs>{2}</defs>\n"
                        "<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
                        width,
                        height,
                        defs)) {}

void Svg::add_text(double x, double y, std::string_view text, std::string_view attributes) {
  text_ +=
      fmt::format("<text x=\"{}\" y=\"{}\" {}>{}</text>\n", x, y, attributes, escape_xml(text));
}

void Svg::add_path(std::string_view path, std::string_view attributes) {
  text_ += fmt::format("<path d=\"{}\" {}/>\n", path, attributes);
}

void Svg::add_line(const std::vector<std::pair<double, double>>& points,
                   std::string_view attributes) {
  std::string path;
  for (const auto& [x, y] : points) {
    path += fmt::format("{}{:.1f},{:.1f} ", path.empty() ? "M" : "L", x, y);
  }
  add_path(path, attributes);
}

void Svg::begin_group(std::string_view title) {
  text_ += fmt::format("<g><title>{}</title>\n", escape_xml(title));
}

void Svg::end_group() { text_ += "</g>\n"; }

void Svg::add_box(double x, double y, double width, double height, std::string_view attributes) {
  text_ += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" {}/>\n", x, y, width,
                       height, attributes);
}

}  // namespace plexus
