/* SPDX-License-Identifier: Apache-2.0
 * The smallest useful net plugin, in C99: processes of one host over AF_UNIX packets. See
 * plexus_net.h for the contract. A packet is a tag and the message; the kernel preserves order and
 * boundaries. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <plexus/plexus_net.h>

enum { kRequests = 8, kNameBytes = 16, kNew = SOCK_NONBLOCK | SOCK_CLOEXEC };
struct plexus_net_context { plexus_log_fn log; plexus_log_sink_t* sink; };
struct plexus_net_request { /* `from` is null for a send, which is complete when isend returns */
  int in_use, is_done; plexus_net_recv_t* from; plexus_net_buffer_t buffer; uint64_t turn;
};
struct plexus_net_listen { plexus_net_context_t* context; int fd; };
struct plexus_net_send {
  plexus_net_context_t* context; int fd; plexus_net_request_t requests[kRequests];
};
struct plexus_net_recv {
  plexus_net_context_t* context; int fd, is_broken; plexus_net_request_t requests[kRequests];
  uint64_t posted;
};
static int32_t fail(const plexus_net_context_t* context, int32_t code, const char* sentence) {
  return context->log(context->sink, PLEXUS_LOG_ERROR, __FILE__, __LINE__, sentence), code;
}
static int32_t init(const plexus_net_config_t* config, plexus_net_context_t** context) {
  if ((*context = malloc(sizeof **context)) == NULL) return PLEXUS_SYSTEM_ERROR;
  return (*context)->log = config->log, (*context)->sink = config->log_sink, PLEXUS_OK;
}
static void finalize(plexus_net_context_t* context) { free(context); }
static int32_t device_count(plexus_net_context_t* context, uint32_t* count) {
  return (void)context, *count = 1, PLEXUS_OK;
}
static int32_t properties(plexus_net_context_t* c, uint32_t device, plexus_net_properties_t* p) {
  (void)c, (void)device, strcpy(p->name, "unix0");
  p->guid = p->fabric_id = PLEXUS_UNKNOWN_U64;
  p->message_bytes_max = 64 * 1024, p->pointer_support = PLEXUS_MEMORY_HOST;
  p->speed_mbit_per_s = p->latency_ns = PLEXUS_UNKNOWN_U32, p->rail_id = p->plane_id = -1;
  return p->comms_max = 1024, p->recvs_max = 1, p->requests_max = kRequests, PLEXUS_OK;
}

/* The handle is a random name in the abstract namespace: it cannot be guessed. */
static struct sockaddr_un make_address(const plexus_net_handle_t* handle) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  memcpy(address.sun_path + 1, handle->bytes, kNameBytes);
  return address;
}
static const socklen_t kAddressBytes = sizeof(sa_family_t) + 1 + kNameBytes;
static int make_socket(void) { return socket(AF_UNIX, SOCK_SEQPACKET | kNew, 0); }
static int32_t open_listen(plexus_net_context_t* context, uint32_t device,
                           plexus_net_handle_t* handle, plexus_net_listen_t** out) {
  int fd = make_socket();
  (void)device, memset(handle, 0, sizeof *handle);
  ssize_t random = getrandom(handle->bytes, kNameBytes, 0);
  struct sockaddr_un address = make_address(handle);
  if (random != kNameBytes || bind(fd, (struct sockaddr*)&address, kAddressBytes) != 0 ||
      listen(fd, 64) != 0 || (*out = malloc(sizeof **out)) == NULL)
    return close(fd), fail(context, PLEXUS_SYSTEM_ERROR, "cannot listen");
  return (*out)->context = context, (*out)->fd = fd, PLEXUS_OK;
}
static int32_t open_send(plexus_net_context_t* context, uint32_t device,
                         const plexus_net_handle_t* handle, plexus_net_send_t** out) {
  struct sockaddr_un address = make_address(handle);
  if ((void)device, *out == NULL) {
    if ((*out = calloc(1, sizeof **out)) == NULL) return PLEXUS_SYSTEM_ERROR;
    (*out)->context = context, (*out)->fd = make_socket();
  }
  if (connect((*out)->fd, (struct sockaddr*)&address, kAddressBytes) == 0) return PLEXUS_OK;
  return errno == EAGAIN ? PLEXUS_AGAIN : fail(context, PLEXUS_REMOTE_ERROR, "no listener");
}
static int32_t open_recv(plexus_net_listen_t* from, plexus_net_recv_t** out) {
  int fd = accept4(from->fd, NULL, NULL, kNew);
  if (fd < 0 && errno == EAGAIN) return PLEXUS_AGAIN;
  if (fd < 0) return fail(from->context, PLEXUS_SYSTEM_ERROR, "cannot accept");
  if ((*out = calloc(1, sizeof **out)) == NULL) return close(fd), PLEXUS_SYSTEM_ERROR;
  return (*out)->context = from->context, (*out)->fd = fd, PLEXUS_OK;
}

