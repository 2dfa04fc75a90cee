/* SPDX-License-Identifier: Apache-2.0
 *
 * TCP over loopback for the fixtures tcp_v6.c, tcp_v8.c and tcp_v9.c: small, not fast, and as
 * awkward as the contract of NCCL's net plugins allows a plugin to be:
 * - connect() and accept() give nothing at first; connect() keeps its state in the handle.
 * - isend() and irecv() give no request every third time.
 * - closing and registering are counted; `tcp_fixture_counters` shows what is still open.
 * The variable TCP_FIXTURE_FAULT breaks it on purpose, by a name: grep for is_fault. The
 * conformance kit must find each (tests/conformance/mutants_test.py).
 *
 * As real vendors' libraries are, each by a definition of its own:
 * - QUIRK_SHARED_ENDPOINT: all connections of a process share what lies below, and lose it when one
 *   is closed with receives posted (aws-ofi-nccl).
 * - QUIRK_ACCEPT_BLOCKS: accept() comes back with a connection, and not before (FastSocket).
 * - QUIRK_FILLS_AT_INIT: the table has name and init, and the rest after it (HPC-X; tcp_v8.c).
 * - QUIRK_NO_SIZES: test() never says how many bytes came (FastSocket).
 * - QUIRK_LATE_CONNECT: connections are made with the first message that has bytes; an empty one
 *   before it fails, and closing before it crashes (FastSocket, whose helper threads connect).
 * - QUIRK_SEND_WAITS: isend() comes back when the peer has accepted (FastSocket, which does so in
 *   test(), for ever; here for 10 s, and then it fails). Accepting takes ten calls.
 * - QUIRK_NO_LIMITS: maxComms and maxCollBytes are 0 (nccl-mesh-plugin; tcp_v9.c).
 */
#pragma once

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
enum { kSuccess = 0, kSystemError = 2, kInternalError = 3, kInvalidUsage = 5, kRemoteError = 6 };
enum { kWarn = 2, kInfo = 3, kNetSubsystem = 0x10 };
enum { kGroupMax = 4, kRequestsMax = 32, kSendsMax = kRequestsMax * kGroupMax };

typedef void (*log_function)(
    int level, unsigned long subsystems, const char* file, int line, const char* format, ...);
static log_function say;

struct tcp_counters {
  int inits, contexts, listens, sends, recvs, memory;
};
EXPORT struct tcp_counters tcp_fixture_counters;

#ifdef QUIRK_SHARED_ENDPOINT
enum { kSharesEndpoint = 1 };
#else
enum { kSharesEndpoint = 0 };
#endif
#ifdef QUIRK_ACCEPT_BLOCKS
enum { kAcceptFlags = SOCK_CLOEXEC, kIsPatient = 0 };
#else
enum { kAcceptFlags = SOCK_CLOEXEC | SOCK_NONBLOCK, kIsPatient = 1 };
#endif
#ifdef QUIRK_NO_SIZES
enum { kTellsSizes = 0 };
#else
enum { kTellsSizes = 1 };
#endif
#ifdef QUIRK_LATE_CONNECT
enum { kConnectsLate = 1 };
#else
enum { kConnectsLate = 0 };
#endif
#ifdef QUIRK_SEND_WAITS
enum { kSendWaits = 1, kLooksMin = 10 };
#else
enum { kSendWaits = 0, kLooksMin = kIsPatient };
#endif
static int endpoint_is_lost;

static int is_fault(const char* name) {
  const char* fault = getenv("TCP_FIXTURE_FAULT");
  return fault != NULL && strcmp(fault, name) == 0;
}

static int broken(int code, const char* what) {
  say(kWarn, kNetSubsystem, __FILE__, __LINE__, "tcp fixture: %s (errno %d)", what, errno);
  return code;
}

/* ---- connecting ---- */

struct handle {
  uint64_t magic;
  struct sockaddr_in address;
  int is_connecting; /* the state of connect() lives here between its calls */
  int fd;
};
static const uint64_t kMagic = 0x7463702d66697874u;

