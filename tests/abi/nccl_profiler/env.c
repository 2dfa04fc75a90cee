/* SPDX-License-Identifier: Apache-2.0
 *
 * An env plugin of NCCL's ABI (ABI_VERSION 1 or 2): answers with $FIXTURE_NAME for the setting NAME
 * and says when it is ended. ENV_FIXTURE_FAULT=1: init fails.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void (*log_function)(
    int level, unsigned long subsystems, const char* file, int line, const char* format, ...);

#if ABI_VERSION == 1
static int init(uint8_t major, uint8_t minor, uint8_t patch, const char* suffix) {
#else
static int init(uint8_t major, uint8_t minor, uint8_t patch, const char* suffix, log_function say) {
  if (say == NULL) {
    return 4;
  }
#endif
  fprintf(stderr, "env fixture: init %d.%d.%d%s\n", major, minor, patch, suffix);
  return getenv("ENV_FIXTURE_FAULT") != NULL ? 3 : 0;
}

static int finalize(void) {
  fputs("env fixture: finalize\n", stderr);
  return 0;
}

static const char* get(const char* name) {
  char own[256];
  snprintf(own, sizeof own, "FIXTURE_%s", name);
  return getenv(own);
}

#define NAME_OF(version) ncclEnvPlugin_v##version
#define NAME(version) NAME_OF(version)
__attribute__((visibility("default"))) struct {
  const char* name;
  void *init, *finalize, *get;
} NAME(ABI_VERSION) = {"Fixture", (void*)init, (void*)finalize, (void*)get};
