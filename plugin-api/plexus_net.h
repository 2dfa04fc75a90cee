/* SPDX-License-Identifier: Apache-2.0
 *
 * The net plugin's table: how Plexus moves bytes between hosts. It can do what ncclNet v12 does,
 * with a context per communicator, one typed handle per kind of object, and knowledge of fabrics.
 *
 * Life: `init` > `device_count`, `properties` > (`listen` on the receiving side; its 128-byte
 * handle travels to the sending side by other means; `connect` there, `accept` here) > `register_*`
 * > `isend`, `irecv`, `flush`, `test` > `deregister` > `close_*` > `finalize`. A connection has one
 * direction.
 *
 * Rules for every entry, unless it says otherwise:
 * - Returns PLEXUS_OK, PLEXUS_AGAIN where the entry allows it, or a failing code after one
 *   PLEXUS_LOG_ERROR line. A connection that failed stays failed: every later call says so again,
 *   and none of its buffers is touched any more.
 * - No entry blocks, except where "may take long" is written. No entry raises a signal, ends the
 *   process, or lets a C++ exception out.
 * - Threads: calls on one handle (and on the requests and memory made from it) come from one thread
 *   at a time, not always the same. Calls on different handles may come at the same time.
 * - Out parameters are written only on PLEXUS_OK, except where written otherwise.
 * - Sizes are bytes, bit rates are Mbit/s (10^6), times are nanoseconds.
 */
#pragma once

#include "plexus_plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PLEXUS_NET_HANDLE_BYTES 128u
/* Most buffers in one grouped receive. */
#define PLEXUS_NET_RECVS_MAX 8u
/* Most pieces of a message. */
#define PLEXUS_NET_PIECES_MAX 4u
/* Greatest `message_bytes_max` that has a meaning: 2^40. */
#define PLEXUS_NET_MESSAGE_BYTES_MAX (UINT64_C(1) << 40)

/* "The plugin does not know." Never guess instead. */
#define PLEXUS_UNKNOWN_U32 UINT32_MAX
#define PLEXUS_UNKNOWN_U64 UINT64_MAX

/* Kinds of memory: a bit mask in `pointer_support`, exactly one bit in `plexus_net_region_t.kind`.
 */
#define PLEXUS_MEMORY_HOST 1u
#define PLEXUS_MEMORY_CUDA 2u
#define PLEXUS_MEMORY_DMABUF 4u

/* Handles. The plugin defines what is behind them; each is made and ended by the entries named. */
typedef struct plexus_net_context plexus_net_context_t; /* init .. finalize */
typedef struct plexus_net_listen plexus_net_listen_t;   /* listen .. close_listen */
typedef struct plexus_net_send plexus_net_send_t;       /* connect .. close_send */
typedef struct plexus_net_recv plexus_net_recv_t;       /* accept .. close_recv */
typedef struct plexus_net_memory plexus_net_memory_t;   /* register_* .. deregister */
typedef struct plexus_net_request plexus_net_request_t; /* isend, irecv, flush .. test says OK */

/* What the host tells at `init`. Grows at its end: read a field only when it is within struct_size.
 * Borrowed for the call; `log`, `log_sink` and `setting` stay usable until `finalize` returned. */
typedef struct plexus_net_config {
  uint32_t struct_size;
  int32_t traffic_class; /* wish of the user (quality of service), -1: none */
  uint64_t comm_id;      /* equal on all ranks of a communicator; for logs and names */
  plexus_log_fn log;     /* never null */
  plexus_log_sink_t* log_sink;
  plexus_setting_fn setting; /* since 1.2, takes `log_sink`; null: ask getenv */
} plexus_net_config_t;

/* A device (NIC). The host zeroes it before `properties`; fixed size: what is `reserved` stays 0.
 */
