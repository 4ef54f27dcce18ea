# Compiles by ccache, unless it does not work here or whoever builds has chosen another launcher of the compiler. `werror` is then the flag that makes
# warnings errors, where a script of ours does not.
find_program(CCACHE ccache)
if(CMAKE_CXX_COMPILER_LAUNCHER MATCHES "(^|/)ccache$")
  set(CMAKE_CXX_COMPILER_LAUNCHER "")  # ours has the options that precompiled headers want
endif()
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Where it may not write to its directories, every file fails to compile.
  set(trial ${PROJECT_BINARY_DIR}/CMakeFiles/ccache_trial)
  file(WRITE ${trial}.cc "int main() {}\n")
  execute_process(COMMAND ${CCACHE} ${CMAKE_CXX_COMPILER} -c ${trial}.cc -o ${trial}.o
    RESULT_VARIABLE failed OUTPUT_QUIET ERROR_VARIABLE reason ERROR_STRIP_TRAILING_WHITESPACE)
  if(failed)
    message(STATUS "ccache is left out, since it does not compile here: ${reason}")
    set(CCACHE "")
  endif()
endif()

set(werror "")
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # The first is for precompiled headers; the second, for a build directory beside this one, whose objects are the same. The third lets ccache learn
  # from the compiler what a file includes, instead of running the preprocessor first, which took a twentieth of a first build.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,locale CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
    CCACHE_DEPEND=1 ${CCACHE})
  if(LOPT_WERROR)
    list(PREPEND CMAKE_CXX_COMPILER_LAUNCHER ${PROJECT_SOURCE_DIR}/cmake/warnings_are_errors)
  endif()
elseif(LOPT_WERROR)
  set(werror -Werror)
endif()
