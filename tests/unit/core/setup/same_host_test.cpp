// SPDX-License-Identifier: Apache-2.0
#include "core/setup/same_host.hpp"

#include <future>
#include <unistd.h>

#include <gtest/gtest.h>

#include "core/base/bytes.hpp"
#include "core/setup/sharing.hpp"

namespace plexus {
namespace {

/// Two processes of one host.
std::shared_ptr<const std::vector<PeerInfo>> make_infos() {
  std::vector<PeerInfo> infos(2);
  for (size_t rank = 0; rank < infos.size(); ++rank) {
    infos[rank].host_hash = 1;
    infos[rank].process_id = 1 + rank;
    infos[rank].pid = getpid();
  }
  return std::make_shared<const std::vector<PeerInfo>>(std::move(infos));
}

/// What rank 1 makes of the host when rank 0, its leader, says that it measured `rates`.
Result<HostCopyMethods> agree_with(const HostRates& rates) {
  auto exchanges = make_local_exchanges(2);
  RatesCache cache;
  SetupContext context{};
  context.rates = &cache;
  CommSetup setup;
  setup.rank = 1;
  setup.nranks = 2;
  setup.infos = make_infos();
  setup.config.rates_file = "none";
  setup.exchange = std::move(exchanges[1]);
  auto agreed =
      std::async(std::launch::async, [&] { return agree_on_same_host(context, setup, nullptr); });
  ByteWriter writer;
  writer.put<uint8_t>(1);
  writer.put(rates);
  writer.put_text<uint32_t>("");  // reads its peers' memory
  writer.put_bytes(encode(SharingReport{}));
  EXPECT_TRUE(exchanges[0]->all_gather(writer.take()).has_value());
  PLEXUS_TRY(agreed.get());
  return setup.copy_methods;
}

TEST(SameHost, TakesTheRatesOfItsLeader) {
  HostRates rates = built_in_rates();
  rates.near.line_ns = 99;
  const auto copy_methods = agree_with(rates);
  ASSERT_TRUE(copy_methods.has_value()) << copy_methods.error().message();
  EXPECT_TRUE(copy_methods.value().measured);
  EXPECT_EQ(copy_methods.value().rates, rates);
}

TEST(SameHost, UsesBuiltInRatesWhereALeaderSendsImpossibleOnes) {
  HostRates rates = built_in_rates();
  rates.near.exchange_ns[static_cast<size_t>(CopyMethod::kMapped)].back() = 0;
  const auto copy_methods = agree_with(rates);
  ASSERT_TRUE(copy_methods.has_value()) << copy_methods.error().message();
  EXPECT_FALSE(copy_methods.value().measured);
}

}  // namespace
}  // namespace plexus
