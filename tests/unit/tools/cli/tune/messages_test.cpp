// SPDX-License-Identifier: Apache-2.0
// Times of calls whose messages have known costs lead back to these costs.
#include "tools/cli/tune/messages.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "kernels/program/algorithms.hpp"
#include "tools/cli/sim/calibration.hpp"
#include "tools/cli/sim/call.hpp"
#include "tools/cli/tune/fit.hpp"

namespace plexus::tune {
namespace {

constexpr double kCall = 0.06;
constexpr double kSend = 0.03;
constexpr double kRecv = 0.05;
constexpr double kCombine = 0.07;
constexpr double kApart = 0.09;
constexpr double kCopy = 0.02;

/// Where the sender has done `early` of its part when the message arrives.
MessageTimes times_of(double send, double recv, double early) {
  MessageTimes times;
  for (const size_t bytes : {kChunkBytes, size_t{1024}}) {
    times.broadcast[bytes] = kCall + std::max(send, recv);
    times.exchange[bytes] = kCall + send + recv;
    times.exchange_out[bytes] = times.exchange[bytes] + kCopy;
    times.reduce[bytes] = kCall + std::max(send, kCombine);
    times.reduce_out[bytes] = kCall + std::max(send, kApart);
    times.sum[bytes] = kCall + send + kCombine;
    times.sum_out[bytes] = kCall + send + kApart;
  }
  times.ring_one_chunk = kCall + 2 * (send + kCombine - early);
  times.halving_two_chunks = kCall + 2 * (send + kCombine);
  return times;
}

TEST(TuneMessages, FindsTheCostsOfBothEnds) {
  const auto json = format_messages({}, {{"host", 4096, times_of(kSend, kRecv, 0.01)}});
  const auto& link = json["links"]["host"];
  EXPECT_EQ(link["slot_bytes"], 4096);
  EXPECT_NEAR(link["call_us"].get<double>(), kCall, 1e-9);
  EXPECT_NEAR(link["early_us"].get<double>(), 0.01, 1e-9);
  EXPECT_EQ(link["bytes"], nlohmann::json::parse("[64, 1024]"));
  for (const auto& [key, us] :
       {std::pair("send_us", kSend), std::pair("recv_us", kRecv), std::pair("combine_us", kCombine),
        std::pair("combine_apart_us", kApart), std::pair("copy_us", kCopy)}) {
    for (const auto& each : link[key]) {
      EXPECT_NEAR(each.get<double>(), us, 1e-9) << key;
    }
    if (key != std::string("copy_us")) {
      for (const auto& each : link["one_way"][key]) {
        EXPECT_NEAR(each.get<double>(), us, 1e-9) << key;
      }
    }
  }
}

TEST(TuneMessages, GivesASenderOverSocketsTheLargerPart) {
  const MessageTimes times = times_of(kSend, kRecv, 0);
  const auto json = format_messages({}, {{"net", 4096, times}});
  EXPECT_NEAR(json["links"]["net"]["send_us"][0].get<double>(), kRecv, 1e-9);
}

/// What the simulator says of 4 ranks on 2 cores.
MessageHost predict_shared(const nlohmann::ordered_json& messages) {
  SimOptions options;
  options.nranks = options.ranks_per_node = 4;
  options.calibration =
      parse_sim_calibration(nlohmann::ordered_json{{"messages", messages}}.dump()).value();
  MessageHost host{.cores = 2};
  for (const char* const name : {"recursive_doubling_all_reduce", "ring_all_reduce"}) {
    options.calls = host.shared.empty() ? 20 : 1;
    const auto row = simulate_call(options, *find_algorithm(name), kSmallBytes, nullptr);
    host.shared.push_back({.algorithm = name,
                           .nranks = options.nranks,
                           .size_bytes = kSmallBytes,
                           .calls = options.calls,
                           .us = row.value().result.time_us});
  }
  return host;
}

TEST(TuneMessages, FindsTheTurnWithWhichTheSimulatorPredictsWhatWasMeasured) {
  const std::vector<MessageLink> links = {{"host", 4096, times_of(kSend, kRecv, 0)}};
  auto json = format_messages({.cores = 2}, links);
  EXPECT_EQ(json["cores"], 2);
  EXPECT_EQ(json["turn_us"], 0);
  json["turn_us"] = 0.8;
  const MessageHost measured = predict_shared(json);
  const auto fitted = format_messages(measured, links);
  EXPECT_NEAR(fitted["turn_us"].get<double>(), 0.8, 0.05);
  const MessageHost predicted = predict_shared(fitted);
  for (size_t i = 0; i < measured.shared.size(); ++i) {
    EXPECT_NEAR(predicted.shared[i].us, measured.shared[i].us, 0.05 * measured.shared[i].us);
  }
}

TEST(TuneMessages, FindsTheTurnOfRanksThatUseSockets) {
  const MessageTimes times = times_of(kSend, kRecv, 0);
  const std::vector<MessageLink> links = {{"host", 4096, times}, {"net", 4096, times}};
  const SharedCall call{
      .algorithm = "ring_all_reduce", .nranks = 4, .size_bytes = kSmallBytes, .us = 5};
  SharedCall slower = call;
  slower.us = 10;
  slower.over_sockets = true;
  const auto json = format_messages({.cores = 2, .shared = {call}, .shared_net = {slower}}, links);
  EXPECT_NEAR(json["net_turn_us"].get<double>() / json["turn_us"].get<double>(), 2, 0.2);
}

TEST(TuneMessages, FindsWhatARootedCallCosts) {
  // As if a rooted call took 0.04 us, where `times_of` has 0.06 in all calls.
  const MessageLink link{"host", 4096, times_of(kRecv, kRecv, 0)};
  auto json = format_messages({.cores = 2}, {link});
  auto& rooted = json["links"]["host"]["one_way"];
  EXPECT_NEAR(rooted["call_us"].get<double>(), kCall, 1e-9);
  rooted["call_us"] = 0.04;
  for (auto& us : rooted["recv_us"]) {
    us = kCall + kRecv - 0.04;
  }
  SimOptions options;
  options.nranks = options.ranks_per_node = 4;
  options.are_bound = true;
  options.calls = 50;
  options.calibration =
      parse_sim_calibration(nlohmann::ordered_json{{"messages", json}}.dump()).value();
  const auto row = simulate_call(options, *find_algorithm("direct_broadcast"), 64, nullptr);
  const SharedCall call{.algorithm = "direct_broadcast",
                        .nranks = 4,
                        .size_bytes = 64,
                        .calls = options.calls,
                        .us = row.value().result.time_us};
  const auto fitted = format_messages({.cores = 2, .rooted = {call}}, {link});
  EXPECT_NEAR(fitted["links"]["host"]["one_way"]["call_us"].get<double>(), 0.04, 0.004);
}

TEST(TuneMessages, FindsWhichPartOfAMessageIsLeftOnOneCore) {
  MessageTimes times = times_of(kSend, kRecv, 0);
  times.one_core[kChunkBytes] = 2 * kCall + (kSend + kRecv) / 2;
  times.one_core[1024] = 1000;
  const auto json = format_messages({.cores = 2}, {{"host", 4096, times}});
  const auto& link = json["links"]["host"];
  EXPECT_EQ(link["one_core_bytes"], nlohmann::json::parse("[64, 1024]"));
  EXPECT_NEAR(link["one_core"][0].get<double>(), 0.5, 1e-9);
  EXPECT_EQ(link["one_core"][1], 1);
}

TEST(TuneMessages, FindsWhatACrowdTakesLonger) {
  const std::vector<MessageLink> links = {{"host", 4096, times_of(kSend, kRecv, 0)}};
  MessageHost host{.cores = 2};
  for (const size_t bytes : {size_t{32} << 10, size_t{1} << 20}) {
    host.crowd.push_back(
        {.algorithm = "pairwise_all_to_all", .nranks = 8, .size_bytes = bytes, .us = 1e6});
  }
  const auto json = format_messages(host, links);
  SimOptions options;
  options.nranks = options.ranks_per_node = 8;
  options.calibration =
      parse_sim_calibration(nlohmann::ordered_json{{"messages", json}}.dump()).value();
  for (const SharedCall& call : host.crowd) {
    const auto row =
        simulate_call(options, *find_algorithm(call.algorithm), call.size_bytes, nullptr);
    EXPECT_NEAR(row.value().result.time_us, call.us, 0.1 * call.us);
  }
}

TEST(TuneMessages, GivesNoCostBelowZero) {
  MessageTimes noisy = times_of(kSend, kRecv, 0);
  noisy.sum[kChunkBytes] = 0.01;
  noisy.exchange_out[1024] = 0.01;
  noisy.broadcast[1024] = 100;
  noisy.ring_one_chunk = noisy.halving_two_chunks = 5;
  const auto json = format_messages(
      {
          .cores = 2,
          .shared = {{.algorithm = "ring_all_reduce",
                      .nranks = 4,
                      .size_bytes = kSmallBytes,
                      .us = 0.001}},
      },
      {{"host", 4096, noisy}});
  EXPECT_EQ(json["turn_us"], 0);
  const auto& link = json["links"]["host"];
  EXPECT_GE(link["call_us"].get<double>(), 0);
  EXPECT_GE(link["early_us"].get<double>(), 0);
  for (const char* const key :
       {"send_us", "recv_us", "combine_us", "combine_apart_us", "copy_us"}) {
    for (const auto& each : link[key]) {
      EXPECT_GE(each.get<double>(), 0) << key;
    }
  }
}

}  // namespace
}  // namespace plexus::tune
