# The project's side of plug-ins: lopt_takes_plugins(TARGET) for programs that open them. Such a program is linked with all of the folder libraries
# and exports lopt's own names.
include(${CMAKE_CURRENT_LIST_DIR}/lopt_add_plugin.cmake)
target_link_libraries(lopt_learner PRIVATE ${CMAKE_DL_LIBS})
function(lopt_takes_plugins target)
  set(symbols ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/lopt_symbols.list)
  target_link_options(${target} PRIVATE -Wl,--dynamic-list=${symbols})
  set_target_properties(${target} PROPERTIES LINK_DEPENDS ${symbols}
    LINK_LIBRARY_OVERRIDE WHOLE_ARCHIVE,lopt_base,lopt_tasks,lopt_lopt,lopt_estimators,lopt_evaluation,lopt_learner)
endfunction()
