/* SPDX-License-Identifier: Apache-2.0
 *
 * The program that repeats a check of a plugin of NCCL's ABI, as a function of the kit. */
#define repeat plexus_repeat_nccl
#include "tools/conformance/repeat/steps.h"
/**/
#include "tools/conformance/repeat/nccl.c"
/**/
#include "tools/conformance/repeat/repeat.c"
