// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/registry.hpp"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/net_pair.hpp"

namespace plexus {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

fs::path minimal() {
  return test::built_file("PLEXUS_TEST_EXAMPLE_DIR", "libplexus-net-minimal.so");
}

/// A separate folder with copies of the example under the names that a test needs.
class RegistryTest : public testing::Test {
 protected:
  RegistryTest() {
    std::string pattern = (fs::temp_directory_path() / "plexus_registry_XXXXXX").string();
    root_ = ::mkdtemp(pattern.data());
    fs::create_directories(root_ / "own");
    fs::create_directories(root_ / "path");
    options_.own_folder = root_ / "own";
    options_.folders = (root_ / "path").string();
  }
  ~RegistryTest() override { fs::remove_all(root_); }

  void install(const char* folder, const char* file) const {
    fs::copy_file(minimal(), root_ / folder / file);
  }
  std::string load_error(std::string_view name) const {
    const auto plugin = load_net_plugin(options_, name);
    return plugin.has_error() ? plugin.error().message()
                              : "loaded " + plugin.value()->path().string();
  }
  std::string open_error() const {
    const auto context = open_net(options_, {});
    return context.has_error() ? context.error().message() : "opened";
  }

  fs::path root_;
  NetPluginOptions options_;
};

TEST(PluginList, ReadsNamesExclusionsAndNone) {
  const auto list = parse_net_plugin_list("mine,^socket,/opt/x.so,none").value();
  EXPECT_THAT(list.named, ElementsAre(NetPluginEntry{"mine"}, NetPluginEntry{"/opt/x.so"}));
  EXPECT_THAT(list.excluded, ElementsAre("socket"));
  EXPECT_THAT(parse_net_plugin_list("^a,b").value().excluded, ElementsAre("a", "b"));
  EXPECT_THAT(parse_net_plugin_list("NONE").value().named, IsEmpty());
  EXPECT_THAT(parse_net_plugin_list("").value().named, IsEmpty());
  EXPECT_THAT(parse_net_plugin_list(",,").value().named, IsEmpty());
  EXPECT_TRUE(parse_net_plugin_list("a,^").has_error());
  EXPECT_TRUE(parse_net_plugin_list(std::string(5000, 'x')).has_error());
  std::string many;
  for (int i = 0; i < 100; ++i) {
    many += "x,";
  }
  EXPECT_TRUE(parse_net_plugin_list(many).has_error());
}

TEST(PluginList, EntriesMayHaveALabelAndSettings) {
  const auto list =
      parse_net_plugin_list("fast=socket?A_B=x;y&C==z,/opt/a=b/lib.so,b=c?D=").value();
  EXPECT_THAT(
      list.named,
      ElementsAre(NetPluginEntry{"socket", "fast", {{"A_B", "x,y"}, {"C", "=z"}}},
                  NetPluginEntry{"/opt/a=b/lib.so"}, NetPluginEntry{"c", "b", {{"D", ""}}}));
  for (const char* bad : {"=socket", "a b=socket", "a=", "socket?x", "socket?=1", "a=b?c d=1"}) {
    EXPECT_TRUE(parse_net_plugin_list(bad).has_error()) << bad;
  }
}

TEST(PluginList, IsolateReplacesAPluginByTheJailOfIt) {
  const auto list =
      parse_net_plugin_list("/opt/libnccl-net-x.so?isolate=1,w=y?A=b&isolate=1,z?isolate=0")
          .value();
  using Settings = std::vector<std::pair<std::string, std::string>>;
  ASSERT_EQ(list.named.size(), 3u);
  EXPECT_EQ(list.named[0],
            (NetPluginEntry{"net-jail", "x", {{"PLEXUS_JAIL_NET", "/opt/libnccl-net-x.so"}}}));
  EXPECT_EQ(list.named[1],
            (NetPluginEntry{"net-jail", "w", {{"A", "b"}, {"PLEXUS_JAIL_NET", "y"}}}));
  EXPECT_EQ(list.named[2], (NetPluginEntry{"z", "", Settings{}}));
  EXPECT_TRUE(parse_net_plugin_list("x?isolate=yes").has_error());
}

TEST(PluginFiles, FollowTheNamingRules) {
  EXPECT_THAT(net_plugin_file_names("socket"),
              ElementsAre("socket", "libnccl-net-socket.so", "librccl-net-socket.so",
                          "libplexus-net-socket.so"));
  EXPECT_THAT(net_plugin_file_names("net-socket"),
              ElementsAre("libplexus-net-socket.so", "libnccl-net-net-socket.so"));
  EXPECT_THAT(net_plugin_file_names("Socket"),
              ElementsAre("Socket", "libnccl-net-Socket.so", "librccl-net-Socket.so",
                          "libplexus-net-socket.so", "libplexus-net-Socket.so"));
  EXPECT_THAT(net_plugin_file_names("libmine.so"), ElementsAre("libmine.so"));
  EXPECT_THAT(net_plugin_file_names("libnccl-net.so"),
              ElementsAre("libnccl-net.so", "librccl-net.so"))
      << "RCCL's where there is no other";
  EXPECT_THAT(net_plugin_file_names("/opt/mine"), ElementsAre("/opt/mine"));
}

TEST_F(RegistryTest, LooksBesideTheLibraryBeforeThePath) {
  install("path", "libplexus-net-mine.so");
  EXPECT_THAT(load_error("mine"), HasSubstr("loaded " + (root_ / "path").string()));
  install("own", "libplexus-net-mine.so");
  EXPECT_THAT(load_error("mine"), HasSubstr("loaded " + (root_ / "own").string()));
}

TEST_F(RegistryTest, LooksInTheInstalledFolderBeforeThePath) {
  fs::create_directories(root_ / "own" / "plexus");
  install("path", "libplexus-net-mine.so");
  install("own/plexus", "libplexus-net-mine.so");
  EXPECT_THAT(load_error("mine"), HasSubstr("loaded " + (root_ / "own" / "plexus").string()));
  EXPECT_THAT(list_net_plugins(options_), ElementsAre("mine"));
}

/// As after a chroot.
TEST_F(RegistryTest, APluginThatIsLoadedIsFoundThoughItsFileIsNot) {
  install("path", "libplexus-net-hidden.so");
  const auto plugin = load_net_plugin(options_, "hidden");
  ASSERT_TRUE(plugin.has_value());
  const fs::path file = plugin.value()->path();
  ASSERT_TRUE(fs::remove(file));
  for (const std::string& name : {std::string("hidden"), file.string()}) {
    EXPECT_EQ(load_error(name), "loaded " + file.string());
  }
  EXPECT_THAT(load_error("hiddem"), HasSubstr("was not found"));
}

TEST_F(RegistryTest, AbsentPluginNamesFilesPlacesAndANearName) {
  install("own", "libplexus-net-socket.so");
  EXPECT_THAT(load_error("sokcet"),
              AllOf(HasSubstr("'sokcet' was not found"), HasSubstr("libplexus-net-sokcet.so"),
                    HasSubstr("libnccl-net-sokcet.so"), HasSubstr((root_ / "own").string()),
                    HasSubstr((root_ / "path").string()), HasSubstr("LD_LIBRARY_PATH"),
                    HasSubstr("PLEXUS_PLUGIN_PATH"), HasSubstr("Did you mean 'socket'?")));
  EXPECT_THAT(load_error("quite-different"), Not(HasSubstr("Did you mean")));
}

TEST_F(RegistryTest, ABrokenFileIsAnErrorAndNotPassedOver) {
  std::ofstream(root_ / "own" / "libplexus-net-mine.so") << "no library";
  install("path", "libplexus-net-mine.so");
  EXPECT_THAT(load_error("mine"), AllOf(HasSubstr("cannot be used"), HasSubstr("no ELF header"),
                                        HasSubstr((root_ / "own").string())));
}

TEST_F(RegistryTest, OwnPluginIsUsedWhenNothingIsNamed) {
  install("own", "libplexus-net-socket.so");
  for (const char* plugins : {"", "none"}) {
    options_.plugins = plugins;
    EXPECT_EQ(open_error(), "opened") << plugins;
  }
}

TEST_F(RegistryTest, WithoutThePluginOpeningSaysWhatItLookedFor) {
  options_.plugins = "none";
  options_.network = "Nowhere";
  EXPECT_THAT(open_error(),
              AllOf(HasSubstr("libplexus-net-nowhere.so"), HasSubstr((root_ / "own").string())));
}

TEST_F(RegistryTest, NamedPluginThatFailsGivesWayToTheNextOfTheListWithAWarning) {
  install("own", "libplexus-net-socket.so");
  std::ofstream(root_ / "path" / "libnccl-net-dead.so") << "no library";
  std::vector<std::string> lines;
  NetContextOptions context;
  context.log = [&](NetLogLevel level, std::string_view text) {
    if (level == NetLogLevel::kWarn) {
      lines.emplace_back(text);
    }
  };
  options_.plugins = "absent,dead,net-socket";
  ASSERT_TRUE(open_net(options_, context).has_value());
  EXPECT_THAT(lines, ElementsAre(AllOf(HasSubstr("'absent' was not found"),
                                       HasSubstr("the next network is tried")),
                                 HasSubstr("no ELF header")));
  options_.plugins = "absent,dead";
  EXPECT_THAT(open_error(), AllOf(HasSubstr("no network can be used"),
                                  HasSubstr("'absent' was not found"), HasSubstr("no ELF header")));
}

TEST_F(RegistryTest, OwnNetworkServesInPlaceOfTheNamedOneOnlyWhereTheUserWantsThat) {
  install("own", "libplexus-net-socket.so");
  options_.plugins = "absent";
  EXPECT_THAT(open_error(), HasSubstr("'absent' was not found"));
  options_.falls_back = true;
  EXPECT_EQ(open_error(), "opened");
  options_.plugins = "absent,^socket";
  EXPECT_THAT(open_error(), HasSubstr("'absent' was not found"));
}

// A name means NCCL's file if that exists; "net-NAME" means Plexus's.
TEST_F(RegistryTest, ANameMeansNcclsFileBeforeOurs) {
  install("own", "libplexus-net-ofi.so");
  EXPECT_THAT(load_error("ofi"), HasSubstr("libplexus-net-ofi.so"));
  install("path", "libnccl-net-ofi.so");
  EXPECT_THAT(load_error("ofi"), HasSubstr("libnccl-net-ofi.so"));
  EXPECT_THAT(load_error("net-ofi"), HasSubstr("libplexus-net-ofi.so"));
  std::string line;
  NetContextOptions context;
  context.log = [&](NetLogLevel, std::string_view text) { line = text; };
  options_.plugins = "ofi";
  ASSERT_TRUE(open_net(options_, context).has_value());
  EXPECT_THAT(line,
              AllOf(HasSubstr("found at " + (root_ / "path" / "libnccl-net-ofi.so").string()),
                    HasSubstr("libplexus-net-ofi.so (NCCL's libnccl-net-ofi.so takes precedence"),
                    HasSubstr("net-ofi names this one")));
  options_.plugins = "net-ofi";
  ASSERT_TRUE(open_net(options_, context).has_value());
  EXPECT_THAT(line, Not(HasSubstr("not used")));
}

TEST_F(RegistryTest, ExclusionOfAllIsAnError) {
  install("own", "libplexus-net-socket.so");
  options_.plugins = "^Socket,^net-ib";
  EXPECT_THAT(open_error(), HasSubstr("excludes every net plugin"));
}

// net-ib is tried first, and need not work unless net-socket is excluded.
TEST_F(RegistryTest, OwnNetworksAreTriedBestFirst) {
  install("own", "libplexus-net-socket.so");
  install("own", "libplexus-net-ib.so");
  std::string line;
  NetContextOptions context;
  context.log = [&](NetLogLevel, std::string_view text) { line = text; };
  ASSERT_TRUE(open_net(options_, context).has_value());
  EXPECT_THAT(line, HasSubstr((root_ / "own" / "libplexus-net-ib.so").string()));

  fs::remove(root_ / "own" / "libplexus-net-ib.so");  // it stays mapped
  std::ofstream(root_ / "own" / "libplexus-net-ib.so") << "no library";
  ASSERT_TRUE(open_net(options_, context).has_value());
  EXPECT_THAT(line,
              AllOf(HasSubstr("found at " + (root_ / "own" / "libplexus-net-socket.so").string()),
                    HasSubstr("not used: net-ib ("), HasSubstr("no ELF header")));
  options_.plugins = "^socket";
  EXPECT_THAT(open_error(), HasSubstr("no ELF header"));
}

// NCCL_NET is compared with the plugin's own name, ignoring case.
TEST_F(RegistryTest, NetworkNameMustMatch) {
  install("path", "libplexus-net-x.so");
  options_.plugins = "x";
  options_.network = "MINIMAL";
  EXPECT_EQ(open_error(), "opened");
  options_.network = "IB";
  EXPECT_THAT(open_error(), AllOf(HasSubstr("NCCL_NET=IB"), HasSubstr("NCCL_NET_PLUGIN=x"),
                                  HasSubstr("minimal")));
}

TEST_F(RegistryTest, NetworkNameAloneNamesThePlugin) {
  install("path", "libplexus-net-minimal.so");
  options_.network = "Minimal";
  EXPECT_EQ(open_error(), "opened");
}

TEST_F(RegistryTest, OneInfoLineSaysWhoWonAndFromWhere) {
  install("path", "libplexus-net-mine.so");
  options_.plugins = "mine";
  std::vector<std::string> lines;
  NetContextOptions context;
  context.log = [&](NetLogLevel level, std::string_view text) {
    EXPECT_EQ(level, NetLogLevel::kChoice);
    lines.emplace_back(text);
  };
  ASSERT_TRUE(open_net(options_, context).has_value());
  EXPECT_THAT(lines, ElementsAre(AllOf(HasSubstr("minimal"), HasSubstr("plugin ABI 1.8"),
                                       HasSubstr("unix0"), HasSubstr((root_ / "path").string()))));
}

TEST_F(RegistryTest, TheLineSaysWhyOthersWereNotUsed) {
  install("path", "libplexus-net-mine.so");
  install("path", "libplexus-net-later.so");
  install("path", "libplexus-net-out.so");
  options_.plugins = "mine,^out,later,out";
  std::string line;
  NetContextOptions context;
  context.log = [&](NetLogLevel, std::string_view text) { line = text; };
  ASSERT_TRUE(open_net(options_, context).has_value());
  EXPECT_THAT(line, AllOf(HasSubstr("not used: out (NCCL_NET_PLUGIN excludes it)"),
                          HasSubstr("later (a preceding network is used)")));
}

// The default file that NCCL looks for, under which vendors install their plugin.
TEST_F(RegistryTest, DefaultFileGoesFirstAndMayFail) {
  install("own", "libplexus-net-socket.so");
  std::string line;
  NetContextOptions context;
  context.log = [&](NetLogLevel, std::string_view text) { line = text; };
  ASSERT_TRUE(open_net(options_, context).has_value());
  EXPECT_THAT(line, AllOf(HasSubstr("libplexus-net-socket.so"), Not(HasSubstr("libnccl-net.so"))));

  std::ofstream(root_ / "path" / "libnccl-net.so") << "no library";
  ASSERT_TRUE(open_net(options_, context).has_value());
  EXPECT_THAT(line, AllOf(HasSubstr("not used: libnccl-net.so ("), HasSubstr("no ELF header")));
  options_.plugins = "none";
  ASSERT_TRUE(open_net(options_, context).has_value());
  EXPECT_THAT(line, Not(HasSubstr("libnccl-net.so")));

  fs::remove(root_ / "path" / "libnccl-net.so");
  install("path", "libnccl-net.so");
  options_.plugins = "";
  ASSERT_TRUE(open_net(options_, context).has_value());
  EXPECT_THAT(line, HasSubstr("found at " + (root_ / "path" / "libnccl-net.so").string()));
}

TEST_F(RegistryTest, CommunicatorsThatShareACacheShareThePlugin) {
  install("path", "libplexus-net-mine.so");
  const auto alone = load_net_plugin(options_, "mine").value();
  EXPECT_NE(load_net_plugin(options_, "mine").value(), alone);
  NetPluginCache cache;
  options_.cache = &cache;
  const auto shared = load_net_plugin(options_, "mine").value();
  EXPECT_EQ(load_net_plugin(options_, "mine").value(), shared);
}

TEST_F(RegistryTest, ListsWhatIsInstalled) {
  install("own", "libplexus-net-b.so");
  install("path", "libplexus-net-a.so");
  install("path", "libother.so");
  EXPECT_THAT(list_net_plugins(options_), ElementsAre("a", "b"));
}

}  // namespace
}  // namespace plexus
