// SPDX-License-Identifier: Apache-2.0
#include "plugins/collnet-aggregator/secret.hpp"

#include <algorithm>
#include <array>
#include <fcntl.h>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

#include "plugins/support/errno_text.hpp"
#include "plugins/support/unique_fd.hpp"

namespace plexus::aggregator {
namespace {

constexpr size_t kSecretBytesMin = 16;
constexpr size_t kSecretBytesMax = 4096;
constexpr mode_t kOthers = S_IRWXG | S_IRWXO;

}  // namespace

plugin::Result<security::Key> read_secret(const std::string& path) {
  if (path.empty()) {
    return security::key_of_text("no aggregator secret", "");
  }
  const auto file = plugin::UniqueFd::open(
      [&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); });
  struct stat about {};
  if (!file.is_open() || ::fstat(file.get(), &about) != 0) {
    return plugin::fail(PLEXUS_INVALID_USAGE, "cannot read the secret in {}: {}", path,
                        plugin::errno_text());
  }
  if (!S_ISREG(about.st_mode) || (about.st_mode & kOthers) != 0) {
    return plugin::fail(PLEXUS_INVALID_USAGE,
                        "the file {} is not for a secret, since others may use it (mode {:o}): "
                        "chmod 600",
                        path, about.st_mode & ~static_cast<mode_t>(S_IFMT));
  }
  std::array<char, kSecretBytesMax + 1> bytes{};
  const ssize_t size_bytes = ::read(file.get(), bytes.data(), bytes.size());
  if (size_bytes < 0) {
    return plugin::fail(PLEXUS_INVALID_USAGE, "cannot read the secret in {}: {}", path,
                        plugin::errno_text());
  }
  std::string_view secret(bytes.data(), static_cast<size_t>(size_bytes));
  const size_t last = secret.find_last_not_of(" \t\r\n");
  secret = secret.substr(0, last == std::string_view::npos ? 0 : last + 1);
  if (secret.size() < kSecretBytesMin || secret.size() > kSecretBytesMax) {
    return plugin::fail(PLEXUS_INVALID_USAGE,
                        "the secret in {} does not have {} to {} bytes; make one: (umask 077; "
                        "head -c 32 /dev/urandom | base64 > {})",
                        path, kSecretBytesMin, kSecretBytesMax, path);
  }
  return security::key_of_text("aggregator secret", secret);
}

}  // namespace plexus::aggregator
