/* SPDX-License-Identifier: Apache-2.0
 *
 * Tuner plugins predict how long each way to do a call takes. The host lists the ways that are
 * possible (candidates), the tuner returns a time for each, and the host uses the shortest. C99, no
 * dependencies, append-only (see plugin-api/ABI.md).
 *
 * Life: init once per communicator and rank, then any number of get_times and links_changed, then
 * finalize.
 * Threads: one thread at a time per context; contexts of several communicators run in parallel.
 * Agreement: all ranks of a communicator must get the same answer, or the call fails. Compute it
 * from the arguments only, which are equal on all ranks. Files and environment may differ between
 * hosts.
 * Cost: get_times is called once per shape of call, because the host caches the answer; again
 * after links_changed.
 * Trials: an answer may hold for some calls only (`trial_calls`). The host measures these, makes
 * the time the same on all ranks, and asks again with the list of all trials so far; so a tuner can
 * learn, and its answer still depends on its arguments only.
 * Failure: a code other than PLEXUS_OK, or invalid times, cause one WARN; the host then uses its
 * built-in rules. A tuner cannot make a result wrong. Where init returns PLEXUS_INVALID_USAGE, with
 * a sentence that begins with the setting that cannot be used (NAME=value: ...), the communicator
 * is not made.
 *
 *   for (uint32_t i = 0; i < count; ++i) {
 *     plexus_tuner_candidate_t* one = (void*)((char*)candidates + (size_t)i * stride);
 *     one->time_ns = 2000 * (int64_t)one->rounds;   (docs/your-first-tuner.md has the rest)
 *   }
 */
#pragma once

#include <stdint.h>

#include "plexus_plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Classes of links between two ranks. */
#define PLEXUS_LINK_PROCESS 0u /* threads of one process: one reads the other's memory */
#define PLEXUS_LINK_HOST 1u    /* processes of one host: shared memory */
#define PLEXUS_LINK_NET 2u     /* hosts of one datacenter */
#define PLEXUS_LINK_XDC 3u     /* datacenters */
#define PLEXUS_LINK_CLASSES 4u

typedef struct plexus_tuner_link {
  uint32_t count; /* number of pairs of ranks with this link */
  uint32_t reserved;
  uint64_t latency_ns;           /* one way, smallest message; 0: not known */
  uint64_t bandwidth_mbit_per_s; /* one way; 0: not known */
} plexus_tuner_link_t;

/* The devices of CUDA ranks; values hold for all ranks. */
typedef struct plexus_tuner_cuda {
  uint32_t sm; /* lowest compute capability, times 10; 0: a rank computes on the host */
  uint32_t ranks_per_device;  /* at most */
  uint32_t blocks;            /* lower bound of the thread blocks of a rank on its device */
  uint32_t nvlink;            /* 1: ranks of a host are on one device or joined by NVLink */
  uint64_t memory_mbit_per_s; /* of a device's memory, reads and writes together; 0: not known */
} plexus_tuner_cuda_t;

/* A communicator. */
typedef struct plexus_tuner_comm {
  uint32_t struct_size;
  uint32_t nranks;
  uint32_t nnodes; /* hosts */
  uint32_t ndatacenters;
  uint32_t ranks_per_node_max;
  uint32_t cores_per_node_min; /* available to its ranks */
  uint64_t comm_id;            /* the same on all ranks, distinct per communicator */
  uint32_t slot_bytes;         /* largest size of one message */
  uint32_t reserved;
  plexus_tuner_link_t links[PLEXUS_LINK_CLASSES]; /* by class */
  /* Since 1.4; present if struct_size includes it. */
  plexus_tuner_cuda_t cuda;
} plexus_tuner_comm_t;

/* Bounds of trials. */
#define PLEXUS_TRIAL_CALLS_MIN 3u
#define PLEXUS_TRIAL_CALLS_MAX 1024u
#define PLEXUS_TRIALS_MAX 256u /* the answer after that many holds for good */

/* What calls like this one took. Frozen within a major. */
typedef struct plexus_tuner_trial {
  const char* algorithm; /* as in the candidate that was chosen; so are the next three */
  const char* protocol;
  uint32_t channels;
  uint32_t chunk_bytes;
  uint32_t calls; /* number of calls, of which some are measured */
  uint32_t reserved;
  int64_t time_ns; /* of a call: the mean, on the rank where that is longest; -1: unknown */
} plexus_tuner_trial_t;

