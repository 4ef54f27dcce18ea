#pragma once

#include <Eigen/Core>

#include "lopt/base/headers_hash.h"

// What objects of C++ look like in memory where this is compiled, as a literal: lopt's own headers
// (base/headers_hash.h), the compiler and language, the standard library and Eigen. What is opened
// at run time, plug-ins and the torch module, must have the same as the program. A literal, so that
// such a file has its own: a function would be the program's, which always agrees.
#define LOPT_ABI                                                                                  \
  LOPT_HEADERS ", compiler " __VERSION__ ", C++ " LOPT_TEXT(__cplusplus) LOPT_DEBUG_CONTAINERS    \
      ", Eigen " LOPT_TEXT(EIGEN_WORLD_VERSION) "." LOPT_TEXT(EIGEN_MAJOR_VERSION) "." LOPT_TEXT( \
          EIGEN_MINOR_VERSION) " aligned to " LOPT_TEXT(EIGEN_MAX_ALIGN_BYTES)

// Its argument as a literal.
#define LOPT_TEXT_OF(x) #x
// The value of a macro as a literal.
#define LOPT_TEXT(x) LOPT_TEXT_OF(x)
// The part of the ABI that debug containers of the standard library make.
#ifdef _GLIBCXX_DEBUG
#define LOPT_DEBUG_CONTAINERS ", debug containers"
#else
#define LOPT_DEBUG_CONTAINERS ""
#endif
