/* SPDX-License-Identifier: Apache-2.0
 *
 * A log plugin of NCCL's ABI, v1: appends each record to the file $LOG_FIXTURE_FILE, a line
 * "LEVEL SUBSYSTEMS CODE FILE:LINE PID TID HOST DEVICE MESSAGE". LOG_FIXTURE_FAULT=1: init fails.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct record {
  int level;
  unsigned long subsystems;
  const char *file, *func;
  int line, code;
  const char *format, *message, *host_name;
  int pid, tid, cuda_device;
};

static int init(void** ctx) {
  const char* const path = getenv("LOG_FIXTURE_FILE");
  *ctx = path == NULL ? NULL : fopen(path, "a");
  return *ctx == NULL || getenv("LOG_FIXTURE_FAULT") != NULL ? 3 : 0;
}

static void on_record(void* ctx, const struct record* record) {
  fprintf(ctx, "%d %#lx %d %s:%d %d %d %s %d %s\n", record->level, record->subsystems, record->code,
          record->file, record->line, record->pid, record->tid, record->host_name,
          record->cuda_device, record->message);
  fflush(ctx);
}

__attribute__((visibility("default"))) const struct {
  const char* name;
  int (*init)(void** ctx);
  void (*on_record)(void* ctx, const struct record* record);
  int (*finalize)(void* ctx);
} ncclLogPlugin_v1 = {"Fixture", init, on_record, NULL};
