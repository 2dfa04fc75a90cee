// SPDX-License-Identifier: Apache-2.0
// A rank, a connection end and a kernel for tests of the engine, which do what the test says.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/engine/execution.hpp"

namespace plexus {

class FakeRank final : public RankState {
 public:
  std::vector<std::string> failures;  // texts of the errors that the rank was told

  [[nodiscard]] Error stop_reason() const override {
    return plexus::fail(Code::kRemoteError, "{}",
                        failures.empty() ? "rank 1 died" : failures.front());
  }
  void fail(const Error& error) override {
    failures.emplace_back(error.message());
    stop = true;
  }
  void fail_for_memory() noexcept override { stop = true; }
  void on_stalled(Standstill /*standstill*/) override {}
  void on_moved() override {}
};

/// An end that connects when the test says so, and has nothing to drain.
class FakeEnd final : public ConnectionEnd {
 public:
  explicit FakeEnd(int peer)
      : ConnectionEnd({.key = {.peer = peer, .sends = false, .index = 0}, .peer_name = "a peer"}) {}

  std::function<Result<bool>()> connect = [] { return true; };
  int calls = 0;  // of try_connect

 private:
  Result<bool> try_connect() override {
    ++calls;
    return connect();
  }
  [[nodiscard]] std::string route() const override { return "a fake"; }
};

class FakeKernel final : public RemoteWork {
 public:
  std::function<Result<bool>()> run = [] { return true; };
  int polls = 0;

  Result<bool> poll() noexcept override {
    ++polls;
    return run();
  }
  uint64_t take_begun() noexcept override { return std::exchange(begun_, 0); }
  [[nodiscard]] const CallRecord& call() const noexcept override { return call_; }

 private:
  uint64_t begun_ = 1;
  CallRecord call_{};
};

}  // namespace plexus
