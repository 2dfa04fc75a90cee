/* SPDX-License-Identifier: Apache-2.0
 * A tool that is preloaded: its ncclAllReduce wins over the weak one and calls the other name. */
#include <nccl.h>
#include <stdio.h>

ncclResult_t ncclAllReduce(const void* sendbuff,
                           void* recvbuff,
                           size_t count,
                           ncclDataType_t datatype,
                           ncclRedOp_t op,
                           ncclComm_t comm,
                           cudaStream_t stream) {
  printf("seen %zu\n", count);
  return pncclAllReduce(sendbuff, recvbuff, count, datatype, op, comm, stream);
}
