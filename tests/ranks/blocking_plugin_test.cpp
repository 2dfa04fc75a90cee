// SPDX-License-Identifier: Apache-2.0
// A net plugin whose function does not return holds up the ranks that are in it, and nobody else.
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <plexus.h>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

namespace plexus {
namespace {

/// Longer than all that must not wait for the plugin takes, also on a busy machine.
constexpr auto kBound = std::chrono::seconds(60);

class BlockingPluginTest : public testing::TestWithParam<const char*> {
 protected:
  BlockingPluginTest() {
    setenv("NCCL_P2P_DISABLE", "1", 1);
    setenv("NCCL_SHM_DISABLE", "1", 1);
    setenv("NCCL_NET_PLUGIN", "chaos,socket", 1);
    setenv("PLEXUS_CHAOS_BLOCK", (std::string(GetParam()) + "@" + block_).c_str(), 1);
    block();
  }
  ~BlockingPluginTest() override {
    release();
    std::filesystem::remove(block_ + ".reached");
    for (const char* const name :
         {"NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_NET_PLUGIN", "PLEXUS_CHAOS_BLOCK"}) {
      unsetenv(name);
    }
  }

  void block() const {
    std::filesystem::remove(block_ + ".reached");
    std::ofstream(block_).flush();
  }
  void release() const { std::filesystem::remove(block_); }
  [[nodiscard]] bool wait_until_blocked() const {
    const auto until = std::chrono::steady_clock::now() + kBound;
    while (!std::filesystem::exists(block_ + ".reached")) {
      if (std::chrono::steady_clock::now() > until) {
        return false;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }
  /// `call` returns ncclSuccess although the plugin does not return.
  static void goes_on(const char* what, const std::function<ncclResult_t()>& call) {
    auto result = std::async(std::launch::async, call);
    if (result.wait_for(kBound) != std::future_status::ready) {
      // Its future would wait: there is no way on from here.
      std::fprintf(stderr, "%s waits for the plugin\n", what);
      std::_Exit(1);
    }
    const ncclResult_t code = result.get();
    EXPECT_EQ(code, ncclSuccess) << what << ": " << ncclGetLastError(nullptr);
  }

  /// Two ranks of another communicator, over another network.
  static ncclResult_t use_another_network() {
    ncclUniqueId id;
    ncclResult_t result = ncclGetUniqueId(&id);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.netName = "Socket";
    std::array<ncclComm_t, 2> comms{};
    result = result != ncclSuccess ? result : ncclGroupStart();
    for (int rank = 0; rank < 2 && result == ncclSuccess; ++rank) {
      result = ncclCommInitRankConfig(&comms[static_cast<size_t>(rank)], 2, id, rank, &config);
    }
    result = result != ncclSuccess ? result : ncclGroupEnd();
    for (const ncclComm_t comm : comms) {
      result = result != ncclSuccess ? result : ncclCommDestroy(comm);
    }
    return result;
  }
  static void abort_all(const std::array<ncclComm_t, 2>& comms) {
    std::vector<std::thread> threads;
    for (const ncclComm_t comm : comms) {
      threads.emplace_back(
          [comm] { goes_on("ncclCommAbort", [&] { return ncclCommAbort(comm); }); });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }
  static ncclResult_t allocate() {
    void* memory = nullptr;
    const ncclResult_t result = ncclMemAlloc(&memory, 1 << 20);
    return result != ncclSuccess ? result : ncclMemFree(memory);
  }

 private:
  const std::string block_ = testing::TempDir() + "block_" + std::to_string(getpid());
};

class BlockedInit : public BlockingPluginTest {};
class BlockedCall : public BlockingPluginTest {};

TEST_P(BlockedInit, HoldsUpNobodyElseAndCanBeAborted) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.netName = "Chaos";
  std::array<ncclComm_t, 2> comms{};
  for (int rank = 0; rank < 2; ++rank) {
    const auto begun =
        ncclCommInitRankConfig(&comms[static_cast<size_t>(rank)], 2, id, rank, &config);
    ASSERT_TRUE(begun == ncclInProgress || begun == ncclSuccess);
  }
  ASSERT_TRUE(wait_until_blocked());
  goes_on("ncclMemAlloc", allocate);
  goes_on("init of another communicator", use_another_network);
  abort_all(comms);
}

TEST_P(BlockedCall, HoldsUpNobodyElseAndCanBeAborted) {
  release();
  std::array<ncclComm_t, 2> comms{};
  ASSERT_EQ(ncclCommInitAll(comms.data(), 2, nullptr), ncclSuccess);
  block();
  std::vector<std::thread> threads;
  for (const ncclComm_t comm : comms) {
    threads.emplace_back([comm] {
      float value = 1;
      EXPECT_NE(ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, comm, nullptr), ncclSuccess);
    });
  }
  ASSERT_TRUE(wait_until_blocked());
  goes_on("ncclMemAlloc", allocate);
  goes_on("init of another communicator", use_another_network);
  abort_all(comms);
  release();
  for (std::thread& thread : threads) {
    thread.join();
  }
}

INSTANTIATE_TEST_SUITE_P(In, BlockedInit, testing::Values("init"));
INSTANTIATE_TEST_SUITE_P(In, BlockedCall, testing::Values("connect", "isend", "irecv"));

}  // namespace
}  // namespace plexus
