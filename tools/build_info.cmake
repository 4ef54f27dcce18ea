# Writes OUTPUT from build_info.cc.in, and only where its text changes, so that a build without a new
# commit compiles nothing.
find_program(GIT git)
set(COMMIT "")
if(GIT)
  # A tarball may lie in another repository, whose commit is none of ours.
  execute_process(COMMAND ${GIT} -C ${SOURCE_DIR} ls-files --error-unmatch tools/build_info.cmake
                  RESULT_VARIABLE untracked OUTPUT_QUIET ERROR_QUIET)
endif()
if(GIT AND untracked EQUAL 0)
  execute_process(COMMAND ${GIT} -C ${SOURCE_DIR} describe --always --dirty --abbrev=12 --exclude=*
                  OUTPUT_VARIABLE COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
configure_file(${CMAKE_CURRENT_LIST_DIR}/build_info.cc.in ${OUTPUT} @ONLY)
