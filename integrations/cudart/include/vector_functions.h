/* SPDX-License-Identifier: Apache-2.0
 *
 * make_int4 and so on.
 */
#ifndef PLEXUS_VECTOR_FUNCTIONS_H_
#define PLEXUS_VECTOR_FUNCTIONS_H_

#include "vector_types.h"

#define PLEXUS_MAKE_VECTORS(name, type)                                  \
  static inline name##1 make_##name##1(type x) {                         \
    name##1 v = {x};                                                     \
    return v;                                                            \
  }                                                                      \
  static inline name##2 make_##name##2(type x, type y) {                 \
    name##2 v = {x, y};                                                  \
    return v;                                                            \
  }                                                                      \
  static inline name##3 make_##name##3(type x, type y, type z) {         \
    name##3 v = {x, y, z};                                               \
    return v;                                                            \
  }                                                                      \
  static inline name##4 make_##name##4(type x, type y, type z, type w) { \
    name##4 v = {x, y, z, w};                                            \
    return v;                                                            \
  }

PLEXUS_MAKE_VECTORS(char, signed char)
PLEXUS_MAKE_VECTORS(uchar, unsigned char)
PLEXUS_MAKE_VECTORS(short, short)
PLEXUS_MAKE_VECTORS(ushort, unsigned short)
PLEXUS_MAKE_VECTORS(int, int)
PLEXUS_MAKE_VECTORS(uint, unsigned int)
PLEXUS_MAKE_VECTORS(long, long)
PLEXUS_MAKE_VECTORS(ulong, unsigned long)
PLEXUS_MAKE_VECTORS(longlong, long long)
PLEXUS_MAKE_VECTORS(ulonglong, unsigned long long)
PLEXUS_MAKE_VECTORS(float, float)
PLEXUS_MAKE_VECTORS(double, double)
#undef PLEXUS_MAKE_VECTORS

#endif
