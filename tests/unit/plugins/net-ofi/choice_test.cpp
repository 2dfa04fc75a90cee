// SPDX-License-Identifier: Apache-2.0
// Parts without a fabric: the choice of the provider, division of messages, and checks of peers'
// data.
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plugins/net-ofi/peer.hpp"
#include "plugins/net-ofi/provider.hpp"
#include "plugins/net-ofi/wire.hpp"

namespace plexus::net_ofi {
namespace {

using testing::HasSubstr;

Offer offer(const char* provider, const char* domain, bool is_hardware = false) {
  Offer made;
  made.provider = provider;
  made.domain = domain;
  made.is_hardware = is_hardware;
  made.is_over_ip = !is_hardware;
  return made;
}

std::string chosen(const std::vector<Offer>& offers, const Settings& settings = {}) {
  const auto result = choose_offers(offers, settings);
  if (result.has_error()) {
    return result.error().text;
  }
  std::string text = result.value().front().provider + ":";
  for (const Offer& each : result.value()) {
    text += " " + each.domain;
  }
  return text;
}

TEST(ChooseOffers, CardsComeBeforeSoftwareAndOrderDecidesBetweenEquals) {
  const Offer tcp = offer("tcp;ofi_rxm", "eth0");
  const Offer unheard = offer("future", "card0", true);
  const Offer verbs = offer("verbs;ofi_rxm", "mlx5_0", true);
  const Offer efa = offer("efa", "efa0", true);
  EXPECT_EQ(chosen({offer("sockets", "eth0"), tcp}), "tcp;ofi_rxm: eth0");
  EXPECT_EQ(chosen({tcp, unheard}), "future: card0");
  EXPECT_EQ(chosen({tcp, unheard, verbs}), "verbs;ofi_rxm: mlx5_0");
  EXPECT_EQ(chosen({verbs, efa, tcp}), "efa: efa0");
  EXPECT_EQ(chosen({verbs, offer("verbs;ofi_rxm", "mlx5_1", true), tcp}),
            "verbs;ofi_rxm: mlx5_0 mlx5_1");
}

TEST(ChooseOffers, OneEntryPerDomainAndOnlyRealInterfaces) {
  Offer wide = offer("tcp;ofi_rxm", "eth0");
  wide.is_ipv6 = true;
  wide.index = 0;
  Offer narrow = offer("tcp;ofi_rxm", "eth0");
  narrow.index = 1;
  const Offer loopback = offer("tcp;ofi_rxm", "lo");
  const auto both = choose_offers({wide, narrow, loopback}, {});
  ASSERT_EQ(both.value().size(), 1u);
  EXPECT_EQ(both.value().front().index, 1u);
  Settings six;
  six.family = AddressFamily::kIpv6;
  EXPECT_EQ(choose_offers({wide, narrow}, six).value().front().index, 0u);
  Settings named;
  named.interfaces = "=lo";
  EXPECT_EQ(chosen({wide, narrow, loopback}, named), "tcp;ofi_rxm: lo");
  named.domains = "nothing";
  EXPECT_THAT(chosen({loopback}, named), HasSubstr("PLEXUS_OFI_DOMAIN=nothing"));
}

TEST(ChooseOffers, TooFewTagBitsAreNoUse) {
  Offer poor = offer("psm", "card0", true);
  poor.tag_bits = 32;
  EXPECT_EQ(chosen({poor, offer("tcp;ofi_rxm", "eth0")}), "tcp;ofi_rxm: eth0");
  EXPECT_THAT(chosen({poor}), HasSubstr("no provider here"));
}

TEST(SplitMessage, PartsCoverItAndAreEven) {
  for (const uint64_t size :
       {uint64_t{131'072}, uint64_t{1'000'003}, PLEXUS_NET_MESSAGE_BYTES_MAX}) {
    for (uint32_t rails = 1; rails <= kRailsMax; ++rails) {
      const Split split = Split::unpack(split_message(size, rails, 131'072, 200).pack());
      EXPECT_EQ(split.sequence, 200);
      const uint64_t first = size - split.blocks * kBlockBytes;
      EXPECT_GE(first, size / rails);
      EXPECT_LT(first, size / rails + 2 * kBlockBytes);
      uint64_t end = 0;
      for (uint32_t rail = 0; rail < rails; ++rail) {
        const Part part = part_of(split, first, rails, rail);
        EXPECT_EQ(part.begin, end);
        end += part.size_bytes;
      }
      EXPECT_EQ(end, size);
    }
  }
  EXPECT_EQ(split_message(131'071, 4, 131'072, 0).blocks, 0u);
}

class Greeting : public testing::Test {
 protected:
  Greeting() {
    greeting_.magic = kWireMagic;
    greeting_.rails = 1;
    greeting_.address_bytes = 16;
    key_.fill(5);
    asked_.fill(6);
  }
  std::string read(const security::Nonce* asked = nullptr, size_t bytes = sizeof(WireGreeting)) {
    const auto result =
        read_greeting(std::as_bytes(std::span(&greeting_, 1)).first(bytes), key_, asked);
    return result.has_error() ? result.error().text : "good";
  }
  WireGreeting greeting_{};
  security::Key key_{};
  security::Nonce asked_{};
};

TEST_F(Greeting, ItsSizeMagicAndNumbersAreChecked) {
  const auto read_sealed = [&] {
    seal(greeting_, key_, nullptr);
    return read();
  };
  EXPECT_EQ(read_sealed(), "good");
  EXPECT_THAT(read(nullptr, 100), HasSubstr("100 bytes"));
  greeting_.rails = kRailsMax + 1;
  EXPECT_THAT(read_sealed(), HasSubstr("5 rails"));
  greeting_.rails = 1;
  greeting_.address_bytes = kAddressBytesMax + 1;
  EXPECT_THAT(read_sealed(), HasSubstr("addresses of 61 bytes"));
  greeting_.magic = 0;
  EXPECT_THAT(read_sealed(), HasSubstr("another version"));
}

TEST_F(Greeting, EveryByteOfItIsCoveredByItsMac) {
  seal(greeting_, key_, nullptr);
  auto* const bytes = reinterpret_cast<uint8_t*>(&greeting_);
  for (size_t at = sizeof(uint64_t); at < sizeof greeting_; ++at) {
    bytes[at] ^= 1;
    EXPECT_THAT(read(), HasSubstr("does not show that it knows the secret")) << at;
    bytes[at] ^= 1;
  }
  EXPECT_EQ(read(), "good");
  key_[0] ^= 1;
  EXPECT_THAT(read(), HasSubstr("does not show that it knows the secret"));
}

TEST_F(Greeting, AnAnswerToAnotherChallengeIsAReplay) {
  seal(greeting_, key_, &asked_);
  EXPECT_EQ(read(&asked_), "good");
  EXPECT_NE(read(), "good") << "an answer is no greeting";
  asked_[31] ^= 1;
  EXPECT_NE(read(&asked_), "good");
}

TEST_F(Greeting, AReadyCoversBothChallengesAndTheRail) {
  Challenges challenges{};
  const WireControl ready = make_ready(key_, challenges, 0);
  EXPECT_TRUE(is_same(ready, make_ready(key_, challenges, 0)));
  EXPECT_FALSE(is_same(ready, make_ready(key_, challenges, 1)));
  challenges.caller[0] = 1;
  EXPECT_FALSE(is_same(ready, make_ready(key_, challenges, 0)));
  challenges = {};
  challenges.listener[31] = 1;
  EXPECT_FALSE(is_same(ready, make_ready(key_, challenges, 0))) << "a replay";
  key_[0] ^= 1;
  EXPECT_FALSE(is_same(ready, make_ready(key_, Challenges{}, 0)));
}

TEST(PeerWatch, SeesThatAProcessOfThisHostIsGoneAndWatchesNoOther) {
  const WireProcess here = this_process("");
  WireProcess peer = here;
  EXPECT_FALSE(PeerWatch(here, peer).has_ended());  // this process itself
  peer.process_id = 1;
  peer.start_time = 0;
  EXPECT_FALSE(PeerWatch(here, peer).has_ended());
  peer.process_id = std::numeric_limits<pid_t>::max();  // above every limit of the system
  EXPECT_TRUE(PeerWatch(here, peer).has_ended());
  peer.host_id ^= 1;
  EXPECT_FALSE(PeerWatch(here, peer).has_ended());
  EXPECT_NE(this_process("other").host_id, here.host_id);
}

}  // namespace
}  // namespace plexus::net_ofi
