// SPDX-License-Identifier: Apache-2.0
#include "core/os/local_socket.hpp"

#include <string>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

namespace plexus {
namespace {

constexpr std::chrono::seconds kTime{30};

std::string own_name() { return "plexus-test-" + std::to_string(getpid()); }

TEST(LocalSocket, CarriesAQuestionAndALongAnswer) {
  auto listener = LocalSocket::listen(own_name());
  ASSERT_TRUE(listener.has_value());
  const std::string answer(1 << 20, 'a');
  std::thread server([&] {
    auto client = listener.value().accept();
    ASSERT_TRUE(client.has_value());
    EXPECT_EQ(client.value().recv_until('\n', 100, kTime).value(), "question");
    EXPECT_TRUE(client.value().send_all(answer, kTime).has_value());
  });
  auto client = LocalSocket::connect(own_name());
  ASSERT_TRUE(client.has_value());
  EXPECT_TRUE(client.value().send_all("question\n", kTime).has_value());
  EXPECT_EQ(client.value().recv_until('\0', answer.size(), kTime).value(), answer);
  server.join();
}

TEST(LocalSocket, SaysWhyNot) {
  const auto nobody = LocalSocket::connect(own_name() + "-nobody");
  ASSERT_TRUE(nobody.has_error());
  EXPECT_EQ(nobody.error().code(), Code::kRemoteError);
  EXPECT_TRUE(LocalSocket::listen("").has_error());
  EXPECT_TRUE(LocalSocket::listen(std::string(200, 'x')).has_error());
  const auto first = LocalSocket::listen(own_name());
  ASSERT_TRUE(first.has_value());
  EXPECT_TRUE(LocalSocket::listen(own_name()).has_error()) << "the name is in use";
}

TEST(LocalSocket, BoundsWhatItWaitsForAndTakes) {
  auto listener = LocalSocket::listen(own_name());
  ASSERT_TRUE(listener.has_value());
  auto client = LocalSocket::connect(own_name());
  ASSERT_TRUE(client.has_value());
  auto server = listener.value().accept();
  ASSERT_TRUE(server.has_value());
  const auto silence = server.value().recv_until('\n', 10, std::chrono::milliseconds(20));
  EXPECT_EQ(silence.error().code(), Code::kTimeout);
  EXPECT_TRUE(client.value().send_all(std::string(1000, 'x'), kTime).has_value());
  EXPECT_EQ(server.value().recv_until('\n', 10, kTime).error().code(), Code::kRemoteError);
}

}  // namespace
}  // namespace plexus
