// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-socket/settings.hpp"

#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus::net_socket {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// The environment of one test; `read_settings` takes a plain function, hence static.
class SettingsTest : public testing::Test {
 protected:
  void SetUp() override { environment().clear(); }
  static std::map<std::string, std::string>& environment() {
    static std::map<std::string, std::string> variables;
    return variables;
  }
  static void set(const char* name, const char* value) {
    environment().erase(name);
    environment().emplace(name, value);
  }
  static const char* read(const char* name) {
    const auto found = environment().find(name);
    return found == environment().end() ? nullptr : found->second.c_str();
  }
  static Result<Settings> settings() { return read_settings(&SettingsTest::read); }
};

TEST_F(SettingsTest, DefaultsAreOneSocketAndNoThread) {
  const Settings defaults = settings().value();
  EXPECT_EQ(defaults.data_sockets(), 0u);
  EXPECT_EQ(defaults.connect_retries, 34u);
  EXPECT_EQ(defaults.connect_retry_sleep, std::chrono::milliseconds(100));
  EXPECT_EQ(defaults.send_buffer_bytes, -1);
  EXPECT_EQ(defaults.timeout, std::chrono::seconds(30));
  EXPECT_EQ(defaults.family, AddressFamily::kAny);
}

TEST_F(SettingsTest, SeveralSocketsBringAThread) {
  set("NCCL_NSOCKS_PERTHREAD", "4");
  EXPECT_EQ(settings().value().threads, 1u);
  EXPECT_EQ(settings().value().data_sockets(), 4u);
  set("NCCL_SOCKET_NTHREADS", "3");
  EXPECT_EQ(settings().value().data_sockets(), 12u);
  set("NCCL_SOCKET_NTHREADS", "");  // same as unset
  EXPECT_EQ(settings().value().threads, 1u);
}

TEST_F(SettingsTest, TheProductOfThreadsAndSocketsIsLimited) {
  set("NCCL_NSOCKS_PERTHREAD", "8");
  set("NCCL_SOCKET_NTHREADS", "9");
  const Settings limited = settings().value();
  EXPECT_EQ(limited.threads, 9U);
  EXPECT_EQ(limited.sockets_per_thread, 7U);
  EXPECT_THAT(limited.limited,
              testing::ElementsAre(AllOf(HasSubstr("NCCL_SOCKET_NTHREADS=9"), HasSubstr("64"))));
}

// As NCCL: "NCCL_SOCKET_NTHREADS is greater than the maximum allowed, setting to 16".
TEST_F(SettingsTest, NumbersBeyondTheirBoundsAreLimitedAndToldOf) {
  set("NCCL_SOCKET_NTHREADS", "17");
  set("NCCL_NSOCKS_PERTHREAD", "0");
  set("PLEXUS_SOCKET_TIMEOUT_S", "1");
  set("NCCL_SOCKET_SNDBUF", "9999999999999999999999");
  const Settings limited = settings().value();
  EXPECT_EQ(limited.threads, 16U);
  EXPECT_EQ(limited.sockets_per_thread, 1U);
  EXPECT_EQ(limited.timeout, std::chrono::seconds(2));
  EXPECT_EQ(limited.send_buffer_bytes, 1 << 30);
  EXPECT_EQ(limited.limited.size(), 4U);
  EXPECT_THAT(limited.limited,
              testing::Contains(AllOf(HasSubstr("NCCL_SOCKET_NTHREADS=17"), HasSubstr("to 16"))));
}

TEST_F(SettingsTest, BadValuesAreRefusedByName) {
  const std::pair<const char*, const char*> bad[] = {{"NCCL_SOCKET_NTHREADS", "two"},
                                                     {"NCCL_SOCKET_RETRY_CNT", "1e3"},
                                                     {"NCCL_SOCKET_RETRY_SLEEP_MSEC", "5 "},
                                                     {"NCCL_SOCKET_FAMILY", "AF_UNIX"},
                                                     {"NCCL_SOCKET_INLINE", "64K"}};
  for (const auto& [name, value] : bad) {
    environment().clear();
    set(name, value);
    const auto result = settings();
    ASSERT_TRUE(result.has_error()) << name << "=" << value;
    EXPECT_EQ(result.error().code, PLEXUS_INVALID_USAGE);
    EXPECT_THAT(result.error().text, HasSubstr(fmt::format("{}={}", name, value)));
  }
}

}  // namespace
}  // namespace plexus::net_socket
