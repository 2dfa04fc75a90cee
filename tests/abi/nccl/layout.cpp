// SPDX-License-Identifier: Apache-2.0
// The same checks in C++.
#include "tests/abi/nccl/layout.c"
