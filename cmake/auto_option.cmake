# lopt_auto_option(NAME TEXT [OLD_TEXT]): an option that is AUTO, ON or OFF. OLD_TEXT: what it said in build directories of versions in which ON was the
# default and meant AUTO.
macro(lopt_auto_option name text)
  get_property(lopt_text CACHE ${name} PROPERTY HELPSTRING)
  if(${name} AND lopt_text AND lopt_text STREQUAL "${ARGN}")
    unset(${name} CACHE)
  endif()
  set(${name} AUTO CACHE STRING "${text}")
  set_property(CACHE ${name} PROPERTY STRINGS AUTO ON OFF)
endmacro()

# lopt_settle(NAME FOUND MISSING LEFT_OUT): from here on NAME is ON or OFF, by whether FOUND is true. Without it ON is an error, NAME is ON, but MISSING;
# AUTO is OFF, and LEFT_OUT says so.
macro(lopt_settle name found missing left_out)
  if(${found})
    set(${name} ON)
  elseif(NOT ${name} STREQUAL AUTO)
    message(FATAL_ERROR "${name} is ${${name}}, but ${missing}")
  else()
    message(STATUS "${left_out}")
    set(${name} OFF)
  endif()
endmacro()
