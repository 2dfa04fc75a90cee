/* SPDX-License-Identifier: Apache-2.0
 *
 * The net plugin's table, with which Plexus moves bytes between hosts. It has the abilities of
 * ncclNet v12, a context per communicator, one handle type per kind of object, and paths between
 * fabrics.
 *
 * Life: `init` > `device_count`, `properties` > (`listen` on the receiving side; the host
 * sends its 128-byte handle to the sending side; `connect` there, `accept` here) > `register_*`
 * > `isend`, `irecv`, `flush`, `test` > `deregister` > `close_*` > `finalize`. A connection has one
 * direction.
 *
 * Rules for every entry, unless it says otherwise:
 * - Returns PLEXUS_OK, PLEXUS_AGAIN where the entry allows it, or a failing code after one
 *   PLEXUS_LOG_ERROR line. A connection that failed stays failed: every later call fails as well,
 *   and none of its buffers is accessed again.
 * - No entry blocks, except where its comment says "may take long". No entry raises a signal,
 *   ends the process, or lets a C++ exception escape.
 * - Threads: calls on one handle (and on the requests and memory made from it) come from one thread
 *   at a time, not always the same. Calls on different handles may be concurrent.
 * - Out parameters are written only on PLEXUS_OK, except where stated otherwise.
 * - Sizes are bytes, bit rates are Mbit/s (10^6), times are nanoseconds.
 *
 * What the host does, with `ops` from the descriptor (example/minimal_net.c is the other side):
 *
 *   plexus_net_request_t* request = NULL;
 *   int32_t code = ops->isend(send, data, size_bytes, tag, memory, &request);
 *   while (code == PLEXUS_OK && (code = ops->test(request, &moved_bytes)) == PLEXUS_AGAIN) {
 *     code = PLEXUS_OK;
 *   }
 */
#pragma once

#include "plexus_plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PLEXUS_NET_HANDLE_BYTES 128u
/* Largest number of buffers in one grouped receive. */
#define PLEXUS_NET_RECVS_MAX 8u
/* Largest number of pieces, or of sources, of a message. */
#define PLEXUS_NET_PIECES_MAX 4u
/* Largest meaningful `message_bytes_max`: 2^40. */
#define PLEXUS_NET_MESSAGE_BYTES_MAX (UINT64_C(1) << 40)

/* The plugin does not know the value. Plugins must not guess. */
#define PLEXUS_UNKNOWN_U32 UINT32_MAX
#define PLEXUS_UNKNOWN_U64 UINT64_MAX

/* Kinds of memory: a bit mask in `pointer_support`, exactly one bit in `plexus_net_region_t.kind`.
 */
#define PLEXUS_MEMORY_HOST 1u
#define PLEXUS_MEMORY_CUDA 2u
#define PLEXUS_MEMORY_DMABUF 4u

/* Handles, defined by the plugin. The comments name the entries that make and end each. */
typedef struct plexus_net_context plexus_net_context_t; /* init .. finalize */
typedef struct plexus_net_listen plexus_net_listen_t;   /* listen .. close_listen */
typedef struct plexus_net_send plexus_net_send_t;       /* connect .. close_send */
typedef struct plexus_net_recv plexus_net_recv_t;       /* accept .. close_recv */
typedef struct plexus_net_memory plexus_net_memory_t;   /* register_* .. deregister */
typedef struct plexus_net_request plexus_net_request_t; /* isend, irecv, flush .. test says OK */

/* What the host passes to `init`. Later versions append fields: read a field only if it is within
 * struct_size. Borrowed for the call; `log`, `log_sink` and `setting` stay usable until `finalize`
 * has returned. */
typedef struct plexus_net_config {
  uint32_t struct_size;
  int32_t traffic_class; /* requested by the user (quality of service), -1: none */
  uint64_t comm_id;      /* equal on all ranks of a communicator; for logs and names */
  plexus_log_fn log;     /* never null */
  plexus_log_sink_t* log_sink;
  plexus_setting_fn setting; /* since 1.2, takes `log_sink`; null: use getenv */
} plexus_net_config_t;

