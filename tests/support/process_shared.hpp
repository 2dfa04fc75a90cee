// SPDX-License-Identifier: Apache-2.0
// What a process shares with the children that it forks: an object, and barriers in it.
#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <pthread.h>
#include <sys/mman.h>

namespace plexus::testing_process {

/// Meets `count` threads of any processes that share its memory. Lives until the last of them ends.
class ProcessBarrier {
 public:
  /// To be called once, before anybody waits.
  void open(size_t count) {
    pthread_barrierattr_t attributes;
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&barrier_, &attributes, static_cast<unsigned>(count));
    pthread_barrierattr_destroy(&attributes);
  }
  void wait() { pthread_barrier_wait(&barrier_); }

 private:
  pthread_barrier_t barrier_;
};

/// Stays until the last process that has it ends.
template <class Object>
Object& make_shared_object() {
  void* const memory =
      mmap(nullptr, sizeof(Object), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("mmap");
    std::exit(2);
  }
  return *new (memory) Object;
}

}  // namespace plexus::testing_process
