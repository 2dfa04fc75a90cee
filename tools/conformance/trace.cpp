// SPDX-License-Identifier: Apache-2.0
#include "tools/conformance/trace.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace plexus::conformance {

Trace::Trace(const std::filesystem::path& folder, uint32_t role) {
  if (!folder.empty()) {
    const std::string file = folder / std::to_string(role);
    constexpr mode_t kMode = 0600;
    fd_ = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, kMode);
  }
}

Trace::~Trace() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

void Trace::write(const std::string& line) {
  const std::string all = fmt::format("{} {}\n", ::gettid(), line);
  if (::write(fd_, all.data(), all.size()) != static_cast<ssize_t>(all.size())) {
    ::close(fd_);  // an incomplete trace is none: it ends here
    fd_ = -1;
  }
}

uint64_t Trace::fingerprint(const plexus_net_handle_t& handle) noexcept {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const uint8_t byte : handle.bytes) {
    hash = (hash ^ byte) * 0x100000001b3u;
  }
  return hash;
}

}  // namespace plexus::conformance
