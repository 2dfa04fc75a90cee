/* SPDX-License-Identifier: Apache-2.0
 * A stand-in for the driver's management library: three GPUs that may be used and one that may not.
 * GPU 0 and 1 have 4 NVLinks to each other; GPU 0 and 3 have 2 to a switch that no sysfs shows;
 * link 17 is down. No peer access between 1 and 3. FAKE_NVML_INIT: what nvmlInit_v2 returns. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
enum { kSuccess = 0, kNotSupported = 3, kNoPermission = 4 };

typedef struct {
  char bus_id_legacy[16];
  uint32_t domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
} PciInfo;

static int kDevices[4];

static int index_of(const void* device) { return (int)((const int*)device - kDevices); }
static void fill(PciInfo* info, const char* bus_id) {
  memset(info, 0, sizeof(*info));
  snprintf(info->bus_id, sizeof(info->bus_id), "%s", bus_id);
}

EXPORT int nvmlInit_v2(void) {
  const char* const wish = getenv("FAKE_NVML_INIT");
  return wish != NULL ? atoi(wish) : kSuccess;
}
EXPORT int nvmlShutdown(void) { return kSuccess; }
EXPORT int nvmlDeviceGetCount_v2(uint32_t* count) {
  *count = 4;
  return kSuccess;
}
EXPORT int nvmlDeviceGetHandleByIndex_v2(uint32_t index, void** device) {
  if (index == 2) {
    return kNoPermission;
  }
  *device = &kDevices[index];
  return kSuccess;
}
EXPORT int nvmlDeviceGetPciInfo_v3(void* device, PciInfo* info) {
  static const char* const ids[] = {"00000000:FE:10.0", "00000000:FE:11.0", "", "00010000:FE:12.0"};
  fill(info, ids[index_of(device)]);
  return kSuccess;
}
EXPORT int nvmlDeviceGetCudaComputeCapability(void* device, int* major, int* minor) {
  *major = 9;
  *minor = index_of(device) == 3 ? 1 : 0;
  return kSuccess;
}
EXPORT int nvmlDeviceGetNvLinkState(void* device, uint32_t link, uint32_t* active) {
  (void)device;
  *active = link != 17;
  return link < 18 ? kSuccess : kNotSupported;
}
EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* device, uint32_t link, PciInfo* info) {
  const int index = index_of(device);
  if (link < 4 && index < 2) {
    fill(info, index == 0 ? "00000000:FE:11.0" : "00000000:FE:10.0");
  } else if (link >= 4 && link < 6 && index != 1) {
    fill(info, "00000000:DD:00.0");
  } else {
    return kNotSupported;
  }
  return kSuccess;
}
EXPORT int nvmlDeviceGetP2PStatus(void* from, void* to, uint32_t what, uint32_t* status) {
  *status = what == 1 && index_of(from) + index_of(to) == 4 ? 1 : 0;
  return kSuccess;
}
