# The target docs builds the documentation as a site, in the folder site of the build. So does a test, but where Doxygen, the tools of
# docs/site/requirements.txt or the Python package are missing.
add_custom_target(docs COMMAND ${CMAKE_SOURCE_DIR}/tools/build_docs ${CMAKE_BINARY_DIR} USES_TERMINAL)
if(TARGET lopt_python)
  add_dependencies(docs lopt_python)
endif()
add_test(NAME "docs: code and pictures of the pages" COMMAND ${CMAKE_SOURCE_DIR}/docs/site/refresh --check)
if(NOT LOPT_SANITIZE)
  if(TARGET lopt_python)
    set(needed [[command -v doxygen && ls "$1/docs-env/requires" || { echo "skipped: tools/build_docs, which installs its tools, has not run here"; exit 77; }]])
  else()
    set(needed [[echo "skipped: this build has no Python package, whose reference is a part of the site"; exit 77]])
  endif()
  add_test(NAME "docs: the site" COMMAND sh -c "${needed}; LOPT_NO_INSTALL=1 \"$0\" \"$1\"" ${CMAKE_SOURCE_DIR}/tools/build_docs ${CMAKE_BINARY_DIR})
  set_tests_properties("docs: the site" PROPERTIES LABELS docs COST 100 SKIP_RETURN_CODE 77 TIMEOUT 1800)
  # In a browser, skipped where there is no Chromium or no site.
  add_test(NAME "docs: screenshots" COMMAND ${CMAKE_SOURCE_DIR}/tests/site_screenshot ${CMAKE_BINARY_DIR})
  set_tests_properties("docs: screenshots" PROPERTIES DEPENDS "docs: the site" LABELS "docs;nightly" SKIP_RETURN_CODE 77 TIMEOUT 1800)
endif()
