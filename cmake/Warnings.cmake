# SPDX-License-Identifier: Apache-2.0
# `plexus::warnings`: the warnings that our own code is free of, in C, C++ and CUDA.

include_guard(GLOBAL)

add_library(plexus_warnings INTERFACE)
add_library(plexus::warnings ALIAS plexus_warnings)
string(REPLACE "," ";" sanitizers "${PLEXUS_SANITIZE}")
target_compile_options(plexus_warnings INTERFACE
  "$<$<COMPILE_LANGUAGE:C,CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion>"
  $<$<AND:$<COMPILE_LANGUAGE:C,CXX>,$<BOOL:${PLEXUS_WERROR}>>:-Werror>
  # Host compilers see the same headers with all warnings; what nvcc makes of them is not theirs.
  $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${PLEXUS_WERROR}>>:-Werror=all-warnings>
  # GCC 12 sees overlapping copies in std::string that are none (GCC bug 105651).
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-restrict>
  # With ThreadSanitizer it sees accesses beyond a std::string's own buffer that are none (core/transport/memory/p2p.cpp).
  "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>,$<IN_LIST:thread,${sanitizers}>>:-Wno-array-bounds;-Wno-stringop-overflow;-Wno-stringop-overread>"
  # Lock annotations are checked where the compiler knows them.
  # clang counts sign conversions to -Wconversion, GCC does not; the narrower meaning holds for both.
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety -Wno-sign-conversion>)
