# The target docs builds the documentation as a site, in the folder site of the build. So does a test, but where Doxygen or Sphinx is missing.
add_custom_target(docs COMMAND ${CMAKE_SOURCE_DIR}/tools/build_docs ${CMAKE_BINARY_DIR} USES_TERMINAL)
if(NOT LOPT_SANITIZE)
  add_test(NAME "docs: the site" COMMAND sh -c
    "command -v doxygen && command -v sphinx-build || exit 77; LOPT_NO_INSTALL=1 '${CMAKE_SOURCE_DIR}/tools/build_docs' '${CMAKE_BINARY_DIR}'")
  set_tests_properties("docs: the site" PROPERTIES LABELS docs SKIP_RETURN_CODE 77 TIMEOUT 600)
endif()
