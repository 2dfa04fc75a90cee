// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-jail/cell.hpp"

#include <algorithm>
#include <csignal>
#include <dlfcn.h>
#include <fcntl.h>
#include <numeric>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "plugins/support/descriptors.hpp"
#include "plugins/support/number_setting.hpp"

namespace plexus::net_jail {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kLookEvery{1};
constexpr long kNapNanoseconds = 5'000'000;
/// Functions that may take long may take so many times the limit.
constexpr int kLong = 6;
constexpr uint64_t kDataBytesMax = uint64_t{1} << 62;

bool may_take_long(uint32_t entry) {
  switch (static_cast<Entry>(entry)) {
    case Entry::kLoad:
    case Entry::kInit:
    case Entry::kFinalize:
    case Entry::kRegisterSend:
    case Entry::kRegisterRecv:
    case Entry::kDeregister:
      return true;
    default:
      return false;
  }
}

/// The program beside this library.
std::string find_program() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&plexus_plugin_query), &info) == 0 ||
      info.dli_fname == nullptr) {
    return {};
  }
  const std::string file = info.dli_fname;
  return file.substr(0, file.rfind('/') + 1) + "plexus-jail";
}

plugin::UniqueFd open_memory(uint64_t size_bytes) {
  auto fd = plugin::UniqueFd::open([] { return ::memfd_create("plexus-jail", MFD_CLOEXEC); });
  if (fd.is_open() && ::ftruncate(fd.get(), static_cast<off_t>(size_bytes)) != 0) {
    fd.reset();
  }
  return fd;
}

/// How a process ended, of waitid.
std::string describe_end(const siginfo_t& info) {
  if (info.si_code == CLD_EXITED) {
    return fmt::format("ended the process with exit code {}", info.si_status);
  }
  const char* const name = ::sigabbrev_np(info.si_status);
  return fmt::format("was ended by signal {} (SIG{})", info.si_status,
                     name == nullptr ? "?" : name);
}

}  // namespace

Mapping::~Mapping() {
  if (begin_ != nullptr) {
    ::munmap(begin_, size_bytes_);
  }
}

Result<std::unique_ptr<Cell>> Cell::start(const Log& log,
                                          const plugin::SettingReader& read,
                                          std::string plugin_name) {
  std::unique_ptr<Cell> cell(new Cell(log, read, std::move(plugin_name)));
  std::vector<std::string> limited;
  constexpr plugin::NumberRange kRange = {.initial = 10'000, .least = 10, .most = 3'600'000};
  PLEXUS_TRY(limit, plugin::read_number(read, "PLEXUS_JAIL_TIMEOUT_MS", kRange, limited));
  log.warn_each(limited);
  cell->limit_ = milliseconds(limit);
  const std::string program = find_program();
  if (::access(program.c_str(), X_OK) != 0) {
    return fail(PLEXUS_SYSTEM_ERROR,
                "net-jail cannot run its helper {}: {}; install it beside libplexus-net-jail.so, "
                "or leave isolate=1 out",
                program, plugin::errno_text());
  }
  PLEXUS_TRY(cell->open_segments());
  PLEXUS_TRY(cell->spawn(program));
  return cell;
}

Result<void> Cell::open_segments() {
  words_fd_ = open_memory(sizeof(Words));
  data_fd_ = open_memory(kPageBytes);
  void* const mapped =
      words_fd_.is_open() && data_fd_.is_open()
          ? ::mmap(nullptr, sizeof(Words), PROT_READ | PROT_WRITE, MAP_SHARED, words_fd_.get(), 0)
          : MAP_FAILED;
  if (mapped == MAP_FAILED) {
    return fail(PLEXUS_SYSTEM_ERROR, "net-jail cannot make shared memory: {}",
                plugin::refused_descriptor_text());
  }
  words_ = Mapping(mapped, sizeof(Words));
  data_bytes_ = kPageBytes;
  free_.resize(kRequestsMax);
  std::iota(free_.rbegin(), free_.rend(), 0u);
  return ok();
}

Result<void> Cell::spawn(const std::string& program) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawnattr_init(&attributes);
  // Above all numbers that are given here, so that none is overwritten before it is copied.
  constexpr int kAbove = 16;
  const auto words =
      plugin::UniqueFd::open([&] { return ::fcntl(words_fd_.get(), F_DUPFD_CLOEXEC, kAbove); });
  const auto data =
      plugin::UniqueFd::open([&] { return ::fcntl(data_fd_.get(), F_DUPFD_CLOEXEC, kAbove); });
  ::posix_spawn_file_actions_adddup2(&files, words.get(), kWordsFd);
  ::posix_spawn_file_actions_adddup2(&files, data.get(), kDataFd);
  // A process group of its own: a terminal's interrupt is for the program alone.
  sigset_t none;
  sigset_t all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  ::posix_spawnattr_setflags(
      &attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  std::string parent = std::to_string(::getpid());
  std::string path = program;
  std::array<char*, 4> arguments = {path.data(), parent.data(), name_.data(), nullptr};
  const int error =
      words.is_open() && data.is_open()
          ? ::posix_spawn(&pid_, program.c_str(), &files, &attributes, arguments.data(), ::environ)
          : EMFILE;
  ::posix_spawn_file_actions_destroy(&files);
  ::posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    pid_ = -1;
    return fail(PLEXUS_SYSTEM_ERROR, "net-jail cannot start its helper {}: {}", program,
                plugin::refused_descriptor_text(error));
  }
  pidfd_ =
      plugin::UniqueFd::open([&] { return static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)); });
  seen_at_ = Clock::now();
  if (!pidfd_.is_open()) {
    const std::string why = plugin::refused_descriptor_text();
    return fail(PLEXUS_SYSTEM_ERROR, "net-jail cannot watch its helper: {}", why);
  }
  return ok();
}

