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

#include "core/base/config.hpp"
#include "plugins/collnet-aggregator/secret.hpp"
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

struct AggregatorOptions {
  std::string listen;
  std::string secret_file;
  bool without_secret = false;
};

/// An Error: exit code 2.
Result<security::Terms> read_terms(const AggregatorOptions& options,
                                   const aggregator::Address& address) {
  const std::string text = setting_value(security::kModeSetting).value_or("");
  const auto mode = security::parse_mode(text);
  if (!mode.has_value()) {
    return fail(Code::kInvalidArgument, "{}={} is not understood: it takes {}",
                security::kModeSetting, text, security::kModeChoices);
  }
  if (options.secret_file.empty() && !options.without_secret && !address.is_loopback()) {
    return fail(Code::kInvalidArgument,
                "--listen: without a secret, whoever reaches {} could use this server: give "
                "--secret-file FILE, and members {}, or --without-secret",
                address.to_string(), aggregator::kSecretFileSetting);
  }
  auto secret = aggregator::read_secret(options.secret_file);
  if (secret.has_error()) {
    return fail(Code::kInvalidArgument, "--secret-file: {}", secret.error().text);
  }
  return security::Terms{.mode = *mode, .key = secret.value()};
}

int run_aggregator(const AggregatorOptions& options) {
  const auto address = aggregator::parse_address(options.listen);
  if (address.has_error()) {
    return report_error(fail(Code::kInvalidArgument, "--listen: {}", address.error().text),
                        kExitUsage);
  }
  auto terms = read_terms(options, address.value());
  if (terms.has_error()) {
    return report_error(std::move(terms).error(), kExitUsage);
  }
  auto listener = aggregator::listen_at(address.value());
  if (listener.has_error()) {
    return report_error(fail(Code::kSystemError, "{}", listener.error().text), kExitWrong);
  }
  aggregator::Server server(
      std::move(listener.value().fd), terms.value(),
      [](const std::string& line) { fmt::print(stderr, "plexus aggregator: {}\n", line); });
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
  const auto options = std::make_shared<AggregatorOptions>();
  app->add_option("--listen", options->listen,
                  "HOST:PORT or [IPV6]:PORT; port 0: any, it is printed")
      ->type_name("VALUE")
      ->required();
  app->add_option("--secret-file", options->secret_file,
                  "file with the secret that members know, too")
      ->type_name("FILE")
      ->envname(aggregator::kSecretFileSetting);
  app->add_flag("--without-secret", options->without_secret,
                "serve whoever can connect, on any address");
  return {app, [options] { return run_aggregator(*options); }};
}

}  // namespace plexus
