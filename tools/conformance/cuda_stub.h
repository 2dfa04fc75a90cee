/* SPDX-License-Identifier: Apache-2.0
 *
 * What the stand-ins for CUDA's driver and runtime share. */
#pragma once

/* The version of CUDA that they tell: 1000 * major + 10 * minor. */
#define PLEXUS_STUB_CUDA_VERSION 13000

typedef void (*plexus_stub_function_t)(void);
/* A function of the driver's stand-in by CUDA's name without a suffix; null: no such name. */
plexus_stub_function_t plexus_stub_find_driver_function(const char* name);
