/* SPDX-License-Identifier: Apache-2.0
 *
 * NVTX's ranges and marks, which nobody looks at here.
 */
#ifndef PLEXUS_NVTOOLSEXT_H_
#define PLEXUS_NVTOOLSEXT_H_

#include <stddef.h>
#include <stdint.h>

#define NVTX_VERSION 3
#define NVTX_COLOR_ARGB 1
#define NVTX_MESSAGE_TYPE_ASCII 1
typedef struct nvtxEventAttributes_v2 {
  uint16_t version, size;
  uint32_t category;
  int32_t colorType;
  uint32_t color;
  int32_t payloadType, reserved0;
  union {
    uint64_t ullValue;
    double dValue;
  } payload;
  int32_t messageType;
  union {
    const char* ascii;
    const wchar_t* unicode;
  } message;
} nvtxEventAttributes_t;
#define NVTX_EVENT_ATTRIB_STRUCT_SIZE ((uint16_t)sizeof(nvtxEventAttributes_t))
typedef uint64_t nvtxRangeId_t;

static inline int nvtxRangePushA(const char* message) { return message == 0 ? -1 : 0; }
static inline int nvtxRangePushEx(const nvtxEventAttributes_t* attributes) {
  return attributes == 0 ? -1 : 0;
}
static inline int nvtxRangePop(void) { return 0; }
static inline nvtxRangeId_t nvtxRangeStartA(const char* message) { return message == 0; }
static inline void nvtxRangeEnd(nvtxRangeId_t range) { (void)range; }
static inline void nvtxMarkA(const char* message) { (void)message; }
#define nvtxRangePush nvtxRangePushA
#define nvtxRangeStart nvtxRangeStartA
#define nvtxMark nvtxMarkA

#endif
