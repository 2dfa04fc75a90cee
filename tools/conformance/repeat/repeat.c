/* Performs the steps of a check, with one or two processes, and says what goes wrong first. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kObjects = 4096, kBuffers = 8, kPatienceSeconds = 10 };

/* What the processes share: a handle and the state of each listening end, and their barriers. */
static struct shared {
  struct {
    volatile int is_ready;
    char bytes[128] __attribute__((aligned(16)));
  } handles[kObjects];
  volatile int barriers[2];
} * shared;

/* A request, from its step until it is done. */
struct pending {
  const struct step* step;
  void* request;
  void* memory[kBuffers];
  unsigned char* data[kBuffers];
  int is_done;
};
static void* objects[kObjects]; /* contexts, listening, sending and receiving ends */
/* Of connects: NCCL's plugins keep their state in the handle. */
static char own_handles[kObjects][128] __attribute__((aligned(16)));
static const struct step* unfinished[kObjects]; /* connects and accepts that go on */
static char is_begun[kObjects];
static struct pending requests[kObjects];
static int request_count;
static const char* step_name;

static void fail(const char* what, long number) {
  fprintf(stderr, "FAILS at %s: %s (%ld)\n", step_name, what, number);
  _exit(1);
}
static void check(const char* call, int code) {
  if (code != 0 && code != kAgain) {
    fail(call, code);
  }
}
static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}
/* Byte number AT of message number MESSAGE. */
static unsigned char content(int message, uint64_t at) {
  return (unsigned char)((uint64_t)message * 37 + at * 11 + (at >> 8) * 5 + 1);
}

static void check_received(const struct pending* done, const uint64_t* sizes) {
  for (int i = 0; i < done->step->count; ++i) {
    const struct buffer* wanted = &done->step->buffers[i];
    if (wanted->message < 0) {
      continue; /* of which message is not known */
    }
    if (sizes[i] != wanted->message_bytes && sizes[i] != 0) {
      fail("test returns a wrong size", (long)sizes[i]);
    }
    for (uint64_t at = 0; at < wanted->bytes; ++at) {
      const int is_message = at < wanted->message_bytes;
      if (done->data[i][at] != (is_message ? content(wanted->message, at) : 0xEE)) {
        fail(is_message ? "a wrong byte at" : "a byte behind the message is changed at", (long)at);
      }
    }
  }
}

/* True: it is done now. */
static int test(struct pending* one) {
  uint64_t sizes[64] = {0};
  const int is_send = one->step->what == kSend;
  const int code = net_test(one->request, sizes);
  check("test", code);
  if (code != 0) {
    return 0;
  }
  one->is_done = 1;
  if (!is_send) {
    check_received(one, sizes);
  } else if (sizes[0] != one->step->buffers[0].bytes && sizes[0] != 0) {
    fail("test of a send returns a wrong size", (long)sizes[0]);
  }
  for (int i = 0; i < one->step->count; ++i) {
    check("deregister", net_deregister(objects[one->step->on], one->memory[i]));
  }
  return 1;
}

/* Calls everything that goes on once: connect, accept, and test of the oldest request of each end.
 */
static int progress(void) {
  int moves = 0;
  char is_tested[kObjects] = {0};
  for (int i = 0; i < kObjects; ++i) {
    const struct step* step = unfinished[i];
    if (step == NULL || (step->what == kConnect && !shared->handles[step->handle].is_ready)) {
      continue;
    }
    if (step->what == kConnect && !is_begun[i]) {
      memcpy(own_handles[i], shared->handles[step->handle].bytes, sizeof own_handles[i]);
      is_begun[i] = 1;
    }
    const int code = step->what == kConnect
                         ? net_connect(objects[step->on], step->number, own_handles[i], &objects[i])
                         : net_accept(objects[step->on], &objects[i]);
    check(step->what == kConnect ? "connect" : "accept", code);
    if (code == 0) {
      unfinished[i] = NULL;
      moves = 1;
    }
  }
  for (int i = 0; i < request_count; ++i) {
    if (!requests[i].is_done && !is_tested[requests[i].step->on]) {
      is_tested[requests[i].step->on] = 1;
      moves = test(&requests[i]) || moves;
    }
  }
  return moves;
}

