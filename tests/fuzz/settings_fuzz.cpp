// SPDX-License-Identifier: Apache-2.0
// Any bytes as a file of settings (NCCL_CONF_FILE, ~/.nccl.conf), as NCCL_ALGO and NCCL_PROTO, as
// NCCL_SOCKET_IFNAME and as PLEXUS_PORT_RANGE. Numbers that are accepted are within their bounds.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <unistd.h>

#include "core/base/config.hpp"
#include "core/join/rendezvous.hpp"
#include "core/os/socket.hpp"
#include "core/tuning/algorithm_filter.hpp"

namespace plexus {
namespace {

void require(bool holds) {
  if (!holds) {
    std::abort();
  }
}

/// One file for all inputs; its name is in the environment.
int settings_file() {
  static const int fd = [] {
    const int made = memfd_create("settings", MFD_CLOEXEC);
    require(made >= 0);
    const std::string name = "/proc/self/fd/" + std::to_string(made);
    require(setenv("NCCL_CONF_FILE", name.c_str(), 1) == 0);
    return made;
  }();
  return fd;
}

void fuzz(std::string_view text) {
  for (const Setting& setting : settings()) {
    require(unsetenv(setting.name) == 0);  // where read_config() put it for the input before
  }
  const int fd = settings_file();
  require(ftruncate(fd, 0) == 0);
  require(pwrite(fd, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
  if (const auto config = read_config(); config.has_value()) {
    require(config.value().bootstrap_timeout_s > 0 && config.value().control_connections > 0);
    require(config.value().stall_s >= 0);
    const auto& family = config.value().socket_family;
    require(family.empty() || family == "AF_INET" || family == "AF_INET6");
  }
  const std::string one(text.substr(0, text.find('\0')));
  (void)AlgorithmFilter::parse(one, "");
  (void)AlgorithmFilter::parse("", one);
  (void)find_interface(one, "");
  if (const auto range = parse_port_range(one); range.has_value()) {
    require(range.value().low <= range.value().high && range.value().high <= 65535);
  }
}

}  // namespace
}  // namespace plexus

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  plexus::fuzz({reinterpret_cast<const char*>(data), size});
  return 0;
}
