// SPDX-License-Identifier: Apache-2.0
// NCCL's topology file (<system>): which elements stand in which, and that every value can be read.
// A file may be a template, in which detection fills what is missing (GPUs, link speeds); only
// building the graph (system.hpp) demands a complete one.
#pragma once

#include <string>
#include <string_view>

#include "core/base/result.hpp"
#include "core/topo/xml_tree.hpp"

namespace plexus {

/// Checked. Elements that the format does not know are left out, as NCCL leaves them out.
Result<XmlElement> parse_machine(std::string_view text);
/// The same from a file; errors name it.
Result<XmlElement> read_machine_file(const std::string& file_name);

}  // namespace plexus
