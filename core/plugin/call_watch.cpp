// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/call_watch.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <fcntl.h>
#include <new>
#include <unistd.h>
#include <utility>

#include <fmt/chrono.h>

#include "core/base/log.hpp"
#include "guest/assert.hpp"
#include "guest/thread.hpp"

namespace plexus {
namespace {

constexpr auto kLimit = std::chrono::seconds(10);
/// The longest that a call of the data path may take, and how many are measured after one that did.
constexpr auto kQuick = std::chrono::milliseconds(1);
constexpr uint32_t kSuspectCalls = 64;

}  // namespace

CallWatcher::CallWatcher(std::chrono::milliseconds limit, Report report)
    : limit_(limit), report_(std::move(report)), pid_(getpid()) {}

CallWatcher::~CallWatcher() { stop(); }

CallWatcher& CallWatcher::of_process() {
  // Never destroyed, because destructors of other statics may still call plugins. Its thread ends
  // before the library may be unloaded.
  static auto* const watcher =  // NOLINT(cppcoreguidelines-owning-memory)
      new CallWatcher(kLimit, [](const std::string& text) { PLEXUS_WARN("{}", text); });
  struct Stop {
    ~Stop() { watcher->stop(); }
  };
  static const Stop stop;
  return *watcher;
}

void CallWatcher::stop() {
  std::thread thread;
  {
    const std::scoped_lock lock(mutex_);
    stops_ = true;
    thread.swap(thread_);
  }
  changed_.notify_all();
  if (thread.joinable() && pid_ == getpid()) {
    thread.join();
  } else if (thread.joinable()) {
    thread.detach();  // the thread belongs to the parent process
  }
}

void CallWatcher::begin(Entry& entry) noexcept {
  if (pid_ != getpid()) {
    return;
  }
  const std::scoped_lock lock(mutex_);
  PLEXUS_DCHECK(entry.next == nullptr && entry.previous == nullptr && first_ != &entry);
  entry.next = first_;
  if (first_ != nullptr) {
    first_->previous = &entry;
  }
  first_ = &entry;
  was_busy_ = true;
  if (!thread_.joinable() && !stops_) {
    try {
      thread_ = make_guest_thread([this] { serve(); });
    } catch (const std::exception&) {
      return;  // without a thread, or memory for it, calls are not watched
    }
  } else if (is_asleep_) {
    changed_.notify_one();
  }
}

void CallWatcher::end(Entry& entry) noexcept {
  if (pid_ != getpid()) {
    return;
  }
  const std::scoped_lock lock(mutex_);
  PLEXUS_DCHECK((entry.previous == nullptr ? first_ : entry.previous->next) == &entry);
  PLEXUS_DCHECK(entry.next == nullptr || entry.next->previous == &entry);
  (entry.previous == nullptr ? first_ : entry.previous->next) = entry.next;
  if (entry.next != nullptr) {
    entry.next->previous = entry.previous;
  }
}

DataPath::DataPath(std::string_view plugin) : DataPath(plugin, CallWatcher::of_process()) {}

DataPath::DataPath(std::string_view plugin, CallWatcher& watcher)
    : watcher_(watcher), plugin_(plugin) {
  if (watcher_.pid_ == getpid()) {
    const std::scoped_lock lock(watcher_.mutex_);
    watcher_.paths_.push_back(this);
  }
}

DataPath::~DataPath() {
  if (watcher_.pid_ == getpid()) {
    const std::scoped_lock lock(watcher_.mutex_);
    const size_t erased = std::erase(watcher_.paths_, this);
    PLEXUS_DCHECK(erased == 1, erased);
  }
}

DataPath::ThreadTimes DataPath::read_thread_times() noexcept {
  ThreadTimes times{.known = false, .at = Clock::now(), .on_core = {}, .without_core = {}};
  const int file = ::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    return times;
  }
  std::array<char, 96> text{};  // time on a core and without one in ns, and a count
  const ssize_t size_bytes = ::read(file, text.data(), text.size() - 1);
  ::close(file);
  long long on_core = 0;
  long long without_core = 0;
  times.known =
      size_bytes > 0 && std::sscanf(text.data(), "%lld %lld", &on_core, &without_core) == 2;
  times.on_core = std::chrono::nanoseconds(on_core);
  times.without_core = std::chrono::nanoseconds(without_core);
  return times;
}

void DataPath::begin_exactly() noexcept { began_ = read_thread_times(); }

/// A call took `ticks`.
void DataPath::suspect(uint64_t ticks) noexcept {
  constexpr uint32_t kSuspicions = 16;
  const uint64_t all_ticks = read_ticks() - made_ticks_;
  const double share = static_cast<double>(ticks) / static_cast<double>(std::max(all_ticks, ticks));
  if (share * (Clock::now() - made_) >= kQuick && suspicions_ < kSuspicions) {
    ++suspicions_;
    suspect_calls_ = kSuspectCalls;
  }
}

