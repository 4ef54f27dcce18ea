# The project's side of plug-ins: the header of their ABI, which is a hash of what they are compiled with, and lopt_takes_plugins(TARGET) for
# programs that open them. Such a program is linked with all of the folder libraries and exports lopt's own names.
include(${CMAKE_CURRENT_LIST_DIR}/lopt_add_plugin.cmake)

set(abi ${PROJECT_BINARY_DIR}/learner/plugin_abi.h)
set(abi_headers)
foreach(folder base tasks lopt estimators evaluation learner)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.h)
  list(APPEND abi_headers ${headers})
endforeach()
add_custom_command(OUTPUT ${abi} DEPENDS ${abi_headers} ${CMAKE_CURRENT_LIST_DIR}/plugin_abi.cmake VERBATIM
  COMMAND ${CMAKE_COMMAND} -DOUTPUT=${abi} "-DHEADERS=${abi_headers}" -DVERSION=${PROJECT_VERSION}
          -P ${CMAKE_CURRENT_LIST_DIR}/plugin_abi.cmake)
add_custom_target(lopt_plugin_abi DEPENDS ${abi})
add_dependencies(lopt_learner lopt_plugin_abi)
target_link_libraries(lopt_learner PRIVATE ${CMAKE_DL_LIBS})
function(lopt_takes_plugins target)
  set(symbols ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/lopt_symbols.list)
  target_link_options(${target} PRIVATE -Wl,--dynamic-list=${symbols})
  set_target_properties(${target} PROPERTIES LINK_DEPENDS ${symbols}
    LINK_LIBRARY_OVERRIDE WHOLE_ARCHIVE,lopt_base,lopt_tasks,lopt_lopt,lopt_estimators,lopt_evaluation,lopt_learner)
endfunction()
