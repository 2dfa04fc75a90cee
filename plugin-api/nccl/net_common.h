/* SPDX-License-Identifier: Apache-2.0
 *
 * The common part of the versions of NCCL's net plugin ABI: numbers, small structs and function
 * types. The contract behind a type is NCCL's; core/plugin/nccl_net documents what Plexus relies
 * on. A version in a name is the first that has it. Results are int32_t and have
 * the numbers of PLEXUS_OK .. PLEXUS_TIMEOUT (plexus_plugin.h).
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A fact about a layout, checked wherever the header is included. */
#define NCCL_GOLDEN(name, is_so) typedef char nccl_golden_##name[(is_so) ? 1 : -1]
#define NCCL_GOLDEN_SIZE(type, bytes) NCCL_GOLDEN(type##_size, sizeof(type) == (bytes))
#define NCCL_GOLDEN_AT(type, field, bytes) \
  NCCL_GOLDEN(type##_##field, offsetof(type, field) == (bytes))

#define NCCL_HANDLE_BYTES 128
#define NCCL_MEMORY_HOST 0x1
#define NCCL_MEMORY_CUDA 0x2
#define NCCL_MEMORY_DMABUF 0x4
#define NCCL_DEVICE_TYPE_HOST 0
/* Longest message and collective for versions without fields for them. */
#define NCCL_P2P_BYTES_BEFORE_V9 ((size_t)1 << 30)
#define NCCL_COLL_BYTES_BEFORE_V9 ((size_t)1 << 29)
/* Largest message size that any version may report. */
#define NCCL_NET_BYTES_MAX ((size_t)1 << 40)
#define NCCL_REQUESTS_MAX 32
#define NCCL_REQUESTS_MAX_V6 8
/* Number of sizes that the caller of `test` has room for (grouped receive). */
#define NCCL_TEST_SIZES 64
/* In `*request` of irecv, from v9 on: "may complete early". A plugin overwrites it. */
#define NCCL_OPTIONAL_COMPLETION 0x1

#define NCCL_LOG_VERSION 1
#define NCCL_LOG_WARN 2
#define NCCL_LOG_INFO 3
#define NCCL_LOG_ABORT 4
#define NCCL_LOG_TRACE 5
#define NCCL_LOG_SUBSYSTEM_NET 0x10ul

/* printf style; no newline at the end. */
typedef void (*nccl_log_fn)(
    int level, unsigned long subsystems, const char* file, int line, const char* format, ...);
typedef int32_t (*nccl_profiler_fn)(
    void** event, int type, void* parent, int64_t plugin_id, void* data);

/* Requests that a device drives the network; Plexus never does. */
typedef struct nccl_device_handle {
  int type;
  int version;
  void* handle;
  size_t size;
  int needs_progress;
} nccl_device_handle_t;
NCCL_GOLDEN_SIZE(nccl_device_handle_t, 32);

typedef struct nccl_comm_config {
  int traffic_class; /* -1: none */
} nccl_comm_config_t;
NCCL_GOLDEN_SIZE(nccl_comm_config_t, 4);

typedef struct nccl_virtual_device_v9 {
  int count;
  int devices[4];
} nccl_virtual_device_v9_t;
NCCL_GOLDEN_SIZE(nccl_virtual_device_v9_t, 20);

typedef struct nccl_virtual_device_v12 {
  int count;
  int devices[8];
} nccl_virtual_device_v12_t;
NCCL_GOLDEN_SIZE(nccl_virtual_device_v12_t, 36);

typedef struct nccl_net_attributes nccl_net_attributes_t;

/* Types of entries that several versions share, named by field of the table. */
typedef int32_t (*nccl_init_v6_fn)(nccl_log_fn log);
typedef int32_t (*nccl_init_v10_fn)(nccl_log_fn log, nccl_profiler_fn profiler);
typedef int32_t (*nccl_init_v11_fn)(void** context,
                                    uint64_t comm_id,
                                    nccl_comm_config_t* config,
                                    nccl_log_fn log,
                                    nccl_profiler_fn profiler);
typedef int32_t (*nccl_finalize_fn)(void* context);
typedef int32_t (*nccl_devices_fn)(int* count);
typedef int32_t (*nccl_listen_v6_fn)(int device, void* handle, void** listen);
typedef int32_t (*nccl_listen_v11_fn)(void* context, int device, void* handle, void** listen);
typedef int32_t (*nccl_connect_v6_fn)(int device, void* handle, void** send);
typedef int32_t (*nccl_connect_v7_fn)(int device,
                                      void* handle,
                                      void** send,
                                      nccl_device_handle_t** offload);
typedef int32_t (*nccl_connect_v10_fn)(int device,
                                       nccl_comm_config_t* config,
                                       void* handle,
                                       void** send,
                                       nccl_device_handle_t** offload);
typedef int32_t (*nccl_connect_v11_fn)(
    void* context, int device, void* handle, void** send, nccl_device_handle_t** offload);
typedef int32_t (*nccl_accept_v6_fn)(void* listen, void** recv);
typedef int32_t (*nccl_accept_v7_fn)(void* listen, void** recv, nccl_device_handle_t** offload);
typedef int32_t (*nccl_register_v6_fn)(
    void* connection, void* data, int size, int kind, void** memory);
typedef int32_t (*nccl_register_v8_fn)(
    void* connection, void* data, size_t size, int kind, void** memory);
typedef int32_t (*nccl_register_dmabuf_fn)(
    void* connection, void* data, size_t size, int kind, uint64_t offset, int fd, void** memory);
typedef int32_t (*nccl_deregister_fn)(void* connection, void* memory);
typedef int32_t (*nccl_isend_v6_fn)(
    void* send, void* data, int size, int tag, void* memory, void** request);
typedef int32_t (*nccl_isend_v9_fn)(
    void* send, void* data, size_t size, int tag, void* memory, void** request);
typedef int32_t (*nccl_isend_v10_fn)(
    void* send, void* data, size_t size, int tag, void* memory, void* profile, void** request);
typedef int32_t (*nccl_irecv_v6_fn)(
    void* recv, int count, void** data, int* sizes, int* tags, void** memory, void** request);
typedef int32_t (*nccl_irecv_v9_fn)(
    void* recv, int count, void** data, size_t* sizes, int* tags, void** memory, void** request);
typedef int32_t (*nccl_irecv_v10_fn)(void* recv,
                                     int count,
                                     void** data,
                                     size_t* sizes,
                                     int* tags,
                                     void** memory,
                                     void** profiles,
                                     void** request);
typedef int32_t (*nccl_iflush_fn)(
    void* recv, int count, void** data, int* sizes, void** memory, void** request);
typedef int32_t (*nccl_test_fn)(void* request, int* is_done, int* sizes);
typedef int32_t (*nccl_close_fn)(void* object);
typedef int32_t (*nccl_device_memory_fn)(void* connection, void* memory, void** device_pointer);
typedef int32_t (*nccl_irecv_consumed_fn)(void* recv, int count, void* request);
typedef int32_t (*nccl_make_virtual_v9_fn)(int* device, nccl_virtual_device_v9_t* parts);
typedef int32_t (*nccl_make_virtual_v12_fn)(int* device, nccl_virtual_device_v12_t* parts);
typedef int32_t (*nccl_set_attributes_fn)(void* context, nccl_net_attributes_t* attributes);

#ifdef __cplusplus
}
#endif
