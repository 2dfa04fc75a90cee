/* SPDX-License-Identifier: Apache-2.0
 *
 * A collnet plugin as a vendor writes it, of NCCL's ABI v6 to v12: a network that reduces among the
 * members of one process. Sums of floats only. Like real ones, connect blocks until all are there.
 */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef void (*Log)(
    int level, unsigned long subsystems, const char* file, int line, const char* format, ...);
static Log log_line;

enum { kMembersMax = 8, kRoundsMax = 64, kSuccess = 0, kInternal = 3, kFloat = 7, kSum = 0 };

typedef struct {
  int arrived;
  const float* send[kMembersMax];
  float* recv[kMembersMax];
  size_t count[kMembersMax];
} Round;
typedef struct {
  int members;
  int joined;
  Round rounds[kRoundsMax];
} Network;
typedef struct {
  Network network; /* of the group whose member 0 listens here */
} Listen;
typedef struct {
  Network* network;
  int member;
  int started;
} Group;
typedef struct {
  Round* round;
  Network* network;
  size_t bytes;
} Request;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

__attribute__((visibility("default"))) int vendor_inits;
__attribute__((visibility("default"))) int vendor_finalizes;
__attribute__((
    visibility("default"))) int vendor_open; /* listens, groups, registrations, requests */

static void count(int change) {
  __atomic_add_fetch(&vendor_open, change, __ATOMIC_ACQ_REL); /* the test reads it meanwhile */
}

static int begin(Log log) {
  log_line = log;
  ++vendor_inits;
  return kSuccess;
}
#if ABI_VERSION >= 11 && !defined(ABI_CROSS_DC)
__attribute__((unused)) static int init(void** context, uint64_t comm_id, Log log) {
  *context = malloc(1 + (size_t)(comm_id & 1));
  return begin(log);
}
static int finalize(void* context) {
  free(context);
  ++vendor_finalizes;
  return kSuccess;
}
#define CONTEXT void *context,
#define USE_CONTEXT (void)context
#else
__attribute__((unused)) static int init(Log log) { return begin(log); }
#define CONTEXT
#define USE_CONTEXT (void)0
#endif

static int devices(int* number) { return *number = 2, kSuccess; }

typedef struct {
  char* name;
  char* pci_path;
  uint64_t guid;
  int pointer_support;
#if ABI_VERSION >= 8
  int registration_is_global;
#endif
#if ABI_VERSION >= 9
  int force_flush;
#endif
  int speed;
  int port;
  float latency;
  int comms_max;
  int recvs_max;
#if ABI_VERSION >= 7
  int device_type;
  int device_version;
#endif
#if ABI_VERSION >= 9
  int virtual_count;
  int virtual_devices[ABI_VERSION >= 12 ? 8 : 4];
  size_t p2p_bytes_max;
  size_t coll_bytes_max;
#endif
#if ABI_VERSION == 11 && defined(ABI_CROSS_DC)
  uint64_t fabric;
#elif ABI_VERSION >= 11
  int multi_request_max;
#endif
#if ABI_VERSION >= 12
  int16_t rail;
  int16_t plane;
#endif
} Properties;

static int get_properties(int device, Properties* properties) {
  memset(properties, 0, sizeof *properties);
  properties->name = device == 0 ? "sum0" : "sum1";
  properties->pointer_support = 1;
  properties->speed = 1000 * (device + 1);
#if ABI_VERSION >= 9
  properties->coll_bytes_max = 12345678;
#endif
  return kSuccess;
}

static int start_listening(CONTEXT int device, void* handle, void** listen) {
  USE_CONTEXT;
  (void)device;
  Listen* made = calloc(1, sizeof *made);
  memcpy(handle, &made, sizeof made);
  *listen = made;
  count(1);
  return kSuccess;
}

static int connect(void* handles[], int members, int member, void* listen, void** group) {
  (void)listen;
#ifdef ODD_REFUSES
  log_line(2, 0x10, "memory.c", 1, "the switch %s is full", "s17");
  return kInternal;
#endif
  Listen* first;
  memcpy(&first, handles[0], sizeof first);
  Network* network = &first->network;
  pthread_mutex_lock(&mutex);
  network->members = members;
  ++network->joined;
  pthread_cond_broadcast(&changed);
#ifdef ODD_STUCK
  members = member == 0 ? members + 1 : members; /* waits for one who comes only at the end */
#endif
  while (network->joined < members) {
    pthread_cond_wait(&changed, &mutex);
  }
  pthread_mutex_unlock(&mutex);
  Group* made = calloc(1, sizeof *made);
  made->network = network;
  made->member = member;
  *group = made;
  count(1);
  return kSuccess;
}

__attribute__((unused)) static int reduce_support(int type, int op, int* supported) {
  return *supported = type == kFloat && op == kSum, kSuccess;
}

