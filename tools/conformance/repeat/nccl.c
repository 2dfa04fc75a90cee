/* A table ncclNetPlugin_vN, N in 6 .. 12. All have these entries, in this order. */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { kAgain = -1 };
/* The first word is the name; a word is as large as a function's address. */
typedef void (*entry)(void);
static const entry* net;
static int net_version;
static int net_config = -1; /* ncclNetCommConfig: the traffic class */

/* The entry number N as a function with these arguments. */
#define NET(number, ...) ((int (*)(__VA_ARGS__))net[number])

static void net_log(
    int level, unsigned long subsystems, const char* file, int line, const char* format, ...) {
  (void)subsystems, (void)file, (void)line;
  va_list arguments;
  va_start(arguments, format);
  if (level <= 2) { /* WARN */
    fprintf(stderr, "  the plugin: ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
  }
  va_end(arguments);
}
static int net_load(const char* library, int version) {
  char symbol[32];
  snprintf(symbol, sizeof symbol, "ncclNetPlugin_v%d", version);
  void* file = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  net = file == NULL ? NULL : dlsym(file, symbol);
  net_version = version;
  if (net == NULL) {
    fprintf(stderr, "%s: no %s: %s\n", library, symbol, dlerror());
  }
  return net == NULL;
}
static int net_init(uint64_t communicator, void** context) {
  static int is_initialised; /* before v11: once per process */
  int code = 0;
  int devices = 0;
  char properties[1024];
  if (net_version >= 11) {
    code = NET(1, void**, uint64_t, void*, entry, void*)(context, communicator, &net_config,
                                                         (entry)net_log, NULL);
  } else if (net_version == 10 && !is_initialised) {
    code = NET(1, entry, void*)((entry)net_log, NULL);
  } else if (!is_initialised) {
    code = NET(1, entry)((entry)net_log);
  }
  is_initialised = 1;
  code = code != 0 ? code : NET(2, int*)(&devices);
  return code != 0 ? code : NET(3, int, void*)(0, properties);
}
static int net_listen(void* context, int device, void* handle, void** listen) {
  return net_version >= 11 ? NET(4, void*, int, void*, void**)(context, device, handle, listen)
                           : NET(4, int, void*, void**)(device, handle, listen);
}
static int net_connect(void* context, int device, void* handle, void** send) {
  void* offload = NULL;
  int code = 0;
  if (net_version >= 11) {
    code = NET(5, void*, int, void*, void**, void**)(context, device, handle, send, &offload);
  } else if (net_version == 10) {
    code = NET(5, int, void*, void*, void**, void**)(device, &net_config, handle, send, &offload);
  } else if (net_version >= 7) {
    code = NET(5, int, void*, void**, void**)(device, handle, send, &offload);
  } else {
    code = NET(5, int, void*, void**)(device, handle, send);
  }
  return code == 0 && *send == NULL ? kAgain : code;
}
static int net_accept(void* listen, void** recv) {
  void* offload = NULL;
  const int code = net_version >= 7 ? NET(6, void*, void**, void**)(listen, recv, &offload)
                                    : NET(6, void*, void**)(listen, recv);
  return code == 0 && *recv == NULL ? kAgain : code;
}
static int net_register(int is_send, void* end, void* data, uint64_t bytes, void** memory) {
  (void)is_send;
  return net_version >= 8
             ? NET(7, void*, void*, size_t, int, void**)(end, data, bytes, 1, memory)
             : NET(7, void*, void*, int, int, void**)(end, data, (int)bytes, 1, memory);
}
static int net_deregister(void* end, void* memory) { return NET(9, void*, void*)(end, memory); }
static int net_isend(
    void* send, void* data, uint64_t bytes, int tag, void* memory, void** request) {
  int code = 0;
  *request = NULL;
  if (net_version >= 10) {
    code = NET(10, void*, void*, size_t, int, void*, void*, void**)(send, data, bytes, tag, memory,
                                                                    NULL, request);
  } else if (net_version == 9) {
    code =
        NET(10, void*, void*, size_t, int, void*, void**)(send, data, bytes, tag, memory, request);
  } else {
    code = NET(10, void*, void*, int, int, void*, void**)(send, data, (int)bytes, tag, memory,
                                                          request);
  }
  return code == 0 && *request == NULL ? kAgain : code;
}
static int net_irecv(void* recv,
                     int count,
                     void** data,
                     const uint64_t* bytes,
                     const int* tags,
                     void** memory,
                     void** request) {
  size_t sizes[8];
  int short_sizes[8];
  int own_tags[8];
  void* profiles[8] = {NULL};
  int code = 0;
  for (int i = 0; i < count; ++i) {
    sizes[i] = bytes[i];
    short_sizes[i] = (int)bytes[i];
    own_tags[i] = tags[i];
  }
  *request = NULL;
  if (net_version >= 10) {
    code = NET(11, void*, int, void**, size_t*, int*, void**, void**, void**)(
        recv, count, data, sizes, own_tags, memory, profiles, request);
  } else if (net_version == 9) {
    code = NET(11, void*, int, void**, size_t*, int*, void**, void**)(recv, count, data, sizes,
                                                                      own_tags, memory, request);
  } else {
    code = NET(11, void*, int, void**, int*, int*, void**, void**)(recv, count, data, short_sizes,
                                                                   own_tags, memory, request);
  }
  return code == 0 && *request == NULL ? kAgain : code;
}
static int net_test(void* request, uint64_t* sizes) {
  int is_done = 0;
  int done_sizes[64] = {0};
  const int code = NET(13, void*, int*, int*)(request, &is_done, done_sizes);
  for (int i = 0; i < 8; ++i) {
    sizes[i] = (uint64_t)done_sizes[i];
  }
  return code == 0 && !is_done ? kAgain : code;
}
