// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/tune/stage.hpp"

#include <chrono>
#include <csignal>
#include <utility>

#include <fmt/core.h>

namespace plexus::tune {
namespace {

using Seconds = std::chrono::duration<double>;

volatile std::sig_atomic_t signalled = 0;

void note_signal(int number) {
  signalled = 1;
  (void)std::signal(number, SIG_DFL);
}

}  // namespace

void end_measurements_on_signals() {
  (void)std::signal(SIGINT, note_signal);
  (void)std::signal(SIGTERM, note_signal);
}

bool measurements_ended() { return signalled != 0; }

Stage::Stage(std::string name, Deadline deadline)
    : name_(std::move(name)), start_(Clock::now()), deadline_(deadline), printed_(start_) {}

bool Stage::is_ahead(size_t done, size_t all) const {
  const Seconds used = Clock::now() - start_;
  const Seconds time = deadline_.time() - start_;
  return used.count() * static_cast<double>(all) <= time.count() * static_cast<double>(done + 1);
}

void Stage::report(size_t done, size_t all) {
  constexpr auto kEvery = std::chrono::seconds(2);
  const auto now = Clock::now();
  if (now - printed_ < kEvery) {
    return;
  }
  printed_ = now;
  const Seconds used = now - start_;
  const Seconds time = deadline_.time() - start_;
  const bool has_end = deadline_.time() != Clock::time_point::max();
  fmt::print(stderr, "plexus tune: {}: {} of {} measurements, {:.0f} s{}\n", name_, done, all,
             used.count(), has_end ? fmt::format(" of {:.0f} s", time.count()) : "");
}

}  // namespace plexus::tune
