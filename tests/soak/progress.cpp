// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/progress.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace plexus::soak {

void Unmap::operator()(ProcessProgress* page) const { munmap(page, sizeof(ProcessProgress)); }

ProgressPage map_progress(const std::string& path) {
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  void* page = MAP_FAILED;
  if (file >= 0 && ftruncate(file, sizeof(ProcessProgress)) == 0) {
    page = mmap(nullptr, sizeof(ProcessProgress), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  if (page == MAP_FAILED) {
    std::perror(path.c_str());
    std::exit(2);
  }
  close(file);
  return ProgressPage(static_cast<ProcessProgress*>(page));
}

int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double time_factor() {
  const char* const factor = std::getenv("PLEXUS_TEST_TIME_FACTOR");
  return factor == nullptr ? 1 : std::atof(factor);
}

const char* name_of(Phase phase) {
  constexpr const char* kNames[] = {
      "not begun", "before the call",          "in the call", "polling", "synchronizing",
      "pausing",   "waiting for the launcher", "ended"};
  return kNames[static_cast<int>(phase)];
}

}  // namespace plexus::soak
