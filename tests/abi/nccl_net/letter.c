/* SPDX-License-Identifier: Apache-2.0
 *
 * A net plugin of NCCL's ABI v8 that does what NCCL needs of it and no more, as NVIDIA's own socket
 * transport does: a kit that calls it wrong asks more than NCCL's contract.
 * - A request exchanges its size when it is first tested, so the oldest must be tested first; here
 *   another is an error, there its messages would be mixed up.
 * - The 33rd request is an error, not "call again". Tags are not looked at.
 * - An address is needed for an empty message, and a place for every size.
 * - init leaves a variable in the environment; descriptors stay open over exec.
 * With LETTER_CUDA it needs a symbol of CUDA's runtime. With LETTER_DRIVER its init opens CUDA's
 * runtime and driver and takes functions of the driver from both, as aws-ofi-nccl does.
 * It also has a helper function whose name looks like a table's.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
enum { kSuccess = 0, kSystemError = 2, kInternalError = 3, kRemoteError = 6 };
enum { kWarn = 2, kNetSubsystem = 0x10 };
enum { kRequestsMax = 32 };

typedef void (*log_function)(
    int level, unsigned long subsystems, const char* file, int line, const char* format, ...);
static log_function say;

static int broken(int code, const char* what) {
  say(kWarn, kNetSubsystem, __FILE__, __LINE__, "letter: %s (errno %d)", what, errno);
  return code;
}

enum state { kFree, kPosted, kSized };
struct connection;
struct request {
  enum state state;
  char* data;
  int size;        /* room, then the message's size */
  size_t done;     /* bytes of the size, then of the data */
  int size_on_way; /* of the size while it is exchanged */
  uint64_t number; /* of those of its connection */
  struct connection* connection;
};
struct connection {
  int fd, is_send;
  uint64_t posted, ended; /* requests */
  struct request requests[kRequestsMax];
};
struct handle {
  struct sockaddr_in address;
  int is_begun, fd;
};

struct properties_v8 {
  char* name;
  char* pci_path;
  uint64_t guid;
  int pointers, registration_is_global, speed, port;
  float latency;
  int comms_max, recvs_max, device_type, device_version;
};

/* Looks like a table's name, and is none. */
EXPORT int ncclNetLetterBroken_v8(void);
int ncclNetLetterBroken_v8(void) { return kSuccess; }

#ifdef LETTER_CUDA /* expects its host to have CUDA's runtime loaded */
extern int cudaEventQuery(void* event);
#else
static int cudaEventQuery(void* event) { return event == NULL ? 100 : 0; }
#endif

#ifdef LETTER_DRIVER
static int lacks_driver(void) {
  void* runtime = dlopen("libcudart.so", RTLD_NOW);
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  int (*find)(const char*, void**, unsigned, uint64_t, int*) = NULL;
  int (*find_in_driver)(const char*, void**, int, uint64_t, int*) = NULL;
  int (*tell_version)(int*) = NULL;
  int (*get_device)(int*) = NULL;
  int version = 0, result = 1;
  if (runtime == NULL || driver == NULL) {
    return 1;
  }
  *(void**)&find = dlsym(runtime, "cudaGetDriverEntryPointByVersion");
  *(void**)&find_in_driver = dlsym(driver, "cuGetProcAddress_v2");
  return find == NULL || find_in_driver == NULL ||
         find("cuDriverGetVersion", (void**)&tell_version, 2020, 0, &result) != 0 || result != 0 ||
         tell_version(&version) != 0 || version < 11000 ||
         find_in_driver("cuCtxGetDevice", (void**)&get_device, 2000, 0, &result) != 0 ||
         get_device(&version) != 100;
}
#else
static int lacks_driver(void) { return 0; }
#endif

static int init(log_function log) {
  say = log;
  if (lacks_driver()) {
    say(kWarn, kNetSubsystem, __FILE__, __LINE__,
        "letter: libcudart.so or libcuda.so.1 is missing");
    return kSystemError;
  }
  if (cudaEventQuery(NULL) == 0) {
    return broken(kInternalError, "there is an event that nobody made");
  }
  setenv("LETTER_WAS_HERE", "1", 1);
  return kSuccess;
}
static int devices(int* count) {
  *count = getenv("LETTER_NO_DEVICE") == NULL ? 1 : 0;
  if (*count == 0) {
    say(kWarn, kNetSubsystem, __FILE__, __LINE__, "letter: no card found below /sys");
  }
  return kSuccess;
}
static int properties(int device, struct properties_v8* p) {
  p->name = "letter0";
  p->guid = (uint64_t)device + 1;
  p->pointers = 1;
  p->speed = 10000;
  p->comms_max = 65536;
  p->recvs_max = 1;
  return kSuccess;
}

static int start_listen(int device, void* opaque, void** out) {
  (void)device;
  struct handle* handle = opaque;
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof address;
  int* fd = malloc(sizeof *fd);
  *fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  if (*fd < 0 || bind(*fd, (struct sockaddr*)&address, size) != 0 || listen(*fd, 64) != 0 ||
      getsockname(*fd, (struct sockaddr*)&address, &size) != 0) {
    free(fd);
    return broken(kSystemError, "cannot listen");
  }
  memset(handle, 0, sizeof *handle);
  handle->address = address;
  *out = fd;
  return kSuccess;
}

static struct connection* make_connection(int fd, int is_send) {
  int one = 1;
  struct connection* made = calloc(1, sizeof *made);
  made->fd = fd;
  made->is_send = is_send;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return made;
}

