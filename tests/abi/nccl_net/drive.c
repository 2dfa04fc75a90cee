/* SPDX-License-Identifier: Apache-2.0
 *
 * Uses a net plugin as NCCL does, through its table of ABI_VERSION (6, 7, 8 or 11) alone: a C
 * program written from the published layouts. Usage: drive LIBRARY. Exit code 0: everything held.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TEXT_OF(number) #number
#define SYMBOL_OF(number) "ncclNetPlugin_v" TEXT_OF(number)
#define SYMBOL SYMBOL_OF(ABI_VERSION)
#if ABI_VERSION == 11
#define CONTEXT void *context,
#define PROFILE void *profile,
#define PROFILES void **profiles,
typedef size_t message_size;
#else
#define CONTEXT
#define PROFILE
#define PROFILES
typedef int message_size;
#endif
#if ABI_VERSION >= 7
#define OFFLOAD , void** offload
#define NO_OFFLOAD , &offload
#else
#define OFFLOAD
#define NO_OFFLOAD
#endif
#if ABI_VERSION >= 8
typedef size_t region_size;
#else
typedef int region_size;
#endif

typedef void (*log_function)(int, unsigned long, const char*, int, const char*, ...);

struct properties {
  char *name, *pci_path;
  uint64_t guid;
  int pointers;
#if ABI_VERSION >= 8
  int registration_is_global;
#endif
#if ABI_VERSION == 11
  int force_flush;
#endif
  int speed, port;
  float latency;
  int comms_max, recvs_max;
#if ABI_VERSION >= 7
  int device_type, device_version;
#endif
#if ABI_VERSION == 11
  struct {
    int count, devices[4];
  } fused;
  size_t p2p_max, coll_max;
  int multi_request_max;
#endif
};

struct net {
  const char* name;
#if ABI_VERSION == 11
  int (*init)(void** context, uint64_t id, int* config, log_function, void* profiler);
#else
  int (*init)(log_function);
#endif
  int (*devices)(int*);
  int (*properties)(int, struct properties*);
  int (*listen)(CONTEXT int device, void* handle, void** listen);
  int (*connect)(CONTEXT int device, void* handle, void** send OFFLOAD);
  int (*accept)(void* listen, void** recv OFFLOAD);
  int (*reg)(void* connection, void* data, region_size, int type, void** memory);
  int (*reg_dmabuf)(void*, void*, size_t, int, uint64_t, int, void**);
  int (*dereg)(void* connection, void* memory);
  int (*isend)(void* send, void* data, message_size, int tag, void* memory, PROFILE void** request);
  int (*irecv)(void* recv,
               int n,
               void** data,
               message_size*,
               int* tags,
               void** memory,
               PROFILES void** request);
  int (*iflush)(void* recv, int n, void** data, int* sizes, void** memory, void** request);
  int (*test)(void* request, int* done, int* sizes);
  int (*close_send)(void*);
  int (*close_recv)(void*);
  int (*close_listen)(void*);
#if ABI_VERSION >= 7
  void *device_memory, *irecv_consumed;
#endif
#if ABI_VERSION == 11
  void* make_virtual;
  int (*finalize)(void* context);
  void* set_attributes;
#endif
};

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition); \
      exit(1);                                                        \
    }                                                                 \
  } while (0)
#define OK(call) CHECK((call) == 0)
#define SIZE_MAX_TESTED 300000

static int warnings;
static void print_line(
    int level, unsigned long subsystems, const char* file, int line, const char* format, ...) {
  va_list arguments;
  (void)subsystems, (void)file, (void)line;
  warnings += level == 2;
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
}

static void check_in_time(void) {
  static time_t start;
  start = start == 0 ? time(NULL) : start;
  CHECK(time(NULL) - start < 40);
}

struct pair {
  void *context, *listen, *send, *recv;
};

static void connect_pair(const struct net* net, struct pair* pair) {
  _Alignas(16) char handle[128] = {0};
#if ABI_VERSION >= 7
  void* offload = NULL;
#endif
#if ABI_VERSION == 11
  void* context = pair->context;
  OK(net->listen(context, 0, handle, &pair->listen));
#else
  OK(net->listen(0, handle, &pair->listen));
#endif
  CHECK(pair->listen != NULL);
  while (pair->send == NULL || pair->recv == NULL) {
    check_in_time();
#if ABI_VERSION == 11
    if (pair->send == NULL)
      OK(net->connect(context, 0, handle, &pair->send NO_OFFLOAD));
#else
    if (pair->send == NULL)
      OK(net->connect(0, handle, &pair->send NO_OFFLOAD));
#endif
    if (pair->recv == NULL)
      OK(net->accept(pair->listen, &pair->recv NO_OFFLOAD));
  }
  OK(net->close_listen(pair->listen)); /* as NCCL does, at once */
}

static void* post_send(
    const struct net* net, struct pair* pair, void* data, message_size size, int tag) {
  void* request = NULL;
  while (request == NULL) {
    check_in_time();
#if ABI_VERSION == 11
    OK(net->isend(pair->send, data, size, tag, NULL, NULL, &request));
#else
    OK(net->isend(pair->send, data, size, tag, NULL, &request));
#endif
  }
  return request;
}

