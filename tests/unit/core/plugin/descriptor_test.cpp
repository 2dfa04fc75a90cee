// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/descriptor.hpp"

#include <cstddef>
#include <cstring>
#include <string>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus {
namespace {

using testing::HasSubstr;

/// A table with all entries, none of which is ever called.
plexus_net_ops_t full_table() {
  plexus_net_ops_t ops;
  std::memset(&ops, 0x11, sizeof ops);
  ops.struct_size = sizeof ops;
  return ops;
}

plexus_plugin_t good_plugin(const plexus_net_ops_t& ops) {
  return {PLEXUS_PLUGIN_MAGIC,
          sizeof(plexus_plugin_t),
          PLEXUS_ABI_MAJOR,
          PLEXUS_ABI_MINOR,
          PLEXUS_KIND_NET,
          0,
          "good-1.x_Y",
          "1.2 (test)",
          &ops,
          nullptr};
}

plexus_net_properties_t good_properties() {
  plexus_net_properties_t raw{};
  std::strcpy(raw.name, "eth0");
  raw.guid = 5;
  raw.fabric_id = PLEXUS_UNKNOWN_U64;
  raw.message_bytes_max = 1 << 20;
  raw.pointer_support = PLEXUS_MEMORY_HOST;
  raw.speed_mbit_per_s = 100'000;
  raw.latency_ns = PLEXUS_UNKNOWN_U32;
  raw.comms_max = 16;
  raw.recvs_max = 1;
  raw.requests_max = 32;
  raw.rail_id = -1;
  raw.plane_id = 3;
  return raw;
}

std::string refusal(const plexus_plugin_t& plugin) {
  const auto checked = check_net_descriptor(&plugin);
  return checked.has_error() ? checked.error().message() : "accepted";
}

std::string refusal(const plexus_net_properties_t& raw) {
  const auto checked = check_net_properties(raw);
  return checked.has_error() ? checked.error().message() : "accepted";
}

TEST(Descriptor, KeepsWhatAGoodPluginSays) {
  const plexus_net_ops_t ops = full_table();
  const plexus_plugin_t plugin = good_plugin(ops);
  const auto checked = check_net_descriptor(&plugin);
  ASSERT_TRUE(checked.has_value()) << checked.error().message();
  EXPECT_EQ(checked.value().name, "good-1.x_Y");
  EXPECT_EQ(checked.value().version, "1.2 (test)");
  EXPECT_EQ(checked.value().abi_major, PLEXUS_ABI_MAJOR);
  EXPECT_EQ(checked.value().ops.isend, ops.isend);
}

TEST(Descriptor, RefusesNull) {
  EXPECT_THAT(check_net_descriptor(nullptr).error().message(),
              HasSubstr("does not support this host"));
}

TEST(Descriptor, NamesFoundAndExpectedOfEachHeaderField) {
  const plexus_net_ops_t ops = full_table();
  plexus_plugin_t plugin = good_plugin(ops);
  plugin.magic = 0x1234;
  EXPECT_THAT(refusal(plugin), testing::AllOf(HasSubstr("0x00001234"), HasSubstr("0x50584c50")));
  plugin = good_plugin(ops);
  plugin.abi_major = 9;
  EXPECT_THAT(refusal(plugin), testing::AllOf(HasSubstr(fmt::format("ABI 9.{}", PLEXUS_ABI_MINOR)),
                                              HasSubstr("expected 1.x")));
  plugin = good_plugin(ops);
  plugin.struct_size = 40;
  EXPECT_THAT(refusal(plugin), testing::AllOf(HasSubstr("40 bytes"), HasSubstr("expected 48")));
  plugin = good_plugin(ops);
  plugin.kind = 2;
  EXPECT_THAT(refusal(plugin), HasSubstr("kind 2, expected 1"));
  plugin = good_plugin(ops);
  plugin.net = nullptr;
  EXPECT_THAT(refusal(plugin), HasSubstr("no net table"));
}

TEST(Descriptor, AcceptsANewerMinorWithALongerTable) {
  struct {
    plexus_net_ops_t ops = full_table();
    uint64_t appended[4] = {1, 2, 3, 4};
  } newer;
  newer.ops.struct_size = sizeof newer;
  plexus_plugin_t plugin = good_plugin(newer.ops);
  plugin.abi_minor = 77;
  EXPECT_EQ(refusal(plugin), "accepted");
}

// Entries newer than the plugin are null, and a partial pointer at the end of its table is ignored.
TEST(Descriptor, EntriesBeyondAShortTableAreNull) {
  plexus_net_ops_t ops = full_table();
  for (const size_t extra : {0u, 1u, 7u}) {
    ops.struct_size = static_cast<uint32_t>(offsetof(plexus_net_ops_t, net_path) + extra);
    const plexus_plugin_t plugin = good_plugin(ops);
    const auto checked = check_net_descriptor(&plugin);
    ASSERT_TRUE(checked.has_value()) << checked.error().message();
    EXPECT_EQ(checked.value().ops.net_path, nullptr);
    EXPECT_EQ(checked.value().ops.close_listen, ops.close_listen);
  }
}

TEST(Descriptor, RefusesATableThatLacksMandatoryEntries) {
  plexus_net_ops_t ops = full_table();
  ops.struct_size = offsetof(plexus_net_ops_t, close_listen);
  EXPECT_THAT(refusal(good_plugin(ops)), HasSubstr("its net table has"));
  ops = full_table();
  ops.struct_size = 1u << 30;
  EXPECT_THAT(refusal(good_plugin(ops)), HasSubstr("its net table has"));
  ops = full_table();
  ops.irecv = nullptr;
  EXPECT_THAT(refusal(good_plugin(ops)), HasSubstr("no entry `irecv`"));
  ops = full_table();
  ops.flush = nullptr;
  EXPECT_EQ(refusal(good_plugin(ops)), "accepted");
}

TEST(Descriptor, RefusesBadNames) {
  const plexus_net_ops_t ops = full_table();
  plexus_plugin_t plugin = good_plugin(ops);
  const std::string longest(PLEXUS_NAME_BYTES - 1, 'a');
  const std::string too_long(PLEXUS_NAME_BYTES, 'a');
  plugin.name = longest.c_str();
  EXPECT_EQ(refusal(plugin), "accepted");
  for (const char* name :
       {static_cast<const char*>(nullptr), "", "a b", "a\nb", too_long.c_str()}) {
    plugin.name = name;
    EXPECT_THAT(refusal(plugin), HasSubstr("its name is")) << (name == nullptr ? "null" : name);
  }
  plugin = good_plugin(ops);
  plugin.version = "\x1b[31m";
  EXPECT_THAT(refusal(plugin), HasSubstr("its version is"));
}

TEST(Properties, UnknownValuesBecomeNothing) {
  const auto checked = check_net_properties(good_properties());
  ASSERT_TRUE(checked.has_value()) << checked.error().message();
  const NetProperties& properties = checked.value();
  EXPECT_EQ(properties.name, "eth0");
  EXPECT_EQ(properties.pci_path, "");
  EXPECT_EQ(properties.guid, 5u);
  EXPECT_EQ(properties.fabric_id, std::nullopt);
  EXPECT_EQ(properties.latency, std::nullopt);
  EXPECT_EQ(properties.speed_mbit_per_s, 100'000u);
  EXPECT_EQ(properties.rail_id, std::nullopt);
  EXPECT_EQ(properties.plane_id, 3u);
}

TEST(Properties, UnendedTextsAreRefused) {
  plexus_net_properties_t raw = good_properties();
  std::memset(raw.name, 'x', sizeof raw.name);
  EXPECT_THAT(refusal(raw), HasSubstr("not zero-terminated within 64 bytes"));
  raw = good_properties();
  std::memset(raw.pci_path, 'x', sizeof raw.pci_path);
  EXPECT_THAT(refusal(raw), HasSubstr("pci_path"));
}

TEST(Properties, NumbersOutOfRangeAreRefusedByName) {
  const auto refuses = [](auto change, const char* what) {
    plexus_net_properties_t raw = good_properties();
    change(raw);
    EXPECT_THAT(refusal(raw), HasSubstr(what));
  };
  refuses([](auto& raw) { raw.message_bytes_max = 0; }, "message_bytes_max = 0");
  refuses([](auto& raw) { raw.message_bytes_max = PLEXUS_NET_MESSAGE_BYTES_MAX + 1; },
          "message_bytes_max");
  refuses([](auto& raw) { raw.pointer_support = 0; }, "pointer_support = 0");
  refuses([](auto& raw) { raw.pointer_support = 8; }, "pointer_support = 8");
  refuses([](auto& raw) { raw.comms_max = 0; }, "comms_max");
  refuses([](auto& raw) { raw.recvs_max = 0; }, "recvs_max");
  refuses([](auto& raw) { raw.recvs_max = PLEXUS_NET_RECVS_MAX + 1; }, "recvs_max");
  refuses([](auto& raw) { raw.requests_max = 7; }, "requests_max");
  refuses([](auto& raw) { raw.speed_mbit_per_s = 0; }, "speed_mbit_per_s");
  refuses([](auto& raw) { raw.force_flush = 2; }, "force_flush");
  refuses([](auto& raw) { raw.takes_pieces = 2; }, "takes_pieces");
  refuses([](auto& raw) { raw.registration_is_global = 2; }, "registration_is_global");
  refuses([](auto& raw) { raw.rail_id = -2; }, "rail_id = -2");
  refuses([](auto& raw) { raw.plane_id = INT32_MIN; }, "plane_id");
}

TEST(Path, LevelsAndUnknownsAreKept) {
  plexus_net_path_t raw{1, PLEXUS_UNKNOWN_U32, 400'000, 5'000'000, PLEXUS_UNKNOWN_U64, {}};
  const auto checked = check_net_path(raw);
  ASSERT_TRUE(checked.has_value());
  EXPECT_TRUE(checked.value().connected);
  EXPECT_EQ(checked.value().level, 1u);
  EXPECT_EQ(checked.value().latency, std::chrono::milliseconds(5));
  EXPECT_EQ(checked.value().cost, std::nullopt);
  raw.level = PLEXUS_NET_LEVEL_DISCONNECTED;
  EXPECT_FALSE(check_net_path(raw).value().connected);
  raw.level = PLEXUS_NET_LEVEL_UNKNOWN;
  EXPECT_EQ(check_net_path(raw).value().level, std::nullopt);
  raw.level = -2;
  EXPECT_TRUE(check_net_path(raw).has_error());
  raw.level = 0;
  raw.loss_per_billion = 1'000'000'001;
  EXPECT_TRUE(check_net_path(raw).has_error());
}

}  // namespace
}  // namespace plexus
