// SPDX-License-Identifier: Apache-2.0
// net-ofi with GPU memory over the real libfabric, with a simulated NIC and GPU (card.hpp): the
// calls to libfabric, the registrations, and that a flush is a completed read. Not tested with a
// real GPU and NIC.
#include <array>
#include <cstring>
#include <dlfcn.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/net_pair.hpp"
#include "tests/unit/plugins/net-ofi/card.hpp"

namespace plexus {
namespace {

using test::Card;
using test::CardRegistration;
using test::ScopedEnv;
using testing::HasSubstr;

template <class Find>
auto* load_in_place(const char* file, const char* name) {
  void* const library =
      ::dlopen(test::built_file("PLEXUS_TEST_EXAMPLE_DIR", file).c_str(), RTLD_NOW);
  if (library == nullptr) {
    ADD_FAILURE() << ::dlerror();
    std::abort();
  }
  return reinterpret_cast<Find>(::dlsym(library, name))();
}

Card& card() {
  static Card* const made =
      load_in_place<test::FindCard>("libplexus-ofi-card.so", "plexus_test_card");
  return *made;
}
test::GpuRange& gpu() {
  static test::GpuRange* const made =
      load_in_place<test::FindGpu>("libplexus-ofi-cuda.so", "plexus_test_gpu");
  return *made;
}

constexpr size_t kGpuBytes = 1 << 20;

class DeviceMemory : public testing::Test {
 protected:
  DeviceMemory() {
    card().version = FI_VERSION(1, 20);
    card().has_hmem = true;
    card().direct_result = 0;
    card().no_cuda_result = 0;
    card().register_result = 0;
    card().holds_reads = false;
    card().sends_until_full = 0;
    card().asks.clear();
    card().domains.clear();
    card().registrations.clear();
    card().reads.clear();
    card().direct_endpoints = 0;
    card().no_cuda_endpoints = 0;
    gpu().begin = memory_.data();
    gpu().size_bytes = memory_.size();
  }

  NetContext context() {
    return test::make_context(plugin_, [this](NetLogLevel, std::string_view text) {
      log_ += text;
      log_ += '\n';
    });
  }
  /// The error of init.
  std::string refusal() {
    auto made = NetContext::create(plugin_, {.comm_id = 7, .traffic_class = -1, .log = {}});
    return made.has_error() ? std::string(made.error().message()) : "no refusal";
  }
  [[nodiscard]] plexus_net_region_t region(uint32_t kind, size_t offset = 0) {
    return {memory_.data() + offset, kGpuBytes / 2, 0, -1, kind};
  }

