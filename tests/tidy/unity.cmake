# SPDX-License-Identifier: Apache-2.0
# tidy_unity: the sources of each library, plugin and program parsed as a quick build compiles them (PLEXUS_QUICK_BUILD),
# so that two of them that give one name to different things are found here and not by `./dev demo`. It takes
# 150 s of one core, so `./dev check` builds it and no test does.
add_custom_target(tidy_unity)
get_property(targets GLOBAL PROPERTY PLEXUS_UNITY_TARGETS)
list(REMOVE_ITEM targets tools_conformance)  # not in quick builds
# As core/api has it, which counts in its own folder only.
set_source_files_properties("${PROJECT_SOURCE_DIR}/core/api/nccl_unsupported.cpp" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
foreach(target IN LISTS targets)
  set(parsed unity_${target})
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.cpp$")
  list(FILTER sources EXCLUDE REGEX "plugin_(certify|check)\\.cpp$")
  if(NOT sources)
    continue()
  endif()
  add_library(${parsed} OBJECT EXCLUDE_FROM_ALL ${sources})
  plexus_set_common(${parsed} "")
  set_target_properties(${parsed} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${PLEXUS_UNITY_SOURCES})
  foreach(property IN ITEMS INCLUDE_DIRECTORIES COMPILE_DEFINITIONS LINK_LIBRARIES)
    get_target_property(values ${target} ${property})
    if(values)
      set_property(TARGET ${parsed} PROPERTY ${property} "${values}")
    endif()
  endforeach()
  target_compile_options(${parsed} PRIVATE -fsyntax-only -w)  # other checks look at warnings
  add_dependencies(tidy_unity ${parsed})
endforeach()
