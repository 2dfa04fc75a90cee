// SPDX-License-Identifier: Apache-2.0
#include "core/comm/process.hpp"

#include <memory>

#include "core/base/config.hpp"
#include "core/plugin/env_plugin.hpp"

namespace plexus {

Result<Config> Process::read_settings() {
  std::call_once(env_once_, [this] {
    auto installed =
        plexus::install_env_plugin({.plugin = setting_value("NCCL_ENV_PLUGIN").value_or(""),
                                    .folders = setting_value("PLEXUS_PLUGIN_PATH").value_or("")});
    if (installed.has_error()) {
      env_error_ = std::move(installed).error();
    }
  });
  if (env_error_.has_value()) {
    return env_error_->clone();
  }
  return read_config();
}

HostStream* Process::create_stream() {
  auto stream = std::make_unique<HostStream>();
  const std::lock_guard lock(mutex_);
  streams_.insert(stream.get());
  return stream.release();
}

HostStream* Process::find_stream(const void* handle) const {
  const std::lock_guard lock(mutex_);
  if (streams_.count(handle) == 0) {
    return nullptr;
  }
  return static_cast<HostStream*>(
      const_cast<void*>(handle));  // NOLINT(cppcoreguidelines-pro-type-const-cast): ours
}

Result<void> Process::destroy_stream(HostStream* stream) {
  {
    const std::lock_guard lock(mutex_);
    if (streams_.erase(stream) == 0) {
      return fail(Code::kInvalidArgument,
                  "the stream was not made by plexusStreamCreate, or is destroyed already");
    }
  }
  const std::unique_ptr<HostStream> owner(stream);
  return owner->wait();
}

}  // namespace plexus