  ScopedEnv interface_{"NCCL_SOCKET_IFNAME", "=lo"};
  ScopedEnv provider_{"PLEXUS_OFI_PROVIDER", "tcp;ofi_rxm"};
  ScopedEnv hmem_{"PLEXUS_OFI_HMEM", "auto"};
  ScopedEnv rails_{"PLEXUS_OFI_RAILS", "1"};
  std::vector<std::byte> memory_ = std::vector<std::byte>(kGpuBytes);
  Card& card_ = card();
  std::shared_ptr<const NetPlugin> plugin_ =
      test::load_plugin(test::built_file("PLEXUS_TEST_LIB_DIR", "libplexus-net-ofi.so"));
  std::string log_;
};

/// Sends `message` from host memory to `place` in GPU memory, until test() reports its arrival.
void send_into(test::NetPair& pair,
               const std::vector<std::byte>& message,
               std::byte* place,
               plexus_net_memory_t* memory) {
  const NetBuffer buffer = {place, message.size(), memory, 0, 0};
  NetRequest* const received = test::post_recv(pair, {&buffer, 1});
  NetRequest* const sent = test::post_send(pair, message, 0);
  uint64_t size = 0;
  test::finish(pair, sent, received, &size);
  EXPECT_EQ(size, message.size());
}

// ---- what is offered ----

TEST_F(DeviceMemory, IsAskedForWithAllThatMessagesAndFlushesNeed) {
  const NetContext made = context();
  ASSERT_EQ(card_.asks.size(), 1u);
  constexpr uint64_t kCaps =
      FI_TAGGED | FI_SEND | FI_RECV | FI_HMEM | FI_RMA | FI_READ | FI_REMOTE_READ;
  EXPECT_EQ(card_.asks[0].caps & kCaps, kCaps);
  EXPECT_NE(card_.asks[0].mr_mode & FI_MR_HMEM, 0);
  EXPECT_EQ(card_.asks[0].threading, FI_THREAD_SAFE);
  EXPECT_EQ(card_.asks[0].version, FI_VERSION(1, 20));
  ASSERT_GE(card_.domains.size(), 1u);
  EXPECT_NE(card_.domains[0].mr_mode & FI_MR_HMEM, 0);
  EXPECT_EQ(card_.domains[0].threading, FI_THREAD_SAFE);
  EXPECT_GE(card_.direct_endpoints, 1u);
  EXPECT_EQ(card_.direct_endpoints, card_.no_cuda_endpoints);
}

TEST_F(DeviceMemory, IsInThePropertiesWithDmabufSince120) {
  EXPECT_EQ(context().properties(0).pointer_support,
            PLEXUS_MEMORY_HOST | PLEXUS_MEMORY_CUDA | PLEXUS_MEMORY_DMABUF);
  EXPECT_THAT(log_, HasSubstr("GPU memory, also by dma-buf"));
  card_.version = FI_VERSION(1, 19);
  EXPECT_EQ(context().properties(0).pointer_support, PLEXUS_MEMORY_HOST | PLEXUS_MEMORY_CUDA);
}

struct Lack {
  const char* name;
  void (*make)(Card& card);
  const char* reason;
};

class DeviceMemoryLack : public DeviceMemory, public testing::WithParamInterface<Lack> {};

TEST_P(DeviceMemoryLack, IsSaidAndLeavesHostMemoryOrFailsWhenInsistedOn) {
  GetParam().make(card_);
  const NetContext made = context();
  EXPECT_EQ(made.properties(0).pointer_support, PLEXUS_MEMORY_HOST);
  EXPECT_THAT(log_, HasSubstr(GetParam().reason));
  test::NetPair pair = test::connect_pair(made, made);
  const auto message = test::make_message(5000, 1);
  EXPECT_TRUE(test::send_one(pair, message, 5000) == message);
  EXPECT_TRUE(pair.recv.register_memory(region(PLEXUS_MEMORY_CUDA)).has_error());

  const ScopedEnv insists("PLEXUS_OFI_HMEM", "1");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("PLEXUS_OFI_HMEM=1"), HasSubstr(GetParam().reason)));
}

