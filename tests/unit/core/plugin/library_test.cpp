// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/library.hpp"

#include <filesystem>
#include <fstream>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/net_pair.hpp"

namespace plexus {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// A folder that is removed with the test.
class LibraryTest : public testing::Test {
 protected:
  LibraryTest() {
    std::string pattern = (fs::temp_directory_path() / "plexus_library_XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~LibraryTest() override { fs::remove_all(folder_); }

  fs::path write(const char* name, const std::string& content) const {
    std::ofstream(folder_ / name, std::ios::binary) << content;
    return folder_ / name;
  }
  static std::string refusal(const fs::path& path) {
    const auto library = Library::load(path);
    return library.has_error() ? library.error().message() : "loaded";
  }
  static std::string good_bytes() {
    std::ifstream file(test::built_file("PLEXUS_TEST_EXAMPLE_DIR", "libplexus-net-minimal.so"),
                       std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  fs::path folder_;
};

TEST_F(LibraryTest, FindsFunctionsAndKnowsItsFile) {
  const fs::path path = test::built_file("PLEXUS_TEST_EXAMPLE_DIR", "libplexus-net-minimal.so");
  const auto library = Library::load(path);
  ASSERT_TRUE(library.has_value()) << library.error().message();
  EXPECT_NE(library.value().find_function<void()>("plexus_plugin_query"), nullptr);
  EXPECT_EQ(library.value().find_function<void()>("no_such_function"), nullptr);
  EXPECT_TRUE(fs::equivalent(library.value().path(), path));
}

TEST_F(LibraryTest, AbsentEmptyTextAndFolderAreRefusedWithTheReason) {
  EXPECT_THAT(refusal(folder_ / "absent.so"), HasSubstr("no such file"));
  EXPECT_THAT(refusal(write("empty.so", "")), HasSubstr("no ELF header"));
  EXPECT_THAT(refusal(write("text.so", std::string(4096, 'x'))), HasSubstr("no ELF header"));
  EXPECT_THAT(refusal(folder_ / "."), HasSubstr("not a regular file"));
}

TEST_F(LibraryTest, UnreadableFileIsRefusedWithTheReason) {
  if (::geteuid() == 0) {
    GTEST_SKIP() << "root reads every file";
  }
  const fs::path path = write("secret.so", good_bytes());
  ::chmod(path.c_str(), 0);
  EXPECT_THAT(refusal(path), HasSubstr("cannot be read"));
}

// Without the check the process would die of SIGBUS inside dlopen.
TEST_F(LibraryTest, TruncatedLibraryIsRefusedAtEveryLength) {
  const std::string whole = good_bytes();
  ASSERT_GT(whole.size(), 12'000u);
  for (const size_t size :
       {size_t{20}, size_t{64}, size_t{100}, size_t{1000}, size_t{4096}, size_t{8192}}) {
    const std::string reason = refusal(write("cut.so", whole.substr(0, size)));
    EXPECT_THAT(reason, testing::AnyOf(HasSubstr("truncated"), HasSubstr("no ELF header"))) << size;
  }
}

TEST_F(LibraryTest, OtherMachinesAndProgramsAreRefused) {
  std::string bytes = good_bytes();
  bytes[18] = 0x08;  // e_machine: MIPS
  bytes[19] = 0;
  EXPECT_THAT(refusal(write("mips.so", bytes)), HasSubstr("another machine"));
  bytes = good_bytes();
  bytes[4] = 1;  // 32 bit
  EXPECT_THAT(refusal(write("small.so", bytes)), HasSubstr("not a 64-bit shared library"));
}

TEST_F(LibraryTest, LoadersOwnWordsAreKeptForABareName) {
  EXPECT_THAT(refusal("libplexus-certainly-absent.so"),
              HasSubstr("cannot open shared object file"));
}

TEST(OwnFolder, IsThatOfTheTestProgram) {
  EXPECT_TRUE(fs::equivalent(find_own_folder(), fs::canonical("/proc/self/exe").parent_path()));
}

}  // namespace
}  // namespace plexus