/* No registration: the kernel accesses any memory of the process. */
static int32_t check_region(plexus_net_context_t* context, const plexus_net_region_t* region,
                            plexus_net_memory_t** memory) {
  if (region->kind != PLEXUS_MEMORY_HOST)
    return fail(context, PLEXUS_INVALID_USAGE, "unix0 moves host memory only");
  return *memory = NULL, PLEXUS_OK;
}
static int32_t register_send(plexus_net_send_t* send, const plexus_net_region_t* region,
                             plexus_net_memory_t** memory) {
  return check_region(send->context, region, memory);
}
static int32_t register_recv(plexus_net_recv_t* recv, const plexus_net_region_t* region,
                             plexus_net_memory_t** memory) {
  return check_region(recv->context, region, memory);
}
static int32_t deregister(plexus_net_memory_t* memory) { return (void)memory, PLEXUS_OK; }
static plexus_net_request_t* find_free(plexus_net_request_t* requests) {
  for (int i = 0; i < kRequests; ++i) if (!requests[i].in_use) return &requests[i];
  return NULL;
}
static int32_t isend(plexus_net_send_t* send, const void* data, uint64_t size_bytes, int32_t tag,
                     plexus_net_memory_t* memory, plexus_net_request_t** out) {
  struct iovec pieces[2] = {{&tag, sizeof tag}, {(void*)data, size_bytes}};
  struct msghdr packet = {.msg_iov = pieces, .msg_iovlen = 2};
  plexus_net_request_t* request = find_free(send->requests);
  if ((void)memory, request == NULL) return PLEXUS_AGAIN;
  if (sendmsg(send->fd, &packet, MSG_NOSIGNAL) < 0)
    return errno == EAGAIN ? PLEXUS_AGAIN : fail(send->context, PLEXUS_REMOTE_ERROR, "no receiver");
  request->in_use = request->is_done = 1, request->buffer.size_bytes = size_bytes;
  return *out = request, PLEXUS_OK;
}
static int32_t give_up(plexus_net_recv_t* from, int32_t code, const char* sentence) {
  return from->is_broken = code, fail(from->context, code, sentence); /* all later calls fail too */
}
static int32_t irecv(plexus_net_recv_t* from, uint32_t count, const plexus_net_buffer_t* buffers,
                     plexus_net_request_t** out) {
  plexus_net_request_t* request = find_free(from->requests);
  if (from->is_broken) return give_up(from, from->is_broken, "the connection failed before");
  if (count != 1) return fail(from->context, PLEXUS_INVALID_ARGUMENT, "one buffer at a time");
  if (request == NULL) return PLEXUS_AGAIN;
  *request = (plexus_net_request_t){1, 0, from, buffers[0], from->posted++};
  return *out = request, PLEXUS_OK;
}
/* Receives a packet into the oldest buffer with its tag; without one it stays in the kernel */
static int32_t receive(plexus_net_recv_t* from) {
  int32_t tag = 0;
  struct iovec pieces[2] = {{&tag, sizeof tag}, {NULL, 0}};
  struct msghdr packet = {.msg_iov = pieces, .msg_iovlen = 1};
  ssize_t n = recvmsg(from->fd, &packet, MSG_PEEK);
  if (n < 0 && errno == EAGAIN) return PLEXUS_AGAIN;
  if (n <= 0) return give_up(from, PLEXUS_REMOTE_ERROR, "the peer closed the connection");
  plexus_net_request_t* oldest = NULL;
  for (plexus_net_request_t* each = from->requests; each < from->requests + kRequests; ++each)
    if (each->in_use && !each->is_done && each->buffer.tag == tag &&
        (oldest == NULL || each->turn < oldest->turn)) oldest = each;
  if (oldest == NULL) return PLEXUS_AGAIN;
  pieces[1] = (struct iovec){oldest->buffer.data, oldest->buffer.size_bytes};
  packet.msg_iovlen = 2, packet.msg_flags = 0, n = recvmsg(from->fd, &packet, 0);
  if (n < 0 || (packet.msg_flags & MSG_TRUNC) != 0)
    return give_up(from, PLEXUS_INVALID_USAGE, "a message is longer than its buffer");
  return oldest->is_done = 1, oldest->buffer.size_bytes = (uint64_t)n - sizeof tag, PLEXUS_OK;
}
static int32_t test(plexus_net_request_t* request, uint64_t* sizes_bytes) {
  int32_t code = PLEXUS_OK; /* of the last packet; each may be for another request */
  while (request->from != NULL && !request->is_done && code == PLEXUS_OK)
    code = request->from->is_broken
               ? give_up(request->from, request->from->is_broken, "the connection failed before")
               : receive(request->from);
  if (code == PLEXUS_OK && sizes_bytes != NULL) *sizes_bytes = request->buffer.size_bytes;
  if (code != PLEXUS_AGAIN) request->in_use = 0;
  return code;
}
static void close_send(plexus_net_send_t* send) { close(send->fd), free(send); }
static void close_recv(plexus_net_recv_t* recv) { close(recv->fd), free(recv); }
static void close_listen(plexus_net_listen_t* listener) { close(listener->fd), free(listener); }
static const plexus_net_ops_t kOps = {
    sizeof(plexus_net_ops_t), 0, init, finalize, device_count, properties, open_listen, open_send,
    open_recv, register_send, register_recv, deregister, isend, irecv, NULL /* flush */, test,
    close_send, close_recv, close_listen, NULL /* net_path */, NULL /* isend_pieces */,
    NULL /* irecv_pieces */, NULL /* isend_gathered */};
static const plexus_plugin_t kPlugin = {
    PLEXUS_PLUGIN_MAGIC, sizeof(plexus_plugin_t), PLEXUS_ABI_MAJOR, PLEXUS_ABI_MINOR,
    PLEXUS_KIND_NET, 0, "minimal", "1.0", &kOps, NULL /* tuner */};
const plexus_plugin_t* plexus_plugin_query(uint32_t host_abi) { return (void)host_abi, &kPlugin; }
