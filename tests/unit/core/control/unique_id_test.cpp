// SPDX-License-Identifier: Apache-2.0
#include "core/control/unique_id.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus {
namespace {

SocketAddress address() { return SocketAddress::parse("127.0.0.1:1234").value(); }

TEST(UniqueId, SurvivesItsBytes) {
  const UniqueId id = UniqueId::create(address()).value();
  const UniqueId read = UniqueId::from_bytes(id.to_bytes()).value();
  EXPECT_EQ(read.job, id.job);
  EXPECT_EQ(read.secret, id.secret);
  EXPECT_EQ(read.address.to_string(), "127.0.0.1:1234");
  EXPECT_EQ(read.listener, UniqueId::Listener::kMaker);
  UniqueId derived = UniqueId::derive(address(), "text").value();
  derived.listener = UniqueId::Listener::kRankZeroAnywhere;
  EXPECT_EQ(UniqueId::from_bytes(derived.to_bytes()).value().listener, derived.listener);
}

TEST(UniqueId, IsNeverTheSameTwice) {
  const UniqueId one = UniqueId::create(address()).value();
  const UniqueId two = UniqueId::create(address()).value();
  EXPECT_NE(one.job, two.job);
  EXPECT_NE(one.secret, two.secret);
}

TEST(UniqueId, RefusesBytesThatAreNone) {
  auto bytes = UniqueId::create(address()).value().to_bytes();
  const auto refused = [&](size_t at) {
    auto damaged = bytes;
    damaged[at] ^= std::byte{1};
    return UniqueId::from_bytes(damaged).has_error();
  };
  for (size_t at = 0; at < UniqueId::kBytes; ++at) {
    EXPECT_TRUE(refused(at)) << at;
  }
  EXPECT_TRUE(UniqueId::from_bytes(std::array<std::byte, UniqueId::kBytes>{}).has_error());
}

TEST(UniqueId, OfACommIdIsTheSameForAllWhoKnowIt) {
  const UniqueId one = UniqueId::from_comm_id("127.0.0.1:5000").value();
  EXPECT_EQ(one.secret, UniqueId::from_comm_id("127.0.0.1:5000").value().secret);
  EXPECT_NE(one.secret, UniqueId::from_comm_id("127.0.0.1:5001").value().secret);
  const auto wrong = UniqueId::from_comm_id("nowhere");
  ASSERT_TRUE(wrong.has_error());
  EXPECT_THAT(wrong.error().message(), ::testing::HasSubstr("NCCL_COMM_ID"));
}

}  // namespace
}  // namespace plexus