struct request {
  int in_use, is_send, count, left; /* left: buffers without a message */
  struct timespec since;            /* when a slow peer was asked first */
  int tags[kGroupMax], taken[kGroupMax], full[kGroupMax];
  size_t sizes[kGroupMax]; /* room, then the message's size */
  char* data[kGroupMax];
  struct connection* connection;
};
struct frame {
  uint64_t size;
  int64_t tag;
};
struct connection {
  int fd, is_send, refusals, is_broken, is_used, is_slow;
  struct request requests[kSendsMax];
  struct request* queue[kSendsMax]; /* unfinished, oldest first */
  int queued;
  struct frame frame; /* that is being read or written */
  size_t frame_done, body_done;
  struct request* reading; /* of the frame */
  int reading_buffer;
};
struct listener {
  int fd, looks;
};

static int set_up(int fd) {
  int one = 1;
  return setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static int tcp_listen(void* opaque, void** out) {
  struct handle* handle = opaque;
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof address;
  if (is_fault("listen")) {
    broken(kSystemError, "listen fails on purpose");
    return broken(kSystemError, "what follows from it");
  }
  struct listener* made = calloc(1, sizeof *made);
  made->fd = socket(AF_INET, SOCK_STREAM | kAcceptFlags, 0);
  if (made->fd < 0 || bind(made->fd, (struct sockaddr*)&address, size) != 0 ||
      listen(made->fd, 16) != 0 || getsockname(made->fd, (struct sockaddr*)&address, &size) != 0) {
    return broken(kSystemError, "cannot listen");
  }
  memset(opaque, 0, is_fault("handle_long") ? 160 : sizeof *handle);
  handle->magic = kMagic;
  handle->address = address;
  *out = made;
  __atomic_add_fetch(&tcp_fixture_counters.listens, 1, __ATOMIC_RELAXED);
  return kSuccess;
}

static struct connection* make_connection(int fd, int is_send) {
  struct connection* made = calloc(1, sizeof *made);
  static int made_so_far;
  made->fd = fd;
  made->is_send = is_send;
  made->is_slow = __atomic_add_fetch(&made_so_far, 1, __ATOMIC_RELAXED) % 16 == 5;
  __atomic_add_fetch(is_send ? &tcp_fixture_counters.sends : &tcp_fixture_counters.recvs, 1,
                     __ATOMIC_RELAXED);
  return made;
}

static int tcp_connect(void* opaque, void** out) {
  struct handle* handle = opaque;
  int error = 0;
  socklen_t size = sizeof error;
  *out = NULL;
  if (handle->magic != kMagic || (uintptr_t)opaque % 8 != 0) {
    return broken(kInternalError, "this is not a handle of mine");
  }
  if (!handle->is_connecting) {
    handle->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    handle->is_connecting = 1;
    if (handle->fd < 0 ||
        (connect(handle->fd, (struct sockaddr*)&handle->address, sizeof handle->address) != 0 &&
         errno != EINPROGRESS)) {
      return broken(kRemoteError, "cannot connect");
    }
    return kSuccess; /* with nothing: call me again */
  }
  struct pollfd wanted = {.fd = handle->fd, .events = POLLOUT};
  if (poll(&wanted, 1, 0) == 0) {
    return kSuccess;
  }
  if (getsockopt(handle->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) {
    if (!is_fault("connect_leaks")) {
      close(handle->fd);
    }
    errno = error;
    return broken(kRemoteError, "connection refused");
  }
  set_up(handle->fd);
  *out = make_connection(handle->fd, 1);
  return kSuccess;
}

static int tcp_accept(void* opaque, void** out) {
  struct listener* listener = opaque;
  *out = NULL;
  if (listener->looks++ < kLooksMin) {
    return kSuccess;
  }
  int fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) {
    return errno == EAGAIN ? kSuccess : broken(kSystemError, "cannot accept");
  }
  set_up(fd);
  if (kSendWaits && send(fd, "", 1, MSG_NOSIGNAL) != 1) {
    return broken(kSystemError, "cannot say that it has accepted");
  }
  *out = make_connection(fd, 0);
  return kSuccess;
}

/* ---- messages ---- */

static struct request* find_free(struct connection* c) {
  for (int i = 0; i < (c->is_send ? kSendsMax : kRequestsMax); ++i) {
    if (!c->requests[i].in_use) {
      return &c->requests[i];
    }
  }
  return NULL;
}

/* A request to fill in, or NULL: not now. */
static struct request* begin(struct connection* c) {
  struct request* request = find_free(c);
  if (++c->refusals % 3 == 0) {
    if (request != NULL && is_fault("slot_lost")) {
      request->in_use = 1;
    }
    return NULL;
  }
  if (request != NULL) {
    memset(request, 0, sizeof *request);
    request->in_use = 1;
    request->is_send = c->is_send;
    request->connection = c;
    c->queue[c->queued++] = request;
  }
  return request;
}

static void end_first(struct connection* c, int at) {
  memmove(&c->queue[at], &c->queue[at + 1], sizeof c->queue[0] * (size_t)(c->queued - at - 1));
  --c->queued;
}

/* Moves up to `size` bytes from `done` on. 1: all are moved, 0: later, -1: broken. */
static int move(struct connection* c, void* data, size_t size, size_t* done) {
  while (*done < size) {
    ssize_t n = c->is_send ? send(c->fd, (char*)data + *done, size - *done, MSG_NOSIGNAL)
                           : recv(c->fd, (char*)data + *done, size - *done, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
      return 0;
    }
    if (n <= 0) {
      return -1;
    }
    *done += (size_t)n;
  }
  return 1;
}

static int write_some(struct connection* c) {
  while (c->queued > 0) {
    struct request* first = c->queue[0];
    c->frame = (struct frame){first->sizes[0], first->tags[0]};
    static int messages;
    const int is_lost = is_fault("lost") && c->frame_done == 0 && ++messages % 50 == 0;
    int moved = is_lost ? 1 : move(c, &c->frame, sizeof c->frame, &c->frame_done);
    if (moved == 1 && !is_lost) {
      moved = move(c, first->data[0], first->sizes[0], &c->body_done);
    }
    if (moved == 0 && is_fault("blocks")) {
      poll(NULL, 0, 3);
    }
    if (moved != 1) {
      return moved;
    }
    first->left = 0;
    c->frame_done = c->body_done = 0;
    end_first(c, 0);
  }
  return 0;
}

/* The oldest free buffer with the frame's tag. */
static int find_buffer(struct connection* c) {
  for (int at = 0; at < c->queued; ++at) {
    for (int i = 0; i < c->queue[at]->count; ++i) {
      if (!c->queue[at]->taken[i] && c->queue[at]->tags[i] == c->frame.tag) {
        c->reading = c->queue[at];
        c->reading_buffer = i;
        return c->frame.size <= c->reading->sizes[i];
      }
    }
  }
  return 1; /* none yet */
}

static int read_some(struct connection* c) {
  for (;;) {
    int moved = move(c, &c->frame, sizeof c->frame, &c->frame_done);
    if (moved != 1) {
      return moved;
    }
    if (c->reading == NULL) {
      if (!find_buffer(c)) {
        return -1;
      }
      if (c->reading == NULL) {
        return 0;
      }
      c->reading->taken[c->reading_buffer] = 1;
      c->reading->sizes[c->reading_buffer] = c->frame.size;
    }
    struct request* to = c->reading;
    moved = move(c, to->data[c->reading_buffer], c->frame.size, &c->body_done);
    if (moved != 1) {
      return moved;
    }
    static int long_messages;
    if (c->frame.size > 100000 && ++long_messages % 500 == 0 && is_fault("flips")) {
      to->data[c->reading_buffer][c->frame.size / 2] ^= 1;
    }
    c->reading = NULL;
    c->frame_done = c->body_done = 0;
    if (--to->left == 0) {
      for (int at = 0; at < c->queued; ++at) {
        if (c->queue[at] == to) {
          end_first(c, at);
          break;
        }
      }
    }
  }
}

/* For the byte that the peer sends when it has accepted. */
static int wait_for_peer(struct connection* c) {
  struct pollfd peer = {.fd = c->fd, .events = POLLIN};
  char byte;
  return poll(&peer, 1, 10000) == 1 && recv(c->fd, &byte, 1, 0) == 1;
}

static int tcp_isend(void* opaque, void* data, size_t size, int tag, void** out) {
  struct connection* c = opaque;
  *out = NULL;
  if (__atomic_load_n(&endpoint_is_lost, __ATOMIC_RELAXED)) {
    return broken(kSystemError, "inactive endpoint");
  }
  if (kConnectsLate && size == 0 && !c->is_used) {
    return broken(kSystemError, "the connection is still being made");
  }
  if (kSendWaits && !c->is_used && !wait_for_peer(c)) {
    return broken(kSystemError, "the peer does not accept");
  }
  c->is_used = 1;
  struct request* request = begin(c);
  if (request != NULL) {
    request->count = request->left = 1;
    request->data[0] = data;
    request->sizes[0] = size;
    request->tags[0] = tag;
    *out = request;
  }
  return kSuccess;
}

static int tcp_irecv(
    void* opaque, int count, void** data, const size_t* sizes, const int* tags, void** out) {
  struct connection* c = opaque;
  if (*out == NULL || !is_fault("early_kept")) {
    *out = NULL;
  } else {
    return kSuccess;
  }
  c->is_used = 1;
  if (count < 1 || count > kGroupMax) {
    return broken(kInternalError, "wrong number of buffers");
  }
  struct request* request = begin(c);
  if (request != NULL) {
    request->count = request->left = count;
    for (int i = 0; i < count; ++i) {
      request->data[i] = data[i];
      request->sizes[i] = sizes[i];
      request->tags[i] = tags[i];
    }
    *out = request;
  }
  return kSuccess;
}

/* A slow peer takes 50 ms. */
static int is_early(struct request* request) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (request->since.tv_sec == 0) {
    request->since = now;
  }
  return (now.tv_sec - request->since.tv_sec) * 1000 +
             (now.tv_nsec - request->since.tv_nsec) / 1000000 <
         50;
}

