# Kernels for the processor at hand alone compile in half of the time. Only they and base/isa.cc have other options then, so a build of all kernels in
# the same directory compiles nothing else again.
set(LOPT_KERNELS ALL CACHE STRING "Instruction sets that kernels are compiled for: ALL; or NATIVE, the best that this machine has, and one lane at a time")
set_property(CACHE LOPT_KERNELS PROPERTY STRINGS ALL NATIVE)
set(lopt_native_options)
if(LOPT_KERNELS STREQUAL NATIVE)
  if(CMAKE_CROSSCOMPILING)
    message(FATAL_ERROR "LOPT_KERNELS is NATIVE, for the machine that builds, but this build is for another, ${CMAKE_SYSTEM_PROCESSOR}")
  endif()
  unset(lopt_native_runs CACHE)
  try_run(lopt_native_runs lopt_native_compiles ${PROJECT_BINARY_DIR}/native ${CMAKE_CURRENT_LIST_DIR}/native_target.cc
    COMPILE_DEFINITIONS "-DHWY_DISABLED_TARGETS=(${lopt_left_out})" -DHWY_BROKEN_EMU128=1 LINK_LIBRARIES PkgConfig::HWY
    COMPILE_OUTPUT_VARIABLE output RUN_OUTPUT_VARIABLE native)
  if(NOT lopt_native_compiles OR NOT lopt_native_runs STREQUAL 0)
    message(FATAL_ERROR "LOPT_KERNELS is NATIVE, but what asks Highway for this machine's instruction sets fails: ${output}${native}")
  endif()
  set(other_targets HWY_AVX3 HWY_AVX2 HWY_SSE4 HWY_NEON)
  list(REMOVE_ITEM other_targets ${native})
  list(JOIN other_targets "|" other_targets)
  set(lopt_native_options -UHWY_DISABLED_TARGETS "-DHWY_DISABLED_TARGETS=(${lopt_left_out}|${other_targets})" -DLOPT_NATIVE_KERNELS)
  message(STATUS "Kernels: for ${native}, which this machine has, and one lane; -DLOPT_KERNELS=ALL compiles all")
elseif(NOT LOPT_KERNELS STREQUAL ALL)
  message(FATAL_ERROR "LOPT_KERNELS is '${LOPT_KERNELS}'; it can be ALL or NATIVE")
endif()
