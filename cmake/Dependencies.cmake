# SPDX-License-Identifier: Apache-2.0
# The libraries we stand on, all of them Debian packages (cmake/debian-packages.txt), each found once
# here and linked by the folder that uses it:
#   Threads::Threads  fmt::fmt  Boost::headers (Outcome, DLL)  hwy::hwy  plexus::sodium
#   OpenSSL::SSL  plexus::pugixml  plexus::hwloc  plexus::isal  plexus::libyaml  plexus::libfabric plexus::libibverbs plexus::pmix (where they are found)
#   CLI11::CLI11  nlohmann_json::nlohmann_json  GTest::gtest (tests)  benchmark::benchmark_main (tests)

include_guard(GLOBAL)

find_package(Threads REQUIRED)
find_package(fmt 9 REQUIRED)
find_package(Boost 1.74 REQUIRED CONFIG)
find_package(hwy CONFIG REQUIRED)
find_package(CLI11 CONFIG REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)
find_package(OpenSSL 3.0 REQUIRED)

# plexus::NAME: a library that has no CMake package on Debian.
function(plexus_find_library name variable header library)
  find_path(PLEXUS_${variable}_INCLUDE ${header} REQUIRED)
  find_library(PLEXUS_${variable}_LIBRARY ${library} REQUIRED)
  mark_as_advanced(PLEXUS_${variable}_INCLUDE PLEXUS_${variable}_LIBRARY)
  add_library(plexus_${name} UNKNOWN IMPORTED GLOBAL)
  set_target_properties(plexus_${name} PROPERTIES
    IMPORTED_LOCATION "${PLEXUS_${variable}_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${PLEXUS_${variable}_INCLUDE}")
  add_library(plexus::${name} ALIAS plexus_${name})
endfunction()
plexus_find_library(sodium SODIUM sodium.h sodium)
plexus_find_library(hwloc HWLOC hwloc.h hwloc)
plexus_find_library(isal ISAL isa-l/crc.h isal)  # Intel's ISA-L, for CRC32C
plexus_find_library(libyaml LIBYAML yaml.h yaml)  # for tools/slurm

# Debian's pugixml brings a package file, but names its target differently from release to release.
find_package(pugixml 1.11 REQUIRED)
add_library(plexus_pugixml INTERFACE)
target_link_libraries(plexus_pugixml INTERFACE pugixml::pugixml)
add_library(plexus::pugixml ALIAS plexus_pugixml)

# libfabric is for plugins/net-ofi only, which is left out without it. No CMake package on Debian.
find_path(PLEXUS_LIBFABRIC_INCLUDE rdma/fi_tagged.h)
find_library(PLEXUS_LIBFABRIC_LIBRARY fabric)
mark_as_advanced(PLEXUS_LIBFABRIC_INCLUDE PLEXUS_LIBFABRIC_LIBRARY)
set(PLEXUS_LIBFABRIC_SUMMARY "not found (libfabric-dev): net-ofi is not built")
if(PLEXUS_LIBFABRIC_INCLUDE AND PLEXUS_LIBFABRIC_LIBRARY)
  add_library(plexus_libfabric UNKNOWN IMPORTED GLOBAL)
  set_target_properties(plexus_libfabric PROPERTIES
    IMPORTED_LOCATION "${PLEXUS_LIBFABRIC_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${PLEXUS_LIBFABRIC_INCLUDE}")
  add_library(plexus::libfabric ALIAS plexus_libfabric)
  set(PLEXUS_LIBFABRIC_SUMMARY "found ${PLEXUS_LIBFABRIC_LIBRARY}")
endif()

# plexus::NAME: the headers of a library that its only user loads itself, and is left out without. `absent`: the summary then.
function(plexus_find_headers name variable header absent)
  find_path(PLEXUS_${variable}_INCLUDE ${header} ${ARGN})
  mark_as_advanced(PLEXUS_${variable}_INCLUDE)
  set(PLEXUS_${variable}_SUMMARY "${absent}" PARENT_SCOPE)
  if(PLEXUS_${variable}_INCLUDE)
    add_library(plexus_${name} INTERFACE)
    target_include_directories(plexus_${name} SYSTEM INTERFACE "${PLEXUS_${variable}_INCLUDE}")
    add_library(plexus::${name} ALIAS plexus_${name})
    set(PLEXUS_${variable}_SUMMARY "found ${PLEXUS_${variable}_INCLUDE}/${header}" PARENT_SCOPE)
  endif()
endfunction()
# for plugins/net-ib
plexus_find_headers(libibverbs IBVERBS infiniband/verbs.h "not found (libibverbs-dev): net-ib is not built")
# for core/join
plexus_find_headers(pmix PMIX pmix.h "not found (libpmix-dev): launchers that offer PMIx alone are not served"
  PATH_SUFFIXES pmix pmix2 PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/pmix2/include)

if(PLEXUS_TESTS)
  find_package(GTest REQUIRED)
  find_package(benchmark REQUIRED)
endif()
