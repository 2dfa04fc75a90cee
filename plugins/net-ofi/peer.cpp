// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-ofi/peer.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <limits>
#include <poll.h>
#include <sstream>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace plexus::net_ofi {
namespace {

using namespace std::chrono_literals;

/// Checking the peer takes a system call, so it happens at most this often.
constexpr auto kLookPause = 5ms;
/// After the peer is gone, its earlier messages are still received until none has come for this
/// long.
constexpr auto kGrace = 100ms;
/// If nothing can be sent to a peer for this long, it is dead: the provider tries to reconnect for
/// the message, and there is no answer. A busy peer still has its connection.
constexpr auto kUnreachable = 5s;
/// Limits the rate of probes to an idle peer.
constexpr auto kProbePauseMax = 60s;

uint64_t mix(uint64_t hash, std::string_view text) {
  for (const char c : text) {
    hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  }
  return hash;
}

/// Start time of a process, which distinguishes processes that had the same id. 0: unknown.
uint64_t start_time(uint32_t process_id) {
  std::ifstream file(fmt::format("/proc/{}/stat", process_id));
  std::string text;
  std::getline(file, text);
  const size_t end = text.rfind(')');  // the name before it may contain any character
  if (end == std::string::npos) {
    return 0;
  }
  constexpr int kFieldsBefore = 19;  // field 22 is the start time; the third field follows the name
  std::istringstream fields(text.substr(end + 1));
  std::string skipped;
  for (int i = 0; i < kFieldsBefore; ++i) {
    fields >> skipped;
  }
  uint64_t time = 0;
  fields >> time;
  return time;
}

/// Processes with equal ids see each other's process ids.
uint64_t read_host_id(const std::string& setting) {
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  std::string text;
  boot >> text;
  struct stat space {};
  const ino_t process_numbers = ::stat("/proc/self/ns/pid", &space) == 0 ? space.st_ino : 0;
  return mix(mix(mix(0xcbf29ce484222325, text), std::to_string(process_numbers)), setting);
}

}  // namespace

WireProcess this_process(const std::string& host_id_setting) {
  WireProcess process{};
  process.host_id = read_host_id(host_id_setting);
  process.process_id = static_cast<uint32_t>(::getpid());
  process.start_time = start_time(process.process_id);
  ::gethostname(process.host_name.data(), process.host_name.size() - 1);
  return process;
}

PeerWatch::PeerWatch(const WireProcess& here, const WireProcess& peer) {
  constexpr uint32_t kProcessMax = std::numeric_limits<pid_t>::max();
  if (peer.host_id != here.host_id || peer.process_id == here.process_id || peer.process_id == 0 ||
      peer.process_id > kProcessMax) {
    return;
  }
  process_ = plugin::UniqueFd::open([&] {
    return static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(peer.process_id), 0));
  });
  const bool is_there = process_.is_open() || errno != ESRCH;
  const uint64_t start = start_time(peer.process_id);
  had_ended_ = !is_there || (peer.start_time != 0 && start != 0 && start != peer.start_time);
}

bool PeerWatch::has_ended() const noexcept {
  if (had_ended_ || !process_.is_open()) {
    return had_ended_;
  }
  pollfd state{process_.get(), POLLIN, 0};
  return ::poll(&state, 1, 0) > 0;
}

void PeerTimer::note_event(Clock::time_point now) {
  last_event_ = now;
  pause_ = probe_time_;
  next_probe_ = now + pause_;
  refused_since_.reset();
}

bool PeerTimer::is_silent(Clock::time_point now) const noexcept {
  return now - last_event_ > kGrace;
}

bool PeerTimer::look_is_due(Clock::time_point now) noexcept {
  const bool is_due = now - last_look_ >= kLookPause;
  last_look_ = is_due ? now : last_look_;
  return is_due;
}

bool PeerTimer::note_probe(bool is_sent, Clock::time_point now) {
  if (is_sent) {
    refused_since_.reset();
    pause_ = std::min<Clock::duration>(pause_ * 2, kProbePauseMax);
    next_probe_ = now + pause_;
    return true;
  }
  refused_since_ = refused_since_.value_or(now);
  return now - *refused_since_ <= kUnreachable;
}

std::string process_text(const WireProcess& process) {
  return fmt::format("{} (process {})", readable(process.host_name), process.process_id);
}

}  // namespace plexus::net_ofi