Cell::~Cell() {
  if (pid_ < 0 || forks_ != plugin::OpenFds::forks()) {
    return;  // a child made by fork has no helper
  }
  pass_lines();
  if (!has_ended()) {
    kill_helper();
  }
}

void Cell::kill_helper() const {
  ::kill(pid_, SIGKILL);
  siginfo_t info{};
  ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED);
}

bool Cell::begin() {
  if (forks_ == plugin::OpenFds::forks()) {
    return true;
  }
  const std::scoped_lock lock(state_);
  reason_ = "net-jail: this process was made by fork, and the helper is its parent's";
  has_ended_.store(true, std::memory_order_release);
  return false;
}

void Cell::ring() {
  Words& shared = words();
  shared.bell.fetch_add(1);
  if (shared.is_asleep.exchange(0) != 0) {
    wake(shared.bell);
  }
}

int32_t Cell::finish(Entry entry) {
  Words& shared = words();
  Call& call = shared.call;
  call.entry = entry;
  {
    const std::scoped_lock lock(state_);
    seen_at_ = Clock::now();
  }
  call.state.store(kPosted);
  ring();
  Spin spin;
  for (uint32_t state = call.state.load(); state != kDone; state = call.state.load()) {
    if (state == kIdle || state > kDone) {
      return end_for(entry, "wrote over what its process shares with the host");
    }
    if (state == kAsks) {
      answer_setting();
      spin.restart();
    } else if (!spin.turn()) {
      call.is_awaited.store(1);
      sleep_on(call.state, state, kNapNanoseconds);
      call.is_awaited.store(0);
      look();
      if (has_ended() && call.state.load() != kDone) {
        pass_lines();
        return refuse();
      }
    }
  }
  pass_lines();
  const int32_t code = call.code;
  if (code != PLEXUS_OK && code != PLEXUS_AGAIN) {
    if (const std::string text = read_text(call.text); !text.empty()) {
      log_.error(text.c_str());
    }
    return code < PLEXUS_OK || code > PLEXUS_TIMEOUT ? PLEXUS_INTERNAL_ERROR : code;
  }
  return code;
}

void Cell::answer_setting() {
  Call& call = words().call;
  const char* const value = read_(read_text(call.text).c_str());
  const std::string_view text = value == nullptr ? "" : value;
  call.has_text = value == nullptr ? 0 : 1;
  if (text.size() >= kTextBytes) {
    log_.warn("net-jail: the value of {} is cut to {} characters", read_text(call.text),
              kTextBytes - 1);
  }
  write_text(call.text, text);
  call.state.store(kAnswered);
  wake(call.state);
}

void Cell::pass_lines() {
  Words& shared = words();
  for (uint32_t read = shared.lines_read.load(), written = shared.lines_written.load();
       read != written && written - read <= kLinesMax; ++read) {
    const Line& line = shared.lines[read % kLinesMax];
    const std::string text = read_text(line.text);
    if (line.level <= PLEXUS_LOG_WARN) {
      log_.warn("{}", text);
    } else {
      log_.info("{}", text);
    }
    shared.lines_read.store(read + 1);
  }
}

int32_t Cell::refuse() {
  const std::scoped_lock lock(state_);
  log_.error(reason_.c_str());
  return PLEXUS_SYSTEM_ERROR;
}

