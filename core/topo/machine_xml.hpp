// SPDX-License-Identifier: Apache-2.0
// NCCL's topology file (<system>): checks the nesting of elements and that every value is readable.
// A file may be a template in which detection adds what is missing (GPUs, link speeds); only
// building the graph (system.hpp) requires a complete one.
#pragma once

#include <string>
#include <string_view>

#include "core/base/result.hpp"
#include "core/topo/xml_tree.hpp"

namespace plexus {

/// Parses and checks. Elements that the format does not know are dropped, as in NCCL.
Result<XmlElement> parse_machine(std::string_view text);
/// The same for a file; errors begin with `from`, or, if that is empty, with the file's name.
Result<XmlElement> read_machine_file(const std::string& file_name, const std::string& from = {});

}  // namespace plexus
