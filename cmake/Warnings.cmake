# SPDX-License-Identifier: Apache-2.0
# `plexus::warnings`: the warnings that our own code is free of, in C and in C++.

include_guard(GLOBAL)

add_library(plexus_warnings INTERFACE)
add_library(plexus::warnings ALIAS plexus_warnings)
target_compile_options(plexus_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion
  $<$<BOOL:${PLEXUS_WERROR}>:-Werror>
  # Lock annotations are checked where the compiler knows them.
  # clang counts sign conversions to -Wconversion, GCC does not; the narrower meaning holds for both.
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety -Wno-sign-conversion>)
