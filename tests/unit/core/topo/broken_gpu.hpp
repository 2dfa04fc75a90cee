// SPDX-License-Identifier: Apache-2.0
// A machine in which one GPU has lost its NVLinks.
#pragma once

#include <string>

#include <fmt/format.h>

namespace plexus::testing {

/// Two sockets, each with two GPUs and the NIC mlx5_SOCKET below one bridge. All GPUs but `broken`
/// are on an NVLink switch; GPU i has the bus id 0000:1i:00.0.
inline std::string machine_with_broken_gpu(int broken) {
  constexpr const char* kPlug =
      R"(<pci busid="0000:{}:00.0" class="{}" link_speed="16 GT/s" link_width="16">{}</pci>)";
  std::string sockets;
  for (const int socket : {0, 1}) {
    std::string inside =
        fmt::format(kPlug, fmt::format("2{}", socket), "0x020000",
                    fmt::format("<nic><net name=\"mlx5_{0}\" dev=\"{0}\" speed=\"200000\" "
                                "gdr=\"1\"/></nic>",
                                socket));
    for (const int gpu : {2 * socket, 2 * socket + 1}) {
      inside += fmt::format(
          kPlug, fmt::format("1{}", gpu), "0x030200",
          fmt::format("<gpu dev=\"{0}\" sm=\"80\" rank=\"{0}\" gdr=\"1\">{1}</gpu>", gpu,
                      gpu == broken
                          ? ""
                          : R"(<nvlink target="ffff:ff:ff.0" count="12" tclass="0x068000"/>)"));
    }
    sockets += fmt::format(
        R"(<cpu numaid="{}" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">{}</cpu>)",
        socket, fmt::format(kPlug, fmt::format("3{}", socket), "0x060400", inside));
  }
  return "<system version=\"1\">" + sockets + "</system>";
}

}  // namespace plexus::testing