static int start_connect(int device, void* opaque, void** out, void** offload) {
  (void)device, (void)offload;
  struct handle* handle = opaque;
  *out = NULL;
  if (!handle->is_begun) {
    handle->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    handle->is_begun = 1;
  }
  if (connect(handle->fd, (struct sockaddr*)&handle->address, sizeof handle->address) != 0 &&
      errno != EISCONN) {
    return errno == EINPROGRESS || errno == EALREADY ? kSuccess
                                                     : broken(kRemoteError, "cannot connect");
  }
  *out = make_connection(handle->fd, 1);
  return kSuccess;
}

static int start_accept(void* opaque, void** out, void** offload) {
  (void)offload;
  *out = NULL;
  int fd = accept4(*(int*)opaque, NULL, NULL, SOCK_NONBLOCK);
  if (fd < 0) {
    return errno == EAGAIN ? kSuccess : broken(kSystemError, "cannot accept");
  }
  *out = make_connection(fd, 0);
  return kSuccess;
}

static int reg(void* connection, void* data, size_t size, int type, void** memory) {
  (void)connection, (void)data, (void)size;
  *memory = NULL; /* legal: no registration */
  return type == 1 ? kSuccess : broken(kInternalError, "bad kind of memory");
}
static int dereg(void* connection, void* memory) {
  (void)connection, (void)memory;
  return kSuccess;
}

static int post(struct connection* c, void* data, int size, void** out) {
  *out = NULL;
  if (data == NULL) {
    return broken(kInternalError, "no address");
  }
  for (int i = 0; i < kRequestsMax; ++i) {
    struct request* request = &c->requests[i];
    if (request->state == kFree) {
      *request = (struct request){kPosted, data, size, 0, size, c->posted++, c};
      *out = request;
      return kSuccess;
    }
  }
  return broken(kInternalError, "no request is free");
}
static int isend(void* send, void* data, int size, int tag, void* memory, void** request) {
  (void)tag, (void)memory;
  return post(send, data, size, request);
}
static int irecv(
    void* recv, int n, void** data, int* sizes, int* tags, void** memory, void** request) {
  (void)tags, (void)memory;
  return n == 1 ? post(recv, data[0], sizes[0], request) : broken(kInternalError, "not one buffer");
}

/* Moves up to `size` bytes from `done` on. 1: all are moved, 0: later, -1: broken. */
static int move(struct connection* c, void* data, size_t size, size_t* done) {
  while (*done < size) {
    ssize_t n = c->is_send ? send(c->fd, (char*)data + *done, size - *done, MSG_NOSIGNAL)
                           : recv(c->fd, (char*)data + *done, size - *done, 0);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0 && errno == EAGAIN) {
      return 0;
    }
    if (n <= 0) {
      return -1;
    }
    *done += (size_t)n;
  }
  return 1;
}

static int test(void* opaque, int* done, int* size) {
  struct request* request = opaque;
  struct connection* c = request->connection;
  *done = 0;
  *size = request->size; /* before it is done, too */
  if (request->number != c->ended) {
    return broken(kInternalError, "a younger request is tested than the oldest");
  }
  if (request->state == kPosted) {
    int moved = move(c, &request->size_on_way, sizeof request->size_on_way, &request->done);
    if (moved != 1) {
      return moved == 0 ? kSuccess : broken(kRemoteError, "connection lost");
    }
    if (request->size_on_way < 0 || request->size_on_way > request->size) {
      return broken(kInternalError, "the message is longer than its buffer");
    }
    request->state = kSized;
    request->size = request->size_on_way;
    request->done = 0;
  }
  int moved = move(c, request->data, (size_t)request->size, &request->done);
  if (moved == 1) {
    *size = request->size;
    *done = 1;
    request->state = kFree;
    ++c->ended;
  }
  return moved >= 0 ? kSuccess : broken(kRemoteError, "connection lost");
}

static int close_connection(void* opaque) {
  close(((struct connection*)opaque)->fd);
  free(opaque);
  return kSuccess;
}
static int close_listen(void* opaque) {
  close(*(int*)opaque);
  free(opaque);
  return kSuccess;
}

struct net_v8 {
  const char* name;
  int (*init)(log_function log);
  int (*devices)(int* count);
  int (*properties)(int device, struct properties_v8* properties);
  int (*listen)(int device, void* handle, void** listen);
  int (*connect)(int device, void* handle, void** send, void** offload);
  int (*accept)(void* listen, void** recv, void** offload);
  int (*reg)(void* connection, void* data, size_t size, int type, void** memory);
  int (*reg_dmabuf)(void*, void*, size_t, int, uint64_t, int, void**);
  int (*dereg)(void* connection, void* memory);
  int (*isend)(void* send, void* data, int size, int tag, void* memory, void** request);
  int (*irecv)(
      void* recv, int n, void** data, int* sizes, int* tags, void** memory, void** request);
  int (*iflush)(void* recv, int n, void** data, int* sizes, void** memory, void** request);
  int (*test)(void* request, int* done, int* sizes);
  int (*close_send)(void* send);
  int (*close_recv)(void* recv);
  int (*close_listen)(void* listen);
  int (*device_memory)(void* connection, void* memory, void** pointer);
  int (*irecv_consumed)(void* recv, int n, void* request);
};

extern struct net_v8 ncclNetPlugin_v8;
EXPORT struct net_v8 ncclNetPlugin_v8 = {"Letter",
                                         init,
                                         devices,
                                         properties,
                                         start_listen,
                                         start_connect,
                                         start_accept,
                                         reg,
                                         NULL,
                                         dereg,
                                         isend,
                                         irecv,
                                         NULL,
                                         test,
                                         close_connection,
                                         close_connection,
                                         close_listen,
                                         NULL,
                                         NULL};
