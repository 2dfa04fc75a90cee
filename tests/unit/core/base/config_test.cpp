// SPDX-License-Identifier: Apache-2.0
// Sources of settings, their priority, and invalid values.
#include "core/base/config.hpp"

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/log.hpp"

namespace plexus {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Each test has its own environment and home folder.
class ConfigTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / ("plexus_config_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
    for (const Setting& setting : settings()) {
      unsetenv(setting.name);
    }
    for (const char* const name :
         {"NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_NRINGS", "NCCL_MAX_NRINGS"}) {
      unsetenv(name);
    }
    setenv("HOME", folder_.c_str(), 1);
    setenv("NCCL_CONF_FILE", (folder_ / "none.conf").c_str(), 1);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string write_file(const std::string& name, const std::string& text) const {
    const auto path = folder_ / name;
    std::ofstream(path) << text;
    return path;
  }
  static Config read() {
    auto config = read_config();
    EXPECT_TRUE(config.has_value()) << config.error().message();
    return config.has_value() ? config.value() : Config{};
  }
  static std::string error_of(const char* name, const char* value) {
    setenv(name, value, 1);
    const auto config = read_config();
    unsetenv(name);
    EXPECT_TRUE(config.has_error()) << name << "=" << value;
    if (!config.has_error()) {
      return "";
    }
    EXPECT_EQ(config.error().code(), Code::kInvalidArgument);
    return std::string(config.error().message());
  }

  std::filesystem::path folder_;
};

TEST_F(ConfigTest, HasTheDefaultsThatItsTableStates) {
  const Config config = read();
  EXPECT_EQ(config.buffsize_bytes, 0);
  EXPECT_EQ(config.comm_blocking, -1);
  EXPECT_TRUE(config.local_register);
  EXPECT_FALSE(config.shm_disable);
  EXPECT_EQ(config.bootstrap_timeout_s, 300);
  EXPECT_EQ(config.device, "auto");
}

TEST_F(ConfigTest, ReadsTheEnvironment) {
  setenv("NCCL_BUFFSIZE", "0x100000", 1);
  setenv("NCCL_SHM_DISABLE", "1", 1);
  setenv("NCCL_SOCKET_IFNAME", "=eth0", 1);
  const Config config = read();
  EXPECT_EQ(config.buffsize_bytes, 1 << 20);
  EXPECT_TRUE(config.shm_disable);
  EXPECT_EQ(config.socket_ifname, "=eth0");
}

TEST_F(ConfigTest, ReadsTheNamedFileWithCommentsAndCarriageReturns) {
  setenv("NCCL_CONF_FILE",
         write_file("a.conf", "# NCCL_BUFFSIZE=1\r\nNCCL_BUFFSIZE=65536\r\nnonsense\n").c_str(), 1);
  EXPECT_EQ(read().buffsize_bytes, 65536);
  EXPECT_EQ(setting_value("NCCL_BUFFSIZE"), "65536");
}

TEST_F(ConfigTest, PrefersTheEnvironmentToTheFile) {
  setenv("NCCL_CONF_FILE", write_file("a.conf", "NCCL_BUFFSIZE=65536\n").c_str(), 1);
  setenv("NCCL_BUFFSIZE", "131072", 1);
  EXPECT_EQ(read().buffsize_bytes, 131072);
}

TEST_F(ConfigTest, ReadsTheFileInTheHomeFolderUnlessAnotherIsNamed) {
  (void)write_file(".nccl.conf", "NCCL_HOSTID=home\n");
  unsetenv("NCCL_CONF_FILE");
  EXPECT_EQ(read().hostid, "home");
  unsetenv("NCCL_HOSTID");
  setenv("NCCL_CONF_FILE", write_file("b.conf", "NCCL_HOSTID=named\n").c_str(), 1);
  EXPECT_EQ(read().hostid, "named");
}

/// The home folder may be on a network.
TEST_F(ConfigTest, OpensTheFileOnceForAllSettings) {
  const std::string file = write_file("a.conf", "NCCL_HOSTID=file\n");
  setenv("NCCL_CONF_FILE", file.c_str(), 1);
  const int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  ASSERT_GE(watch, 0);
  ASSERT_GE(inotify_add_watch(watch, file.c_str(), IN_OPEN | IN_CLOSE_NOWRITE), 0);
  EXPECT_EQ(read().hostid, "file");
  // Opened and closed. Equal events that follow each other would be one.
  alignas(inotify_event) std::array<char, 4096> events{};
  EXPECT_EQ(::read(watch, events.data(), events.size()),
            static_cast<ssize_t>(2 * sizeof(inotify_event)));
  close(watch);
}

TEST_F(ConfigTest, TakesTheStricterOfOldAndNewNames) {
  setenv("NCCL_MIN_NCHANNELS", "4", 1);
  setenv("NCCL_MIN_CTAS", "2", 1);
  setenv("NCCL_MAX_NRINGS", "6", 1);
  setenv("NCCL_MAX_CTAS", "8", 1);
  const Config config = read();
  EXPECT_EQ(config.min_ctas, 4);
  EXPECT_EQ(config.max_ctas, 6);
}

TEST_F(ConfigTest, NamesValueOriginAndWhatItTakesWhenAValueMakesNoSense) {
  EXPECT_THAT(error_of("NCCL_BUFFSIZE", "4MB"),
              AllOf(HasSubstr("NCCL_BUFFSIZE=4MB"), HasSubstr("the environment")));
  EXPECT_THAT(error_of("NCCL_MIN_NCHANNELS", "four"), HasSubstr("1..64"));
  EXPECT_THAT(error_of("NCCL_SHM_DISABLE", "yes"), HasSubstr("0 or 1"));
  EXPECT_THAT(error_of("NCCL_SOCKET_FAMILY", "IPX"), HasSubstr("AF_INET6"));
  EXPECT_THAT(error_of("PLEXUS_DEVICE", "tpu"), HasSubstr("auto, cuda or host"));
  const std::string file = write_file("bad.conf", "NCCL_COMM_BLOCKING=no\n");
  EXPECT_THAT(error_of("NCCL_CONF_FILE", file.c_str()),
              AllOf(HasSubstr("NCCL_COMM_BLOCKING=no"), HasSubstr(file)));
}

// As NCCL: "User asked for a minimum of 112 channels, limiting to 64".
TEST_F(ConfigTest, LimitsNumbersBeyondItsBoundsWithOneLine) {
  setenv("NCCL_MIN_NCHANNELS", "112", 1);
  EXPECT_EQ(read().min_ctas, 64);
  EXPECT_THAT(last_error_text(),
              AllOf(HasSubstr("NCCL_MIN_NCHANNELS=112"), HasSubstr("limited to 64")));
  PLEXUS_WARN("something else");
  EXPECT_EQ(read().min_ctas, 64);
  EXPECT_STREQ(last_error_text(), "something else");
  unsetenv("NCCL_MIN_NCHANNELS");
  setenv("NCCL_MIN_CTAS", "-1", 1);
  setenv("NCCL_NCHANNELS_PER_NET_PEER", "65", 1);
  setenv("NCCL_BUFFSIZE", "99999999999999999999999", 1);
  setenv("NCCL_SHM_DISABLE", "2", 1);
  const Config config = read();
  EXPECT_EQ(config.min_ctas, 0);
  EXPECT_EQ(config.net_channels, 64);
  EXPECT_EQ(config.buffsize_bytes, int64_t{1} << 40);
  EXPECT_TRUE(config.shm_disable);
}

// Plugins, and the libraries that they use, know nothing of the file.
TEST_F(ConfigTest, PutsAllThatAFileNamesIntoTheEnvironment) {
  setenv("PLEXUS_TEST_KEPT", "from before", 1);
  setenv("NCCL_CONF_FILE",
         write_file("a.conf", "FI_PROVIDER=tcp\nPLEXUS_TEST_KEPT=b\n=c\nPLEXUS_TRACE=/tmp/t\n")
             .c_str(),
         1);
  EXPECT_EQ(read().profiler_plugin, "trace");
  EXPECT_STREQ(std::getenv("FI_PROVIDER"), "tcp");
  EXPECT_STREQ(std::getenv("PLEXUS_TEST_KEPT"), "from before");
  unsetenv("FI_PROVIDER");
  unsetenv("PLEXUS_TRACE");
}

TEST_F(ConfigTest, NeverWaitsForAFileOfSettings) {
  const std::string pipe = folder_ / "pipe.conf";
  ASSERT_EQ(mkfifo(pipe.c_str(), S_IRWXU), 0);
  for (const std::string& path : {pipe, folder_.string(), std::string("/dev/zero")}) {
    setenv("NCCL_CONF_FILE", path.c_str(), 1);
    EXPECT_EQ(read().hostid, "");
  }
}

TEST_F(ConfigTest, ATraceAsksForItsProfiler) {
  EXPECT_EQ(read().profiler_plugin, "");
  setenv("PLEXUS_TRACE", "", 1);
  EXPECT_EQ(read().profiler_plugin, "");
  setenv("PLEXUS_TRACE", "/tmp/trace", 1);
  EXPECT_EQ(read().profiler_plugin, "trace");
  for (const auto& [plugins, all] : {std::pair{"inspector", "inspector,trace"},
                                     {"a,trace", "a,trace"},
                                     {"none", "none,trace"}}) {
    setenv("NCCL_PROFILER_PLUGIN", plugins, 1);
    EXPECT_EQ(read().profiler_plugin, all);
  }
}

TEST_F(ConfigTest, TakesAnEmptyValueForNone) {
  setenv("NCCL_BUFFSIZE", "", 1);
  EXPECT_EQ(read().buffsize_bytes, 0);
}

TEST_F(ConfigTest, DocumentsEverySetting) {
  const std::string page = settings_markdown();
  std::stringstream document;
  document << std::ifstream(std::string(std::getenv("PLEXUS_TEST_SOURCE_DIR")) +
                            "/docs/compatibility.md")
                  .rdbuf();
  EXPECT_THAT(document.str(), HasSubstr(page)) << "docs/compatibility.md has another table";
  for (const Setting& setting : settings()) {
    EXPECT_THAT(page, HasSubstr("`" + std::string(setting.name) + "`"));
    EXPECT_STRNE(setting.doc, "");
  }
}

// NCCL: unset means the default plugin, empty means none.
TEST_F(ConfigTest, AnEmptyNetPluginIsNoneAndAnUnsetOneIsTheDefault) {
  EXPECT_EQ(read_config().value().net_plugin, "");
  setenv("NCCL_NET_PLUGIN", "", 1);
  EXPECT_EQ(read_config().value().net_plugin, "none");
  unsetenv("NCCL_NET_PLUGIN");
}

}  // namespace
}  // namespace plexus
