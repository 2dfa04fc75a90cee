// SPDX-License-Identifier: Apache-2.0
#include "core/os/host.hpp"

#include <gtest/gtest.h>

namespace plexus {
namespace {

TEST(Host, IsTheSameForEveryCallAndNamesTheHost) {
  const HostIdentity one = host_identity("");
  const HostIdentity two = host_identity("");
  EXPECT_EQ(one.hash, two.hash);
  EXPECT_EQ(one.pid_namespace, two.pid_namespace);
  EXPECT_NE(one.pid_namespace, 0U);
  EXPECT_FALSE(one.name.empty());
}

TEST(Host, FollowsTheOverride) {
  EXPECT_EQ(host_identity("a").hash, host_identity("a").hash);
  EXPECT_NE(host_identity("a").hash, host_identity("b").hash);
  EXPECT_NE(host_identity("a").hash, host_identity("").hash);
}

TEST(Host, HasOneIdForTheProcessAndAtLeastOneCore) {
  EXPECT_EQ(process_id(), process_id());
  EXPECT_GE(cores_available(), 1);
}

}  // namespace
}  // namespace plexus
