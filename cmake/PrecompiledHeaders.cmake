# SPDX-License-Identifier: Apache-2.0
# The headers of others that nearly every source of ours includes, compiled once for each way in
# which we compile (cmake/README.md has what that saves). Sources still include what they use:
# tidy_headers and the tidy preset compile without this.

include_guard(GLOBAL)
option(PLEXUS_PRECOMPILED_HEADERS "Compile common headers once" ON)

set(PLEXUS_COMMON_HEADERS
  <algorithm> <array> <atomic> <chrono> <condition_variable> <cstdint> <cstring> <deque> <filesystem> <fstream>
  <functional> <map> <memory> <mutex> <numeric> <optional> <set> <span> <string> <string_view> <thread> <utility>
  <variant> <vector> <boost/outcome/basic_result.hpp> <fmt/format.h>)

# ccache takes a precompiled header for what it was made from only when it is told so.
if(CMAKE_CXX_COMPILER_LAUNCHER MATCHES "ccache")
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND};-E;env;CCACHE_SLOPPINESS=pch_defines,time_macros;\
${CMAKE_CXX_COMPILER_LAUNCHER}")
endif()

# One small target per way holds the compiled header: WAY is library, program or test, OPTIMISE an option -O or nothing.
function(plexus_add_precompiled holder way optimise)
  set(source "${PROJECT_BINARY_DIR}/precompiled/${holder}.cpp")
  if(way STREQUAL "library")
    file(CONFIGURE OUTPUT "${source}" CONTENT "")
    add_library(${holder} STATIC "${source}")
  else()
    file(CONFIGURE OUTPUT "${source}" CONTENT "int main() {}\n")
    add_executable(${holder} "${source}")
  endif()
  plexus_set_common(${holder} "")
  set_target_properties(${holder} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/precompiled")
  target_link_libraries(${holder} PRIVATE plexus_flags fmt::fmt Boost::headers ${ARGN})
  target_compile_options(${holder} PRIVATE ${optimise})
  set(headers ${PLEXUS_COMMON_HEADERS})
  if(way STREQUAL "test")
    list(APPEND headers <gmock/gmock.h> <gtest/gtest.h>)
  endif()
  list(TRANSFORM headers REPLACE "(.+)" "$<$<COMPILE_LANGUAGE:CXX>:\\1>")
  target_precompile_headers(${holder} PRIVATE ${headers})
endfunction()

# To be called when the target has its options: GCC refuses a header that was compiled with another -O.
function(plexus_use_precompiled target way)
  get_target_property(sources ${target} SOURCES)
  if(NOT PLEXUS_PRECOMPILED_HEADERS OR sources MATCHES "\\.c(;|$)")
    return()
  endif()
  get_target_property(optimise ${target} COMPILE_OPTIONS)
  list(FILTER optimise INCLUDE REGEX "^-O")
  set(holder plexus_precompiled_${way}${optimise})
  if(NOT TARGET ${holder})
    if(way STREQUAL "test")
      plexus_add_precompiled(${holder} ${way} "${optimise}" GTest::gmock GTest::gtest)
    else()
      plexus_add_precompiled(${holder} ${way} "${optimise}")
    endif()
  endif()
  target_precompile_headers(${target} REUSE_FROM ${holder})
  # A compiler refuses one that was made with other macros.
  target_compile_definitions(${target} PRIVATE
    $<TARGET_PROPERTY:fmt::fmt,INTERFACE_COMPILE_DEFINITIONS>
    $<TARGET_PROPERTY:Boost::headers,INTERFACE_COMPILE_DEFINITIONS>)
endfunction()
