# Elastic workers over gRPC: the module of learner/elastic/grpc/.
include(${CMAKE_CURRENT_LIST_DIR}/auto_option.cmake)
lopt_auto_option(LOPT_GRPC "Workers that come and go, over gRPC: ON, OFF, or AUTO: where gRPC is found")
set(lopt_has_grpc OFF)
if(LOPT_GRPC)
  message(STATUS "Asking pkg-config for gRPC")
  # In one call: pkg-config follows some hundred packages for a second or two, and pkg_check_modules would call it a dozen times.
  if(NOT lopt_grpc_flags)
    execute_process(COMMAND ${PKG_CONFIG_EXECUTABLE} --cflags --libs grpc++ openssl
      OUTPUT_VARIABLE lopt_grpc_flags OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    set(lopt_grpc_flags "${lopt_grpc_flags}" CACHE INTERNAL "What the gRPC module is compiled and linked with")
  endif()
  find_program(GRPC_CPP_PLUGIN grpc_cpp_plugin)
  if(lopt_grpc_flags AND GRPC_CPP_PLUGIN)
    set(lopt_has_grpc ON)
  endif()
  lopt_settle(LOPT_GRPC lopt_has_grpc "gRPC (libgrpc++-dev) or its compiler (protobuf-compiler-grpc) is not found"
    "gRPC not found: workers that come and go are left out")
endif()

file(GLOB lopt_grpc_sources CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/learner/elastic/grpc/*.cc)

# Makes the module, with those files of the learner that it uses.
function(lopt_grpc)
  if(NOT lopt_has_grpc)
    return()
  endif()
  set(directory ${PROJECT_BINARY_DIR}/learner/elastic)
  set(sources ${directory}/elastic.pb.cc ${directory}/elastic.grpc.pb.cc)
  set(headers ${directory}/elastic.pb.h ${directory}/elastic.grpc.pb.h)
  file(MAKE_DIRECTORY ${directory})
  add_custom_command(OUTPUT ${sources} ${headers} DEPENDS learner/elastic/elastic.proto VERBATIM
    COMMAND protobuf::protoc --proto_path=${PROJECT_SOURCE_DIR} --cpp_out=${PROJECT_BINARY_DIR} --grpc_out=${PROJECT_BINARY_DIR}
            --plugin=protoc-gen-grpc=${GRPC_CPP_PLUGIN} learner/elastic/elastic.proto
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_source_files_properties(${sources} PROPERTIES COMPILE_OPTIONS -w)
  lopt_module(grpc lopt ${lopt_grpc_sources} learner/elastic/address.cc learner/elastic/frame_parts.cc learner/elastic/listener.cc
    learner/elastic/strangers.cc ${sources} ${headers})
  # Most of the time that these files take to compile goes into gRPC's headers, so they are compiled as one.
  set_target_properties(lopt_grpc_module PROPERTIES UNITY_BUILD_BATCH_SIZE 0)
  separate_arguments(flags UNIX_COMMAND "${lopt_grpc_flags}")
  set(libraries ${flags})
  list(FILTER flags INCLUDE REGEX "^-[DI]")
  list(FILTER libraries EXCLUDE REGEX "^-[DI]")
  list(TRANSFORM flags REPLACE "^-I" "-isystem")
  target_compile_options(lopt_grpc_module PRIVATE ${calling_code_options} ${flags})
  target_include_directories(lopt_grpc_module SYSTEM PRIVATE ${PROJECT_BINARY_DIR})
  target_link_libraries(lopt_grpc_module PRIVATE lopt_base spdlog::spdlog ${libraries} protobuf::libprotobuf-lite)
endfunction()
