// SPDX-License-Identifier: Apache-2.0
// A plugin's messages and their destination.
#include <algorithm>
#include <array>
#include <unistd.h>

#include "tools/conformance/check.hpp"
#include "tools/conformance/traffic.hpp"

namespace plexus::conformance {
namespace {

/// The whole life of a communicator.
Result<void> live(Fixture& fixture) {
  PLEXUS_TRY(net, Net::load(fixture));
  PLEXUS_TRY(sender, Context::open(net));
  PLEXUS_TRY(receiver, Context::open(net));
  PLEXUS_TRY(pair, connect_pair(sender, receiver));
  const std::vector<TestMessage> messages(20, TestMessage{.size_bytes = 20000});
  return deliver(pair, messages);
}

Result<void> has_one_voice(Fixture& fixture) {
  PLEXUS_TRY(live(fixture));
  return expect(::lseek(STDOUT_FILENO, 0, SEEK_END) == 0, "it wrote to stdout or stderr");
}

Result<void> is_calm_when_well(Fixture& fixture) {
  PLEXUS_TRY(live(fixture));
  for (const LogLine& line : fixture.monitor().lines()) {
    PLEXUS_TRY(expect(line.level > PLEXUS_LOG_WARN,
                      "it logged an error or a warning without a fault: {}", line.text));
  }
  return ok();
}

Result<void> finished_lines(Fixture& fixture) {
  PLEXUS_TRY(live(fixture));
  for (const LogLine& line : fixture.monitor().lines()) {
    PLEXUS_TRY(expect(line.text.find('\n') == std::string::npos, "a log line has a newline: {}",
                      line.text));
  }
  return ok();
}

Result<void> no_words_per_message(Pair& pair) {
  Monitor& monitor = pair.send.net().fixture->monitor();
  const std::vector<TestMessage> messages(50, TestMessage{.size_bytes = 100});
  PLEXUS_TRY(deliver(pair, messages));
  const size_t before = monitor.lines().size();
  PLEXUS_TRY(deliver(pair, messages));
  PLEXUS_TRY(deliver(pair, messages));
  const std::vector<LogLine> lines = monitor.lines();
  const auto loud =
      std::count_if(lines.begin() + static_cast<ptrdiff_t>(before), lines.end(),
                    [](const LogLine& line) { return line.level != PLEXUS_LOG_TRACE; });
  return expect(loud == 0, "it logged {} lines during 100 messages", loud);
}

constexpr const char* kRule = "plexus_plugin.h plexus_log_fn: writes one finished line";

constexpr std::array kChecks = {
    Check{"log.voice", "prints only through the log callback",
          "plexus_plugin.h: a plugin has no other output", has_one_voice},
    Check{"log.calm", "logs no warning or error without a fault",
          "plexus_plugin.h PLEXUS_LOG_WARN: the user should do something", is_calm_when_well},
    Check{"log.lines", "logs complete lines", kRule, finished_lines},
    Check{"log.messages", "logs nothing per message", "plexus_net.h: nothing logs on the data path",
          on_pair<no_words_per_message>},
};

}  // namespace

CheckTable log_checks() { return kChecks; }

}  // namespace plexus::conformance
