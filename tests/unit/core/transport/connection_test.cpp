// SPDX-License-Identifier: Apache-2.0
// A receiving end whose call has failed, and whose sender writes to the call's output.
#include "core/transport/connection.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include <gtest/gtest.h>

namespace plexus {
namespace {

class End final : public RecvEnd {
 public:
  explicit End(Fifo* fifo) : RecvEnd({.key = {.peer = 1, .sends = false, .index = 0}}) {
    offer(RecvConnection(fifo, nullptr, {.peer = 1, .reach = Reach::kProcess}));
  }

 private:
  Result<bool> try_connect() override { return true; }
  [[nodiscard]] std::string route() const override { return "test"; }
};

TEST(RecvEnd, WaitsForWhoWritesToTheOutputOfACallThatFailed) {
  std::array<std::byte, 64> output{};
  const auto fifo = std::make_unique<Fifo>();
  End end(fifo.get());
  SendConnection sends(fifo.get(), nullptr, {.peer = 0, .reach = Reach::kProcess});
  end.connection().open_output(output.data(), output.size(), {});
  std::byte* const place = sends.try_begin_write(0, 1);
  ASSERT_EQ(place, output.data());

  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  std::byte seen{};
  Clock::duration waited{};
  std::thread receiver([&] {
    end.revoke();
    seen = output[0];
    waited = Clock::now() - begin;
  });
  while (fifo->output.size_bytes.load() != 0) {  // until the receiver waits
    std::this_thread::yield();
  }
  for (int i = 0; i < 20; ++i) {  // in which a receiver that did not wait would have ended
    std::this_thread::yield();
  }
  *place = std::byte{42};
  sends.commit_written(0, 1, 0);
  receiver.join();
  EXPECT_TRUE(seen == std::byte{42} || waited >= std::chrono::seconds(1)) << "it did not wait";
  EXPECT_EQ(sends.try_begin_write(0, 1), nullptr);
}

}  // namespace
}  // namespace plexus
