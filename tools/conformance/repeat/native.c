/* The plugin's own table: plexus_net.h. */
#include <dlfcn.h>
#include <plexus/plexus_net.h>
#include <stdint.h>
#include <stdio.h>

enum { kAgain = PLEXUS_AGAIN };
static const plexus_net_ops_t* net;

static void net_log(
    plexus_log_sink_t* sink, int32_t level, const char* file, int32_t line, const char* text) {
  (void)sink, (void)file, (void)line;
  if (level <= PLEXUS_LOG_WARN) {
    fprintf(stderr, "  the plugin: %s\n", text);
  }
}
static int net_load(const char* library, int version) {
  (void)version;
  void* file = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  const plexus_plugin_t* (*query)(uint32_t) = NULL;
  if (file != NULL) {
    *(void**)&query = dlsym(file, "plexus_plugin_query");
  }
  const plexus_plugin_t* plugin = query == NULL ? NULL : query(PLEXUS_HOST_ABI);
  if (plugin == NULL || plugin->net == NULL) {
    fprintf(stderr, "%s: no net plugin: %s\n", library, file == NULL ? dlerror() : "no table");
    return 1;
  }
  net = plugin->net;
  return 0;
}
static int net_init(uint64_t communicator, void** context) {
  const plexus_net_config_t config = {sizeof config, -1, communicator, net_log, NULL, NULL};
  return net->init(&config, (plexus_net_context_t**)context);
}
static int net_listen(void* context, int device, void* handle, void** listen) {
  return net->listen(context, (uint32_t)device, handle, (plexus_net_listen_t**)listen);
}
static int net_connect(void* context, int device, void* handle, void** send) {
  return net->connect(context, (uint32_t)device, handle, (plexus_net_send_t**)send);
}
static int net_accept(void* listen, void** recv) {
  return net->accept(listen, (plexus_net_recv_t**)recv);
}
static int net_register(int is_send, void* end, void* data, uint64_t bytes, void** memory) {
  const plexus_net_region_t region = {data, bytes, 0, -1, PLEXUS_MEMORY_HOST};
  return is_send ? net->register_send(end, &region, (plexus_net_memory_t**)memory)
                 : net->register_recv(end, &region, (plexus_net_memory_t**)memory);
}
static int net_deregister(void* end, void* memory) {
  (void)end;
  return memory == NULL ? 0 : net->deregister(memory);
}
static int net_isend(
    void* send, void* data, uint64_t bytes, int tag, void* memory, void** request) {
  return net->isend(send, data, bytes, tag, memory, (plexus_net_request_t**)request);
}
static int net_irecv(void* recv,
                     int count,
                     void** data,
                     const uint64_t* bytes,
                     const int* tags,
                     void** memory,
                     void** request) {
  plexus_net_buffer_t buffers[PLEXUS_NET_RECVS_MAX];
  for (int i = 0; i < count; ++i) {
    const plexus_net_buffer_t buffer = {data[i], bytes[i], memory[i], tags[i], 0};
    buffers[i] = buffer;
  }
  return net->irecv(recv, (uint32_t)count, buffers, (plexus_net_request_t**)request);
}
static int net_test(void* request, uint64_t* sizes) { return net->test(request, sizes); }