/* For loops that wait: one more round, or the end of patience, which each progress renews. */
static void wait_more(const char* what, double* since) {
  if (progress()) {
    *since = now();
  } else if (now() - *since > (double)kPatienceSeconds) {
    fail(what, kPatienceSeconds);
  }
  sched_yield();
}

static void post(const struct step* step) {
  struct pending* fresh = &requests[request_count];
  const int is_send = step->what == kSend;
  uint64_t sizes[kBuffers];
  int tags[kBuffers];
  double since = now();
  fresh->step = step;
  for (int i = 0; i < step->count; ++i) {
    const struct buffer* wanted = &step->buffers[i];
    void* block = NULL;
    if (posix_memalign(&block, 64, wanted->bytes + 64) != 0) {
      fail("no memory", (long)wanted->bytes);
    }
    fresh->data[i] = (unsigned char*)block + wanted->offset;
    for (uint64_t at = 0; at < wanted->bytes; ++at) {
      fresh->data[i][at] = is_send ? content(wanted->message, at) : 0xEE;
    }
    if (wanted->is_null) {
      fresh->data[i] = NULL;
    } else {
      check("registering", net_register(is_send, objects[step->on], fresh->data[i], wanted->bytes,
                                        &fresh->memory[i]));
    }
    sizes[i] = wanted->bytes;
    tags[i] = wanted->tag;
  }
  while (1) {
    const int code = is_send ? net_isend(objects[step->on], fresh->data[0], sizes[0], tags[0],
                                         fresh->memory[0], &fresh->request)
                             : net_irecv(objects[step->on], step->count, (void**)fresh->data, sizes,
                                         tags, fresh->memory, &fresh->request);
    check(is_send ? "isend" : "irecv", code);
    if (code == 0) {
      break;
    }
    wait_more("the plugin says \"call again\" for seconds", &since);
  }
  ++request_count;
}

static void perform(const struct step* step, int process) {
  double since = now();
  step_name = step->name;
  switch (step->what) {
    case kInitialise:
      check("init", net_init((uint64_t)step->number, &objects[step->object]));
      break;
    case kStartListening:
      check("listen", net_listen(objects[step->on], step->number,
                                 shared->handles[step->handle].bytes, &objects[step->object]));
      __sync_synchronize();
      shared->handles[step->handle].is_ready = 1;
      break;
    case kConnect:
    case kAccept:
      unfinished[step->object] = step;
      break;
    case kConnected:
      while (unfinished[step->object] != NULL) {
        wait_more("no connection after seconds", &since);
      }
      break;
    case kSend:
    case kRecv:
      post(step);
      break;
    case kDone:
      while (!requests[step->number].is_done) {
        if (!test(&requests[step->number])) {
          wait_more("the request is not done after seconds", &since);
        }
      }
      break;
    case kMeet:
      ++shared->barriers[process];
      while (shared->barriers[1 - process] < shared->barriers[process]) {
        wait_more("the other process does not come, for seconds", &since);
      }
      break;
    case kPause:
      usleep((useconds_t)step->number * 1000);
      break;
  }
}

/* 0: nothing went wrong. */
int repeat(const char* library, int version, const struct step* const* steps, int processes) {
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  int pids[2] = {0, 0};
  int is_wrong = 0;
  for (int process = 0; process < processes; ++process) {
    pids[process] = fork();
    if (pids[process] == 0) {
      if (net_load(library, version) != 0) {
        _exit(2);
      }
      for (const struct step* step = steps[process]; step->what != kEnd; ++step) {
        perform(step, process);
      }
      _exit(0);
    }
  }
  for (int process = 0; process < processes; ++process) {
    int status = 0;
    waitpid(pids[process], &status, 0);
    if (WIFSIGNALED(status)) {
      fprintf(stderr, "FAILS: process %d is killed by signal %d\n", process, WTERMSIG(status));
    }
    is_wrong = is_wrong || status != 0;
  }
  munmap(shared, sizeof *shared);
  return is_wrong;
}
