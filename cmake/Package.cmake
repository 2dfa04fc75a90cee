# SPDX-License-Identifier: Apache-2.0
# PLEXUS_PACKAGE=ON (preset `package`, ./dev package): Debian packages, one for each install component of
# cmake/Install.cmake. Files lie where Debian's do (/usr, the folder of the architecture) and have no run
# path; what they need is computed from the libraries they are linked with (dpkg-shlibdeps).

include_guard(GLOBAL)
option(PLEXUS_PACKAGE "Build for Debian packages: no run paths, documents of packages, cpack -G DEB" OFF)

# component -> package
set(PLEXUS_PACKAGE_runtime libplexus0)
set(PLEXUS_PACKAGE_development libplexus-dev)
set(PLEXUS_PACKAGE_plugins plexus-plugins)
set(PLEXUS_PACKAGE_tools plexus-tools)
set(PLEXUS_PACKAGE_python python3-torch-plexus)  # where PyTorch is
set(PLEXUS_PACKAGE_COMPONENTS runtime development plugins tools)

# /usr/share/doc/PACKAGE, as Debian's policy asks: the licence and what changed.
function(plexus_package_documents)
  set(folder "${PROJECT_BINARY_DIR}/package-doc")
  string(TIMESTAMP year "%Y" UTC)
  file(WRITE "${folder}/copyright" "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: Plexus

Files: *
Copyright: ${year} Plexus contributors
License: Apache-2.0

License: Apache-2.0
 Licensed under the Apache License, Version 2.0.
 .
 On Debian systems the text of this license is in /usr/share/common-licenses/Apache-2.0.
")
  string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
  file(WRITE "${folder}/changelog.Debian" "plexus (${PLEXUS_PACKAGE_VERSION}) unstable; urgency=medium

  * Release ${PROJECT_VERSION}; changelog.gz says what is new.

 -- ${CPACK_PACKAGE_CONTACT}  ${date}
")
  configure_file("${PROJECT_SOURCE_DIR}/CHANGELOG.md" "${folder}/changelog" COPYONLY)
  execute_process(COMMAND gzip -9 -n -f changelog changelog.Debian
    WORKING_DIRECTORY "${folder}" COMMAND_ERROR_IS_FATAL ANY)
  foreach(component IN LISTS PLEXUS_PACKAGE_COMPONENTS)
    install(FILES "${folder}/copyright" "${folder}/changelog.gz" "${folder}/changelog.Debian.gz"
      DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/${PLEXUS_PACKAGE_${component}}" COMPONENT ${component})
  endforeach()
endfunction()

# What the libraries of libplexus0 are called for packages that are built against them, and the request that
# ldconfig runs. By hand, since CPack would list the CUDA stubs of plexus-tools, too.
function(plexus_package_control out)
  set(folder "${PROJECT_BINARY_DIR}/package-control")
  file(WRITE "${folder}/shlibs" "libplexus 0 libplexus0 (>= ${PROJECT_VERSION})
libnccl 2 libplexus0 (>= ${PROJECT_VERSION})
")
  file(WRITE "${folder}/triggers" "activate-noawait ldconfig\n")
  set(${out} "${folder}/shlibs;${folder}/triggers" PARENT_SCOPE)
endfunction()

# A macro: CPack reads variables of the top CMakeLists.txt.
macro(plexus_make_packages)
  if(NOT CMAKE_INSTALL_PREFIX STREQUAL "/usr")
    message(FATAL_ERROR "PLEXUS_PACKAGE=ON needs CMAKE_INSTALL_PREFIX=/usr, not ${CMAKE_INSTALL_PREFIX}; "
                        "use the preset `package`")
  endif()
  set(PLEXUS_PACKAGE_VERSION "${PROJECT_VERSION}-1")
  set(CPACK_GENERATOR DEB)
  set(CPACK_PACKAGE_CONTACT "Plexus maintainers <plexus@example.org>")
  set(CPACK_PACKAGE_VERSION "${PROJECT_VERSION}")
  set(CPACK_PACKAGING_INSTALL_PREFIX "/usr")
  set(CPACK_STRIP_FILES ON)
  set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
  if(PLEXUS_TORCH_FOUND)
    list(APPEND PLEXUS_PACKAGE_COMPONENTS python)
  endif()
  set(CPACK_COMPONENTS_ALL ${PLEXUS_PACKAGE_COMPONENTS})
  set(CPACK_COMPONENTS_GROUPING IGNORE)
  set(CPACK_DEB_COMPONENT_INSTALL ON)
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
  set(CPACK_DEBIAN_PACKAGE_SOURCE plexus)
  set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
  set(CPACK_DEBIAN_PACKAGE_SECTION libs)
  set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
  set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION TRUE)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${PLEXUS_LIB_DIR}")  # libplexus.so.0, for plexus-tools

  foreach(component IN LISTS CPACK_COMPONENTS_ALL)
    string(TOUPPER ${component} upper)
    set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${PLEXUS_PACKAGE_${component}})
  endforeach()
  set(PLEXUS_SAME_VERSION "(= ${PLEXUS_PACKAGE_VERSION})")

  set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "collective communication with NCCL's interface, libraries
All-reduce and the other collectives, send and receive, between ranks on
CPUs: processes or threads, on one host or many. libnccl.so.2 is the name
that programs built for NCCL ask for. Networks and tuners are plugins
(plexus-plugins).")
  plexus_package_control(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA)
  set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONFLICTS "libnccl2")
  set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS "plexus-plugins ${PLEXUS_SAME_VERSION}")
  set(CPACK_DEBIAN_RUNTIME_PACKAGE_SUGGESTS "libpmix2t64 | libpmix2")  # its names in Debian 13 and 12

  set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "collective communication with NCCL's interface, development
nccl.h, plexus.h, the headers and a template of plugins, and what
pkg-config (plexus) and CMake (find_package(Plexus)) read.")
  set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
  set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libplexus0 ${PLEXUS_SAME_VERSION}")
  set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_CONFLICTS "libnccl-dev")
  set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_RECOMMENDS "plexus-tools")

  set(CPACK_COMPONENT_PLUGINS_DESCRIPTION "collective communication with NCCL's interface, plugins
Networks (TCP, InfiniBand and RoCE, libfabric, one that injects faults, one that reduces in a
server) and the tuner, which libplexus0 loads as it starts.")
  set(CPACK_DEBIAN_PLUGINS_PACKAGE_DEPENDS "libplexus0 ${PLEXUS_SAME_VERSION}")
  set(CPACK_DEBIAN_PLUGINS_PACKAGE_SUGGESTS "libfabric1, libibverbs1")

  set(CPACK_COMPONENT_TOOLS_DESCRIPTION "collective communication with NCCL's interface, command
The command plexus: measures collectives, proves algorithms, explains what
is chosen, shows a machine's topology, checks plugins.")
  set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION utils)
  set(CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS
    "libplexus0 ${PLEXUS_SAME_VERSION}, plexus-plugins ${PLEXUS_SAME_VERSION}, python3")
  set(CPACK_DEBIAN_TOOLS_PACKAGE_RECOMMENDS "iproute2")

  set(CPACK_COMPONENT_PYTHON_DESCRIPTION "collective communication with NCCL's interface, backend for PyTorch
The Python package torch_plexus: process groups of torch.distributed on CPU
tensors.")
  set(CPACK_DEBIAN_PYTHON_PACKAGE_SECTION python)
  set(CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS
    "libplexus0 ${PLEXUS_SAME_VERSION}, plexus-plugins ${PLEXUS_SAME_VERSION}, python3, python3-torch")

  plexus_package_documents()
  include(CPack)
endmacro()
