// SPDX-License-Identifier: Apache-2.0
#include "core/join/job_secret.hpp"

#include <span>
#include <sys/stat.h>
#include <utility>

#include "guest/file.hpp"

namespace plexus {
namespace {

constexpr size_t kJobSecretBytesMax = 4096;
constexpr mode_t kOthers = S_IRWXG | S_IRWXO;

}  // namespace

Result<std::string> read_job_secret(const std::string& path) {
  struct stat about {};
  if (::stat(path.c_str(), &about) == 0 && (about.st_mode & kOthers) != 0) {
    return fail(Code::kInvalidArgument,
                "PLEXUS_SECRET_FILE: {} is not for a secret, since others may use it (mode {:o}): "
                "chmod 600",
                path, about.st_mode & ~static_cast<mode_t>(S_IFMT));
  }
  FileText file = read_regular_file(path, kJobSecretBytesMax);
  if (!file.refusal.empty()) {
    return fail(Code::kInvalidArgument, "PLEXUS_SECRET_FILE: {} cannot be read: {}", path,
                file.refusal);
  }
  const size_t last = file.text.find_last_not_of(" \t\r\n");
  file.text.resize(last == std::string::npos ? 0 : last + 1);
  if (file.text.size() < kJobSecretBytesMin) {
    return fail(Code::kInvalidArgument,
                "PLEXUS_SECRET_FILE: the secret in {} has {} bytes, fewer than {}; make one: "
                "(umask 077; head -c 32 /dev/urandom | base64 > {})",
                path, file.text.size(), kJobSecretBytesMin, path);
  }
  return std::move(file.text);
}

UniqueId with_job_secret(const UniqueId& id, std::string_view job_secret) {
  UniqueId used = id;
  if (!job_secret.empty()) {
    used.secret =
        security::authenticate(security::key_of_text("plexus job secret", job_secret), "unique id",
                               std::as_bytes(std::span<const uint8_t>(id.secret)));
  }
  return used;
}

}  // namespace plexus
