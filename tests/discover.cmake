# Run after a test executable is linked: writes OUTPUT, which adds an entry "UNIT: <test case>" for each of its test cases. PROPERTIES are those
# of all entries; a test suite of doctest, TEST_SUITE("nightly"), becomes a label.
execute_process(COMMAND ${EXECUTOR} ${EXECUTABLE} --list-test-cases --reporters=ctest OUTPUT_VARIABLE cases COMMAND_ERROR_IS_FATAL ANY)
string(REGEX REPLACE "\n$" "" cases "${cases}")
string(REPLACE ";" "\\;" cases "${cases}")
string(REPLACE "\n" ";" cases "${cases}")
list(JOIN PROPERTIES " " properties)
set(script "")
foreach(case IN LISTS cases)
  if(NOT case MATCHES "^([a-z]*)/(.+)$")
    message(FATAL_ERROR "${EXECUTABLE} --list-test-cases --reporters=ctest: wanted lines '<suite>/<test case>', got '${case}'")
  endif()
  set(suite "${CMAKE_MATCH_1}")
  set(name "[==[${UNIT}: ${CMAKE_MATCH_2}]==]")
  string(REPLACE "," "\\," filter "${CMAKE_MATCH_2}")  # a comma stands between filters
  string(APPEND script "add_test(${name} ${EXECUTOR} [==[${EXECUTABLE}]==] [==[--test-case=${filter}]==])\n"
    "set_tests_properties(${name} PROPERTIES WORKING_DIRECTORY [==[${DIRECTORY}]==] ${properties} LABELS \"${LABELS};${suite}\")\n")
endforeach()
file(WRITE ${OUTPUT} "${script}")
