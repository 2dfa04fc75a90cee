// SPDX-License-Identifier: Apache-2.0
// The built .so of net-ofi over the real libfabric, for the tests that use it through the core's
// interface: contexts on one machine, with each usable software provider.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "tests/support/net_pair.hpp"

namespace plexus::test {

/// A provider and its settings.
struct OfiShape {
  const char* name;
  const char* provider;
  const char* rails;
  const char* registration;
};

class NetOfi : public testing::Test {
 protected:
  NetContext context() {
    return make_context(plugin_, [this](NetLogLevel, std::string_view text) {
      const std::scoped_lock lock(mutex_);
      log_ += text;
      log_ += '\n';
    });
  }
  ScopedEnv interface_{"NCCL_SOCKET_IFNAME", "=lo"};
  ScopedEnv timeout_{"PLEXUS_OFI_CONNECT_TIMEOUT_MS", "20000"};
  ScopedEnv provider_{"PLEXUS_OFI_PROVIDER", "tcp;ofi_rxm"};
  ScopedEnv rails_{"PLEXUS_OFI_RAILS", "1"};
  std::shared_ptr<const NetPlugin> plugin_ =
      load_plugin(built_file("PLEXUS_TEST_LIB_DIR", "libplexus-net-ofi.so"));
  std::mutex mutex_;
  std::string log_;
};

class NetOfiShape : public NetOfi, public testing::WithParamInterface<OfiShape> {
 protected:
  [[nodiscard]] static bool is_shm() { return std::string_view(GetParam().provider) == "shm"; }
  ScopedEnv shape_provider_{"PLEXUS_OFI_PROVIDER", GetParam().provider};
  ScopedEnv shape_rails_{"PLEXUS_OFI_RAILS", GetParam().rails};
  ScopedEnv registration_{"PLEXUS_OFI_REGISTER", GetParam().registration};
  ScopedEnv stripe_{"PLEXUS_OFI_STRIPE_MIN", "131072"};
};

inline auto ofi_shapes() {
  return testing::Values(OfiShape{"TcpRxm", "tcp;ofi_rxm", "1", "auto"},
                         OfiShape{"TcpRxmFourRails", "tcp;ofi_rxm", "4", "auto"},
                         OfiShape{"TcpRxmRegistered", "tcp;ofi_rxm", "2", "always"},
                         OfiShape{"Shm", "shm", "1", "auto"},
                         OfiShape{"ShmTwoRails", "shm", "2", "always"});
}

inline std::string name_of_shape(const testing::TestParamInfo<OfiShape>& shape) {
  return shape.param.name;
}

}  // namespace plexus::test