static void* post_recv(const struct net* net,
                       struct pair* pair,
                       int n,
                       void** data,
                       message_size* capacities,
                       int* tags) {
  void* memory[8] = {NULL};
  void* request = NULL;
  while (request == NULL) {
    check_in_time();
#if ABI_VERSION == 11
    void* profiles[8] = {NULL};
    request = (void*)1; /* "may complete early": the plugin must overwrite it */
    OK(net->irecv(pair->recv, n, data, capacities, tags, memory, profiles, &request));
    CHECK(request != (void*)1);
#else
    OK(net->irecv(pair->recv, n, data, capacities, tags, memory, &request));
#endif
  }
  return request;
}

static void wait_all(const struct net* net, void** requests, int count, int* sizes) {
  for (int left = count; left > 0;) {
    check_in_time();
    for (int i = 0; i < count; ++i) {
      int done = 0;
      int ignored[64] = {0};
      if (requests[i] != NULL) {
        OK(net->test(requests[i], &done, i == 0 ? sizes : ignored));
      }
      if (done) {
        requests[i] = NULL;
        --left;
      }
    }
  }
}

static void one_message(const struct net* net, struct pair* pair, int size) {
  static char from[SIZE_MAX_TESTED], to[SIZE_MAX_TESTED];
  int sizes[64] = {-1}, tag = 7;
  message_size room = SIZE_MAX_TESTED;
  void* data = to;
  for (int i = 0; i < size; ++i) {
    from[i] = (char)(i * 7 + size);
  }
  memset(to, 0, sizeof to);
  void* requests[2];
  requests[0] = post_recv(net, pair, 1, &data, &room, &tag);
  requests[1] = post_send(net, pair, from, (message_size)size, tag);
  wait_all(net, requests, 2, sizes);
  CHECK(sizes[0] == size);
  CHECK(memcmp(from, to, (size_t)size) == 0);
}

static void grouped(const struct net* net, struct pair* pair, int n) {
  static char from[8][64], to[8][64];
  int sizes[64] = {0}, tags[8];
  message_size capacities[8];
  void *data[8], *requests[9];
  for (int i = 0; i < n; ++i) {
    data[i] = to[i];
    tags[i] = i;
    capacities[i] = 64;
    memset(from[i], 'a' + i, 64);
  }
  requests[0] = post_recv(net, pair, n, data, capacities, tags);
  for (int i = 0; i < n; ++i) {
    requests[1 + i] =
        post_send(net, pair, from[n - 1 - i], (message_size)(10 + n - 1 - i), n - 1 - i);
  }
  wait_all(net, requests, n + 1, sizes);
  for (int i = 0; i < n; ++i) {
    CHECK(sizes[i] == 10 + i);
    CHECK(memcmp(from[i], to[i], (size_t)(10 + i)) == 0);
  }
}

static void lost_peer(const struct net* net, struct pair* pair) {
  char room[8];
  void* data = room;
  message_size size = sizeof room;
  int tag = 0, done = 0, sizes[64] = {0}, code = 0;
  void* request = post_recv(net, pair, 1, &data, &size, &tag);
  OK(net->close_send(pair->send));
  warnings = 0;
  while (code == 0) {
    check_in_time();
    code = net->test(request, &done, sizes);
    CHECK(!done);
  }
  CHECK(code == 6 && warnings == 1); /* ncclRemoteError, said once */
  OK(net->close_recv(pair->recv));
}

int main(int argc, char** argv) {
  CHECK(argc == 2);
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  CHECK(library != NULL);
  const struct net* net = dlsym(library, SYMBOL);
  CHECK(net != NULL && net->name != NULL);
  struct pair pairs[2] = {{0}};
  int count = 0;
  for (int i = 0; i < 2; ++i) { /* two communicators */
#if ABI_VERSION == 11
    int config = -1;
    OK(net->init(&pairs[i].context, (uint64_t)i, &config, print_line, NULL));
#else
    if (i == 0)
      OK(net->init(print_line));
#endif
  }
  OK(net->devices(&count));
  CHECK(count > 0);
  struct properties properties;
  memset(&properties, 0, sizeof properties);
  OK(net->properties(0, &properties));
  CHECK(properties.name[0] != '\0' && (properties.pointers & 1) != 0 && properties.recvs_max >= 1);
#if ABI_VERSION >= 7
  CHECK(properties.device_type == 0);
#endif
#if ABI_VERSION == 11
  CHECK(properties.fused.count == 1 && properties.p2p_max > 0 && properties.multi_request_max == 1);
#endif
  for (int i = 0; i < 2; ++i) {
    connect_pair(net, &pairs[i]);
  }
  for (int i = 0; i < 2; ++i) {
    void* memory = NULL;
    char page[4096];
    OK(net->reg(pairs[i].send, page, sizeof page, 1, &memory));
    OK(net->dereg(pairs[i].send, memory));
    const int sizes[] = {0, 1, 17, 4096, 65537, SIZE_MAX_TESTED};
    for (size_t j = 0; j < sizeof sizes / sizeof sizes[0]; ++j) {
      one_message(net, &pairs[i], sizes[j]);
    }
    grouped(net, &pairs[i], properties.recvs_max);
    lost_peer(net, &pairs[i]);
#if ABI_VERSION == 11
    OK(net->finalize(pairs[i].context));
#endif
  }
  return 0;
}
