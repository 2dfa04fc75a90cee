// SPDX-License-Identifier: Apache-2.0
// `plexus top`: a running job, again and again, as the port of NCCL's RAS protocol tells it.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <sys/ioctl.h>
#include <thread>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include "core/base/clock.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/ras_client.hpp"
#include "tools/cli/top.hpp"

namespace plexus {
namespace {

struct TopOptions {
  std::string ras = "localhost:28028";
  bool once = false;
  bool as_json = false;
  double every = 1;
};

/// The size of the terminal, or of an old one.
winsize find_size() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) {
    size = {.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
  }
  return size;
}

/// Overwrites what is there instead of clearing it first, so that nothing flickers.
void show(const std::string& top) {
  const winsize size = find_size();
  std::string text = draw_top(top, size.ws_col, size.ws_row - 1U);
  if (isatty(STDOUT_FILENO) != 0) {
    std::string drawn = "\x1b[H";
    for (const char c : text) {
      drawn += c == '\n' ? "\x1b[K\n" : std::string(1, c);
    }
    text = drawn + "\x1b[J";
  }
  fmt::print("{}", text);
  (void)std::fflush(stdout);
}

int run_top(const TopOptions& options) {
  std::string before;
  Clock::time_point asked;
  for (;;) {
    const auto now = Clock::now();
    const auto report = ask_ras(options.ras, true, false);
    if (report.has_error()) {
      return report_error(report.error(), kExitWrong);
    }
    const auto top =
        make_top(before, report.value(), std::chrono::duration<double>(now - asked).count());
    if (top.has_error()) {
      return report_error(top.error(), kExitWrong);
    }
    if (!options.once || !before.empty()) {  // a rate takes two
      if (options.as_json) {
        fmt::print("{}", top.value());
        (void)std::fflush(stdout);
      } else {
        show(top.value());
      }
    }
    if (options.once && !before.empty()) {
      return kExitOk;
    }
    before = report.value();
    asked = now;
    std::this_thread::sleep_for(std::chrono::duration<double>(options.every));
  }
}

}  // namespace

Command add_top_command(CLI::App& program) {
  CLI::App* app = program.add_subcommand(
      "top", "Show a running job again and again: its calls, their rate, who waits for whom");
  const auto options = std::make_shared<TopOptions>();
  app->add_option("--ras", options->ras,
                  "HOST:PORT where a process of the job answers NCCL's RAS protocol")
      ->capture_default_str();
  app->add_flag("--once", options->once, "Once, and end");
  app->add_flag("--json", options->as_json, "Each time a line of JSON");
  constexpr double kEveryMin = 0.1;
  constexpr double kEveryMax = 3600;
  app->add_option("--every", options->every, "Seconds from one time to the next")
      ->check(CLI::Range(kEveryMin, kEveryMax))
      ->capture_default_str();
  return {app, [options] { return run_top(*options); }};
}

}  // namespace plexus
