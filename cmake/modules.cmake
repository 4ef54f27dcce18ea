# Modules: shared libraries that a program opens when it needs them (base/module.h).
# lopt_module(KEY COMPONENT sources...) makes lopt_KEY_module and installs it with that CMake component. Everything but its entry function stays inside
# it, so nothing of it mixes with the program's own copies.
function(lopt_module key component)
  set(target lopt_${key}_module)
  set(map ${PROJECT_BINARY_DIR}/${target}.map)
  file(CONFIGURE OUTPUT ${map} CONTENT "{\n  global: @target@;\n  local: *;\n};\n" @ONLY)
  add_library(${target} MODULE ${ARGN})
  target_link_libraries(${target} PRIVATE lopt_flags)
  target_link_options(${target} PRIVATE -Wl,--version-script=${map})
  set_target_properties(${target} PROPERTIES INSTALL_RPATH $ORIGIN/.. LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR} LINK_DEPENDS ${map})
  install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/lopt COMPONENT ${component} OPTIONAL)

  # Where programs of the build tree look: beside themselves.
  foreach(directory tests python/lopt)
    file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/${directory})
    file(RELATIVE_PATH module ${PROJECT_BINARY_DIR}/${directory} ${PROJECT_BINARY_DIR}/lib${target}.so)
    file(CREATE_LINK ${module} ${PROJECT_BINARY_DIR}/${directory}/lib${target}.so SYMBOLIC)
  endforeach()
endfunction()

# Of a wheel, the prefix is a directory of its build.
set(installed_module_dir ${CMAKE_INSTALL_FULL_LIBDIR}/lopt)
if(SKBUILD)
  set(installed_module_dir "")
endif()
set_source_files_properties(base/module.cc PROPERTIES
  COMPILE_DEFINITIONS "LOPT_LIBDIR=\"${CMAKE_INSTALL_LIBDIR}\";LOPT_INSTALLED_MODULE_DIR=\"${installed_module_dir}\"")
