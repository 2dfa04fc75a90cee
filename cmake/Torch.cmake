# SPDX-License-Identifier: Apache-2.0
# PLEXUS_TORCH=AUTO|ON|OFF: PyTorch for integrations/pytorch. AUTO builds that where a Python with torch is
# found, in a build with tests or of packages: others install it with pip. Sets PLEXUS_TORCH_FOUND, PLEXUS_TORCH_SUMMARY,
# PLEXUS_TORCH_PYTHON (the interpreter) and PLEXUS_TORCH_SUFFIX (of its modules), and the target plexus::torch.

include_guard(GLOBAL)

set(PLEXUS_TORCH AUTO CACHE STRING "Build the backend for PyTorch: AUTO, ON or OFF")
set_property(CACHE PLEXUS_TORCH PROPERTY STRINGS AUTO ON OFF)
set(PLEXUS_TORCH_FOUND OFF)
set(PLEXUS_TORCH_SUMMARY "left out: PLEXUS_TORCH=${PLEXUS_TORCH}, PLEXUS_TESTS=${PLEXUS_TESTS}")

# What to compile against, one value a line.
set(PLEXUS_TORCH_QUESTION [==[
import sysconfig, torch, torch.utils.cpp_extension as extension
print(torch.__version__)
print(sysconfig.get_config_var('EXT_SUFFIX'))
print('|'.join(extension.include_paths() + [sysconfig.get_paths()['include']]))
print('|'.join(extension.library_paths()))
print(int(torch._C._GLIBCXX_USE_CXX11_ABI))
]==])

# Asks each candidate; the first one that has torch and its headers answers.
function(plexus_find_torch)
  find_program(PLEXUS_PYTHON_IN_PATH python3)
  foreach(python IN ITEMS "${PLEXUS_TORCH_PYTHON}" "${PLEXUS_PYTHON_IN_PATH}" /usr/bin/python3)
    if(NOT python)
      continue()
    endif()
    execute_process(COMMAND "${python}" -c "${PLEXUS_TORCH_QUESTION}"
      OUTPUT_VARIABLE answer ERROR_QUIET RESULT_VARIABLE failed OUTPUT_STRIP_TRAILING_WHITESPACE)
    string(REPLACE "\n" ";" answer "${answer}")
    list(LENGTH answer lines)
    if(failed OR NOT lines EQUAL 5)
      continue()
    endif()
    list(GET answer 0 version)
    list(GET answer 1 suffix)
    list(GET answer 2 includes)
    list(GET answer 3 folders)
    list(GET answer 4 abi)
    string(REPLACE "|" ";" includes "${includes}")
    string(REPLACE "|" ";" folders "${folders}")
    find_path(PLEXUS_TORCH_HEADER torch/extension.h PATHS ${includes} NO_CACHE)
    if(NOT PLEXUS_TORCH_HEADER)
      continue()
    endif()
    plexus_make_torch_target("${includes}" "${folders}" ${abi})
    set(PLEXUS_TORCH_FOUND ON PARENT_SCOPE)
    set(PLEXUS_TORCH_SUFFIX "${suffix}" PARENT_SCOPE)
    set(PLEXUS_TORCH_PYTHON "${python}" CACHE FILEPATH "a Python with PyTorch")
    set(PLEXUS_TORCH_SUMMARY "torch ${version} of ${python}" PARENT_SCOPE)
    return()
  endforeach()
endfunction()

function(plexus_make_torch_target includes folders abi)
  add_library(plexus_torch INTERFACE)
  add_library(plexus::torch ALIAS plexus_torch)
  # /usr/include in front of the compiler's own folders breaks its #include_next.
  list(REMOVE_ITEM includes /usr/include)
  foreach(folder IN LISTS includes)
    if(IS_DIRECTORY "${folder}")
      target_include_directories(plexus_torch SYSTEM INTERFACE "${folder}")
    endif()
  endforeach()
  target_compile_definitions(plexus_torch INTERFACE _GLIBCXX_USE_CXX11_ABI=${abi})
  foreach(name IN ITEMS torch_python torch torch_cpu c10)
    find_library(PLEXUS_TORCH_LIBRARY_${name} ${name} HINTS ${folders} REQUIRED)
    mark_as_advanced(PLEXUS_TORCH_LIBRARY_${name})
    target_link_libraries(plexus_torch INTERFACE "${PLEXUS_TORCH_LIBRARY_${name}}")
  endforeach()
endfunction()

if(PLEXUS_TORCH STREQUAL "ON" OR 
   (PLEXUS_TORCH STREQUAL "AUTO" AND (PLEXUS_TESTS OR PLEXUS_PACKAGE) AND NOT PLEXUS_SANITIZE))
  set(PLEXUS_TORCH_SUMMARY "not found (python3-torch libtorch-dev): the backend for PyTorch is not built")
  plexus_find_torch()
  if(PLEXUS_TORCH STREQUAL "ON" AND NOT PLEXUS_TORCH_FOUND)
    message(FATAL_ERROR "PLEXUS_TORCH=ON, but no Python with torch and its headers was found: install the packages "
                        "[torch] of cmake/debian-packages.txt, or set PLEXUS_TORCH_PYTHON")
  endif()
endif()
