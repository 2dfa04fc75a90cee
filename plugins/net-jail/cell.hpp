// SPDX-License-Identifier: Apache-2.0
// The helper process of one context, as its host sees it: starts it, makes calls in it, watches
// that it lives and moves, and ends it. Once it has ended, or was ended because a call took too
// long, every call fails with one sentence that names plugin, function and reason.
//
//   PLEXUS_TRY(cell, Cell::start(log, read, "socket"));
//   return cell->call(Entry::kDeviceCount, {}, [&](const Call& done) { count = done.device; });
//
// Threads: any; calls take turns. A call may be made for each connection at once, and waits.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <sys/types.h>
#include <vector>

#include "plugins/net-jail/protocol.hpp"
#include "plugins/support/log.hpp"
#include "plugins/support/result.hpp"
#include "plugins/support/settings.hpp"
#include "plugins/support/unique_fd.hpp"

namespace plexus::net_jail {

using plugin::fail;
using plugin::Log;
using plugin::ok;
using plugin::Result;
using Clock = std::chrono::steady_clock;

/// A mapping of a shared segment.
class Mapping {
 public:
  Mapping() = default;
  Mapping(void* begin, size_t size_bytes) : begin_(begin), size_bytes_(size_bytes) {}
  Mapping(Mapping&& other) noexcept
      : begin_(std::exchange(other.begin_, nullptr)), size_bytes_(other.size_bytes_) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(begin_, other.begin_);
    std::swap(size_bytes_, other.size_bytes_);
    return *this;
  }
  ~Mapping();
  [[nodiscard]] std::byte* data() const noexcept { return static_cast<std::byte*>(begin_); }

 private:
  void* begin_ = nullptr;
  size_t size_bytes_ = 0;
};

/// The copy of a registered memory, which helper and host map.
struct Copy {
  Mapping mapping;
  uint64_t place_bytes;  // in the data segment
  uint64_t size_bytes;
};

class Cell {
 public:
  static Result<std::unique_ptr<Cell>> start(const Log& log,
                                             const plugin::SettingReader& read,
                                             std::string plugin_name);
  Cell(const Cell&) = delete;
  Cell& operator=(const Cell&) = delete;
  /// Ends the helper.
  ~Cell();

  /// Calls `entry`: `fill` writes the arguments, `take` reads what it made if it is PLEXUS_OK.
  /// Failures have been logged.
  template <class Fill, class Take>
  int32_t call(Entry entry, const Fill& fill, const Take& take) {
    const std::scoped_lock lock(calls_);
    if (has_ended() || !begin()) {
      return refuse();
    }
    Call& call = words().call;
    fill(call);
    const int32_t code = finish(entry);
    if (code == PLEXUS_OK) {
      take(std::as_const(call));
    }
    return code;
  }

  /// Like call(), for an entry that makes its object at once and goes on with it in later calls.
  template <class Fill>
  int32_t call_to_make(Entry entry, const Fill& fill, uint64_t& object) {
    const std::scoped_lock lock(calls_);
    if (has_ended() || !begin()) {
      return refuse();
    }
    Call& call = words().call;
    fill(call);
    call.made = object;
    const int32_t code = finish(entry);
    object = has_ended() ? 0 : call.made;
    return code;
  }

  /// A place for a request; kRequestsMax: there is none left.
  [[nodiscard]] uint32_t take_request();
  void give_back_request(uint32_t index);
  [[nodiscard]] const Request& request(uint32_t index) const { return words().requests[index]; }
  /// For a request that is not done: wakes the helper. PLEXUS_AGAIN, or a failure.
  [[nodiscard]] int32_t wait_on(uint32_t index);

  Result<Copy> make_copy(uint64_t size_bytes);
  void drop_copy(Copy& copy);

  /// The helper wrote where it must not.
  int32_t end_for(Entry entry, const std::string& what);

 private:
  Cell(const Log& log, const plugin::SettingReader& read, std::string plugin_name)
      : log_(log), read_(read), name_(std::move(plugin_name)) {}
  Result<void> open_segments();
  Result<void> spawn(const std::string& program);
  [[nodiscard]] Words& words() const noexcept { return *reinterpret_cast<Words*>(words_.data()); }
  [[nodiscard]] bool has_ended() const noexcept {
    return has_ended_.load(std::memory_order_acquire);
  }
  bool begin();
  int32_t finish(Entry entry);
  void answer_setting();
  void pass_lines();
  void ring();
  int32_t refuse();
  /// Looks whether the helper lives and moves.
  void look();
  /// Reaps the helper if it has ended; "" : it lives.
  std::string find_end();
  void kill_helper() const;
  void end(const std::string& why, uint32_t entry);

  Log log_;
  plugin::SettingReader read_;
  std::string name_;
  std::chrono::milliseconds limit_{};
  Mapping words_;
  plugin::UniqueFd words_fd_;
  plugin::UniqueFd data_fd_;
  plugin::UniqueFd pidfd_;
  pid_t pid_ = -1;
  uint64_t forks_ = plugin::OpenFds::forks();
  std::mutex calls_;
  std::mutex state_;  // guards what follows
  std::vector<uint32_t> free_;
  uint64_t data_bytes_ = 0;
  uint64_t seen_entered_ = 0;
  Clock::time_point seen_at_;
  std::string reason_;  // constant once has_ended_
  std::atomic<bool> has_ended_{false};
  std::atomic<int64_t> looked_at_{0};  // nanoseconds of Clock
};

}  // namespace plexus::net_jail
