/* SPDX-License-Identifier: Apache-2.0
 * libnccl.so.2: nothing of its own; what it needs, libplexus.so, has the functions. */
typedef int plexus_empty_translation_unit_t;
