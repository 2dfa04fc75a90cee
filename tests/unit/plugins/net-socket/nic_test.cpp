// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-socket/nic.hpp"

#include <arpa/inet.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus::net_socket {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<Nic> nics(std::initializer_list<const char*> names) {
  std::vector<Nic> result;
  for (const char* name : names) {
    result.push_back({name, {}});
  }
  return result;
}

std::vector<std::string> chosen(const std::vector<Nic>& all, std::string_view filter) {
  std::vector<std::string> names;
  const auto result = choose_nics(all, filter);
  if (result.has_error()) {
    return {"error"};
  }
  for (const Nic& nic : result.value()) {
    names.push_back(nic.name);
  }
  return names;
}

TEST(ChooseNics, DefaultLeavesOutLoopbackAndDockerUnlessAlone) {
  EXPECT_THAT(chosen(nics({"lo", "docker0", "eth0", "virbr0", "eth1"}), ""),
              ElementsAre("eth0", "eth1"));
  EXPECT_THAT(chosen(nics({"lo", "docker0"}), ""), ElementsAre("docker0"));
  EXPECT_THAT(chosen(nics({"lo"}), ""), ElementsAre("lo"));
  EXPECT_THAT(chosen(nics({"lo", "eth0", "ib0", "ib1"}), ""), ElementsAre("ib0", "ib1"));
}

TEST(ChooseNics, FiltersByPrefixExactNameAndExclusion) {
  const auto all = nics({"lo", "eth0", "eth01", "eth1", "docker0"});
  EXPECT_THAT(chosen(all, "eth"), ElementsAre("eth0", "eth01", "eth1"));
  EXPECT_THAT(chosen(all, "eth1,lo"), ElementsAre("lo", "eth1"));
  EXPECT_THAT(chosen(all, "=eth0"), ElementsAre("eth0"));
  EXPECT_THAT(chosen(all, "=eth0,eth1"), ElementsAre("eth0", "eth1"));
  EXPECT_THAT(chosen(all, "^docker,lo"), ElementsAre("eth0", "eth01", "eth1"));
  EXPECT_THAT(chosen(all, "^=eth0,lo"), ElementsAre("eth01", "eth1"));
  EXPECT_THAT(chosen(all, "^eth,lo"), ElementsAre("docker0"));
}

// What is not excluded is not thereby asked for.
TEST(ChooseNics, ExclusionsDoNotMeanLoopback) {
  EXPECT_THAT(chosen(nics({"lo", "eth0"}), "^docker"), ElementsAre("eth0"));
  EXPECT_THAT(chosen(nics({"lo", "eth0", "ib0"}), "^docker"), ElementsAre("ib0"));
  EXPECT_THAT(chosen(nics({"lo", "docker0"}), "^docker"), ElementsAre("lo"));
}

Nic nic_at(const char* name, const char* address) {
  Nic made{name, {}};
  auto& v4 = reinterpret_cast<sockaddr_in&>(made.address.storage);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(made.address.storage);
  if (::inet_pton(AF_INET, address, &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
  } else if (::inet_pton(AF_INET6, address, &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
  }
  return made;
}

// A BMC's interface comes first on many servers.
TEST(ChooseNics, TakesAddressesThatReachFurthestUnlessNamed) {
  const std::vector<Nic> all = {nic_at("usb0", "169.254.7.7"), nic_at("eth0", "fe80::1"),
                                nic_at("eth1", "10.0.0.1"), nic_at("eth2", "2001:db8::1")};
  EXPECT_THAT(chosen(all, ""), ElementsAre("eth1", "eth2"));
  EXPECT_THAT(chosen(all, "^eth1"), ElementsAre("eth2"));
  EXPECT_THAT(chosen(all, "^eth1,eth2"), ElementsAre("usb0", "eth0"));
  EXPECT_THAT(chosen(all, "usb"), ElementsAre("usb0"));
}

TEST(ChooseNics, FilterThatLeavesNothingListsWhatThereIs) {
  const auto result = choose_nics(nics({"lo", "eth0"}), "=mlx5_0");
  ASSERT_TRUE(result.has_error());
  EXPECT_EQ(result.error().code, PLEXUS_INVALID_USAGE);
  EXPECT_THAT(result.error().text, testing::AllOf(HasSubstr("=mlx5_0"), HasSubstr("lo, eth0")));
}

TEST(AddressText, ShowsHostScopeAndPort) {
  Address address;
  auto& v4 = reinterpret_cast<sockaddr_in&>(address.storage);
  v4.sin_family = AF_INET;
  v4.sin_port = htons(1234);
  ::inet_pton(AF_INET, "10.1.2.3", &v4.sin_addr);
  EXPECT_EQ(address.text(), "10.1.2.3:1234");
  Address wide;
  auto& v6 = reinterpret_cast<sockaddr_in6&>(wide.storage);
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(80);
  v6.sin6_scope_id = 2;
  ::inet_pton(AF_INET6, "fe80::1", &v6.sin6_addr);
  EXPECT_EQ(wide.text(), "[fe80::1%2]:80");
}

TEST(FindNics, LoopbackIsThereWithItsProperties) {
  const auto found = find_nics(AddressFamily::kIpv4);
  ASSERT_TRUE(found.has_value());
  const auto loopback = choose_nics(found.value(), "=lo");
  ASSERT_TRUE(loopback.has_value()) << loopback.error().text;
  EXPECT_EQ(loopback.value().front().address.text(), "127.0.0.1:0");
  plexus_net_properties_t properties{};
  read_properties(loopback.value().front(), properties);
  EXPECT_STREQ(properties.name, "lo");
  EXPECT_EQ(properties.speed_mbit_per_s, PLEXUS_UNKNOWN_U32);
  EXPECT_STREQ(properties.pci_path, "");
}

}  // namespace
}  // namespace plexus::net_socket
