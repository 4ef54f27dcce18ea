# Tests with the label lint: the format of every source file, and clang-tidy for the source files of the libraries and tools.
# They exist where clang-format and clang-tidy are installed. Most of clang-tidy's time goes into what the files include, so it reads up to
# sixteen files of a folder as one; that each includes what it needs itself is found by reading every file alone, with one quick check. lint/
# in the build folder is configured without unity build and precompiled headers, for its compile_commands.json. There g++'s --param, which
# clang does not know, is left out, and generated headers are those of this build.
set(lint_folders base tasks tasks/* lopt lopt/* torch torch/* estimators estimators/* learner learner/* evaluation tools tools/* examples examples/*)
set(format_files)
set(tidy_files)
foreach(folder ${lint_folders} python/src tests tests/contracts)
  file(GLOB files CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/${folder}/*.cc ${CMAKE_SOURCE_DIR}/${folder}/*.h)
  list(APPEND format_files ${files})
  if(NOT folder MATCHES "^tests")
    list(FILTER files INCLUDE REGEX "\\.cc$")
    list(APPEND tidy_files ${files})
  endif()
endforeach()
# clang 14 cannot compile the headers of LibTorch 1.13 as C++20 with libstdc++ 12 (vectors of an incomplete type): of torch/ these do without.
set(tidy_torch torch/blas.cc torch/call.cc torch/module.cc torch/registry.cc)
list(FILTER tidy_files EXCLUDE REGEX "(torch_task|torch_training|byte_lstm)\\.cc$|^torch/")
if(LOPT_TORCH)
  list(APPEND tidy_files ${tidy_torch})
endif()
if(NOT TARGET lopt_python)
  list(FILTER tidy_files EXCLUDE REGEX "^python/")
endif()
if(NOT LOPT_MPI)
  list(FILTER tidy_files EXCLUDE REGEX "/mpi_transport\\.cc$")
endif()
if(NOT lopt_has_grpc)
  list(FILTER tidy_files EXCLUDE REGEX "/grpc_connections\\.cc$")
endif()

find_program(CLANG_FORMAT clang-format)
if(CLANG_FORMAT)
  add_test(NAME "lint: format" COMMAND ${CLANG_FORMAT} --dry-run -Werror ${format_files} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties("lint: format" PROPERTIES LABELS lint)
endif()
find_program(CLANG_TIDY clang-tidy)
if(CLANG_TIDY)
  set(lint ${CMAKE_BINARY_DIR}/lint)
  add_test(NAME "lint: compile commands" COMMAND sh -c
    "'${CMAKE_COMMAND}' -S '${CMAKE_SOURCE_DIR}' -B '${lint}' -G '${CMAKE_GENERATOR}' -DCMAKE_BUILD_TYPE=${CMAKE_BUILD_TYPE} \
       -DCMAKE_CXX_COMPILER='${CMAKE_CXX_COMPILER}' -DCMAKE_PREFIX_PATH='${CMAKE_PREFIX_PATH}' \
       -DLOPT_TORCH=${LOPT_TORCH} -DLOPT_MPI=${LOPT_MPI} -DLOPT_GRPC=${lopt_has_grpc} -DLOPT_TBB=${LOPT_TBB} -DLOPT_CUDA=OFF -DPython_EXECUTABLE='${Python_EXECUTABLE}' -DCMAKE_UNITY_BUILD=OFF -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON > '${lint}.log' && \
     sed -i 's|${lint}|${CMAKE_BINARY_DIR}|g; s|--param=ggc-min-heapsize=[0-9]*||' '${lint}/compile_commands.json'")
  set_tests_properties("lint: compile commands" PROPERTIES LABELS lint FIXTURES_SETUP lint_commands)

  function(lopt_tidy_test)
    list(POP_FRONT ARGN first)
    set(others ${ARGN})
    list(TRANSFORM others PREPEND "--extra-arg=-include${CMAKE_SOURCE_DIR}/")
    set(name ${first})
    if(ARGN)
      list(LENGTH ARGN count)
      set(name "${first} and ${count} more")
      add_test(NAME "lint: includes of ${name}"
        COMMAND ${CLANG_TIDY} --quiet -p ${lint} --checks=-*,modernize-deprecated-headers ${first} ${ARGN} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
      set_tests_properties("lint: includes of ${name}" PROPERTIES LABELS lint FIXTURES_REQUIRED lint_commands)
    endif()
    add_test(NAME "lint: ${name}" COMMAND ${CLANG_TIDY} --quiet -p ${lint} --checks=-bugprone-suspicious-include ${others} ${first}
      WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties("lint: ${name}" PROPERTIES LABELS lint FIXTURES_REQUIRED lint_commands)
  endfunction()

  # Those that are compiled alone or with definitions of their own, have a main() or stand for others that a build lacks are read alone here too.
  set(folder)
  set(group)
  foreach(file ${tidy_files} end)
    get_filename_component(next ${file} DIRECTORY)
    list(LENGTH group count)
    if(group AND (NOT next STREQUAL folder OR count EQUAL 16))
      lopt_tidy_test(${group})
      set(group)
    endif()
    set(folder ${next})
    get_source_file_property(alone ${file} SKIP_UNITY_BUILD_INCLUSION)
    get_source_file_property(definitions ${file} COMPILE_DEFINITIONS)
    if(alone OR definitions OR file MATCHES "^examples/|^tools/lopt.cc|bench_transport.cc|_no(ne|mpi|grpc).cc")
      lopt_tidy_test(${file})
    else()
      list(APPEND group ${file})
    endif()
  endforeach()
endif()