INSTANTIATE_TEST_SUITE_P(
    Of,
    DeviceMemoryLack,
    testing::Values(
        Lack{"Provider", [](Card& card) { card.has_hmem = false; }, "has no FI_HMEM with FI_RMA"},
        Lack{"DirectAccess", [](Card& card) { card.direct_result = -FI_EOPNOTSUPP; },
             "does not guarantee that the NIC itself"},
        Lack{"WaysWithoutCuda", [](Card& card) { card.no_cuda_result = -FI_ENOPROTOOPT; },
             "does not guarantee to make no CUDA calls"},
        Lack{"Version", [](Card& card) { card.version = FI_VERSION(1, 17); },
             "is older than 1.18"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_F(DeviceMemory, IsNotAskedForWhenSwitchedOff) {
  const ScopedEnv off("PLEXUS_OFI_HMEM", "0");
  const NetContext made = context();
  EXPECT_EQ(made.properties(0).pointer_support, PLEXUS_MEMORY_HOST);
  EXPECT_TRUE(card_.asks.empty());
  EXPECT_EQ(card_.direct_endpoints, 0u);
}

TEST_F(DeviceMemory, SettingIsChecked) {
  const ScopedEnv bad("PLEXUS_OFI_HMEM", "yes");
  EXPECT_THAT(refusal(), HasSubstr("PLEXUS_OFI_HMEM=yes is not auto, 0 or 1"));
}

// ---- registration ----

TEST_F(DeviceMemory, IsRegisteredAsTheGpusThatItBelongsTo) {
  const NetContext made = context();
  test::NetPair pair = test::connect_pair(made, made);
  card_.registrations.clear();
  auto memory = pair.recv.register_memory(region(PLEXUS_MEMORY_CUDA, 4096));
  ASSERT_TRUE(memory.has_value()) << memory.error().message();
  EXPECT_NE(memory.value().raw(), nullptr);
  ASSERT_EQ(card_.registrations.size(), 1u);
  const CardRegistration& registration = card_.registrations[0];
  EXPECT_EQ(registration.data, memory_.data() + 4096);
  EXPECT_EQ(registration.size_bytes, kGpuBytes / 2);
  EXPECT_EQ(registration.iface, FI_HMEM_CUDA);
  EXPECT_EQ(registration.device, test::kGpu);
  EXPECT_EQ(registration.beyond_known, 0u);
  EXPECT_FALSE(registration.is_dmabuf);
  constexpr uint64_t kAccess = FI_SEND | FI_RECV | FI_REMOTE_READ;
  EXPECT_EQ(registration.access & kAccess, kAccess);
}

TEST_F(DeviceMemory, IsRegisteredByItsDmabuf) {
  constexpr uint64_t kOffset = 8192;
  const NetContext made = context();
  test::NetPair pair = test::connect_pair(made, made);
  card_.registrations.clear();
  plexus_net_region_t dmabuf = region(PLEXUS_MEMORY_DMABUF, 4096);
  dmabuf.dmabuf_offset_bytes = kOffset;
  dmabuf.dmabuf_fd = 77;
  auto memory = pair.recv.register_memory(dmabuf);
  ASSERT_TRUE(memory.has_value()) << memory.error().message();
  ASSERT_EQ(card_.registrations.size(), 1u);
  const CardRegistration& registration = card_.registrations[0];
  EXPECT_TRUE(registration.is_dmabuf);
  EXPECT_EQ(registration.dmabuf_fd, 77);
  EXPECT_EQ(registration.dmabuf_offset, kOffset);
  EXPECT_EQ(registration.data, memory_.data() + 4096);  // base + offset
  EXPECT_EQ(registration.size_bytes, kGpuBytes / 2);
  EXPECT_EQ(registration.iface, FI_HMEM_CUDA);
  EXPECT_EQ(registration.device, test::kGpu);
}

TEST_F(DeviceMemory, OfTheHostIsNotTakenForTheGpus) {
  const NetContext made = context();
  test::NetPair pair = test::connect_pair(made, made);
  std::vector<std::byte> host(4096);
  auto memory = pair.recv.register_memory({host.data(), host.size(), 0, -1, PLEXUS_MEMORY_CUDA});
  ASSERT_TRUE(memory.has_error());
  EXPECT_THAT(std::string(memory.error().message()), HasSubstr("was registered as GPU memory"));
}

TEST_F(DeviceMemory, ThatLibfabricRefusesIsAFailureAndTheConnectionGoesOn) {
  const NetContext made = context();
  test::NetPair pair = test::connect_pair(made, made);
  card_.register_result = -FI_ENOSYS;
  auto memory = pair.recv.register_memory(region(PLEXUS_MEMORY_CUDA));
  ASSERT_TRUE(memory.has_error());
  EXPECT_THAT(std::string(memory.error().message()), HasSubstr("of GPU memory"));
  const auto message = test::make_message(100, 1);
  EXPECT_TRUE(test::send_one(pair, message, 100) == message);
}

// ---- messages and flushes ----

TEST_F(DeviceMemory, ReceivesAndIsFlushedByAReadOfWhatArrived) {
  const NetContext made = context();
  test::NetPair pair = test::connect_pair(made, made);
  auto memory = pair.recv.register_memory(region(PLEXUS_MEMORY_CUDA));
  ASSERT_TRUE(memory.has_value()) << memory.error().message();
  const auto message = test::make_message(200'000, 3);
  std::byte* const place = memory_.data() + 64;
  send_into(pair, message, place, memory.value().raw());
  EXPECT_EQ(std::memcmp(place, message.data(), message.size()), 0);
  EXPECT_TRUE(card_.reads.empty());

  card_.holds_reads = true;
  const NetBuffer buffer = {place, message.size(), memory.value().raw(), 0, 0};
  NetRequest* flush = nullptr;
  ASSERT_EQ(pair.recv.flush({&buffer, 1}, &flush), NetStatus::kOk);
  ASSERT_NE(flush, nullptr);
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(pair.recv.test(flush, nullptr), NetStatus::kAgain) << "done before its read";
  }
  ASSERT_EQ(card_.reads.size(), 1u);
  EXPECT_GE(card_.reads[0].size_bytes, 1u);

  // The address is the process's or an offset in the region, as the domain says.
  const bool is_virtual = (card_.domains[0].mr_mode & FI_MR_VIRT_ADDR) != 0;
  EXPECT_EQ(card_.reads[0].address, is_virtual ? reinterpret_cast<uintptr_t>(place) : uint64_t{64});
  card_.release_reads();
  NetStatus status = NetStatus::kAgain;
  EXPECT_TRUE(test::poll_until([&] {
    status = pair.recv.test(flush, nullptr);
    return status != NetStatus::kAgain;
  }));
  EXPECT_EQ(status, NetStatus::kOk);
}

TEST_F(DeviceMemory, IsFlushedThroughEveryRail) {
  const ScopedEnv rails("PLEXUS_OFI_RAILS", "2");
  const NetContext made = context();
  test::NetPair pair = test::connect_pair(made, made);
  auto memory = pair.recv.register_memory(region(PLEXUS_MEMORY_DMABUF));
  ASSERT_TRUE(memory.has_value()) << memory.error().message();
  for (unsigned round = 0; round < 40; ++round) {  // more than there are requests in flight
    const auto message = test::make_message(400'000, round);
    send_into(pair, message, memory_.data(), memory.value().raw());
    EXPECT_EQ(std::memcmp(memory_.data(), message.data(), message.size()), 0);
    const NetBuffer buffer = {memory_.data(), message.size(), memory.value().raw(), 0, 0};
    NetRequest* flush = nullptr;
    ASSERT_EQ(pair.recv.flush({&buffer, 1}, &flush), NetStatus::kOk);
    NetStatus status = NetStatus::kAgain;
    ASSERT_TRUE(test::poll_until([&] {
      status = pair.recv.test(flush, nullptr);
      return status != NetStatus::kAgain;
    }));
    ASSERT_EQ(status, NetStatus::kOk);
    EXPECT_EQ(card_.reads.size(), 2 * (round + 1));
  }
}

TEST_F(DeviceMemory, IsSentFromAsWell) {
  const NetContext made = context();
  test::NetPair pair = test::connect_pair(made, made);
  auto memory = pair.send.register_memory(region(PLEXUS_MEMORY_CUDA));
  ASSERT_TRUE(memory.has_value()) << memory.error().message();
  const auto message = test::make_message(kGpuBytes / 2, 9);
  std::copy(message.begin(), message.end(), memory_.begin());
  std::vector<std::byte> arrived(message.size());
  const NetBuffer buffer = test::buffer_of(arrived, 5);
  NetRequest* const received = test::post_recv(pair, {&buffer, 1});
  NetRequest* sent = nullptr;
  ASSERT_TRUE(test::poll_until([&] {
    return pair.send.isend({memory_.data(), message.size()}, 5, memory.value().raw(), &sent) !=
           NetStatus::kAgain;
  }));
  test::finish(pair, sent, received, nullptr);
  EXPECT_TRUE(arrived == message);
}

TEST_F(DeviceMemory, OfTheHostAndEmptyMessagesNeedNoFlush) {
  const NetContext made = context();
  test::NetPair pair = test::connect_pair(made, made);
  auto memory = pair.recv.register_memory(region(PLEXUS_MEMORY_CUDA));
  ASSERT_TRUE(memory.has_value());
  std::vector<std::byte> host(64);
  const std::array buffers = {NetBuffer{host.data(), host.size(), nullptr, 0, 0},
                              NetBuffer{memory_.data(), 0, memory.value().raw(), 0, 0}};
  NetRequest* flush = nullptr;
  EXPECT_EQ(pair.recv.flush(buffers, &flush), NetStatus::kOk);
  EXPECT_EQ(flush, nullptr);
  EXPECT_TRUE(card_.reads.empty());
}

TEST_F(DeviceMemory, WhatArrivedIsFlushedAlsoAfterThePeerClosed) {
  const NetContext made = context();
  auto pair = std::make_optional(test::connect_pair(made, made));
  auto memory = pair->recv.register_memory(region(PLEXUS_MEMORY_CUDA));
  ASSERT_TRUE(memory.has_value());
  const auto message = test::make_message(5000, 3);
  send_into(*pair, message, memory_.data(), memory.value().raw());
  NetRecv recv = std::move(pair->recv);
  { const NetSend closed = std::move(pair->send); }
  const NetBuffer buffer = {memory_.data(), message.size(), memory.value().raw(), 0, 0};
  NetRequest* flush = nullptr;
  ASSERT_EQ(recv.flush({&buffer, 1}, &flush), NetStatus::kOk);
  NetStatus status = NetStatus::kAgain;
  ASSERT_TRUE(test::poll_until([&] {
    status = recv.test(flush, nullptr);
    return status != NetStatus::kAgain;
  }));
  EXPECT_EQ(status, NetStatus::kOk);
  EXPECT_EQ(card_.reads.size(), 1u);
  const NetMemory ended = std::move(memory).value();  // before its connection
}

// Not about GPU memory: it needs the simulated NIC. A probe that never ends must not keep others
// from finding out that the NIC reaches the peer no longer.
TEST_F(DeviceMemory, APeerIsProbedOnWhileAProbeIsOut) {
  const ScopedEnv probe("PLEXUS_OFI_PROBE_MS", "10");
  const NetContext made = context();
  test::NetPair pair = test::connect_pair(made, made);
  std::vector<std::byte> room(8);
  const NetBuffer buffer = test::buffer_of(room, 0);
  NetRequest* const waits = test::post_recv(pair, {&buffer, 1});
  card_.sends_until_full = 2;  // one probe is lost, and the others are refused
  NetStatus status = NetStatus::kAgain;
  EXPECT_TRUE(test::poll_until([&] {
    status = pair.recv.test(waits, nullptr);
    return status != NetStatus::kAgain;
  }));
  EXPECT_THAT(pair.recv.explain("test", status).message(), HasSubstr("no longer reachable"));
  card_.sends_until_full = 0;
}

TEST_F(DeviceMemory, AFlushUnderWayEndsWithItsConnection) {
  const NetContext made = context();
  {
    test::NetPair pair = test::connect_pair(made, made);
    auto memory = pair.recv.register_memory(region(PLEXUS_MEMORY_CUDA));
    ASSERT_TRUE(memory.has_value());
    const NetBuffer buffer = {memory_.data(), 4096, memory.value().raw(), 0, 0};
    NetRequest* flush = nullptr;
    ASSERT_EQ(pair.recv.flush({&buffer, 1}, &flush), NetStatus::kOk);
    EXPECT_NE(flush, nullptr);
  }
  test::NetPair next = test::connect_pair(made, made);
  const auto message = test::make_message(100, 1);
  EXPECT_TRUE(test::send_one(next, message, 100) == message);
}

// ---- through NCCL's ABI, as stock NCCL loads it ----

class DeviceMemoryOfNccl : public DeviceMemory, public testing::WithParamInterface<const char*> {};

TEST_P(DeviceMemoryOfNccl, IsOfferedRegisteredByDmabufAndFlushed) {
  auto loaded = NetPlugin::load(test::built_file("PLEXUS_TEST_LIB_DIR", "libplexus-net-ofi.so"),
                                {.abi = GetParam(), .v11 = "mainline"});
  ASSERT_TRUE(loaded.has_value()) << loaded.error().message();
  const NetContext made = test::make_context(loaded.value());
  EXPECT_EQ(made.properties(0).pointer_support,
            PLEXUS_MEMORY_HOST | PLEXUS_MEMORY_CUDA | PLEXUS_MEMORY_DMABUF);
  test::NetPair pair = test::connect_pair(made, made);
  card_.registrations.clear();
  plexus_net_region_t dmabuf = region(PLEXUS_MEMORY_DMABUF);
  dmabuf.dmabuf_offset_bytes = 4096;
  dmabuf.dmabuf_fd = 78;
  auto memory = pair.recv.register_memory(dmabuf);
  ASSERT_TRUE(memory.has_value()) << memory.error().message();
  ASSERT_EQ(card_.registrations.size(), 1u);
  EXPECT_EQ(card_.registrations[0].dmabuf_fd, 78);
  EXPECT_EQ(card_.registrations[0].dmabuf_offset, 4096u);
  EXPECT_EQ(card_.registrations[0].data, memory_.data());

  const auto message = test::make_message(5000, 3);
  send_into(pair, message, memory_.data(), memory.value().raw());
  const NetBuffer buffer = {memory_.data(), message.size(), memory.value().raw(), 0, 0};
  card_.holds_reads = true;
  NetRequest* flush = nullptr;
  ASSERT_EQ(pair.recv.flush({&buffer, 1}, &flush), NetStatus::kOk);
  ASSERT_NE(flush, nullptr);
  EXPECT_EQ(pair.recv.test(flush, nullptr), NetStatus::kAgain);
  card_.release_reads();
  NetStatus status = NetStatus::kAgain;
  EXPECT_TRUE(test::poll_until([&] {
    status = pair.recv.test(flush, nullptr);
    return status != NetStatus::kAgain;
  }));
  EXPECT_EQ(status, NetStatus::kOk);
  EXPECT_EQ(card_.reads.size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(Versions,
                         DeviceMemoryOfNccl,
                         testing::Values("v8", "v9", "v10", "v11", "v12"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace

}  // namespace plexus

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  static_cast<void>(plexus::card());  // before net-ofi asks for libfabric
  static_cast<void>(plexus::gpu());
  return RUN_ALL_TESTS();
}
