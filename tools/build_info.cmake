# Writes OUTPUT from build_info.cc.in, and only where its text changes, so that a build without a new
# commit compiles nothing.
find_program(GIT git)
set(COMMIT "")
if(GIT)
  execute_process(COMMAND ${GIT} -C ${SOURCE_DIR} describe --always --dirty --abbrev=12 --exclude=*
                  OUTPUT_VARIABLE COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
configure_file(${CMAKE_CURRENT_LIST_DIR}/build_info.cc.in ${OUTPUT} @ONLY)
