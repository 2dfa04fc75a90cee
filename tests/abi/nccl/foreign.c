/* SPDX-License-Identifier: Apache-2.0
 * A program built with another header: NCCL 2.32's names, numbers and layouts, written down here
 * from what is published of them. Two ranks of this process sum with each size that a release gives
 * ncclConfig_t and ncclCollConfig_t, with another vendor's option in a list. Prints the sums. */
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { kFloat32 = 7, kSum = 0, kUndefined = INT_MIN, kMagic = (int)0xcafebeefu };

struct unique_id {
  char bytes[128];
};
struct comm_config {
  size_t size;
  unsigned magic, version;
  int blocking, cga_cluster, min_ctas, max_ctas;
  const char* net_name;
  int split_share, traffic_class;
  const char* comm_name;
  int ints[15]; /* collnetEnable to nvlsHostMode, 56 to 115 */
};
struct extension {
  struct extension* next;
  int vendor, option;
  void* value;
};
struct call_config {
  size_t size;
  unsigned magic, version;
  struct extension* extensions;
  int min_ctas, max_ctas, nvls_ctas, cga_cluster;
  const char* selection;
  int forced, policy;
  uint64_t tag;
  void* event;
};
typedef char check_comm_config[sizeof(struct comm_config) == 120 ? 1 : -1];
typedef char check_extension[sizeof(struct extension) == 24 ? 1 : -1];
typedef char check_call_config[sizeof(struct call_config) == 72 ? 1 : -1];

int ncclGetVersion(int* version);
int ncclGetUniqueId(struct unique_id* id);
int ncclCommInitRankConfig(
    void** comm, int nranks, struct unique_id id, int rank, struct comm_config* config);
int ncclCommDestroy(void* comm);
int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclAllReduceConfig(const void* send,
                        void* recv,
                        size_t count,
                        int datatype,
                        int op,
                        void* comm,
                        void* stream,
                        const struct call_config* config);
const char* ncclGetLastError(void* comm);

#define CHECK(call)                                              \
  do {                                                           \
    int result = (call);                                         \
    if (result != 0) {                                           \
      printf("%s: %d %s\n", #call, result, ncclGetLastError(0)); \
      return 1;                                                  \
    }                                                            \
  } while (0)

static int sum(size_t config_bytes, unsigned version, size_t call_bytes) {
  struct unique_id id;
  struct comm_config config;
  struct extension extension;
  struct call_config call;
  void* comms[2];
  float values[2];
  int i;
  values[0] = 1;
  values[1] = 2;
  memset(&config, 0, sizeof config);
  config.size = config_bytes;
  config.magic = (unsigned)kMagic;
  config.version = version;
  config.blocking = config.cga_cluster = config.min_ctas = config.max_ctas = kUndefined;
  config.split_share = config.traffic_class = kUndefined;
  for (i = 0; i < 15; ++i) {
    config.ints[i] = kUndefined;
  }
  extension.next = NULL;
  extension.vendor = 77;
  extension.option = 1;
  extension.value = (void*)8; /* not to be read */
  memset(&call, 0, sizeof call);
  call.size = call_bytes;
  call.magic = (unsigned)kMagic;
  call.version = version;
  call.extensions = &extension;
  call.min_ctas = call.max_ctas = call.nvls_ctas = call.cga_cluster = call.policy = kUndefined;
  call.selection = "Ring+^Ring_LL128,NVLS";
  call.forced = 1;
  CHECK(ncclGetUniqueId(&id));
  CHECK(ncclGroupStart());
  for (i = 0; i < 2; ++i) {
    CHECK(ncclCommInitRankConfig(&comms[i], 2, id, i, &config));
  }
  CHECK(ncclGroupEnd());
  CHECK(ncclGroupStart());
  for (i = 0; i < 2; ++i) {
    CHECK(ncclAllReduceConfig(&values[i], &values[i], 1, kFloat32, kSum, comms[i], NULL,
                              call_bytes == 0 ? NULL : &call));
  }
  CHECK(ncclGroupEnd());
  for (i = 0; i < 2; ++i) {
    CHECK(ncclCommDestroy(comms[i]));
  }
  printf("%g ", values[0] + values[1]);
  return 0;
}

int main(void) {
  int version = 0;
  CHECK(ncclGetVersion(&version));
  printf("%d ", version);
  return sum(48, 21903, 0) || sum(72, 22703, 0) || sum(96, 23007, 0) || sum(112, 23102, 64) ||
         sum(120, 23203, 72);
}
