// SPDX-License-Identifier: Apache-2.0
// The lines of NCCL's RAS protocol, with the replies that NCCL's own server gives.
#include "core/ras/ras_command.hpp"

#include <string>
#include <utility>

#include <gtest/gtest.h>

namespace plexus {
namespace {

TEST(RasCommand, RepliesAsNcclDoes) {
  const std::pair<const char*, const char*> kExchanges[] = {
      {"CLIENT PROTOCOL 2", "SERVER PROTOCOL 2\n"},
      {"client protocol 99", "SERVER PROTOCOL 2\n"},
      {"TIMEOUT 5", "OK\n"},
      {"timeout 0.5", "OK\n"},
      {"TIMEOUT -1", "ERROR: Invalid timeout value -1\n"},
      {"TIMEOUT 1s", "ERROR: Invalid timeout value 1s\n"},
      {"TIMEOUT inf", "ERROR: Invalid timeout value inf\n"},
      {"TIMEOUT ", "ERROR: Invalid timeout value \n"},
      {"SET FORMAT json", "OK\n"},
      {"set format TEXT", "OK\n"},
      {"SET FORMAT xml", "ERROR: Invalid format xml\n"},
      {"MONITOR", "OK\n"},
      {"MONITOR lifecycle,trace", "OK\n"},
      {"MONITOR everything", "ERROR: Invalid event group 'everything'\n"},
      {"STATUS NOW", "ERROR: Unknown command STATUS NOW\n"},
      {"STATUS ", "ERROR: Unknown command STATUS \n"},
      {"", "ERROR: Unknown command \n"},
      {"\x01\xff", "ERROR: Unknown command ??\n"}};
  for (const auto& [line, reply] : kExchanges) {
    EXPECT_EQ(parse_ras_command(line).reply, reply) << line;
  }
}

TEST(RasCommand, KnowsReportsAndWhatTheyAreOf) {
  EXPECT_EQ(parse_ras_command("status").verb, RasVerb::kStatus);
  EXPECT_FALSE(parse_ras_command("STATUS").is_verbose);
  EXPECT_TRUE(parse_ras_command("Verbose Status").is_verbose);
  EXPECT_EQ(parse_ras_command("DIAGNOSTICS").verb, RasVerb::kDiagnostics);
  EXPECT_TRUE(parse_ras_command("SET FORMAT JSON").is_json);
  EXPECT_DOUBLE_EQ(parse_ras_command("TIMEOUT 2.5").seconds, 2.5);
  EXPECT_TRUE(parse_ras_command("MONITOR").has_lifecycle) << "none named: lifecycle";
  EXPECT_TRUE(parse_ras_command("MONITOR all").has_lifecycle);
  EXPECT_FALSE(parse_ras_command("MONITOR trace").has_lifecycle);
}

TEST(RasLines, ComeInAnyPieces) {
  RasLines lines;
  lines.add("SET FORMAT json\r\nSTA");
  EXPECT_EQ(lines.next(), "SET FORMAT json");
  EXPECT_EQ(lines.next(), std::nullopt);
  lines.add("TUS\nA\nB\n");
  EXPECT_EQ(lines.next(), "STATUS");
  EXPECT_EQ(lines.next(), "A");
  EXPECT_EQ(lines.next(), "B");
  EXPECT_EQ(lines.next(), std::nullopt);
}

TEST(RasLines, HaveAtMost1023Bytes) {
  RasLines fits;
  fits.add(std::string(1023, 'x') + "\n");
  EXPECT_FALSE(fits.is_too_long());
  EXPECT_EQ(fits.next().value_or("").size(), 1023U);
  RasLines open;
  open.add(std::string(1023, 'x'));
  EXPECT_FALSE(open.is_too_long());
  open.add("x");
  EXPECT_TRUE(open.is_too_long());
  RasLines ended;
  ended.add(std::string(1024, 'x') + "\n");
  EXPECT_TRUE(ended.is_too_long());
  EXPECT_EQ(ended.next(), std::nullopt);
}

}  // namespace
}  // namespace plexus