static int tcp_test(void* opaque, int* done, int* sizes) {
  struct request* request = opaque;
  struct connection* c = request->connection;
  if (!is_fault("done_kept")) {
    *done = 0;
  }
  if (is_fault("test")) {
    return broken(kRemoteError, "test fails on purpose");
  }
  if (request->left > 0 && (c->is_send ? write_some(c) : read_some(c)) < 0) {
    c->is_broken = 1;
  }
  if (request->left > 0 && c->is_broken && is_fault("failure_leaks")) {
    static void* volatile leaked;
    leaked = malloc(100);
    c->is_broken = leaked != NULL;
  }
  if (request->left > 0) {
    return c->is_broken ? broken(kRemoteError, "connection lost") : kSuccess;
  }
  if (c->is_slow && is_fault("slow_peer") && is_early(request)) {
    return kSuccess;
  }
  for (int i = 0; i < request->count && sizes != NULL && kTellsSizes; ++i) {
    sizes[i] = (int)request->sizes[i];
  }
  *done = 1;
  request->in_use = 0;
  return kSuccess;
}

static int tcp_register(void* connection, void** memory) {
  (void)connection;
  *memory = NULL; /* legal: nothing to remember */
  __atomic_add_fetch(&tcp_fixture_counters.memory, 1, __ATOMIC_RELAXED);
  return kSuccess;
}
static int tcp_deregister(void* connection, void* memory) {
  (void)connection;
  (void)memory;
  __atomic_add_fetch(&tcp_fixture_counters.memory, -1, __ATOMIC_RELAXED);
  return kSuccess;
}

