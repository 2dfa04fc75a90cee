// SPDX-License-Identifier: Apache-2.0
// net-socket through the core's interface: the built .so, on loopback.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "tests/support/net_pair.hpp"

namespace plexus {

class NetSocket : public testing::Test {
 protected:
  NetContext context() {
    return test::make_context(plugin_, [this](NetLogLevel, std::string_view text) {
      const std::scoped_lock lock(mutex_);
      log_ += text;
      log_ += '\n';
    });
  }
  test::ScopedEnv interface_{"NCCL_SOCKET_IFNAME", "=lo"};
  test::ScopedEnv retries_{"NCCL_SOCKET_RETRY_CNT", "0"};
  std::shared_ptr<const NetPlugin> plugin_ =
      test::load_plugin(test::built_file("PLEXUS_TEST_LIB_DIR", "libplexus-net-socket.so"));
  std::mutex mutex_;
  std::string log_;
};

}  // namespace plexus
