// SPDX-License-Identifier: Apache-2.0
// The port of NCCL's RAS protocol. Every process has one thread that serves it; processes of one
// user share the port of a host, and the system chooses who answers, for the whole job.
//
//   request:  lines, e.g. "SET FORMAT json\nSTATUS\n" (ras_command.hpp)
//   answer:   a line each; to STATUS and DIAGNOSTICS a report, and then the connection is closed
//
// Only loopback addresses are listened on, because the protocol has neither secret nor encryption.
//
//   server.start(config);  // `echo STATUS | nc localhost 28028` then answers
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <poll.h>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.hpp"
#include "core/base/config.hpp"
#include "core/os/socket.hpp"
#include "core/ras/ras_command.hpp"
#include "core/stall/stall_watch.hpp"

namespace plexus {

/// Lives as long as the process, as its thread does. Threads: any for start().
class RasServer {
 public:
  explicit RasServer(StallWatch& watch) : watch_(watch) {}
  RasServer(const RasServer&) = delete;
  RasServer& operator=(const RasServer&) = delete;

  /// The first call listens and starts the thread. If it cannot, calls go on without, and the log
  /// says so.
  void start(const Config& config);

 private:
  using TimePoint = Clock::time_point;
  using Text = std::shared_ptr<const std::string>;  // shared by the clients that it goes to

  struct Client {
    Socket socket;
    RasLines lines;
    TimePoint seen;   // when it last sent or took bytes
    std::string out;  // replies and events
    Text report;      // what follows them: then the connection ends
    size_t report_sent = 0;
    std::chrono::milliseconds time_max{0};  // TIMEOUT; 0: none
    bool is_json = false;
    bool monitors = false;
    bool has_lifecycle = false;
    bool has_ended = false;   // sends no more
    bool is_closing = false;  // all is sent; the other side closes
    bool is_over = false;
  };

  Result<void> listen(const Config& config);
  void serve();
  void serve_round();
  void accept_all();
  void make_room();
  void take(Client& client);
  void execute(Client& client, const RasCommand& command);
  void send(Client& client);
  void end_late();
  void tell_monitors();
  void say_once(std::string_view what);
  const JobRoll& roll(const Client& client);
  Text make_report(Client& client, bool is_verbose);
  Text make_diagnostics(Client& client);

  StallWatch& watch_;
  std::once_flag once_;
  // used by the thread alone, once it runs
  std::vector<Socket> listeners_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<pollfd> polled_;         // by serve_round(), which is the only one to use it
  std::chrono::milliseconds time_{0};  // for the answers of all processes
  std::optional<JobRoll> roll_;        // the last roll call
  TimePoint rolled_;                   // when it ended
  std::map<std::pair<bool, bool>, Text> reports_;          // of `roll_`: by is_json and is_verbose
  std::map<std::pair<std::string, int32_t>, bool> known_;  // host, pid -> dead; for monitors
  TimePoint looked_;                                       // for them
  bool has_logged_ = false;
};

}  // namespace plexus
