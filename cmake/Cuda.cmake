# SPDX-License-Identifier: Apache-2.0
# PLEXUS_CUDA=AUTO|ON|OFF. This release has no CUDA code, so the answer changes only what configure says.

include_guard(GLOBAL)

set(PLEXUS_CUDA AUTO CACHE STRING "AUTO, ON or OFF: GPU ranks (this release: host ranks only)")
set_property(CACHE PLEXUS_CUDA PROPERTY STRINGS AUTO ON OFF)

if(NOT PLEXUS_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "PLEXUS_CUDA is '${PLEXUS_CUDA}'; it takes AUTO, ON or OFF")
endif()

if(PLEXUS_CUDA STREQUAL "OFF")
  set(PLEXUS_CUDA_SUMMARY "off, as asked: ranks compute on the host")
else()
  find_program(PLEXUS_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
  if(PLEXUS_NVCC)
    set(PLEXUS_CUDA_SUMMARY
        "found ${PLEXUS_NVCC}, not used: no CUDA code is in this release, ranks compute on the host")
  elseif(PLEXUS_CUDA STREQUAL "ON")
    message(FATAL_ERROR "PLEXUS_CUDA=ON, but there is no nvcc in PATH, $CUDA_HOME/bin or "
                        "/usr/local/cuda/bin; install the CUDA toolkit or use PLEXUS_CUDA=AUTO")
  else()
    set(PLEXUS_CUDA_SUMMARY "no nvcc; no CUDA code is in this release, ranks compute on the host")
  endif()
endif()
