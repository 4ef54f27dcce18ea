# Elastic workers over gRPC, in learner/elastic/grpc/ and tls_check.cc; where there is no gRPC, grpc_connections_nogrpc.cc stands in for them.
include(${CMAKE_CURRENT_LIST_DIR}/auto_option.cmake)
lopt_auto_option(LOPT_GRPC "Workers that come and go, over gRPC: ON, OFF, or AUTO: where gRPC is found")
set(lopt_has_grpc OFF)
if(LOPT_GRPC)
  message(STATUS "Asking pkg-config for gRPC")
  include(cmake/lopt_find_grpc.cmake)
  find_program(GRPC_CPP_PLUGIN grpc_cpp_plugin)
  if(GRPC_FOUND AND GRPC_CPP_PLUGIN)
    set(lopt_has_grpc ON)
  endif()
  lopt_settle(LOPT_GRPC lopt_has_grpc "gRPC (libgrpc++-dev) or its compiler (protobuf-compiler-grpc) is not found"
    "gRPC not found: workers that come and go are left out")
endif()

# Most of the time that these files take to compile goes into gRPC's headers, so they are compiled as one.
file(GLOB lopt_grpc_sources CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/learner/elastic/grpc/*.cc)

# Adds those with gRPC or that without to the learner's library, and what the first wants.
function(lopt_grpc)
  if(NOT lopt_has_grpc)
    set_source_files_properties(learner/elastic/tls_check.cc PROPERTIES HEADER_FILE_ONLY ON)  # left out of the build
    return()
  endif()
  set_source_files_properties(learner/elastic/grpc_connections_nogrpc.cc PROPERTIES HEADER_FILE_ONLY ON)
  set(directory ${PROJECT_BINARY_DIR}/learner/elastic)
  set(sources ${directory}/elastic.pb.cc ${directory}/elastic.grpc.pb.cc)
  set(headers ${directory}/elastic.pb.h ${directory}/elastic.grpc.pb.h)
  file(MAKE_DIRECTORY ${directory})
  add_custom_command(OUTPUT ${sources} ${headers} DEPENDS learner/elastic/elastic.proto VERBATIM
    COMMAND protobuf::protoc --proto_path=${PROJECT_SOURCE_DIR} --cpp_out=${PROJECT_BINARY_DIR} --grpc_out=${PROJECT_BINARY_DIR}
            --plugin=protoc-gen-grpc=${GRPC_CPP_PLUGIN} learner/elastic/elastic.proto
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_source_files_properties(${sources} PROPERTIES COMPILE_OPTIONS -w)
  add_library(lopt_learner_grpc OBJECT ${lopt_grpc_sources} ${sources} ${headers})
  set_target_properties(lopt_learner_grpc PROPERTIES UNITY_BUILD_BATCH_SIZE 0)
  target_compile_options(lopt_learner_grpc PRIVATE ${calling_code_options})
  target_include_directories(lopt_learner_grpc SYSTEM PRIVATE ${PROJECT_BINARY_DIR})
  target_link_libraries(lopt_learner_grpc PRIVATE lopt_flags lopt_base spdlog::spdlog PkgConfig::GRPC protobuf::libprotobuf-lite)
  target_sources(lopt_learner PRIVATE $<TARGET_OBJECTS:lopt_learner_grpc>)
  target_link_libraries(lopt_learner PRIVATE PkgConfig::GRPC protobuf::libprotobuf-lite)
endfunction()