std::string Cell::find_end() {
  pollfd ended = {.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
  if (::poll(&ended, 1, 0) != 1) {
    return {};
  }
  siginfo_t info{};
  constexpr auto kByPidfd = static_cast<idtype_t>(3);  // P_PIDFD
  const bool is_ours =
      ::waitid(kByPidfd, static_cast<id_t>(pidfd_.get()), &info, WEXITED | WNOHANG) == 0 &&
      info.si_pid == pid_;
  return is_ours ? describe_end(info) : "ended (the program has taken its exit code)";
}

void Cell::end(const std::string& why, uint32_t entry) {
  reason_ = fmt::format(
      "net-jail: net plugin {} {} in {}; its network is lost to this communicator: tell its "
      "vendor, or use another network (NCCL_NET_PLUGIN)",
      name_, why, name_of(entry));
  has_ended_.store(true, std::memory_order_release);
  // Also where it is no call's error: of what returns nothing, or when a peer's comes first.
  log_.warn("{}", reason_);
}

void Cell::look() {
  const std::unique_lock lock(state_, std::try_to_lock);
  if (!lock.owns_lock() || has_ended() || forks_ != plugin::OpenFds::forks()) {
    return;
  }
  Words& shared = words();
  const uint32_t entry = shared.entry.load();
  if (const std::string why = find_end(); !why.empty()) {
    end(why, shared.entry.load());
    return;
  }
  const auto now = Clock::now();
  const uint64_t entered = shared.entered.load();
  const uint32_t state = shared.call.state.load();
  const bool is_idle = entry == 0 && (state == kIdle || state == kDone);
  if (entered != seen_entered_ || is_idle) {
    seen_entered_ = entered;
    seen_at_ = now;
    return;
  }
  const auto limit = limit_ * (may_take_long(entry) ? kLong : 1);
  if (now - seen_at_ > limit) {
    kill_helper();
    end(fmt::format("did not return within {} ms (PLEXUS_JAIL_TIMEOUT_MS is {}) and was killed",
                    limit.count(), limit_.count()),
        entry);
  }
}

int32_t Cell::end_for(Entry entry, const std::string& what) {
  {
    const std::scoped_lock lock(state_);
    if (!has_ended()) {
      kill_helper();
      end(what, static_cast<uint32_t>(entry));
    }
  }
  return refuse();
}

int32_t Cell::wait_on(uint32_t index) {
  if (has_ended() || !begin()) {
    return request(index).state.load() == kDone ? PLEXUS_AGAIN : refuse();
  }
  if (words().is_asleep.load() != 0) {
    ring();
  }
  ::sched_yield();  // the helper may need this core
  const int64_t now = Clock::now().time_since_epoch().count();
  if (now - looked_at_.load(std::memory_order_relaxed) > Clock::duration(kLookEvery).count()) {
    looked_at_.store(now, std::memory_order_relaxed);
    look();
  }
  return PLEXUS_AGAIN;
}

uint32_t Cell::take_request() {
  const std::scoped_lock lock(state_);
  if (free_.empty()) {
    return kRequestsMax;
  }
  const uint32_t index = free_.back();
  free_.pop_back();
  words().requests[index].state.store(kPosted);
  return index;
}

void Cell::give_back_request(uint32_t index) {
  const std::scoped_lock lock(state_);
  free_.push_back(index);
}

Result<Copy> Cell::make_copy(uint64_t size_bytes) {
  uint64_t place = 0;
  const uint64_t mapped_bytes = size_bytes < kDataBytesMax ? page_bytes(size_bytes) : 0;
  {
    const std::scoped_lock lock(state_);
    place = data_bytes_;
    const bool fits = mapped_bytes != 0 && place + mapped_bytes < kDataBytesMax &&
                      ::ftruncate(data_fd_.get(), static_cast<off_t>(place + mapped_bytes)) == 0;
    if (!fits) {
      return fail(PLEXUS_SYSTEM_ERROR, "net-jail cannot share {} bytes with its helper",
                  size_bytes);
    }
    data_bytes_ = place + mapped_bytes;
  }
  void* const mapped = ::mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                              data_fd_.get(), static_cast<off_t>(place));
  if (mapped == MAP_FAILED) {
    return fail(PLEXUS_SYSTEM_ERROR, "net-jail cannot map {} bytes: {}", size_bytes,
                plugin::errno_text());
  }
  return Copy{Mapping(mapped, mapped_bytes), place, size_bytes};
}

void Cell::drop_copy(Copy& copy) {
  if (forks_ == plugin::OpenFds::forks()) {  // the child's descriptor is closed
    (void)::fallocate(data_fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                      static_cast<off_t>(copy.place_bytes),
                      static_cast<off_t>(page_bytes(copy.size_bytes)));
  }
}

}  // namespace plexus::net_jail
