# SPDX-License-Identifier: Apache-2.0
# The only ways to make a target in this tree. Each attaches the same flags (`plexus_flags`), so a
# folder's CMakeLists.txt says names, sources and dependencies and nothing else.
#
#   plexus_add_library(NAME core_base SRCS a.cpp DEPS fmt::fmt)       static, PIC; alias plexus::core_base
#   plexus_add_shared(NAME plexus OUTPUT plexus SOVERSION 0 ...)      a public shared library
#   plexus_add_plugin(NAME net-socket SRCS plugin.cpp)                libplexus-net-socket.so
#   plexus_add_program(NAME plexus_cli OUTPUT plexus SRCS main.cpp)   bin/plexus
#   plexus_add_test(NAME core_base_result SRCS result_test.cpp)       GoogleTest binary, one ctest entry
#   plexus_add_check(NAME tidy_layers COMMAND ... LABELS tidy)        any command as a ctest entry
#   plexus_add_fuzz(NAME bootstrap_message SRCS x.cpp)                libFuzzer target (PLEXUS_FUZZ=ON)

include_guard(GLOBAL)

option(PLEXUS_QUICK_BUILD "Several sources compiled as one, no conformance kit in the command" OFF)
set(PLEXUS_UNITY_SOURCES 12)
if(PLEXUS_QUICK_BUILD AND PLEXUS_TESTS)
  message(FATAL_ERROR "PLEXUS_QUICK_BUILD is for builds without tests: add -DPLEXUS_TESTS=OFF")
endif()

set(PLEXUS_BIN_DIR "${PROJECT_BINARY_DIR}/bin")
set(PLEXUS_LIB_DIR "${PROJECT_BINARY_DIR}/lib")
set(PLEXUS_TEST_DIR "${PROJECT_BINARY_DIR}/test-bin")

# What a plugin may see of this repository: plugin-api, plugins, security and guest. Links, so that a plugin
# that includes the core does not even compile here, exactly as at a vendor's. To link `security`
# without the folders above it: $<LINK_ONLY:plexus::security>.
set(PLEXUS_PLUGIN_INCLUDE "${PROJECT_BINARY_DIR}/plugin-include")
file(MAKE_DIRECTORY "${PLEXUS_PLUGIN_INCLUDE}")
foreach(folder IN ITEMS plugin-api plugins security guest)
  file(CREATE_LINK "${PROJECT_SOURCE_DIR}/${folder}" "${PLEXUS_PLUGIN_INCLUDE}/${folder}" SYMBOLIC)
endforeach()
# As installed: <plexus/plexus_net.h>.
file(CREATE_LINK "${PROJECT_SOURCE_DIR}/plugin-api" "${PLEXUS_PLUGIN_INCLUDE}/plexus" SYMBOLIC)

# Flags common to all targets of ours; warnings and sanitizers come from their own files.
add_library(plexus_flags INTERFACE)
add_library(plexus::flags ALIAS plexus_flags)
target_compile_features(plexus_flags INTERFACE cxx_std_20 c_std_99)
target_compile_definitions(plexus_flags INTERFACE
  PLEXUS_NO_CUDA_HEADERS=1
  $<$<BOOL:${PLEXUS_DEBUG_CHECKS}>:PLEXUS_DEBUG_CHECKS=1>)
target_link_libraries(plexus_flags INTERFACE plexus::warnings plexus::sanitizers)

include(PrecompiledHeaders)

# Parses the arguments of a plexus_add_*; anything unknown is an error and not ignored.
macro(plexus_parse function flags singles lists)
  cmake_parse_arguments(PARSE_ARGV 0 arg "${flags}" "${singles}" "${lists}")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "${function}: unknown argument '${arg_UNPARSED_ARGUMENTS}'")
  endif()
  if(NOT arg_NAME)
    message(FATAL_ERROR "${function}: NAME is missing")
  endif()
endmacro()

