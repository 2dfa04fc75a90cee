/* SPDX-License-Identifier: Apache-2.0
 *
 * The program that repeats a check of a native plugin, as a function of the kit. */
#define repeat plexus_repeat_native
#include "tools/conformance/repeat/steps.h"
/**/
#include "tools/conformance/repeat/native.c"
/**/
#include "tools/conformance/repeat/repeat.c"
