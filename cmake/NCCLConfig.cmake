# SPDX-License-Identifier: Apache-2.0
# find_package(NCCL) gives Plexus under NCCL's name to projects that ask for that
#   NCCL::nccl                          libnccl.so.2, with the folder of nccl.h
#   NCCL_INCLUDE_DIRS, NCCL_LIBRARIES   the same as variables
# There is no static library: its plugins and ranks of one process share what is in the one copy of it.
include("${CMAKE_CURRENT_LIST_DIR}/../Plexus/PlexusConfig.cmake")
if(NOT TARGET NCCL::nccl)
  add_library(NCCL::nccl INTERFACE IMPORTED)
  set_target_properties(NCCL::nccl PROPERTIES INTERFACE_LINK_LIBRARIES Plexus::nccl)
endif()
set(NCCL_INCLUDE_DIRS "${Plexus_INCLUDE_DIR}")
set(NCCL_LIBRARIES NCCL::nccl)
foreach(component IN LISTS NCCL_FIND_COMPONENTS)
  if(NCCL_FIND_REQUIRED_${component} AND NOT component STREQUAL "nccl")
    set(NCCL_FOUND FALSE)
    set(NCCL_NOT_FOUND_MESSAGE "Plexus has no component '${component}' of NCCL: link NCCL::nccl, a shared library")
  endif()
endforeach()
