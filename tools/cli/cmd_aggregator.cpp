// SPDX-License-Identifier: Apache-2.0
// `plexus aggregator`: the TCP server of plugins/collnet-aggregator, which sums what the hosts of a
// job send, like a switch that reduces. Serves until SIGINT or SIGTERM.
#include <atomic>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include "plugins/collnet-aggregator/server.hpp"
#include "tools/cli/commands.hpp"

namespace plexus {
namespace {

/// For the signal handler, which has no parameter for it.
std::atomic<aggregator::Server*>& running() {
  static std::atomic<aggregator::Server*> server{nullptr};
  return server;
}

void stop_server(int /*signal*/) {
  if (aggregator::Server* const server = running().load(); server != nullptr) {
    server->stop();
  }
}

int run_aggregator(const std::string& text) {
  const auto address = aggregator::parse_address(text);
  if (address.has_error()) {
    return report_error(fail(Code::kInvalidArgument, "--listen: {}", address.error().text),
                        kExitUsage);
  }
  auto listener = aggregator::listen_at(address.value());
  if (listener.has_error()) {
    return report_error(fail(Code::kSystemError, "{}", listener.error().text), kExitWrong);
  }
  aggregator::Server server(std::move(listener.value().fd), [](const std::string& line) {
    fmt::print(stderr, "plexus aggregator: {}\n", line);
  });
  running() = &server;
  (void)std::signal(SIGINT, stop_server);
  (void)std::signal(SIGTERM, stop_server);
  fmt::print("listening at {}\n", listener.value().address.to_string());
  (void)std::fflush(stdout);
  server.run();
  running() = nullptr;
  return kExitOk;
}

}  // namespace

Command add_aggregator_command(CLI::App& program) {
  CLI::App* app = program.add_subcommand(
      "aggregator", "Serve reductions over TCP, for the collnet plugin `aggregator`");
  const auto listen = std::make_shared<std::string>();
  app->add_option("--listen", *listen, "HOST:PORT or [IPV6]:PORT; port 0: any, it is printed")
      ->type_name("VALUE")
      ->required();
  return {app, [listen] { return run_aggregator(*listen); }};
}

}  // namespace plexus
