// SPDX-License-Identifier: Apache-2.0
// One rank's membership in a family (the ranks that joined with one unique id): its connection to
// the hub and the messages that arrived on it, shared by the rank's communicators.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.hpp"
#include "core/bootstrap/message.hpp"

namespace plexus {

/// Threads: any. Lock order: the hub's lock before mutex_, so nothing is sent under mutex_.
class Family {
 public:
  explicit Family(std::chrono::seconds gather_time) : gather_time_(gather_time) {}
  virtual ~Family() = default;
  Family(const Family&) = delete;
  Family& operator=(const Family&) = delete;

  /// Sends a message to the hub.
  virtual Result<void> send(Message message) = 0;
  /// Called when the rank has left its last group: leaves the family.
  virtual void close() = 0;

  void open_group(uint64_t group);
  /// Leaves the group. Peers that still probe this rank receive `record` (see on_probe).
  void leave_group(uint64_t group, std::string record);
  void stop_group(uint64_t group);
  Result<std::vector<std::string>> wait_gathered(uint64_t group,
                                                 uint64_t number,
                                                 const std::atomic<bool>* give_up);
  std::optional<std::string> try_take(uint64_t group, uint32_t from, uint64_t tag);
  void on_failure(uint64_t group, std::function<void(const Error&)> handler);
  using ProbeHandler = std::function<void(uint32_t from, bool left, std::string payload)>;
  void on_probe(uint64_t group, ProbeHandler handler);

 protected:
  /// Takes a message from the hub.
  void deliver(Message message);
  /// The connection to the hub `hub` is lost.
  void lose_hub(const std::string& hub);

 private:
  struct Group {
    std::map<uint64_t, std::string> gathered;
    std::map<std::pair<uint32_t, uint64_t>, std::deque<std::string>> messages;
    std::optional<Error> failure;
    std::function<void(const Error&)> handler;
    ProbeHandler probe_handler;
    bool open = false;
    bool stopped = false;
  };
  void fail_group(Group& group, const Error& error);  // with mutex_ held
  Error explain_timeout(uint64_t group, uint64_t number);

  const std::chrono::seconds gather_time_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, Group> groups_;  // guarded by mutex_, as all below
  size_t groups_open_ = 0;
  bool hub_leaves_ = false;
  std::string host_ = "the process that made the unique id";
};

}  // namespace plexus
