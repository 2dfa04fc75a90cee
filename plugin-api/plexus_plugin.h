/* SPDX-License-Identifier: Apache-2.0
 *
 * The common part of all Plexus plugins: one exported function, one descriptor, result codes, the
 * log. A plugin is a shared library whose only exported Plexus symbol is `plexus_plugin_query`.
 * This header is C99, has no dependencies and is append-only (see plugin-api/ABI.md): a plugin that
 * is compiled against it loads into every later host with the same PLEXUS_ABI_MAJOR.
 *
 *   static const plexus_net_ops_t kOps = {sizeof(plexus_net_ops_t), 0, init, finalize};
 *   static const plexus_plugin_t kPlugin = {
 *       PLEXUS_PLUGIN_MAGIC, sizeof(plexus_plugin_t), PLEXUS_ABI_MAJOR, PLEXUS_ABI_MINOR,
 *       PLEXUS_KIND_NET, 0, "mine", "1.0", &kOps, NULL};
 *   const plexus_plugin_t* plexus_plugin_query(uint32_t host_abi) {
 *     return host_abi >> 16 == PLEXUS_ABI_MAJOR ? &kPlugin : NULL;
 *   }
 */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A host accepts a plugin with its own major and any minor; ABI.md says what changes them. */
#define PLEXUS_ABI_MAJOR 1u
#define PLEXUS_ABI_MINOR 8u
/* What the host passes to `plexus_plugin_query`. */
#define PLEXUS_HOST_ABI ((PLEXUS_ABI_MAJOR << 16) | PLEXUS_ABI_MINOR)
/* First word of the descriptor: "PLXP", which identifies a plugin. */
#define PLEXUS_PLUGIN_MAGIC 0x50584c50u

/* Largest size of name and version, with the terminating zero. */
#define PLEXUS_NAME_BYTES 64u

/* Result codes, an int32_t wherever they cross. The numbers are those of ncclResult_t.
 * PLEXUS_AGAIN is no failure: nothing is ready, or nothing was started; call again later. */
#define PLEXUS_OK 0
#define PLEXUS_CUDA_ERROR 1
#define PLEXUS_SYSTEM_ERROR 2     /* the operating system or the network refused */
#define PLEXUS_INTERNAL_ERROR 3   /* a bug of the plugin */
#define PLEXUS_INVALID_ARGUMENT 4 /* a bug of the caller */
#define PLEXUS_INVALID_USAGE 5    /* a bad setting, or sizes and roles that do not match */
#define PLEXUS_REMOTE_ERROR 6     /* the peer died or closed its end */
#define PLEXUS_AGAIN 7
#define PLEXUS_TIMEOUT 8

/* Log levels, an int32_t.
 * With PLEXUS_LOG_ERROR a plugin gives the reason of a failing call: one sentence (what, where,
 * what to do), logged in the thread that then returns the failing code. The host does not print
 * it; it becomes the message of that failure, which the user sees once. The other levels have
 * NCCL's numbers. */
#define PLEXUS_LOG_ERROR 1
#define PLEXUS_LOG_WARN 2 /* the user should do something */
#define PLEXUS_LOG_INFO 3
#define PLEXUS_LOG_TRACE 5

/* Belongs to the host; pass it back unchanged. */
typedef struct plexus_log_sink plexus_log_sink_t;

/* Writes one finished line (no newline at its end). `file` and `text` are borrowed for the call.
 * Threads: any, also threads of the plugin, until `finalize` has returned. Does not block for long.
 */
typedef void (*plexus_log_fn)(
    plexus_log_sink_t* sink, int32_t level, const char* file, int32_t line, const char* text);

/* The value of the setting `name` ("NCCL_SOCKET_IFNAME"), or null: from the user's settings for
 * this use of the plugin, else from the host's own sources. Valid until `finalize` has returned.
 * Threads: any. */
typedef const char* (*plexus_setting_fn)(plexus_log_sink_t* sink, const char* name);

/* Kinds of plugin. A library is of one kind. */
#define PLEXUS_KIND_NET 1u
#define PLEXUS_KIND_TUNER 2u /* since 1.1 */

struct plexus_net_ops;   /* plexus_net.h */
struct plexus_tuner_ops; /* plexus_tuner.h */

/* A plugin's descriptor. Static storage of the plugin: valid and constant for ever. */
typedef struct plexus_plugin {
  uint32_t magic;       /* PLEXUS_PLUGIN_MAGIC */
  uint32_t struct_size; /* sizeof(plexus_plugin_t), as the plugin was compiled */
  uint32_t abi_major;   /* PLEXUS_ABI_MAJOR */
  uint32_t abi_minor;   /* PLEXUS_ABI_MINOR */
  uint32_t kind;        /* PLEXUS_KIND_* */
  uint32_t reserved;    /* 0 */
  const char* name;     /* [A-Za-z0-9_.-]+, shorter than PLEXUS_NAME_BYTES; what NCCL_NET matches */
  const char* version;  /* printable, shorter than PLEXUS_NAME_BYTES */
  const struct plexus_net_ops* net;     /* the table when kind is PLEXUS_KIND_NET */
  const struct plexus_tuner_ops* tuner; /* ... PLEXUS_KIND_TUNER; since 1.1 */
} plexus_plugin_t;

#if defined(__GNUC__)
#define PLEXUS_PLUGIN_EXPORT __attribute__((visibility("default")))
#else
#define PLEXUS_PLUGIN_EXPORT
#endif

/* The exported function. `host_abi` is the host's (major << 16 | minor). Returns the descriptor, or
 * null if the plugin cannot work with this host. Called at least once after loading, before
 * anything else; must not block, start threads or open devices. The library is never unloaded. */
PLEXUS_PLUGIN_EXPORT const plexus_plugin_t* plexus_plugin_query(uint32_t host_abi);

#ifdef __cplusplus
}
#endif