#if ABI_VERSION >= 8
typedef size_t Size;
#else
typedef int Size;
#endif
__attribute__((unused)) static int register_memory(
    void* group, void* data, Size size, int kind, void** memory) {
  (void)group;
  if (data == NULL || size <= 0 || kind != 1) {
    return kInternal;
  }
  *memory = malloc(1);
  count(1);
  return kSuccess;
}
__attribute__((unused)) static int register_dmabuf(
    void* group, void* data, size_t size, int kind, uint64_t offset, int fd, void** memory) {
  (void)group, (void)data, (void)size, (void)kind, (void)offset, (void)fd, (void)memory;
  return kInternal;
}
__attribute__((unused)) static int deregister(void* group, void* memory) {
  (void)group;
  free(memory);
  count(-1);
  return kSuccess;
}

#if ABI_VERSION >= 9
typedef size_t Count;
#else
typedef int Count;
#endif
__attribute__((unused)) static int iallreduce(void* group,
                                              void* send,
                                              void* recv,
                                              Count number,
                                              int type,
                                              int op,
                                              void* send_memory,
                                              void* recv_memory,
                                              void** request) {
  Group* const mine = group;
  if (type != kFloat || op != kSum || send_memory == NULL || recv_memory == NULL) {
    log_line(2, 0x10, "memory.c", 2, "only registered floats are summed");
    return kInternal;
  }
  Request* made = calloc(1, sizeof *made);
  pthread_mutex_lock(&mutex);
  Round* round = &mine->network->rounds[mine->started++ % kRoundsMax];
  round->send[mine->member] = send;
  round->recv[mine->member] = recv;
  round->count[mine->member] = (size_t)number;
  if (++round->arrived == mine->network->members) {
    for (size_t i = 0; i < round->count[0]; ++i) {
      float sum = round->send[0][i];
      for (int member = 1; member < mine->network->members; ++member) {
        sum += round->send[member][i];
      }
      for (int member = 0; member < mine->network->members; ++member) {
        round->recv[member][i] = sum;
      }
    }
  }
  pthread_mutex_unlock(&mutex);
  made->round = round;
  made->network = mine->network;
  made->bytes = (size_t)number * sizeof(float);
  *request = made;
  count(1);
  return kSuccess;
}

#if ABI_VERSION >= 8
__attribute__((unused)) static int gather(void) { return kInternal; }
#endif
__attribute__((unused)) static int flush(
    void* group, void* data, int size, void* memory, void** request) {
  (void)group, (void)data, (void)size, (void)memory;
  return *request = NULL, kSuccess;
}

__attribute__((unused)) static int test(void* request, int* done, int* size) {
  Request* const mine = request;
  pthread_mutex_lock(&mutex);
  *done = mine->round->arrived == mine->network->members;
  pthread_mutex_unlock(&mutex);
  if (*done) {
    *size = (int)mine->bytes;
    free(mine);
    count(-1);
  }
  return kSuccess;
}
__attribute__((unused)) static int close_any(void* object) {
  free(object);
  count(-1);
  return kSuccess;
}

typedef void (*Entry)(void);
#if defined(ODD_SMALL)
enum { kEntries = 5 };
#elif ABI_VERSION <= 7
enum { kEntries = 14 };
#elif ABI_VERSION == 8
enum { kEntries = 16 };
#elif ABI_VERSION <= 10
enum { kEntries = 17 };
#else
enum { kEntries = 18 };
#endif
typedef struct {
  const char* name;
  Entry entries[kEntries];
} Table;
#define NAME2(version) ncclCollNetPlugin_v##version
#define NAME(version) NAME2(version)
/* Entries as a list of pointers: what a table is for who only knows its offsets. */
__attribute__((visibility("default"))) const Table NAME(ABI_VERSION) = {
    "Summer",
    {
        (Entry)init, (Entry)devices, (Entry)get_properties, (Entry)start_listening, (Entry)connect,
#ifndef ODD_SMALL
        (Entry)reduce_support, (Entry)register_memory, (Entry)register_dmabuf, (Entry)deregister,
        (Entry)iallreduce,
#if ABI_VERSION >= 8
        (Entry)gather, (Entry)gather,
#endif
        (Entry)flush,
#ifdef ODD_NO_TEST
        NULL,
#else
    (Entry)test,
#endif
        (Entry)close_any, (Entry)close_any,
#if ABI_VERSION >= 9
        NULL, /* makeVDevice */
#endif
#if ABI_VERSION == 11 && defined(ABI_CROSS_DC)
        (Entry)gather, /* getNetPath */
#elif ABI_VERSION >= 11
    (Entry)finalize,
#endif
#endif
    }};

#ifdef ABI_CROSS_DC
/* The two v11 collnet tables are equally long: that of the net tells. Never called. */
__attribute__((visibility("default"))) const void* const ncclNetPlugin_v11[21] = {"Summer"};
#endif
