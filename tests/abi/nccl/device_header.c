/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs that include NCCL's device API compile: its types and the functions of the host.
 */
#include <nccl_device.h>

ncclResult_t use_device_header(ncclComm_t comm);
ncclResult_t use_device_header(ncclComm_t comm) {
  ncclDevComm_t made;
  ncclDevCommRequirements_t requirements = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
  requirements.lsaBarrierCount = ncclTeamLsa(comm).nRanks;
  return ncclDevCommCreate(comm, &requirements, &made);
}