/// A call was measured exactly.
void DataPath::judge(const char* entry, std::string_view peer) noexcept {
  constexpr uint32_t kBlockedCalls = 3;
  constexpr auto kWork = std::chrono::milliseconds(10);  // copying a long message may take some
  --suspect_calls_;
  const ThreadTimes now = read_thread_times();
  if (!began_.known || !now.known) {
    return;
  }
  const auto on_core = now.on_core - began_.on_core;
  const auto blocked = now.at - began_.at - on_core - (now.without_core - began_.without_core);
  if (blocked < kQuick && on_core < kWork) {
    return;
  }
  suspect_calls_ = kSuspectCalls;
  if (++blocked_calls_ == kBlockedCalls) {
    suspect_calls_ = 0;
    suspicions_ = UINT32_MAX;  // no more
    tell(entry, peer, now.at - began_.at);
  }
}

void DataPath::tell(const char* entry, std::string_view peer, Clock::duration time) noexcept {
  try {
    watcher_.report_(fmt::format(
        "plugin {}: {}{}{} took {:.1f} ms, as calls before it did: it must return at once, the "
        "rank's other connections wait meanwhile (later calls are not told)",
        plugin_, entry, peer.empty() ? "" : " for ", peer,
        std::chrono::duration<double, std::milli>(time).count()));
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): a lost line is the lesser evil
  }
}

void CallWatcher::look_at_data_paths() noexcept {
  if (pid_ != getpid()) {
    return;
  }
  const std::scoped_lock lock(mutex_);
  const auto now = Clock::now();
  for (DataPath* const path : paths_) {
    const uint64_t calls = path->calls_.load(std::memory_order_relaxed);
    const bool is_inside = path->entry_.load(std::memory_order_relaxed) != nullptr;
    if (!is_inside || calls != path->seen_calls_ || path->seen_since_ == Clock::time_point{}) {
      path->seen_calls_ = calls;
      path->seen_since_ = is_inside ? now : Clock::time_point{};
    }
  }
}

/// Requires mutex_.
std::optional<CallWatcher::OngoingCall> CallWatcher::find_in_data_paths() const {
  const DataPath* found = nullptr;
  for (const DataPath* const path : paths_) {
    const bool is_same = path->seen_since_ != Clock::time_point{} &&
                         path->calls_.load(std::memory_order_relaxed) == path->seen_calls_ &&
                         path->entry_.load(std::memory_order_relaxed) != nullptr;
    if (is_same && (found == nullptr || path->seen_since_ < found->seen_since_)) {
      found = path;
    }
  }
  const char* const entry =
      found == nullptr ? nullptr : found->entry_.load(std::memory_order_relaxed);
  if (entry == nullptr) {
    return std::nullopt;
  }
  return OngoingCall{.plugin = std::string(found->plugin_),
                     .entry = entry,
                     .time = std::chrono::duration_cast<std::chrono::milliseconds>(
                         Clock::now() - found->seen_since_)};
}

std::optional<CallWatcher::OngoingCall> CallWatcher::find_longest(std::optional<pthread_t> thread) {
  if (pid_ != getpid()) {
    return std::nullopt;
  }
  const std::scoped_lock lock(mutex_);
  const Entry* found = nullptr;
  const auto is_mine = [&](const Entry& entry) { return thread == entry.thread; };
  for (const Entry* entry = first_; entry != nullptr; entry = entry->next) {
    const bool is_better = found == nullptr || (is_mine(*entry) && !is_mine(*found)) ||
                           (is_mine(*entry) == is_mine(*found) && entry->began < found->began);
    found = is_better ? entry : found;
  }
  if (found == nullptr) {
    return find_in_data_paths();
  }
  return OngoingCall{
      .plugin = std::string(found->call.plugin),
      .entry = found->call.entry,
      .time = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - found->began)};
}

/// Connecting calls a plugin again and again, and waking this thread for each call would cost more
/// than the call. The thread therefore polls while there are calls, and sleeps afterwards.
void CallWatcher::serve() {
  std::unique_lock lock(mutex_);
  while (!stops_) {
    if (std::exchange(was_busy_, first_ != nullptr)) {
      changed_.wait_for(lock, limit_ / 4, [this] { return stops_; });
      tell_of_long_calls();
    } else {
      is_asleep_ = true;
      changed_.wait(lock, [this] { return stops_ || was_busy_; });
      is_asleep_ = false;
    }
  }
}

void CallWatcher::tell_of_long_calls() {
  const auto now = Clock::now();
  for (Entry* entry = first_; entry != nullptr; entry = entry->next) {
    if (entry->is_reported || now - entry->began < limit_) {
      continue;
    }
    entry->is_reported = true;
    const auto& [plugin, name, peer] = entry->call;
    try {
      report_(
          fmt::format("plugin {}: {}{}{} has not returned for {}: the job is waiting for it",
                      plugin, name, peer.empty() ? "" : " for ", peer,
                      std::chrono::duration_cast<std::chrono::milliseconds>(now - entry->began)));
    } catch (const std::bad_alloc&) {
      entry->is_reported = false;  // later
    }
  }
}

}  // namespace plexus