/* A device (NIC). The host zeroes it before `properties`; fixed size; `reserved` stays 0.
 */
typedef struct plexus_net_properties {
  char name[64];              /* zero-terminated, not empty: "mlx5_0", "eth0" */
  char pci_path[256];         /* real path below /sys/devices; empty: virtual device */
  uint64_t guid;              /* equal on two devices: same physical port. PLEXUS_UNKNOWN_U64 */
  uint64_t fabric_id;         /* the fabric it is connected to, for net_path. PLEXUS_UNKNOWN_U64 */
  uint64_t message_bytes_max; /* longest isend, in 1 .. PLEXUS_NET_MESSAGE_BYTES_MAX */
  uint32_t pointer_support;   /* PLEXUS_MEMORY_* mask, never 0 */
  uint32_t speed_mbit_per_s;  /* of the port. PLEXUS_UNKNOWN_U32 */
  uint32_t latency_ns;        /* one way, shortest message. PLEXUS_UNKNOWN_U32 */
  uint32_t port;              /* number of the port on the card, 0 when it has one */
  uint32_t comms_max;         /* connections the device can have, at least 1 */
  uint32_t recvs_max;         /* buffers in one irecv, in 1 .. PLEXUS_NET_RECVS_MAX */
  uint32_t requests_max;      /* requests in flight per connection, at least 8 */
  uint32_t registration_is_global; /* 1: registering inside a registered range is nearly free */
  uint32_t force_flush;            /* 1: every receive into GPU memory needs a flush */
  int32_t rail_id;                 /* -1: none. Devices of one rail reach each other best */
  int32_t plane_id;      /* -1: none. Devices of different planes do not reach each other */
  uint32_t takes_pieces; /* since 1.4. 1: isend_pieces and irecv_pieces serve this device */
  uint32_t reserved[30]; /* 0 */
} plexus_net_properties_t;

/* The path between two fabrics. Fixed size, zeroed by the host. */
#define PLEXUS_NET_LEVEL_SAME_DC 0
#define PLEXUS_NET_LEVEL_OTHER_DC 1 /* larger levels are further away */
#define PLEXUS_NET_LEVEL_DISCONNECTED INT32_MAX
#define PLEXUS_NET_LEVEL_UNKNOWN (-1)
typedef struct plexus_net_path {
  int32_t level;                 /* PLEXUS_NET_LEVEL_* */
  uint32_t loss_per_billion;     /* packets lost per 10^9. PLEXUS_UNKNOWN_U32 */
  uint64_t bandwidth_mbit_per_s; /* of the whole path. PLEXUS_UNKNOWN_U64 */
  uint64_t latency_ns;           /* one way. PLEXUS_UNKNOWN_U64 */
  uint64_t cost;                 /* any unit, smaller is better. PLEXUS_UNKNOWN_U64 */
  uint64_t reserved[4];          /* 0 */
} plexus_net_path_t;

typedef struct plexus_net_handle {
  uint8_t bytes[PLEXUS_NET_HANDLE_BYTES];
} plexus_net_handle_t;

/* Memory to register. */
typedef struct plexus_net_region {
  void* data; /* the address that isend and irecv will use */
  uint64_t size_bytes;
  uint64_t dmabuf_offset_bytes; /* of `data` in the dmabuf, when kind is DMABUF */
  int32_t dmabuf_fd;            /* the host closes it after the call; duplicate it to keep it */
  uint32_t kind;                /* one PLEXUS_MEMORY_* bit */
} plexus_net_region_t;

/* One buffer of a receive or of a flush. */
typedef struct plexus_net_buffer {
  void* data;
  uint64_t size_bytes; /* capacity; a longer message fails the connection */
  plexus_net_memory_t* memory;
  int32_t tag;    /* receives a message that was sent with this tag */
  uint32_t flags; /* 0 */
} plexus_net_buffer_t;

