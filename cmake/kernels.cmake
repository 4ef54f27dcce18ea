# The instruction sets that kernels are compiled for: lopt_left_out are those that they are not. What uses Highway is compiled with it.
#
# Kernels are compiled for AVX-512, AVX2, SSE4 and one lane at a time, which every x86-64 has, whatever else a newer Highway offers: runs, files and
# known hashes name the same instruction sets on every system, and a kernel is not compiled twice as often. Left out besides: SSSE3, of a few
# processors before 2008, and vectors of unknown length, which kernels cannot keep in arrays. Vectors of four that g++ 14 and clang emulate
# (HWY_EMU128) would stand in for the one lane.
set(lopt_left_out HWY_SSSE3 HWY_SVE HWY_SVE2 HWY_SVE_256 HWY_SVE2_128 HWY_RVV)
find_file(LOPT_HWY_TARGETS hwy/detect_targets.h HINTS ${HWY_INCLUDEDIR} ${HWY_INCLUDE_DIRS} REQUIRED)
mark_as_advanced(LOPT_HWY_TARGETS)
file(STRINGS ${LOPT_HWY_TARGETS} newer REGEX "^#define HWY_(SSE2|AVX3_ZEN4|AVX3_SPR|AVX10_2|AVX10_2_512|NEON_BF16) ")
foreach(line IN LISTS newer)
  string(REGEX MATCH "HWY_[A-Z0-9_]+" target ${line})
  list(APPEND lopt_left_out ${target})
endforeach()
list(JOIN lopt_left_out "|" lopt_left_out)

# Kernels for this machine's processor alone compile in half the time. Only what uses Highway's instruction sets gets other options, so after a switch
# to ALL in the same directory nothing else is compiled again.
set(LOPT_KERNELS ALL CACHE STRING "Instruction sets that kernels are compiled for: ALL; or NATIVE, the best of this machine and the simplest")
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
  set(other_targets HWY_AVX3 HWY_AVX2 HWY_SSE4 HWY_NEON HWY_SCALAR)
  if(NOT lopt_native_compiles OR NOT lopt_native_runs STREQUAL 0 OR NOT (native IN_LIST other_targets OR native STREQUAL HWY_NEON_WITHOUT_AES))
    message(FATAL_ERROR "LOPT_KERNELS is NATIVE, but the program that asks Highway for this machine's best instruction set does not compile or run: ${output}${native}")
  endif()
  list(REMOVE_ITEM other_targets ${native} HWY_SCALAR)
  list(JOIN other_targets "|" other_targets)
  set(lopt_native_options -UHWY_DISABLED_TARGETS "-DHWY_DISABLED_TARGETS=(${lopt_left_out}|${other_targets})" -DLOPT_NATIVE_KERNELS)
  message(STATUS "Kernels: for ${native}, the best of this machine, and simple ones; -DLOPT_KERNELS=ALL compiles all")
elseif(NOT LOPT_KERNELS STREQUAL ALL)
  message(FATAL_ERROR "LOPT_KERNELS is '${LOPT_KERNELS}'; it can be ALL or NATIVE")
endif()
