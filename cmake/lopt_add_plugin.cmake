# lopt_add_plugin(NAME SOURCES...): NAME.so, a plug-in for `lopt --plugin`. It is compiled as what links lopt::lopt is, but links nothing of it:
# all that it calls, it takes from the program.
function(lopt_add_plugin name)
  add_library(${name} MODULE ${ARGN})
  set_target_properties(${name} PROPERTIES PREFIX "")
  foreach(property INCLUDE_DIRECTORIES COMPILE_DEFINITIONS COMPILE_OPTIONS)
    set_property(TARGET ${name} PROPERTY ${property} $<TARGET_PROPERTY:lopt::lopt,INTERFACE_${property}>)
  endforeach()
  target_compile_features(${name} PRIVATE cxx_std_20)
  if(TARGET lopt_headers_hash)
    add_dependencies(${name} lopt_headers_hash)  # where the project itself is built: a header that is written then
  endif()
endfunction()
