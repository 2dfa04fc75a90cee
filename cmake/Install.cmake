# SPDX-License-Identifier: Apache-2.0
# What find_package(Plexus) needs. Libraries, plugins and programs install themselves where they are made.

include_guard(GLOBAL)
include(CMakePackageConfigHelpers)

function(plexus_install_package)
  get_property(shared GLOBAL PROPERTY PLEXUS_SHARED_TARGETS)
  if(NOT shared)
    return()
  endif()
  set(folder "${CMAKE_INSTALL_LIBDIR}/cmake/Plexus")
  configure_package_config_file(cmake/PlexusConfig.cmake.in "${PROJECT_BINARY_DIR}/PlexusConfig.cmake"
    INSTALL_DESTINATION "${folder}" PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_BINDIR)
  write_basic_package_version_file("${PROJECT_BINARY_DIR}/PlexusConfigVersion.cmake"
    COMPATIBILITY SameMinorVersion)
  install(FILES "${PROJECT_BINARY_DIR}/PlexusConfig.cmake" "${PROJECT_BINARY_DIR}/PlexusConfigVersion.cmake"
    DESTINATION "${folder}")
  install(EXPORT PlexusTargets NAMESPACE Plexus:: DESTINATION "${folder}")
endfunction()
