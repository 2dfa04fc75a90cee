# SPDX-License-Identifier: Apache-2.0
# PLEXUS_CUDA=AUTO|ON|OFF: whether kernels/cuda is compiled. Sets PLEXUS_CUDA_ENABLED, the language
# CUDA and the runtime (linked statically, so that a binary works where there is no CUDA at all).
# Without nvcc all else builds as it is; the device executor's source is then tested on the host only.

include_guard(GLOBAL)

set(PLEXUS_CUDA AUTO CACHE STRING "AUTO, ON or OFF: compile the device executor of CUDA ranks (needs nvcc)")
set_property(CACHE PLEXUS_CUDA PROPERTY STRINGS AUTO ON OFF)
# One PTX for architectures to come.
set(PLEXUS_CUDA_ARCHITECTURES "80-real;90-real;100-real;100-virtual" CACHE STRING
  "As CMAKE_CUDA_ARCHITECTURES: what the device executor is compiled for")

if(NOT PLEXUS_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "PLEXUS_CUDA is '${PLEXUS_CUDA}'; expected AUTO, ON or OFF")
endif()

set(PLEXUS_CUDA_ENABLED OFF)
if(PLEXUS_CUDA STREQUAL "OFF")
  set(PLEXUS_CUDA_SUMMARY "off, as asked: no device kernels")
elseif(PLEXUS_CUDA STREQUAL "AUTO" AND (PLEXUS_SANITIZE OR PLEXUS_FUZZ OR PLEXUS_COVERAGE))
  # nvcc's code cannot be instrumented; the executor runs instrumented in its tests on the host.
  set(PLEXUS_CUDA_SUMMARY "off: this build is instrumented, and device kernels cannot be")
else()
  find_program(PLEXUS_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
  if(PLEXUS_NVCC)
    set(CMAKE_CUDA_COMPILER "${PLEXUS_NVCC}")
    set(CMAKE_CUDA_ARCHITECTURES "${PLEXUS_CUDA_ARCHITECTURES}")
    if(NOT CMAKE_CUDA_HOST_COMPILER)
      set(CMAKE_CUDA_HOST_COMPILER "${CMAKE_CXX_COMPILER}")
    endif()
    if(PLEXUS_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
      set(CMAKE_CUDA_COMPILER_LAUNCHER "${PLEXUS_CCACHE}")
    endif()
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(PLEXUS_CUDA_ENABLED ON)
    set(PLEXUS_CUDA_SUMMARY
        "nvcc ${CMAKE_CUDA_COMPILER_VERSION}, device kernels for ${PLEXUS_CUDA_ARCHITECTURES}")
  elseif(PLEXUS_CUDA STREQUAL "ON")
    message(FATAL_ERROR "PLEXUS_CUDA=ON, but there is no nvcc in PATH, $CUDA_HOME/bin or "
                        "/usr/local/cuda/bin; install the CUDA toolkit or use PLEXUS_CUDA=AUTO")
  else()
    set(PLEXUS_CUDA_SUMMARY "no nvcc: no device kernels")
  endif()
endif()
