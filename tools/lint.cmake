# Tests with the label lint: the format of every source file, and clang-tidy for each source file of the libraries and tools.
# They exist where clang-format and clang-tidy are installed. clang-tidy reads every file alone, with what it includes itself: lint/ in the build
# folder is configured without unity build and precompiled headers, for its compile_commands.json. There g++'s --param, which clang does not
# know, is left out, and generated headers are those of this build.
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
  foreach(file ${tidy_files})
    add_test(NAME "lint: ${file}" COMMAND ${CLANG_TIDY} --quiet -p ${CMAKE_BINARY_DIR}/lint ${file} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties("lint: ${file}" PROPERTIES LABELS lint FIXTURES_REQUIRED lint_commands)
  endforeach()
endif()
