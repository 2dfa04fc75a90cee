// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/container.hpp"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <map>
#include <sched.h>
#include <string_view>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include "tests/support/refused_calls.hpp"

namespace plexus::soak {
namespace {

constexpr rlim_t kSmallFile = 64 * 1024;

bool write_file(const char* path, const std::string& text) {
  const int file = open(path, O_WRONLY | O_CLOEXEC);
  const bool is_written =
      file >= 0 && write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  close(file);
  return is_written;
}

/// With the same user inside as outside.
bool enter_user_namespace() {
  const uid_t user = geteuid();
  const gid_t group = getegid();
  return unshare(CLONE_NEWUSER) == 0 && write_file("/proc/self/setgroups", "deny") &&
         write_file("/proc/self/uid_map", fmt::format("{0} {0} 1", user)) &&
         write_file("/proc/self/gid_map", fmt::format("{0} {0} 1", group));
}

std::string try_container(Container container) {
  const pid_t child = fork_into(container);
  if (child == 0) {
    _exit(enter(container) ? 0 : 1);
  }
  int status = 0;
  const bool has_worked = child > 0 && waitpid(child, &status, 0) == child && status == 0;
  return has_worked ? "" : "namespaces or seccomp filters of containers cannot be made here";
}

}  // namespace

std::string why_not(Container container) {
  static std::map<Container, std::string> known;
  const auto at = known.find(container);
  return at != known.end() ? at->second
                           : known.emplace(container, try_container(container)).first->second;
}

pid_t fork_into(Container container) {
  constexpr unsigned long kFlags = SIGCHLD | CLONE_NEWPID;
  return container == Container::kProcessNamespace
             ? static_cast<pid_t>(syscall(SYS_clone, kFlags, 0, 0, 0, 0))
             : fork();
}

bool enter(Container container) {
  const rlimit small{.rlim_cur = kSmallFile, .rlim_max = kSmallFile};
  switch (container) {
    case Container::kUserNamespace:
      return enter_user_namespace();
    case Container::kNoMemfd:
      return refuse_calls({SYS_memfd_create});
    case Container::kNoAttach:
      return refuse_calls({SYS_process_vm_readv, SYS_process_vm_writev});
    case Container::kSmallFiles:
      return setrlimit(RLIMIT_FSIZE, &small) == 0;
    default:
      return true;
  }
}

bool refuse_attach_and_memfd() {
  return refuse_calls({SYS_process_vm_readv, SYS_process_vm_writev, SYS_memfd_create});
}

void close_stdio() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    close(descriptor);
  }
}

/// Uses the plain system call: the thread sanitizer takes a write to a closed descriptor for a race
/// with whoever opens and closes others of that number meanwhile, which is what is tried here.
void print_as_programs_do() {
  constexpr std::string_view kLine = "a line of the program\n";
  (void)!syscall(SYS_write, STDOUT_FILENO, kLine.data(), kLine.size());
  (void)!syscall(SYS_write, STDERR_FILENO, kLine.data(), kLine.size());
}

std::string find_in_place_of_stdio() {
  std::string found;
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    struct stat about {};
    if (fstat(descriptor, &about) == 0 && !S_ISREG(about.st_mode)) {
      std::error_code ignored;
      const auto target =
          std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", descriptor), ignored);
      found += fmt::format(" {} is {}", descriptor, target.string());
    }
  }
  return found;
}

}  // namespace plexus::soak