typedef struct plexus_net_properties {
  char name[64];              /* zero-terminated, not empty: "mlx5_0", "eth0" */
  char pci_path[256];         /* real path below /sys/devices; empty: virtual device */
  uint64_t guid;              /* equal on two devices: same physical port. PLEXUS_UNKNOWN_U64 */
  uint64_t fabric_id;         /* which fabric it is plugged in, for net_path. PLEXUS_UNKNOWN_U64 */
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

/* The way between two fabrics. Fixed size, zeroed by the host. */
#define PLEXUS_NET_LEVEL_SAME_DC 0
#define PLEXUS_NET_LEVEL_OTHER_DC 1 /* greater levels are further away */
#define PLEXUS_NET_LEVEL_DISCONNECTED INT32_MAX
#define PLEXUS_NET_LEVEL_UNKNOWN (-1)
typedef struct plexus_net_path {
  int32_t level;                 /* PLEXUS_NET_LEVEL_* */
  uint32_t loss_per_billion;     /* packets lost of 10^9. PLEXUS_UNKNOWN_U32 */
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
  int32_t dmabuf_fd;            /* closed by the host after the call; duplicate what you need */
  uint32_t kind;                /* one PLEXUS_MEMORY_* bit */
} plexus_net_region_t;

/* One buffer of a receive or of a flush. */
typedef struct plexus_net_buffer {
  void* data;
  uint64_t size_bytes; /* room; the message may be shorter, a longer one fails the connection */
  plexus_net_memory_t* memory;
  int32_t tag;    /* takes the message that was sent with this tag */
  uint32_t flags; /* 0 */
} plexus_net_buffer_t;

/* Memory of the host, registered or not. */
typedef struct plexus_net_piece {
  void* data;
  uint64_t size_bytes; /* 0 is legal */
} plexus_net_piece_t;

typedef struct plexus_net_ops { /* append only, see plugin-api/ABI.md */
  uint32_t struct_size;         /* sizeof(plexus_net_ops_t), as the plugin was compiled */
  uint32_t reserved;            /* 0 */

  /* Makes the context of one communicator; nothing is shared with other contexts, as far as the
   * caller can see. May take long. Settings are read here, and a bad one is
   * PLEXUS_INVALID_USAGE with a sentence that names it. On failure nothing is left behind.
   * Threads: any, also several at once. */
  int32_t (*init)(const plexus_net_config_t* config, plexus_net_context_t** context);

  /* Ends the context. All its handles are closed before. May take long. */
  void (*finalize)(plexus_net_context_t* context);

  /* Devices, numbered from 0; constant for the life of the context. 0 = no use here: the host
   * tries another plugin. */
  int32_t (*device_count)(plexus_net_context_t* context, uint32_t* count);

  /* Properties of `device` < count. Threads: any, also several at once. */
  int32_t (*properties)(plexus_net_context_t* context,
                        uint32_t device,
                        plexus_net_properties_t* properties);

  /* Starts listening on `device` and fills in the handle that the sending side needs. The handle
   * travels over an authenticated channel and is secret: who shows it may connect. */
  int32_t (*listen)(plexus_net_context_t* context,
                    uint32_t device,
                    plexus_net_handle_t* handle,
                    plexus_net_listen_t** listen);

  /* Connects to a handle. First call with `*send` null; the plugin sets it at once and works on it
   * in later calls with the same arguments: PLEXUS_AGAIN until connected, which may need the peer
   * to call accept. Whatever the last result was, a `*send` that is not null is the caller's to
   * close (giving up while it is connecting included). */
  int32_t (*connect)(plexus_net_context_t* context,
                     uint32_t device,
                     const plexus_net_handle_t* handle,
                     plexus_net_send_t** send);

  /* Accepts one connection, in the manner of connect. One accept at a time per `listen`; several
   * one after the other are allowed. A stranger's attempt is refused and is no failure. The
   * connection outlives `listen`. */
  int32_t (*accept)(plexus_net_listen_t* listen, plexus_net_recv_t** recv);

  /* Registers memory for a connection. May take long. The host does so before it uses a buffer.
   * The memory stays the host's, which keeps it mapped until deregister. `*memory` may become null:
   * this plugin needs no registration. */
  int32_t (*register_send)(plexus_net_send_t* send,
                           const plexus_net_region_t* region,
                           plexus_net_memory_t** memory);
  int32_t (*register_recv)(plexus_net_recv_t* recv,
                           const plexus_net_region_t* region,
                           plexus_net_memory_t** memory);
  /* Before the connection it was registered with is closed; no request uses it. Not for null. */
  int32_t (*deregister)(plexus_net_memory_t* memory);

  /* Starts sending. PLEXUS_AGAIN: queue full or peer not ready, nothing started, call again.
   * Size 0 is legal. `data` stays unchanged until test() says OK. Messages with one tag arrive in
   * the order in which they were sent; a message whose buffer is not posted yet may hold up those
   * sent after it, whatever their tags. */
  int32_t (*isend)(plexus_net_send_t* send,
                   const void* data,
                   uint64_t size_bytes,
                   int32_t tag,
                   plexus_net_memory_t* memory,
                   plexus_net_request_t** request);

  /* Posts `count` buffers (1 .. recvs_max) as one request: all or nothing, PLEXUS_AGAIN: nothing.
   * `buffers` is borrowed for the call, what it points to until test() says OK. A message takes the
   * oldest free buffer with its tag. */
  int32_t (*irecv)(plexus_net_recv_t* recv,
                   uint32_t count,
                   const plexus_net_buffer_t* buffers,
                   plexus_net_request_t** request);

  /* Makes data of completed receives visible to the GPU. PLEXUS_OK with `*request` null: it already
   * is; there is no PLEXUS_AGAIN. What arrived before the connection failed may be flushed after,
   * as far as the card still can. Null entry: never needed (no CUDA or DMABUF in pointer_support).
   */
  int32_t (*flush)(plexus_net_recv_t* recv,
                   uint32_t count,
                   const plexus_net_buffer_t* buffers,
                   plexus_net_request_t** request);

  /* Advances and looks: PLEXUS_AGAIN = not done. PLEXUS_OK = done; the request is gone and is not
   * tested again; `sizes_bytes`, when not null, got the bytes moved (one entry for a send, `count`
   * for a receive, none for a flush). A failing code: the request is gone as well. */
  int32_t (*test)(plexus_net_request_t* request, uint64_t* sizes_bytes);

  /* Close, each once. Requests may be outstanding (abort): after the call their buffers are not
   * touched any more. May take long, but not longer than some milliseconds. */
  void (*close_send)(plexus_net_send_t* send);
  void (*close_recv)(plexus_net_recv_t* recv);
  void (*close_listen)(plexus_net_listen_t* listen);

  /* Optional (null: the plugin knows nothing of fabrics). The path from fabric `source` to fabric
   * `target`, ids as in the properties. Threads: any, also several at once. */
  int32_t (*net_path)(plexus_net_context_t* context,
                      uint64_t source,
                      uint64_t target,
                      plexus_net_path_t* path);

  /* Since 1.4, optional: both or none, for devices that say `takes_pieces`. As isend and irecv of
   * one buffer, of a message that lies in `count` (1 .. PLEXUS_NET_PIECES_MAX) pieces of host
   * memory, one after the other, which need not be registered: a host then copies nothing on the
   * way between its own headers and its user's memory. `pieces` is borrowed for the call, what they
   * point to until test() says OK. A receive's room is that of all its pieces. It is one message
   * like any other: how one end cuts it is nothing to the other. A device that takes pieces also
   * keeps what nobody has posted a buffer for yet, as a kernel's socket does: the host posts
   * receives late, when it knows where their data belongs. */
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
} plexus_net_ops_t;

#ifdef __cplusplus
}
#endif
