// SPDX-License-Identifier: Apache-2.0
#include "core/selftest/link_sample.hpp"

#include <cmath>
#include <string>

#include <gtest/gtest.h>

namespace plexus {
namespace {

const LinkSample kSample{.peer = 3,
                         .channel = 2,
                         .network = "Socket",
                         .send_device = "eth0",
                         .recv_device = "eth1",
                         .latency_us = 12.5,
                         .gb_per_s = 1.25,
                         .sent = 10,
                         .received = 9,
                         .corrupt = 1,
                         .error = "does not answer"};

TEST(LinkSample, IsTheSameAfterTheWire) {
  const std::vector<LinkSample> samples = {kSample, LinkSample{}};
  const auto back = decode_samples(encode(samples), 4);
  ASSERT_TRUE(back.has_value());
  ASSERT_EQ(back.value().size(), 2U);
  const LinkSample& first = back.value()[0];
  EXPECT_EQ(first.peer, 3);
  EXPECT_EQ(first.network, "Socket");
  EXPECT_EQ(first.recv_device, "eth1");
  EXPECT_EQ(first.gb_per_s, 1.25);
  EXPECT_EQ(first.corrupt, 1U);
  EXPECT_EQ(first.error, "does not answer");
  EXPECT_EQ(encode(back.value()), encode(samples));
}

TEST(LinkSample, RefusesWhatMakesNoSense) {
  const std::string bytes = encode(std::vector{kSample});
  EXPECT_TRUE(decode_samples(bytes, 3).has_error()) << "there is no rank 3";
  EXPECT_TRUE(decode_samples(bytes.substr(0, bytes.size() - 1), 4).has_error());
  EXPECT_TRUE(decode_samples(bytes + "x", 4).has_error());
  for (const double amount : {-1.0, std::nan(""), HUGE_VAL}) {
    LinkSample sample = kSample;
    sample.latency_us = amount;
    EXPECT_TRUE(decode_samples(encode(std::vector{sample}), 4).has_error()) << amount;
  }
}

TEST(LinkSample, TextOfOthersIsOneLineOfAscii) {
  LinkSample sample = kSample;
  sample.error = "two\nlines \x1b[31m";
  const auto back = decode_samples(encode(std::vector{sample}), 4);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back.value()[0].error, "two?lines ?[31m");
}

}  // namespace
}  // namespace plexus
