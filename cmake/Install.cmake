# SPDX-License-Identifier: Apache-2.0
# What find_package(Plexus), find_package(NCCL) and pkg-config need. Libraries, plugins and programs install themselves where they are
# made. Every installed file has one component, which is a Debian package in cmake/Package.cmake:
#   runtime      libraries that programs are linked with
#   development  headers, names to link with, CMake's and pkg-config's files, the templates of plugins, the documents
#   plugins      networks and tuners, in the folder plexus beside libplexus.so
#   tools        the command and what it alone loads

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
    DESTINATION "${folder}" COMPONENT development)
  # The version that NCCL's callers know: that of the interface.
  set(nccl_folder "${CMAKE_INSTALL_LIBDIR}/cmake/NCCL")
  write_basic_package_version_file("${PROJECT_BINARY_DIR}/NCCLConfigVersion.cmake" VERSION "${PLEXUS_NCCL_VERSION}"
    COMPATIBILITY AnyNewerVersion)
  install(FILES cmake/NCCLConfig.cmake "${PROJECT_BINARY_DIR}/NCCLConfigVersion.cmake"
    DESTINATION "${nccl_folder}" COMPONENT development)
  install(FILES plugins/support/exports.map DESTINATION "${folder}" RENAME PluginExports.map COMPONENT development)
  install(DIRECTORY docs DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/plexus" COMPONENT development
    FILES_MATCHING PATTERN "*.md" PATTERN "*.svg" PATTERN examples EXCLUDE)
  install(EXPORT PlexusTargets NAMESPACE Plexus:: DESTINATION "${folder}" COMPONENT development)

  # Relative to its own folder, so that an installed tree can be moved; Debian's lies still.
  set(pc_folder "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
  file(RELATIVE_PATH up "/${pc_folder}" "/")
  string(REGEX REPLACE "/$" "" up "${up}")
  set(PLEXUS_PC_PREFIX "\${pcfiledir}/${up}")
  set(PLEXUS_PC_RUN_PATH "-Wl,-rpath,\${libdir} ") # the dynamic loader does not know a prefix of the user's
  if(PLEXUS_PACKAGE)
    set(PLEXUS_PC_PREFIX "${CMAKE_INSTALL_PREFIX}")
    set(PLEXUS_PC_RUN_PATH "")
  endif()
  foreach(name IN ITEMS plexus nccl)
    configure_file(cmake/${name}.pc.in "${PROJECT_BINARY_DIR}/${name}.pc" @ONLY)
    install(FILES "${PROJECT_BINARY_DIR}/${name}.pc" DESTINATION "${pc_folder}" COMPONENT development)
  endforeach()
endfunction()
