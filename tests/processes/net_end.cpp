// SPDX-License-Identifier: Apache-2.0
// One end of one connection of a net plugin, without a communicator, for network_test.py:
//   net_end LIBRARY send HANDLE | net_end LIBRARY recv
// The receiving end prints its handle. Then each end reads numbers from stdin, moves as many
// messages, prints `moved N`, or `error: REASON` and ends.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "core/base/result.hpp"
#include "core/plugin/net_plugin.hpp"

namespace plexus {
namespace {

constexpr size_t kMessageBytes = size_t{1} << 20;

/// How long one message, or connecting, may take. Longer than any time limit under test.
std::chrono::duration<double> patience() {
  constexpr double kSeconds = 60;
  const char* const factor = std::getenv("PLEXUS_TEST_TIME_FACTOR");
  return std::chrono::duration<double>(kSeconds * (factor == nullptr ? 1 : std::atof(factor)));
}

Error overdue() {
  return fail(Code::kTimeout, "nothing has happened for longer than the test waits");
}

template <class Step>
Result<void> repeat(const Step& step) {
  const auto began = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - began < patience()) {
    PLEXUS_TRY(is_done, step());
    if (is_done) {
      return ok();
    }
  }
  return overdue();
}

/// Starts with `start(NetRequest**)` what `end` then tests until it is done.
template <class End, class Start>
Result<void> move(End& end, const char* call, const Start& start) {
  NetRequest* request = nullptr;
  uint64_t size_bytes = 0;
  return repeat([&]() -> Result<bool> {
    const bool is_started = request != nullptr;
    const NetStatus status = is_started ? end.test(request, &size_bytes) : start(&request);
    if (status != NetStatus::kOk && status != NetStatus::kAgain) {
      return end.explain(is_started ? "test" : call, status);
    }
    return is_started && status == NetStatus::kOk;
  });
}

template <class MoveOne>
Result<void> serve(const MoveOne& move_one) {
  std::cout << "connected" << std::endl;
  for (uint64_t count = 0; std::cin >> count;) {
    for (uint64_t i = 0; i < count; ++i) {
      PLEXUS_TRY(move_one());
    }
    std::cout << "moved " << count << std::endl;
  }
  return ok();
}

Result<void> send_all(const NetContext& context, const std::string& hex) {
  NetHandle handle{};
  for (size_t i = 0; i < sizeof handle.bytes; ++i) {
    constexpr int kHexadecimal = 16;
    handle.bytes[i] = static_cast<uint8_t>(std::stoul(hex.substr(2 * i, 2), nullptr, kHexadecimal));
  }
  NetSend send = context.connect(0, handle);
  PLEXUS_TRY(repeat([&]() -> Result<bool> {
    PLEXUS_TRY(progress, send.try_connect());
    return progress == NetProgress::kDone;
  }));
  const std::vector<std::byte> message(kMessageBytes);
  return serve([&] {
    return move(send, "isend",
                [&](NetRequest** request) { return send.isend(message, 0, nullptr, request); });
  });
}

Result<void> recv_all(const NetContext& context) {
  PLEXUS_TRY(listen, context.listen(0));
  for (const uint8_t byte : listen.handle().bytes) {
    std::cout << fmt::format("{:02x}", byte);
  }
  std::cout << std::endl;
  NetRecv recv = listen.accept();
  PLEXUS_TRY(repeat([&]() -> Result<bool> {
    PLEXUS_TRY(progress, recv.try_accept());
    return progress == NetProgress::kDone;
  }));
  std::vector<std::byte> room(kMessageBytes);
  const NetBuffer buffer{room.data(), room.size(), nullptr, 0, 0};
  return serve([&] {
    return move(recv, "irecv", [&](NetRequest** request) {
      return recv.irecv({&buffer, 1}, request);
    });
  });
}

Result<void> run(const std::vector<std::string>& arguments) {
  PLEXUS_TRY(plugin, NetPlugin::load(arguments[1]));
  PLEXUS_TRY(context, NetContext::create(plugin, {.comm_id = 1, .traffic_class = -1, .log = {}}));
  return arguments[2] == "send" ? send_all(context, arguments[3]) : recv_all(context);
}

}  // namespace
}  // namespace plexus

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv, argv + argc);
  if (argc < 3 || (arguments[2] == "send" && argc != 4)) {
    std::cerr << "usage: net_end LIBRARY send HANDLE | net_end LIBRARY recv\n";
    return 2;
  }
  const auto done = plexus::run(arguments);
  if (done.has_error()) {
    std::cout << "error: " << done.error().message() << std::endl;
    return 1;
  }
}
