// SPDX-License-Identifier: Apache-2.0
// nccl_device.h in C++.
#include <nccl_device.h>

bool has_device_api(ncclComm_t comm);
bool has_device_api(ncclComm_t comm) {
  ncclCommProperties_t properties = NCCL_COMM_PROPERTIES_INITIALIZER;
  return ncclCommQueryProperties(comm, &properties) == ncclSuccess && properties.deviceApiSupport;
}