static int tcp_close(void* opaque) {
  struct connection* c = opaque;
  __atomic_add_fetch(c->is_send ? &tcp_fixture_counters.sends : &tcp_fixture_counters.recvs, -1,
                     __ATOMIC_RELAXED);
  if (kSharesEndpoint && !c->is_send && c->queued > 0) {
    __atomic_store_n(&endpoint_is_lost, 1, __ATOMIC_RELAXED);
    say(kWarn, kNetSubsystem, __FILE__, __LINE__, "closed with %d receives posted", c->queued);
  }
  if (kConnectsLate && !c->is_send && !c->is_used) {
    abort();
  }
  if (c->is_send && is_fault("close_discards")) {
    const struct linger now = {1, 0};
    setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  }
  close(c->fd);
  free(c);
  return kSuccess;
}
static int tcp_close_listen(void* opaque) {
  struct listener* listener = opaque;
  __atomic_add_fetch(&tcp_fixture_counters.listens, -1, __ATOMIC_RELAXED);
  close(listener->fd);
  free(listener);
  return kSuccess;
}

/* ---- what all versions say ---- */

/* Plugins up to v10 are initialised once per process. */
static int __attribute__((unused)) tcp_init_once(log_function log) {
  say = log;
  if (is_fault("init")) {
    return broken(kSystemError, "init fails on purpose");
  }
  if (__atomic_add_fetch(&tcp_fixture_counters.inits, 1, __ATOMIC_RELAXED) > 1) {
    return broken(kInternalError, "init came twice");
  }
  say(kInfo, kNetSubsystem, __FILE__, __LINE__, "tcp fixture: %d init", 1);
  return kSuccess;
}
static int tcp_devices(int* count) {
  *count = is_fault("devices") ? 0 : 2;
  return kSuccess;
}