# Sources are named relative to the calling folder, or from the repository root.
function(plexus_find_sources out)
  set(found "")
  foreach(source IN LISTS ARGN)
    if(source MATCHES "^\\$<" OR IS_ABSOLUTE "${source}")
      list(APPEND found "${source}")
    elseif(EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/${source}")
      list(APPEND found "${CMAKE_CURRENT_SOURCE_DIR}/${source}")
    else()
      list(APPEND found "${PROJECT_SOURCE_DIR}/${source}")
    endif()
  endforeach()
  set(${out} "${found}" PARENT_SCOPE)
endfunction()

# A quick build compiles several sources of a target as one, and with -O1 what no message passes through. Sources of a
# target must then not define one name in their unnamed namespaces twice, which target tidy_unity (`./dev check`) finds.
set_property(GLOBAL PROPERTY PLEXUS_UNITY_TARGETS "")
add_library(plexus_unity_warnings INTERFACE)
# caused by the other sources
target_compile_options(plexus_unity_warnings INTERFACE -Wno-shadow $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
# To be called when the target links plexus_flags: the later one of two options counts.
function(plexus_use_unity target)
  string(FIND "${CMAKE_CURRENT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/tests" in_tests)
  if(in_tests EQUAL 0)
    return()
  endif()
  set_property(GLOBAL APPEND PROPERTY PLEXUS_UNITY_TARGETS ${target})
  if(PLEXUS_QUICK_BUILD)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${PLEXUS_UNITY_SOURCES})
    target_link_libraries(${target} PRIVATE plexus_unity_warnings)
    if(target MATCHES "^(tools_|plexus_cli|core_(bootstrap|datacenter|setup|stall|topo)|plexus-tuner)")
      target_compile_options(${target} PRIVATE -O1)
    endif()
  endif()
endfunction()

# What every compiled target gets. `rpath` is relative to the file's own folder, so that a build or
# install tree can be moved as a whole. In Debian's packages the dynamic loader knows the folder.
function(plexus_set_common target rpath)
  if(PLEXUS_PACKAGE)
    set(rpath "")
  endif()
  set_target_properties(${target} PROPERTIES
    CXX_EXTENSIONS OFF
    C_EXTENSIONS OFF
    POSITION_INDEPENDENT_CODE ON
    C_VISIBILITY_PRESET hidden
    CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON
    BUILD_WITH_INSTALL_RPATH ON
    INSTALL_RPATH "${rpath}"
    ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/archive"
    LIBRARY_OUTPUT_DIRECTORY "${PLEXUS_LIB_DIR}"
    RUNTIME_OUTPUT_DIRECTORY "${PLEXUS_BIN_DIR}")
endfunction()

# The library of one folder. DEPS are public: who links a folder gets what it stands on. Without
# SRCS (headers only) it becomes an interface library.
function(plexus_add_library)
  plexus_parse(plexus_add_library "" "NAME;FOLDER" "SRCS;DEPS;DEFS")
  if(arg_FOLDER AND NOT CMAKE_CURRENT_SOURCE_DIR STREQUAL "${PROJECT_SOURCE_DIR}/${arg_FOLDER}")
    message(FATAL_ERROR "plexus_add_library: ${arg_NAME} says FOLDER ${arg_FOLDER}, but is in "
                        "${CMAKE_CURRENT_SOURCE_DIR}")
  endif()
  if(arg_SRCS)
    plexus_find_sources(sources ${arg_SRCS})
    add_library(${arg_NAME} STATIC ${sources})
    plexus_set_common(${arg_NAME} "$ORIGIN")
    target_include_directories(${arg_NAME} PUBLIC "${PROJECT_SOURCE_DIR}")
    target_link_libraries(${arg_NAME} PUBLIC ${arg_DEPS} PRIVATE plexus_flags)
    target_compile_definitions(${arg_NAME} PRIVATE ${arg_DEFS})
    plexus_use_unity(${arg_NAME})
    plexus_use_precompiled(${arg_NAME} library)
  else()
    add_library(${arg_NAME} INTERFACE)
    target_include_directories(${arg_NAME} INTERFACE "${PROJECT_SOURCE_DIR}")
    target_link_libraries(${arg_NAME} INTERFACE ${arg_DEPS})
  endif()
  add_library(plexus::${arg_NAME} ALIAS ${arg_NAME})
endfunction()

# A public shared library: lib<OUTPUT>.so.<SOVERSION>. WHOLE names folder libraries that are put in
# entirely (their symbols are the interface), DEPS those that are used as needed, EXPORTS the version
# script. All symbols must be resolved at this link. Installed and exported as Plexus::<OUTPUT>.
function(plexus_add_shared)
  plexus_parse(plexus_add_shared "" "NAME;OUTPUT;SOVERSION;VERSION;EXPORTS" "SRCS;WHOLE;DEPS")
  plexus_find_sources(sources ${arg_SRCS})
  plexus_find_sources(exports ${arg_EXPORTS})
  set(whole "${arg_WHOLE}")
  list(TRANSFORM whole REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>")
  add_library(${arg_NAME} SHARED ${sources} ${whole})
  add_library(plexus::${arg_NAME} ALIAS ${arg_NAME})
  plexus_set_common(${arg_NAME} "$ORIGIN")
  if(NOT arg_VERSION)
    set(arg_VERSION ${arg_SOVERSION})
  endif()
  set_target_properties(${arg_NAME} PROPERTIES
    OUTPUT_NAME ${arg_OUTPUT} EXPORT_NAME ${arg_OUTPUT}
    VERSION ${arg_VERSION} SOVERSION ${arg_SOVERSION} LINKER_LANGUAGE CXX LINK_DEPENDS "${exports}")
  target_link_libraries(${arg_NAME} PRIVATE plexus_flags ${arg_WHOLE} ${arg_DEPS})
  # -Bsymbolic-functions is not used: a preloaded ncclAllReduce must win over ours, as NCCL's weak names promise.
  target_link_options(${arg_NAME} PRIVATE "LINKER:--version-script=${exports}"
    ${PLEXUS_RESOLVE_ALL})
  target_include_directories(${arg_NAME} INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  set_property(GLOBAL APPEND PROPERTY PLEXUS_SHARED_TARGETS ${arg_NAME})
  plexus_install_shared(${arg_NAME})
endfunction()

function(plexus_install_shared target)
  install(TARGETS ${target} EXPORT PlexusTargets
    LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT runtime NAMELINK_COMPONENT development)
endfunction()

# Public headers, installed flat (`#include <nccl.h>`) or into SUBDIR.
function(plexus_install_headers)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "SUBDIR" "FILES")
  install(FILES ${arg_FILES} DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/${arg_SUBDIR}" COMPONENT development)
endfunction()

# A plugin, as a vendor builds one: sees plugin-api and plugins, links none of our libraries, and
# lands beside libplexus.so, where the loader looks first. It is installed in the folder plexus there, as it is not a
# library to link with and has no soname. EXAMPLE: for tests, not installed.
function(plexus_add_plugin)
  plexus_parse(plexus_add_plugin "EXAMPLE" "NAME" "SRCS;DEPS;DEFS")
  plexus_find_sources(sources ${arg_SRCS})
  set(target plexus-${arg_NAME})
  add_library(${target} MODULE ${sources})
  plexus_set_common(${target} "$ORIGIN")
  set_target_properties(${target} PROPERTIES PREFIX lib OUTPUT_NAME plexus-${arg_NAME})
  target_include_directories(${target} PRIVATE "${PLEXUS_PLUGIN_INCLUDE}")
  target_compile_definitions(${target} PRIVATE PLEXUS_VERSION="${PROJECT_VERSION}" ${arg_DEFS})
  target_link_libraries(${target} PRIVATE plexus_flags ${arg_DEPS})
  target_link_options(${target} PRIVATE "LINKER:--exclude-libs,ALL" ${PLEXUS_RESOLVE_ALL})
  if(arg_EXAMPLE)
    set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${PLEXUS_TEST_DIR}")
  else()
    plexus_use_unity(${target})
    set_property(GLOBAL APPEND PROPERTY PLEXUS_PLUGIN_TARGETS ${target})
    install(TARGETS ${target} LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}/plexus" COMPONENT plugins)
  endif()
endfunction()

# Most of the time that a GoogleTest source takes is code generation, so the dev preset does not optimise them. It does
# those whose own code computes for seconds.
function(plexus_optimise_test target)
  if(CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo" AND NOT PLEXUS_SANITIZE AND NOT target MATCHES "^(core_topo|gpu|kernels|ranks_collectives)_")
    target_compile_options(${target} PRIVATE -O0)
  endif()
endfunction()

# A program in bin/ that finds the libraries in ../lib. EXAMPLE: for tests, in test-bin, not installed.
function(plexus_add_program)
  plexus_parse(plexus_add_program "EXAMPLE;TEST" "NAME;OUTPUT" "SRCS;DEPS;DEFS")
  plexus_find_sources(sources ${arg_SRCS})
  add_executable(${arg_NAME} ${sources})
  plexus_set_common(${arg_NAME} "$ORIGIN/../lib")
  if(arg_OUTPUT)
    set_target_properties(${arg_NAME} PROPERTIES OUTPUT_NAME ${arg_OUTPUT})
  endif()
  target_include_directories(${arg_NAME} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_compile_definitions(${arg_NAME} PRIVATE ${arg_DEFS})
  target_link_libraries(${arg_NAME} PRIVATE ${arg_DEPS} plexus_flags)
  if(arg_EXAMPLE)
    set_target_properties(${arg_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PLEXUS_TEST_DIR}")
  else()
    plexus_use_unity(${arg_NAME})
    install(TARGETS ${arg_NAME} RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT tools)
  endif()
  if(arg_TEST)
    plexus_optimise_test(${arg_NAME})
    plexus_use_precompiled(${arg_NAME} test)
  elseif("fmt::fmt" IN_LIST arg_DEPS)
    plexus_use_precompiled(${arg_NAME} program)
  endif()
endfunction()

# The properties that all ctest entries share. Tests find what was built through the environment. COST: about how many
# seconds it takes, where these are many: ctest starts those first, in a fresh clone too, so that none is left over at the end.
function(plexus_set_test_properties)
  plexus_parse(plexus_set_test_properties "SERIAL" "NAME;TIMEOUT;PROCESSORS;COST" "LABELS;ENV")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 60)
  endif()
  math(EXPR timeout "${arg_TIMEOUT} * ${PLEXUS_TEST_TIME_FACTOR}")
  set_tests_properties(${arg_NAME} PROPERTIES
    TIMEOUT ${timeout}
    LABELS "${arg_LABELS}"
    SKIP_RETURN_CODE 77
    ENVIRONMENT "PLEXUS_TEST_BIN_DIR=${PLEXUS_BIN_DIR};PLEXUS_TEST_LIB_DIR=${PLEXUS_LIB_DIR};\
PLEXUS_TEST_EXAMPLE_DIR=${PLEXUS_TEST_DIR};PLEXUS_TEST_SOURCE_DIR=${PROJECT_SOURCE_DIR};\
PLEXUS_TEST_TIME_FACTOR=${PLEXUS_TEST_TIME_FACTOR};PLEXUS_DEVICE=host;PLEXUS_RATES_FILE=none;${PLEXUS_SANITIZER_ENVIRONMENT};${arg_ENV}")
  if(arg_SERIAL)
    set_tests_properties(${arg_NAME} PROPERTIES RUN_SERIAL ON)
  endif()
  if(arg_PROCESSORS)
    set_tests_properties(${arg_NAME} PROPERTIES PROCESSORS ${arg_PROCESSORS})
  endif()
  if(arg_COST)
    set_tests_properties(${arg_NAME} PROPERTIES COST ${arg_COST})
  endif()
endfunction()

# A GoogleTest program and its one ctest entry. Links only DEPS: a dependency that the folder hides
# fails here. SERIAL: nothing else runs beside it (it measures time or needs the whole machine).
function(plexus_add_test)
  plexus_parse(plexus_add_test "SERIAL" "NAME;TIMEOUT;PROCESSORS;COST" "SRCS;DEPS;DEFS;LABELS;ENV;ARGS")
  if(NOT PLEXUS_TESTS)
    return()
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  set(target ${arg_NAME}_test)
  plexus_add_program(EXAMPLE TEST NAME ${target} SRCS ${arg_SRCS} DEFS ${arg_DEFS}
    DEPS ${arg_DEPS} GTest::gmock GTest::gtest GTest::gtest_main)
  add_test(NAME ${arg_NAME} COMMAND ${target} ${arg_ARGS})
  set(serial "")
  if(arg_SERIAL)
    set(serial SERIAL)
  endif()
  plexus_set_test_properties(NAME ${arg_NAME} TIMEOUT ${arg_TIMEOUT} LABELS ${arg_LABELS}
    ENV ${arg_ENV} PROCESSORS ${arg_PROCESSORS} COST ${arg_COST} ${serial})
endfunction()

# Any command as a ctest entry. It passes with exit code 0 and is skipped with 77.
function(plexus_add_check)
  plexus_parse(plexus_add_check "SERIAL" "NAME;TIMEOUT;PROCESSORS;COST" "COMMAND;LABELS;ENV")
  if(NOT PLEXUS_TESTS)
    return()
  endif()
  add_test(NAME ${arg_NAME} COMMAND ${arg_COMMAND})
  set(serial "")
  if(arg_SERIAL)
    set(serial SERIAL)
  endif()
  plexus_set_test_properties(NAME ${arg_NAME} TIMEOUT ${arg_TIMEOUT} LABELS ${arg_LABELS}
    ENV ${arg_ENV} PROCESSORS ${arg_PROCESSORS} COST ${arg_COST} ${serial})
endfunction()

set(PLEXUS_FUZZ_SECONDS 60 CACHE STRING "how long ctest runs each fuzz target")

# A libFuzzer program (`LLVMFuzzerTestOneInput`) that ctest runs for PLEXUS_FUZZ_SECONDS, starting from
# the folder SEEDS. Exists only with PLEXUS_FUZZ=ON.
function(plexus_add_fuzz)
  plexus_parse(plexus_add_fuzz "" "NAME;SEEDS;MAX_BYTES" "SRCS;DEPS;DEFS")
  if(NOT PLEXUS_FUZZ)
    return()
  endif()
  if(NOT arg_MAX_BYTES)
    set(arg_MAX_BYTES 4096)
  endif()
  set(target ${arg_NAME}_fuzz)
  plexus_add_program(EXAMPLE NAME ${target} SRCS ${arg_SRCS} DEPS ${arg_DEPS} DEFS ${arg_DEFS})
  target_link_options(${target} PRIVATE -fsanitize=fuzzer)
  # New inputs go to a folder of the build; the repository's seeds are read only.
  set(corpus "${PROJECT_BINARY_DIR}/corpus/${arg_NAME}")
  file(MAKE_DIRECTORY "${corpus}")
  set(seeds "")
  if(arg_SEEDS)
    plexus_find_sources(seeds ${arg_SEEDS})
  endif()
  math(EXPR timeout "${PLEXUS_FUZZ_SECONDS} * 2 + 60")
  plexus_add_check(NAME fuzz_${arg_NAME} LABELS fuzz TIMEOUT ${timeout}
    COMMAND ${target} -max_total_time=${PLEXUS_FUZZ_SECONDS} -max_len=${arg_MAX_BYTES} -timeout=10
      -artifact_prefix=${corpus}- ${corpus} ${seeds})
endfunction()
