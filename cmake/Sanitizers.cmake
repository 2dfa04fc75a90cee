# SPDX-License-Identifier: Apache-2.0
# `plexus::sanitizers`: run-time checkers for the whole build, chosen by PLEXUS_SANITIZE, plus
# coverage counting (PLEXUS_COVERAGE) and the instrumentation that libFuzzer needs (PLEXUS_FUZZ).
# PLEXUS_RESOLVE_ALL is the link option by which a shared library must find all its symbols;
# PLEXUS_SANITIZER_ENVIRONMENT goes to every test, PLEXUS_FORK_ENVIRONMENT to those that fork,
# PLEXUS_EXIT_ENVIRONMENT to those that end without destroying what they made;
# PLEXUS_TEST_TIME_FACTOR stretches their time limits.

include_guard(GLOBAL)

add_library(plexus_sanitizers INTERFACE)
add_library(plexus::sanitizers ALIAS plexus_sanitizers)

set(PLEXUS_SANITIZE "" CACHE STRING "address, undefined, thread, or several joined by commas")
set(PLEXUS_SANITIZER_ENVIRONMENT "")
set(PLEXUS_FORK_ENVIRONMENT "")
set(PLEXUS_EXIT_ENVIRONMENT "")
set(PLEXUS_TEST_TIME_FACTOR 1)
set(PLEXUS_RESOLVE_ALL "LINKER:-z,defs")
set(sanitizers "${PLEXUS_SANITIZE}")

if(PLEXUS_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "PLEXUS_FUZZ=ON needs clang, and the compiler is ${CMAKE_CXX_COMPILER_ID}; "
                        "use the preset `fuzz` or -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_C_COMPILER=clang")
  endif()
  set(sanitizers "fuzzer-no-link,address,undefined")
endif()

if(sanitizers)
  target_compile_options(plexus_sanitizers INTERFACE
    -fsanitize=${sanitizers} -fno-omit-frame-pointer
    # GCC's sanitizer instrumentation makes this warning see ghosts.
    $<$<COMPILE_LANG_AND_ID:C,GNU>:-Wno-maybe-uninitialized>
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>)
  target_link_options(plexus_sanitizers INTERFACE -fsanitize=${sanitizers})
  set(PLEXUS_TEST_TIME_FACTOR 5)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    set(PLEXUS_RESOLVE_ALL "")  # clang puts the sanitizer's run time into the program only
  endif()
  if(sanitizers MATCHES "address")
    list(APPEND PLEXUS_SANITIZER_ENVIRONMENT
      "ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1:detect_leaks=1")
  endif()
  if(sanitizers MATCHES "undefined")
    # Without this the program goes on after a finding and the test passes.
    target_compile_options(plexus_sanitizers INTERFACE -fno-sanitize-recover=undefined)
    list(APPEND PLEXUS_SANITIZER_ENVIRONMENT "UBSAN_OPTIONS=print_stacktrace=1")
  endif()
  if(sanitizers MATCHES "thread")
    # GCC's TSan does not see fences. Ours order memory that processes share, which it cannot judge.
    target_compile_options(plexus_sanitizers INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-tsan>)
    set(tsan_options "halt_on_error=1:second_deadlock_stack=1:suppressions=${PROJECT_SOURCE_DIR}/cmake/tsan-suppressions.txt")
    list(APPEND PLEXUS_SANITIZER_ENVIRONMENT "TSAN_OPTIONS=${tsan_options}")
    # Threads in the child of a process with threads: ThreadSanitizer asks for leave.
    set(PLEXUS_FORK_ENVIRONMENT "TSAN_OPTIONS=${tsan_options}:die_after_fork=0")
    set(PLEXUS_EXIT_ENVIRONMENT "TSAN_OPTIONS=${tsan_options}:report_thread_leaks=0")
  endif()
endif()

if(PLEXUS_COVERAGE)
  target_compile_options(plexus_sanitizers INTERFACE --coverage -fprofile-update=atomic)
  target_link_options(plexus_sanitizers INTERFACE --coverage)
endif()