/* A call. */
typedef struct plexus_tuner_call {
  uint32_t struct_size;
  uint32_t registered; /* 1: those of all ranks are in symmetric windows: mapped by peers */
  /* "all_reduce", "all_gather", ...: as `plexus perf` takes them. "sendrecv": the messages of a
   * group, for ncclGroupSimulateEnd; with one candidate, whose time is all that is used. So is a
   * rooted call asked about there, in whose one candidate `rounds` is 0: nobody waits for others,
   * because a rank may be ahead by several calls. */
  const char* collective;
  uint64_t size_bytes; /* of the larger buffer of a rank */
  uint32_t element_bytes;
  uint32_t calls_in_group; /* launched together, including this one */
  /* Since 1.5; present if struct_size includes them. Trials of calls like this one in this
   * communicator, oldest first; borrowed for the call. Calls of the same collective, type,
   * operation and root are alike if their sizes have the same highest bit. */
  const plexus_tuner_trial_t* trials;
  uint32_t trials_count;
  uint32_t reserved;
} plexus_tuner_call_t;

/* One possible way to do the call, and its cost in messages and chunks. A loop moves
 * `chunks_per_loop` chunks of at most `chunk_bytes` each; one message carries one chunk, unless
 * `messages_moved` says otherwise. */
typedef struct plexus_tuner_candidate {
  uint32_t struct_size;
  uint32_t rounds;       /* messages in the longest dependency chain of a loop */
  const char* algorithm; /* as NCCL_ALGO takes it */
  const char* protocol;  /* as NCCL_PROTO takes it */
  uint32_t chunks_per_loop;
  uint32_t chunks_moved; /* largest number that one rank moves in a loop */
  uint32_t channels_min;
  uint32_t channels_max;
  /* The answer. time_ns: in: -1; out: the predicted time of the call, or -1: do not use this one.
   * channels, chunk_bytes: in: the host's choice; out: the tuner's choice; values out of range are
   * clamped. */
  int64_t time_ns;
  uint32_t channels;
  uint32_t chunk_bytes;
  /* Since 1.2; present if struct_size includes them: further costs of a loop. */
  uint64_t chunks_in_all;  /* that all ranks send */
  uint32_t chunks_reduced; /* largest number that one rank combines with another */
  /* Since 1.3: traffic between datacenters; 0 with one datacenter. */
  uint32_t xdc_rounds; /* messages in the chain with most of them */
  uint64_t xdc_chunks; /* largest number that leaves one datacenter */
  /* Since 1.5: the answer, too. In: 0; out, in the candidate with the shortest time: for how many
   * calls to choose it before asking again; values out of range are clamped. 0: for good. The host
   * may take it for good in any case, as it does for calls of CUDA ranks and in groups of several
   * collectives. */
  uint32_t trial_calls;
  /* Since 1.7: messages that the rank with most of them sends or receives in a loop, where several
   * chunks of this call travel in one; 0: each chunk is a message. */
  uint32_t messages_moved;
  /* Since 1.8; present if struct_size includes them: traffic between hosts of one datacenter. 0:
   * not known, or one host in each. */
  uint32_t net_rounds;        /* messages in the chain with most of them */
  uint32_t net_chunks;        /* largest number that one rank sends or receives in a loop */
  uint64_t net_chunks_in_all; /* that all ranks send */
} plexus_tuner_candidate_t;

/* Belongs to the plugin. */
typedef struct plexus_tuner_context plexus_tuner_context_t;

typedef struct plexus_tuner_ops {
  uint32_t struct_size;
  uint32_t reserved;
  /* `comm` is borrowed for the call. */
  int32_t (*init)(plexus_tuner_context_t** context,
                  const plexus_tuner_comm_t* comm,
                  plexus_log_fn log,
                  plexus_log_sink_t* sink);
  /* `candidates`: `count` of them, `stride` bytes apart. Must not block. */
  int32_t (*get_times)(plexus_tuner_context_t* context,
                       const plexus_tuner_call_t* call,
                       plexus_tuner_candidate_t* candidates,
                       uint32_t count,
                       uint32_t stride);
  int32_t (*finalize)(plexus_tuner_context_t* context);
  /* Since 1.5; optional, present if struct_size includes it. What init was told of links has
   * changed: a link between datacenters was lost or has returned. `comm` is whole, borrowed for the
   * call. From the same call of the communicator on, all ranks are told the same and then ask again
   * for times; without this entry the tuner goes on with what init was told. Must not block. */
  int32_t (*links_changed)(plexus_tuner_context_t* context, const plexus_tuner_comm_t* comm);
} plexus_tuner_ops_t;

#ifdef __cplusplus
}
#endif
