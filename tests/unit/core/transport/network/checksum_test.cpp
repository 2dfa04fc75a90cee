// SPDX-License-Identifier: Apache-2.0
#include "core/transport/network/checksum.hpp"

#include <cstring>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

constexpr SummedLink kLink{
    .peer_name = "rank 3 (there:22)", .rank = 1, .route = "Socket 0 (eth0) > 0 (eth1)"};

TEST(Checksum, IsCrc32c) {
  EXPECT_EQ(crc32c({}), 0U);
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xe3069283U);
  const std::vector<std::byte> zeros(32);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(zeros), 0x8a9136aaU);
}

TEST(Checksum, OfPiecesIsThatOfTheWhole) {
  const std::string_view text = "a payload in two places";
  const uint32_t whole = sum_payload({bytes_of(text)});
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    EXPECT_EQ(sum_payload({bytes_of(text.substr(0, cut)), bytes_of(text.substr(cut))}), whole);
  }
}

TEST(Checksum, EveryBitOfHeaderAndPayloadCounts) {
  std::vector<std::byte> payload(100, std::byte{7});
  NetHeader header{};
  header.size_bytes = 100;
  header.payload_sum = sum_payload({payload});
  sign_header(header);
  EXPECT_TRUE(check_header(header, kLink).has_value());
  EXPECT_TRUE(check_payload(header, {payload}, kLink).has_value());
  auto* const bytes = reinterpret_cast<uint8_t*>(&header);
  for (size_t bit = 0; bit < sizeof(header) * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    EXPECT_TRUE(check_header(header, kLink).has_error()) << bit;
    bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
  }
  for (size_t bit = 0; bit < payload.size() * 8; ++bit) {
    payload[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_TRUE(check_payload(header, {payload}, kLink).has_error()) << bit;
    payload[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
  }
}

TEST(Checksum, TheErrorNamesBothRanksNetworkAndDevices) {
  NetHeader header{};
  header.size_bytes = 3;
  header.payload_sum = 5;
  const auto checked = check_payload(header, {bytes_of("abc")}, kLink);
  ASSERT_TRUE(checked.has_error());
  EXPECT_EQ(checked.error().code(), Code::kRemoteError);
  EXPECT_THAT(checked.error().message(),
              AllOf(HasSubstr("from rank 3 (there:22) to rank 1 by Socket 0 (eth0) > 0 (eth1)"),
                    HasSubstr("00000005"), HasSubstr("a message of 3 bytes")));
}

TEST(Checksum, APayloadWithoutASumIsNotCompared) {
  EXPECT_TRUE(check_payload(NetHeader{}, {bytes_of("abc")}, kLink).has_value());
  EXPECT_NE(sum_payload({}), 0U) << "an empty payload has a sum, too";
}

}  // namespace
}  // namespace plexus
