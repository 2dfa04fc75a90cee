// SPDX-License-Identifier: Apache-2.0
// Two contexts of one net plugin in this process and connections between them, with which the tests
// of core/plugin and of net plugins send messages. Every wait is bounded.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "core/plugin/net_plugin.hpp"

namespace plexus::test {

/// Sets a variable for a scope.
class ScopedEnv {
 public:
  ScopedEnv(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) {
      before_ = before;
    }
    ::setenv(name, value, 1);
  }
  ~ScopedEnv() {
    if (before_) {
      ::setenv(name_, before_->c_str(), 1);
    } else {
      ::unsetenv(name_);
    }
  }
  ScopedEnv(const ScopedEnv&) = delete;
  ScopedEnv& operator=(const ScopedEnv&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

/// A file that the build made: `folder_variable` is PLEXUS_TEST_LIB_DIR or PLEXUS_TEST_EXAMPLE_DIR.
inline std::filesystem::path built_file(const char* folder_variable, const char* name) {
  const char* folder = std::getenv(folder_variable);
  return std::filesystem::path(folder == nullptr ? "." : folder) / name;
}

inline std::shared_ptr<const NetPlugin> load_plugin(const std::filesystem::path& path) {
  auto plugin = NetPlugin::load(path);
  if (plugin.has_error()) {
    ADD_FAILURE() << path << ": " << plugin.error().message();
    std::abort();  // no test is possible without it
  }
  return plugin.value();
}

inline NetContext make_context(const std::shared_ptr<const NetPlugin>& plugin, NetLog log = {}) {
  auto context =
      NetContext::create(plugin, {.comm_id = 7, .traffic_class = -1, .log = std::move(log)});
  if (context.has_error()) {
    ADD_FAILURE() << context.error().message();
    std::abort();
  }
  return std::move(context).value();
}

/// Calls `step` until it returns true. False: a timeout.
inline bool poll_until(const std::function<bool()>& step) {
  constexpr auto kBound = std::chrono::seconds(30);  // a loaded machine, under a sanitizer
  const auto deadline = std::chrono::steady_clock::now() + kBound;
  while (!step()) {
    if (std::chrono::steady_clock::now() > deadline) {
      return false;
    }
  }
  return true;
}

/// Listener, sending and receiving end, connected.
struct NetPair {
  NetListen listen;
  NetSend send;
  NetRecv recv;
};

/// Waits until both ends are connected. False: a timeout.
inline bool meet(NetSend& send, NetRecv& recv) {
  bool is_connected = false;
  bool is_accepted = false;
  return poll_until([&] {
    if (!is_connected) {
      auto progress = send.try_connect();
      EXPECT_TRUE(progress.has_value()) << progress.error().message();
      is_connected = progress.has_error() || progress.value() == NetProgress::kDone;
    }
    if (!is_accepted) {
      auto progress = recv.try_accept();
      EXPECT_TRUE(progress.has_value()) << progress.error().message();
      is_accepted = progress.has_error() || progress.value() == NetProgress::kDone;
    }
    return is_connected && is_accepted;
  });
}

inline NetPair connect_pair(const NetContext& sender, const NetContext& receiver) {
  auto listen = receiver.listen(0);
  EXPECT_TRUE(listen.has_value()) << listen.error().message();
  NetSend send = sender.connect(0, listen.value().handle());
  NetRecv recv = listen.value().accept();
  EXPECT_TRUE(meet(send, recv)) << "the connection was not made in time";
  return {std::move(listen).value(), std::move(send), std::move(recv)};
}

/// A message whose bytes depend on `seed` and position.
inline std::vector<std::byte> make_message(size_t size_bytes, unsigned seed) {
  std::vector<std::byte> data(size_bytes);
  uint32_t state = seed * 2654435761u + 1;
  for (std::byte& byte : data) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<std::byte>(state >> 24);
  }
  return data;
}

inline NetBuffer buffer_of(std::vector<std::byte>& data, int32_t tag) {
  return {data.data(), data.size(), nullptr, tag, 0};
}

/// Posts the send, repeating the call as necessary.
inline NetRequest* post_send(NetPair& pair, const std::vector<std::byte>& data, int32_t tag) {
  NetRequest* request = nullptr;
  const bool is_posted = poll_until(
      [&] { return pair.send.isend(data, tag, nullptr, &request) != NetStatus::kAgain; });
  EXPECT_TRUE(is_posted && request != nullptr);
  return request;
}

inline NetRequest* post_recv(NetPair& pair, std::span<const NetBuffer> buffers) {
  NetRequest* request = nullptr;
  EXPECT_EQ(pair.recv.irecv(buffers, &request), NetStatus::kOk);
  return request;
}

/// Tests both requests in turns until both are done.
inline void finish(NetPair& pair, NetRequest* sent, NetRequest* received, uint64_t* sizes) {
  if (sent == nullptr || received == nullptr) {
    return;  // the failure has been reported
  }
  NetStatus send_status = NetStatus::kAgain;
  NetStatus recv_status = NetStatus::kAgain;
  std::string send_error;
  std::string recv_error;
  EXPECT_TRUE(poll_until([&] {
    if (send_status == NetStatus::kAgain) {
      send_status = pair.send.test(sent, nullptr);
      send_error = pair.send.explain("test", send_status).message();
    }
    if (recv_status == NetStatus::kAgain) {
      recv_status = pair.recv.test(received, sizes);
      recv_error = pair.recv.explain("test", recv_status).message();
    }
    return send_status != NetStatus::kAgain && recv_status != NetStatus::kAgain;
  }));
  EXPECT_EQ(send_status, NetStatus::kOk) << send_error;
  EXPECT_EQ(recv_status, NetStatus::kOk) << recv_error;
}

/// Sends one message; returns what arrived in a buffer of `capacity_bytes`.
inline std::vector<std::byte> send_one(NetPair& pair,
                                       const std::vector<std::byte>& message,
                                       size_t capacity_bytes,
                                       int32_t tag = 0) {
  std::vector<std::byte> arrived(capacity_bytes);
  const NetBuffer buffer = buffer_of(arrived, tag);
  NetRequest* received = post_recv(pair, {&buffer, 1});
  NetRequest* sent = post_send(pair, message, tag);
  uint64_t size = ~uint64_t{0};
  finish(pair, sent, received, &size);
  EXPECT_EQ(size, message.size());
  arrived.resize(std::min<uint64_t>(size, arrived.size()));
  return arrived;
}

}  // namespace plexus::test