/* Memory of the host, registered or not. */
typedef struct plexus_net_piece {
  void* data;
  uint64_t size_bytes; /* 0 is legal */
} plexus_net_piece_t;

/* A part of a message that is sent, in registered memory. */
typedef struct plexus_net_source {
  const void* data;
  uint64_t size_bytes;         /* 0 is legal */
  plexus_net_memory_t* memory; /* of register_send */
} plexus_net_source_t;

typedef struct plexus_net_ops { /* append only, see plugin-api/ABI.md */
  uint32_t struct_size;         /* sizeof(plexus_net_ops_t), as the plugin was compiled */
  uint32_t reserved;            /* 0 */

  /* Makes the context of one communicator, which shares no state with other contexts that the
   * caller could notice. May take long. Settings are read here, and a bad one is
   * PLEXUS_INVALID_USAGE with a sentence that names it. A failure leaves nothing behind.
   * Threads: any, also concurrently. */
  int32_t (*init)(const plexus_net_config_t* config, plexus_net_context_t** context);

  /* Ends the context. All its handles must be closed before. May take long. */
  void (*finalize)(plexus_net_context_t* context);

  /* Devices, numbered from 0; constant for the life of the context. 0: unusable on this machine, so
   * the host tries another plugin. */
  int32_t (*device_count)(plexus_net_context_t* context, uint32_t* count);

  /* Properties of `device` < count. Threads: any, also concurrently. */
  int32_t (*properties)(plexus_net_context_t* context,
                        uint32_t device,
                        plexus_net_properties_t* properties);

  /* Starts listening on `device` and fills in the handle that the sending side needs. The handle
   * is sent over an authenticated channel and is secret: a peer that has it may connect. */
  int32_t (*listen)(plexus_net_context_t* context,
                    uint32_t device,
                    plexus_net_handle_t* handle,
                    plexus_net_listen_t** listen);

  /* Connects to a handle. First call with `*send` null; the plugin sets it at once and continues
   * in later calls with the same arguments: PLEXUS_AGAIN until connected, which may require that
   * the peer calls accept. The caller must close a `*send` that is not null, whatever the last
   * result was (also when it gives up while connecting). */
  int32_t (*connect)(plexus_net_context_t* context,
                     uint32_t device,
                     const plexus_net_handle_t* handle,
                     plexus_net_send_t** send);

  /* Accepts one connection; progresses like connect. One accept at a time per `listen`; several
   * one after the other are allowed. An attempt without the handle is refused, which is no failure.
   * The connection outlives `listen`. */
  int32_t (*accept)(plexus_net_listen_t* listen, plexus_net_recv_t** recv);

  /* Registers memory for a connection. May take long. The host registers a buffer before it uses
   * it, owns the memory, and keeps it mapped until deregister. `*memory` null: the plugin needs no
   * registration. */
  int32_t (*register_send)(plexus_net_send_t* send,
                           const plexus_net_region_t* region,
                           plexus_net_memory_t** memory);
  int32_t (*register_recv)(plexus_net_recv_t* recv,
                           const plexus_net_region_t* region,
                           plexus_net_memory_t** memory);
  /* Called before its connection is closed and when no request uses the memory. Not for null. */
  int32_t (*deregister)(plexus_net_memory_t* memory);

  /* Starts sending. PLEXUS_AGAIN: queue full or peer not ready; nothing started, call again.
   * Size 0 is legal. `data` stays unchanged until test() returns OK. Messages with one tag arrive
   * in the order in which they were sent; a message whose buffer is not posted yet may delay later
   * ones with any tag. */
  int32_t (*isend)(plexus_net_send_t* send,
                   const void* data,
                   uint64_t size_bytes,
                   int32_t tag,
                   plexus_net_memory_t* memory,
                   plexus_net_request_t** request);

  /* Posts `count` buffers (1 .. recvs_max) as one request: all, or none with PLEXUS_AGAIN.
   * `buffers` is borrowed for the call, the memory that it points to until test() returns OK. A
   * message is received into the oldest free buffer with its tag. */
  int32_t (*irecv)(plexus_net_recv_t* recv,
                   uint32_t count,
                   const plexus_net_buffer_t* buffers,
                   plexus_net_request_t** request);

  /* Makes data of completed receives visible to the GPU. PLEXUS_OK with `*request` null: it is
   * visible already. Never returns PLEXUS_AGAIN. Data that arrived before the connection failed may
   * be flushed afterwards, if the NIC still can. Null entry: never needed (no CUDA or DMABUF in
   * pointer_support).
   */
  int32_t (*flush)(plexus_net_recv_t* recv,
                   uint32_t count,
                   const plexus_net_buffer_t* buffers,
                   plexus_net_request_t** request);

  /* Advances and tests: PLEXUS_AGAIN = not done. PLEXUS_OK = done; the request is freed and must
   * not be tested again; `sizes_bytes`, if not null, receives the bytes moved (one entry for a
   * send, `count` for a receive, none for a flush). A failing code: the request is freed as well.
   */
  int32_t (*test)(plexus_net_request_t* request, uint64_t* sizes_bytes);

  /* Close, each once. Requests may be outstanding (abort): after the call their buffers are not
   * accessed again. A message whose send test() called done arrives nevertheless, though its sender
   * has closed and its process has ended. May take up to a few milliseconds. */
  void (*close_send)(plexus_net_send_t* send);
  void (*close_recv)(plexus_net_recv_t* recv);
  void (*close_listen)(plexus_net_listen_t* listen);

  /* Optional (null: no information about fabrics). The path from fabric `source` to fabric
   * `target`, with ids from the properties. Threads: any, also concurrently. */
  int32_t (*net_path)(plexus_net_context_t* context,
                      uint64_t source,
                      uint64_t target,
                      plexus_net_path_t* path);

  /* Since 1.4, optional: both or none, for devices with `takes_pieces`. Like isend and irecv of one
   * buffer, for a message in `count` (1 .. PLEXUS_NET_PIECES_MAX) consecutive pieces of host
   * memory, which need not be registered: the host thus avoids copies between its own headers and
   * its user's memory. `pieces` is borrowed for the call, the memory that they point to until
   * test() returns OK. The capacity of a receive is that of all its pieces. It is one message like
   * any other: the two ends may divide it differently. Such a device also keeps messages for which
   * no buffer is posted yet, as a socket does: the host posts receives late, when it knows the
   * destination of their data. */
  int32_t (*isend_pieces)(plexus_net_send_t* send,
                          uint32_t count,
                          const plexus_net_piece_t* pieces,
                          int32_t tag,
                          plexus_net_request_t** request);
  int32_t (*irecv_pieces)(plexus_net_recv_t* recv,
                          uint32_t count,
                          const plexus_net_piece_t* pieces,
                          int32_t tag,
                          plexus_net_request_t** request);

  /* Since 1.6, optional. Like isend, for a message whose bytes lie in `count` (1 ..
   * PLEXUS_NET_PIECES_MAX) consecutive sources, each in memory that was registered for sending over
   * this connection: the host thus sends its own header and its user's registered memory without a
   * copy. `sources` is borrowed for the call. The receiver sees one message like any other. Where
   * the table has this entry, deregister() of memory that no request uses may be called by one
   * thread while another one uses the connection. */
  int32_t (*isend_gathered)(plexus_net_send_t* send,
                            uint32_t count,
                            const plexus_net_source_t* sources,
                            int32_t tag,
                            plexus_net_request_t** request);
} plexus_net_ops_t;

#ifdef __cplusplus
}
#endif
