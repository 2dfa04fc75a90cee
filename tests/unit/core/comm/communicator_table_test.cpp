// SPDX-License-Identifier: Apache-2.0
#include "core/comm/communicator_table.hpp"

#include <memory>

#include <gtest/gtest.h>

#include "core/comm/communicator.hpp"
#include "core/comm/process.hpp"

namespace plexus {
namespace {

TEST(CommunicatorTable, AnAddressIsLiveOnce) {
  CommunicatorTable table;
  auto* const address = reinterpret_cast<Communicator*>(0x1000);  // never looked into
  EXPECT_FALSE(table.remove(address));
  table.add(address);
  EXPECT_TRUE(table.remove(address));
  EXPECT_FALSE(table.remove(address));
}

TEST(CommunicatorTable, MemoryIsUsedAgainAndNumbersAreNot) {
  Process& process = Process::instance();
  auto first = Communicator::make(process, CommConfig());
  Communicator* const address = first.get();
  const uint64_t number = first->number();
  EXPECT_TRUE(Communicator::is_live(address));
  EXPECT_EQ(process.communicators.newest(), number);
  first.reset();
  EXPECT_FALSE(Communicator::is_live(address)) << "a stale handle can be looked at";
  const auto second = Communicator::make(process, CommConfig());
  EXPECT_EQ(second.get(), address);
  EXPECT_GT(second->number(), number);
  EXPECT_FALSE(Communicator::is_live(nullptr));
}

}  // namespace
}  // namespace plexus
